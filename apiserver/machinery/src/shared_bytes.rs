//! The bytes of one object: its own, or its difference from a base that several objects share.

use std::sync::Arc;

use bytes::Bytes;

use crate::delta_codec;
use crate::object_meta::Label;

/// The bytes that the objects of a group differ from, and the labels that most of them have.
pub(crate) struct Base {
    pub(crate) bytes: Bytes,
    pub(crate) labels: Arc<[Label]>,
}

/// The encoded JSON of an object.
#[derive(Clone)]
pub(crate) enum ObjectBytes {
    Own(Bytes),
    /// All bytes of a base.
    Base(Arc<Base>),
    Difference {
        base: Arc<Base>,
        delta: Box<[u8]>,
        length: usize,
    },
}

impl ObjectBytes {
    #[expect(
        clippy::expect_used,
        reason = "a difference was decoded before it was kept, and neither it nor its base changes"
    )]
    pub(crate) fn get(&self) -> Bytes {
        match self {
            Self::Own(bytes) => bytes.clone(),
            Self::Base(base) => base.bytes.clone(),
            Self::Difference { base, delta, .. } => {
                let decoded = delta_codec::decode(&base.bytes, delta);
                decoded.expect("a difference belongs to its base").into()
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Base(base) => base.bytes.len(),
            Self::Difference { length, .. } => *length,
        }
    }

    /// The bytes in memory, without those of another object's base.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Own(_) | Self::Base(_) => self.len(),
            Self::Difference { delta, .. } => delta.len(),
        }
    }
}
