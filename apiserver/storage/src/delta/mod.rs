//! The parts of the engines' deltas that know nothing of an engine: which keys have similar values,
//! and a cache of bounded size. [`machinery::base_group`] chooses between bases.
//!
//! The values of keys with the same last segment, up to its first full stop, resemble each other:
//! the Works of one template have the same name in the namespaces of all clusters, and the names of
//! events begin with the object's, as do all versions of one object. Bytes are compared, and nothing
//! is parsed; encrypted values resemble nothing, and are stored as they are.

mod bounded_cache;

pub(crate) use self::bounded_cache::BoundedCache;

/// The keys whose values an engine stores as deltas.
#[derive(Clone, Debug, Default)]
pub struct DeltaOptions {
    /// Prefixes of keys. The values of keys with the same prefix and the same last segment, up to
    /// its first full stop, resemble each other.
    pub prefixes: Vec<String>,
    /// Values of fewer bytes are stored whole.
    pub minimum_bytes: usize,
}

impl DeltaOptions {
    /// The prefix of a key whose values are stored as deltas.
    pub(crate) fn prefix_of(&self, key: &str) -> Option<&str> {
        let prefix = self.prefixes.iter().find(|p| key.starts_with(&***p))?;
        Some(prefix)
    }

    /// The prefix and the name in a key, where its values are stored as deltas.
    pub(crate) fn group(&self, key: &str) -> Option<String> {
        let prefix = self.prefix_of(key)?;
        let segment = key[prefix.len()..].rsplit('/').next()?;
        let name = segment.split('.').next()?;
        Some(format!("{prefix}{name}"))
    }
}
