//! Maps storage keys to etcd keys: `/registry`, with which storage keys begin, is replaced
//! by `--etcd-prefix`. Pure.

use std::sync::Arc;

use etcd_client::proto::PbKeyValue;

use crate::store::Entry;

/// The beginning of every storage key.
pub(super) const ROOT: &str = "/registry";

#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The prefix in etcd; `None` when it is [`ROOT`].
    outer: Option<Arc<str>>,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let outer = format!("/{}", prefix.trim_matches('/'));
        Self {
            outer: (outer != ROOT).then(|| outer.into()),
        }
    }

    /// The etcd key of a storage key, or of the bound of a range.
    pub(crate) fn outer(&self, key: &str) -> Vec<u8> {
        match (&self.outer, key.strip_prefix(ROOT)) {
            (Some(outer), Some(rest)) => format!("{outer}{rest}").into_bytes(),
            _ => key.as_bytes().to_vec(),
        }
    }

    /// The storage key of an etcd key.
    pub(super) fn inner(&self, key: &[u8]) -> Arc<str> {
        let key = String::from_utf8_lossy(key);
        let rest = self.outer.as_ref().and_then(|o| key.strip_prefix(&**o));
        match rest {
            Some(rest) => format!("{ROOT}{rest}").into(),
            None => key.into(),
        }
    }

    pub(super) fn entry(&self, kv: PbKeyValue) -> Entry {
        Entry {
            key: self.inner(&kv.key),
            value: kv.value.into(),
            revision: unsigned(kv.mod_revision),
        }
    }
}

/// Revisions are signed on the wire and never negative.
pub(super) fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

pub(super) fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn prefix_replaces_the_root() {
        for (prefix, key, outer) in [
            ("/registry", "/registry/pods/a/b", "/registry/pods/a/b"),
            ("registry/", "/registry/pods/a/b", "/registry/pods/a/b"),
            ("/flotilla", "/registry/pods/a/b", "/flotilla/pods/a/b"),
            ("/a/b/", "/registry/", "/a/b/"),
            ("/flotilla", "/registry/pods0", "/flotilla/pods0"),
            ("/registry/x", "/registry/pods/a", "/registry/x/pods/a"),
            ("/flotilla", "/else", "/else"),
        ] {
            let keys = Keys::new(prefix);
            assert_eq!(keys.outer(key), outer.as_bytes(), "{prefix}");
            assert_eq!(&*keys.inner(outer.as_bytes()), key, "{prefix}");
        }
    }
}
