//! The selection of lists and watches: by key, which needs no decoding, and by a predicate
//! on the object.

use std::sync::Arc;

use machinery::Object;
use storage::prefix_end;

/// A selector on the content of an object.
pub type ObjectPredicate = Arc<dyn Fn(&Object) -> bool + Send + Sync>;

/// The selection of a list or a watch, as Kubernetes' `storage.SelectionPredicate`. The
/// default selects everything.
#[derive(Clone, Default)]
pub struct SelectionPredicate {
    /// `None` or empty: all namespaces, or a cluster-scoped resource.
    pub namespace: Option<String>,
    /// `metadata.name`, by path or by field selector.
    pub name: Option<String>,
    /// The label selector and further fields. `None` without a selector: a predicate costs
    /// two calls per event and suppresses `remainingItemCount`.
    pub matches: Option<ObjectPredicate>,
}

/// The keys of one storage prefix that a selection includes.
#[derive(Clone, Debug)]
pub(crate) struct KeySelector {
    /// The resource's prefix, with the namespace if there is one; ends with a slash.
    pub(crate) prefix: Box<str>,
    pub(crate) name: Option<Box<str>>,
    /// The name of the watch scope: empty, `ns/`, `/name` or `ns/name`.
    pub(crate) scope: Box<str>,
    namespaced: bool,
}

impl KeySelector {
    pub(crate) fn new(prefix: &str, filter: &SelectionPredicate) -> Self {
        let namespace = filter.namespace.as_deref().filter(|ns| !ns.is_empty());
        let name = filter.name.as_deref();
        let base = match namespace {
            Some(ns) => format!("{prefix}{ns}/"),
            None => prefix.to_owned(),
        };
        let scope = match (namespace, name) {
            (None, None) => String::new(),
            (None, Some(name)) => format!("/{name}"),
            (Some(ns), name) => format!("{ns}/{}", name.unwrap_or_default()),
        };
        Self {
            prefix: base.into(),
            name: name.map(Into::into),
            scope: scope.into(),
            namespaced: namespace.is_some(),
        }
    }

    /// Whether a storage key is selected.
    pub(crate) fn contains(&self, key: &str) -> bool {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return false;
        };
        match &self.name {
            None => true,
            Some(name) if self.namespaced => rest == &**name,
            Some(name) => last_segment(rest) == &**name,
        }
    }

    /// The range of keys to read, `[start, end)`.
    pub(crate) fn bounds(&self) -> (String, String) {
        match &self.name {
            Some(name) if self.namespaced => {
                let key = format!("{}{name}", self.prefix);
                let end = format!("{key}\0");
                (key, end)
            }
            _ => (self.prefix.to_string(), prefix_end(&self.prefix)),
        }
    }
}

pub(crate) fn last_segment(suffix: &str) -> &str {
    suffix.rsplit('/').next().unwrap_or(suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_selected_by_whole_segments() {
        let table = [
            (None, None, "/r/pods/a/x", true),
            (None, None, "/r/podsx/a/x", false),
            (Some("a"), None, "/r/pods/a/x", true),
            (Some("a"), None, "/r/pods/ab/x", false),
            (Some("a"), Some("x"), "/r/pods/a/x", true),
            (Some("a"), Some("x"), "/r/pods/a/xy", false),
            (None, Some("x"), "/r/pods/b/x", true),
            (None, Some("x"), "/r/pods/x", true),
            (None, Some("x"), "/r/pods/b/yx", false),
            (Some(""), Some("x"), "/r/pods/x", true),
        ];
        for (namespace, name, key, expected) in table {
            let filter = SelectionPredicate {
                namespace: namespace.map(str::to_owned),
                name: name.map(str::to_owned),
                matches: None,
            };
            let keys = KeySelector::new("/r/pods/", &filter);
            assert_eq!(keys.contains(key), expected, "{keys:?} {key}");
            let (start, end) = keys.bounds();
            if expected {
                assert!(*start <= *key && *key < *end, "{keys:?} {key}");
            }
        }
    }
}
