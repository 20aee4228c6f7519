//! The body of a write: a tree of values, or the bytes of an object that was encoded before
//! the call. While a slow server is awaited, an encoded body takes its bytes, where a tree
//! takes ten times as many.

use bytes::{Bytes, BytesMut};
use machinery::Status;
use serde_json::Value;

/// The object that a create or an update sends.
#[derive(Clone, Debug)]
pub enum WriteBody {
    Tree(Value),
    Encoded(EncodedObjectBody),
}

impl WriteBody {
    /// The encoded object, for a server that is reached over the network.
    pub fn into_encoded(self) -> EncodedObjectBody {
        match self {
            Self::Tree(tree) => tree.into(),
            Self::Encoded(body) => body,
        }
    }

    /// The tree, for a server in this process. Bytes that are no JSON are a bad request.
    pub fn into_tree(self) -> Result<Value, Status> {
        match self {
            Self::Tree(tree) => Ok(tree),
            Self::Encoded(body) => {
                let tree = machinery::json::from_slice(&body.into_bytes());
                tree.map_err(|e| Status::bad_request(e.to_string()))
            }
        }
    }
}

impl From<Value> for WriteBody {
    fn from(tree: Value) -> Self {
        Self::Tree(tree)
    }
}

impl From<EncodedObjectBody> for WriteBody {
    fn from(body: EncodedObjectBody) -> Self {
        Self::Encoded(body)
    }
}

/// An encoded object, in pieces, so that it can share most of its bytes with the object
/// that it was made from. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct EncodedObjectBody(Vec<Bytes>);

impl EncodedObjectBody {
    /// The pieces in their order.
    pub fn pieces(&self) -> &[Bytes] {
        &self.0
    }

    pub fn into_pieces(self) -> Vec<Bytes> {
        self.0
    }

    /// All pieces as one.
    pub fn into_bytes(self) -> Bytes {
        if let [bytes] = &self.0[..] {
            return bytes.clone();
        }
        let mut bytes = BytesMut::with_capacity(self.0.iter().map(Bytes::len).sum());
        for piece in &self.0 {
            bytes.extend_from_slice(piece);
        }
        bytes.freeze()
    }
}

impl From<Bytes> for EncodedObjectBody {
    fn from(bytes: Bytes) -> Self {
        Self::from_iter([bytes])
    }
}

/// Takes the tree, so that nothing of it is left while an answer is awaited.
impl From<Value> for EncodedObjectBody {
    fn from(tree: Value) -> Self {
        Bytes::from(tree.to_string()).into()
    }
}

impl FromIterator<Bytes> for EncodedObjectBody {
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
        let body = EncodedObjectBody::from_iter(pieces);
        assert_eq!(body.pieces().len(), 3);
        assert_eq!(
            WriteBody::from(body).into_tree().unwrap(),
            json!({"a": [1, 2]})
        );
        let tree = json!({"k": "v"});
        let bytes = EncodedObjectBody::from(tree.clone());
        assert_eq!(bytes.pieces().len(), 1);
        assert_eq!(WriteBody::from(bytes).into_tree().unwrap(), tree);
    }
}
