//! Which policy a template belongs to.
//!
//! Enters: policies and a template's head. Leaves: the policy that wins. Pure.
//! Source: Karmada's `pkg/detector/compare.go`.

use std::cmp::Reverse;
use std::sync::Arc;

use machinery::{Head, Object};
use openapi::karmada::PropagationPolicy;
use openapi::karmada::policy::{Closeness, ResourceSelector, closest};

use crate::kinds::Served;

/// A policy and what it says.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) object: Object,
    pub(crate) view: Arc<PropagationPolicy>,
}

impl Policy {
    /// `None`: it cannot be read, and is as good as absent.
    pub(crate) fn new(object: Object) -> Option<Self> {
        let view = object.view().ok()?;
        Some(Self { object, view })
    }

    pub(crate) fn is_lazy(&self) -> bool {
        self.view.spec.activation_preference == "Lazy"
    }

    pub(crate) fn matches(&self, served: &Served, head: &Head) -> bool {
        self.closeness(served, head) > Closeness::Mismatch
    }

    fn closeness(&self, served: &Served, head: &Head) -> Closeness {
        let local = self.object.namespace();
        if !local.is_empty() && local != &*head.namespace {
            return Closeness::Mismatch;
        }
        let selectors = &self.view.spec.resource_selectors;
        closest(selectors, &served.api_version, served.kind(), head)
    }
}

/// The best of the policies that match: by explicit priority, by how closely they
/// name the template, and by name. Those being deleted do not count.
pub(crate) fn best(
    policies: impl IntoIterator<Item = Object>,
    served: &Served,
    head: &Head,
) -> Option<Policy> {
    policies
        .into_iter()
        .filter(|p| !p.head().deleting)
        .filter_map(Policy::new)
        .filter_map(|policy| {
            let closeness = policy.closeness(served, head);
            (closeness > Closeness::Mismatch).then_some((closeness, policy))
        })
        .max_by(|(close_a, a), (close_b, b)| {
            let key = |close: Closeness, p: &Policy| (p.view.spec.priority, close);
            key(*close_a, a)
                .cmp(&key(*close_b, b))
                .then_with(|| Reverse(a.object.name()).cmp(&Reverse(b.object.name())))
        })
        .map(|(_, policy)| policy)
}

/// The keys under which a policy is found: by namespace (empty for a cluster
/// policy), kind, and the name where its selector has one.
pub(crate) fn index_keys(policy: &Object) -> Vec<String> {
    let Ok(view) = policy.view::<PropagationPolicy>() else {
        return Vec::new();
    };
    let key =
        |s: &ResourceSelector| index_key(policy.namespace(), &s.api_version, &s.kind, &s.name);
    let mut keys: Vec<String> = view.spec.resource_selectors.iter().map(key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// `name` is empty for the selectors without a name.
pub(crate) fn index_key(namespace: &str, api_version: &str, kind: &str, name: &str) -> String {
    format!("{namespace}|{api_version}|{kind}|{name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::{Gvk, Gvr};
    use serde_json::{Value, json};

    fn deployments() -> Served {
        Served {
            gvk: Gvk::constant("apps", "v1", "Deployment"),
            gvr: Gvr::constant("apps", "v1", "deployments"),
            api_version: "apps/v1".into(),
            namespaced: true,
        }
    }

    fn policy(name: &str, priority: i64, selector: Value) -> Object {
        let mut full = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        full.as_object_mut()
            .unwrap()
            .extend(selector.as_object().unwrap().clone());
        let mut value = json!({"metadata": {"name": name, "namespace": "n"},
            "spec": {"priority": priority, "resourceSelectors": [full]}});
        if name.starts_with("gone") {
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Object::from_value(&value).unwrap()
    }

    fn check(policies: &[Object], expected: Option<&str>) {
        let template =
            json!({"metadata": {"name": "web", "namespace": "n", "labels": {"app": "x"}}});
        let template = Object::from_value(&template).unwrap();
        let found = best(policies.iter().cloned(), &deployments(), template.head());
        assert_eq!(
            found.map(|p| p.object.name().to_owned()).as_deref(),
            expected
        );
    }

    #[test]
    fn priority_then_closeness_then_name() {
        let all = || policy("all", 0, json!({}));
        let label = || {
            policy(
                "label",
                0,
                json!({"labelSelector": {"matchLabels": {"app": "x"}}}),
            )
        };
        let named = || policy("named", 0, json!({"name": "web"}));
        check(&[], None);
        check(&[policy("other", 9, json!({"name": "db"}))], None);
        check(&[all(), label()], Some("label"));
        check(&[named(), label(), all()], Some("named"));
        check(&[named(), policy("high", 1, json!({}))], Some("high"));
        check(
            &[policy("b", 0, json!({})), policy("a", 0, json!({}))],
            Some("a"),
        );
        check(&[policy("gone", 9, json!({})), all()], Some("all"));
    }
}
