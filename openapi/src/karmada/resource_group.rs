//! Groups bindings by the kind and the namespace of the resource that they propagate, so
//! that an index finds those that a policy or a rule about a kind concerns.

use machinery::{Gvk, Object};

use super::Binding;
use super::binding::ObjectReference;

/// The name of the index of bindings whose keys are [`index_keys`].
pub const BY_RESOURCE_GROUP: &str = "resource group";

/// No part of a key contains it.
const SEPARATOR: char = '|';

/// The resources of one kind in one namespace; the namespace of cluster-scoped ones is
/// empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceGroup<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
}

impl<'a> ResourceGroup<'a> {
    /// `None`: it is no key of the index.
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

fn key(of: &ObjectReference) -> String {
    let ObjectReference {
        api_version,
        kind,
        namespace,
        ..
    } = of;
    format!("{api_version}{SEPARATOR}{kind}{SEPARATOR}{namespace}")
}

/// Under which key the index finds a binding.
pub fn index_keys(binding: &Object) -> Vec<String> {
    let view = binding.view::<Binding>();
    view.iter().map(|b| key(&b.spec.resource)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_names_the_group_it_was_made_of() {
        for namespace in ["n", ""] {
            let resource = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": "web"});
            let binding = json!({"metadata": {"name": "b"}, "spec": {"resource": resource}});
            let keys = index_keys(&Object::from_value(&binding).unwrap());
            let [key] = keys.as_slice() else {
                panic!("{keys:?}");
            };
            let group = ResourceGroup::parse(key).unwrap();
            let expected = ResourceGroup {
                api_version: "apps/v1",
                kind: "Deployment",
                namespace,
            };
            assert_eq!(group, expected);
            assert_eq!(group.gvk(), Gvk::new("apps", "v1", "Deployment"));
        }
        assert_eq!(ResourceGroup::parse("apps/v1"), None);
    }
}
