//! Encryption at rest: a [`Store`](crate::Store) that encrypts values on their way to
//! an engine and decrypts them on their way back, in kube-apiserver's format
//! (`k8s.io/apiserver/pkg/storage/value`).
//!
//! registry, watchcache ──plaintext──► [`EncryptedStore`] ──ciphertext──► engine
//!
//! Invariants: the engine never sees the plaintext of a key that has a rule. A value
//! that cannot be decrypted is never passed on, and neither is it an error of the whole
//! answer: [`unreadable`] stands in its place, so that only its own key is lost.

mod store;
#[cfg(test)]
mod tests;
mod transformer;

use std::sync::Arc;

use bytes::Bytes;

pub use self::store::EncryptedStore;
pub use self::transformer::{PrefixTransformer, Transformer, is_encrypted};

/// No JSON begins like this.
const UNREADABLE: &[u8] = b"\0unreadable: ";

/// The reason why a value could not be decrypted, where the value is the substitute
/// that an [`EncryptedStore`] answers in its place.
pub fn unreadable(value: &[u8]) -> Option<&str> {
    let reason = value.strip_prefix(UNREADABLE)?;
    Some(std::str::from_utf8(reason).unwrap_or("the value cannot be decrypted"))
}

fn substitute(reason: &str) -> Bytes {
    [UNREADABLE, reason.as_bytes()].concat().into()
}

/// Which keys are encrypted, and how.
#[derive(Debug, Default)]
pub struct Encryption {
    /// The longest prefix first.
    rules: Vec<(String, Arc<Transformer>)>,
}

impl Encryption {
    /// Rules by prefixes of keys; where several fit a key, the longest does.
    pub fn new(mut rules: Vec<(String, Arc<Transformer>)>) -> Self {
        rules.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self { rules }
    }

    fn transformer(&self, key: &str) -> Option<&Transformer> {
        let rule = self.rules.iter().find(|(p, _)| key.starts_with(&**p));
        rule.map(|(_, transformer)| &**transformer)
    }
}
