//! Encryption at rest: a [`Store`](crate::Store) that encrypts values on their way to
//! an engine and decrypts them on their way back, in kube-apiserver's format
//! (`k8s.io/apiserver/pkg/storage/value`).
//!
//! registry, watchcache ──plaintext──► [`EncryptedStore`] ──ciphertext──► engine
//!
//! Invariants: the engine never sees the plaintext of a key that has a transformer. A
//! value that cannot be decrypted is replaced by a placeholder with the reason (see
//! [`unreadable_reason`]); it does not fail the whole list or watch, so that only its own
//! key is lost.

mod store;
#[cfg(test)]
mod tests;
mod transformer;

use std::sync::Arc;

use bytes::Bytes;

pub use self::store::EncryptedStore;
pub use self::transformer::{PrefixTransformer, PrefixTransformers, is_encrypted};

/// The beginning of a placeholder; no JSON begins with it.
const UNREADABLE_PREFIX: &[u8] = b"\0unreadable: ";

/// The reason why a value could not be decrypted, where `value` is the placeholder that
/// an [`EncryptedStore`] returns in its place.
pub fn unreadable_reason(value: &[u8]) -> Option<&str> {
    let reason = value.strip_prefix(UNREADABLE_PREFIX)?;
    Some(std::str::from_utf8(reason).unwrap_or("the value cannot be decrypted"))
}

pub(crate) fn unreadable_placeholder(reason: &str) -> Bytes {
    [UNREADABLE_PREFIX, reason.as_bytes()].concat().into()
}

/// The transformers by storage prefix, as Kubernetes' `value.ResourceTransformers`.
#[derive(Debug, Default)]
pub struct ResourceTransformers {
    /// The longest prefix first.
    transformers: Vec<(String, Arc<PrefixTransformers>)>,
}

impl ResourceTransformers {
    /// `rules` are pairs of a key prefix and its transformer. The longest prefix that
    /// matches a key applies.
    pub fn new(mut transformers: Vec<(String, Arc<PrefixTransformers>)>) -> Self {
        transformers.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self { transformers }
    }

    fn transformer(&self, key: &str) -> Option<&PrefixTransformers> {
        let rule = self
            .transformers
            .iter()
            .find(|(p, _)| key.starts_with(&**p));
        rule.map(|(_, transformer)| &**transformer)
    }
}
