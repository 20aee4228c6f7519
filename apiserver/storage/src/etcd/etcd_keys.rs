//! Maps storage keys to etcd keys: `/registry`, with which storage keys begin, is replaced
//! by `--etcd-prefix`. Pure.

use std::sync::Arc;

use etcd_client::proto::PbKeyValue;

use crate::store::KeyValue;

/// The beginning of every storage key.
pub(super) const ROOT_PREFIX: &str = "/registry";

/// Translates between storage keys and keys below the prefix in etcd.
#[derive(Clone, Debug)]
pub(crate) struct EtcdKeyCodec {
    /// The prefix in etcd; `None` when it is [`ROOT_PREFIX`].
    etcd_prefix: Option<Arc<str>>,
}

impl EtcdKeyCodec {
    pub(crate) fn new(prefix: &str) -> Self {
        let outer = format!("/{}", prefix.trim_matches('/'));
        Self {
            etcd_prefix: (outer != ROOT_PREFIX).then(|| outer.into()),
        }
    }

    /// The etcd key of a storage key, or of the bound of a range.
    pub(crate) fn encode_key(&self, key: &str) -> Vec<u8> {
        match (&self.etcd_prefix, key.strip_prefix(ROOT_PREFIX)) {
            (Some(outer), Some(rest)) => format!("{outer}{rest}").into_bytes(),
            _ => key.as_bytes().to_vec(),
        }
    }

    /// The storage key of an etcd key.
    pub(super) fn decode_key(&self, key: &[u8]) -> Arc<str> {
        let key = String::from_utf8_lossy(key);
        let rest = self
            .etcd_prefix
            .as_ref()
            .and_then(|o| key.strip_prefix(&**o));
        match rest {
            Some(rest) => format!("{ROOT_PREFIX}{rest}").into(),
            None => key.into(),
        }
    }

    pub(super) fn decode_key_value(&self, kv: PbKeyValue) -> KeyValue {
        KeyValue {
            key: self.decode_key(&kv.key),
            value: kv.value.into(),
            mod_revision: to_revision(kv.mod_revision),
        }
    }
}

/// Revisions are signed on the wire and never negative.
pub(super) fn to_revision(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0)
}

pub(super) fn to_etcd_revision(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::EtcdKeyCodec;

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
            let keys = EtcdKeyCodec::new(prefix);
            assert_eq!(keys.encode_key(key), outer.as_bytes(), "{prefix}");
            assert_eq!(&*keys.decode_key(outer.as_bytes()), key, "{prefix}");
        }
    }
}
