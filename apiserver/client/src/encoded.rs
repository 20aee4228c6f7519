//! The body of a write that was encoded before the call: while a slow server is awaited it
//! takes its bytes, where a tree of values takes ten times as many.

use bytes::{Bytes, BytesMut};
use serde_json::Value;

/// An encoded object, in pieces, so that it can share most of its bytes with the object
/// that it was made from. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct EncodedBody(Vec<Bytes>);

impl EncodedBody {
    /// The pieces in their order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.0
    }

    pub fn into_pieces(self) -> Vec<Bytes> {
        self.0
    }

    /// All pieces as one.
    pub fn into_bytes(self) -> Bytes {
        if let [whole] = &self.0[..] {
            return whole.clone();
        }
        let mut whole = BytesMut::with_capacity(self.0.iter().map(Bytes::len).sum());
        for piece in &self.0 {
            whole.extend_from_slice(piece);
        }
        whole.freeze()
    }

    /// The object as a tree, for a server in this process.
    pub fn into_value(self) -> serde_json::Result<Value> {
        serde_json::from_slice(&self.into_bytes())
    }
}

impl From<Bytes> for EncodedBody {
    fn from(whole: Bytes) -> Self {
        Self::from_iter([whole])
    }
}

/// Takes the tree, so that nothing of it is left while an answer is awaited.
impl From<Value> for EncodedBody {
    fn from(tree: Value) -> Self {
        Bytes::from(tree.to_string()).into()
    }
}

impl FromIterator<Bytes> for EncodedBody {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
        Self(pieces.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pieces_are_one_object() {
        let pieces = ["{\"a\":", "", "[1,2]", "}"].map(Bytes::from);
        let body = EncodedBody::from_iter(pieces);
        assert_eq!(body.pieces().len(), 3);
        assert_eq!(body.into_value().unwrap(), json!({"a": [1, 2]}));
        let tree = json!({"k": "v"});
        let whole = EncodedBody::from(tree.clone());
        assert_eq!(whole.pieces().len(), 1);
        assert_eq!(whole.into_value().unwrap(), tree);
    }
}
