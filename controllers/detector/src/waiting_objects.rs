//! Keeps the templates that no policy matches until a matching policy is created.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;

use controller_context::TemplateKey;
use machinery::Gvr;

/// Keyed by resource and `namespace/name`.
#[derive(Debug, Default)]
pub(crate) struct WaitingObjects(HashMap<Gvr, BTreeSet<String>>);

impl WaitingObjects {
    pub(crate) fn insert(&mut self, key: &TemplateKey) {
        let names = self.0.entry(key.gvr.clone()).or_default();
        names.insert(key.name.clone());
    }

    pub(crate) fn remove(&mut self, key: &TemplateKey) {
        if let Some(names) = self.0.get_mut(&key.gvr) {
            names.remove(&key.name);
        }
    }

    /// The templates of a resource in a namespace (in all namespaces if it is empty), with a name
    /// unless it is empty.
    pub(crate) fn find(&self, resource: &Gvr, namespace: &str, name: &str) -> Vec<TemplateKey> {
        let Some(names) = self.0.get(resource) else {
            return Vec::new();
        };
        let key = |name: &str| TemplateKey {
            gvr: resource.clone(),
            name: name.to_owned(),
        };
        if namespace.is_empty() {
            let named = |one: &&String| {
                let last = one.rsplit_once('/').map_or(one.as_str(), |(_, name)| name);
                name.is_empty() || last == name
            };
            return names.iter().filter(named).map(|n| key(n)).collect();
        }
        if !name.is_empty() {
            let one = names.get(&format!("{namespace}/{name}"));
            return one.into_iter().map(|n| key(n)).collect();
        }
        let prefix = format!("{namespace}/");
        let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        names
            .range::<str, _>(from)
            .take_while(|one| one.starts_with(&prefix))
            .map(|n| key(n))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static THINGS: Gvr = Gvr::from_static("example.io", "v1", "things");
    static OTHERS: Gvr = Gvr::from_static("example.io", "v1", "others");

    #[test]
    fn waiting_templates_are_found_by_namespace_and_name() {
        let mut waiting = WaitingObjects::default();
        let key = |name: &str| TemplateKey {
            gvr: THINGS.clone(),
            name: name.into(),
        };
        for name in ["a/x", "a/y", "a-b/x", "b/x", "z"] {
            waiting.insert(&key(name));
        }
        waiting.insert(&key("gone"));
        waiting.remove(&key("gone"));
        for (namespace, name, expected) in [
            ("", "", &["a-b/x", "a/x", "a/y", "b/x", "z"][..]),
            ("", "x", &["a-b/x", "a/x", "b/x"]),
            ("", "z", &["z"]),
            ("a", "", &["a/x", "a/y"]),
            ("a", "y", &["a/y"]),
            ("c", "", &[]),
            ("b", "y", &[]),
        ] {
            let keys = waiting.find(&THINGS, namespace, name);
            let names: Vec<&str> = keys.iter().map(|k| k.name.as_str()).collect();
            assert_eq!(names, expected, "{namespace} {name}");
        }
        assert_eq!(waiting.find(&OTHERS, "", ""), []);
    }
}
