//! Groups bindings by kind and namespace of the resource that they propagate, so that an
//! index finds the bindings that a policy or an interpreter rule for a kind affects.

use machinery::{Gvk, Object};

use super::ResourceBinding;
use super::binding::ObjectReference;

/// The name of the informer index whose keys are [`index_keys`].
pub const RESOURCE_GROUP_INDEX: &str = "resource group";

/// Separates the fields of a key; no field contains it.
const SEPARATOR: char = '|';

/// The resources of one kind in one namespace; the namespace is empty for cluster-scoped
/// kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindInNamespace<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
}

impl<'a> KindInNamespace<'a> {
    /// Parses a key of the index. `None`: it is not one.
    pub fn parse(key: &'a str) -> Option<Self> {
        let mut parts = key.splitn(3, SEPARATOR);
        Some(Self {
            api_version: parts.next()?,
            kind: parts.next()?,
            namespace: parts.next()?,
        })
    }

    pub fn gvk(&self) -> Gvk {
        Gvk::from_api_version(self.api_version, self.kind)
    }
}

fn index_key(reference: &ObjectReference) -> String {
    let ObjectReference {
        api_version,
        kind,
        namespace,
        ..
    } = reference;
    format!("{api_version}{SEPARATOR}{kind}{SEPARATOR}{namespace}")
}

/// The keys of a binding in the index.
pub fn index_keys(binding: &Object) -> Vec<String> {
    let view = binding.decode::<ResourceBinding>();
    view.iter().map(|b| index_key(&b.spec.resource)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_parse_back() {
        for namespace in ["n", ""] {
            let resource = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": "web"});
            let binding = json!({"metadata": {"name": "b"}, "spec": {"resource": resource}});
            let keys = index_keys(&Object::from_value(&binding).unwrap());
            let [key] = keys.as_slice() else {
                panic!("{keys:?}");
            };
            let group = KindInNamespace::parse(key).unwrap();
            let expected = KindInNamespace {
                api_version: "apps/v1",
                kind: "Deployment",
                namespace,
            };
            assert_eq!(group, expected);
            assert_eq!(group.gvk(), Gvk::new("apps", "v1", "Deployment"));
        }
        assert_eq!(KindInNamespace::parse("apps/v1"), None);
    }
}
