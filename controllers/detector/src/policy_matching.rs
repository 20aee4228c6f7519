//! Finds the policy of the highest rank that matches a template, and indexes policies for that.
//! Source: Karmada's `pkg/detector/compare.go`.

use std::cmp::Reverse;
use std::sync::Arc;

use flotilla_runtime::RestMapping;
use karmada_api::PropagationPolicy;
use karmada_api::policy::{ImplicitPriority, ResourceSelector, highest_implicit_priority};
use machinery::{Object, ObjectMeta};

/// A policy and its typed view.
#[derive(Clone, Debug)]
pub struct ParsedPolicy {
    pub object: Object,
    pub view: Arc<PropagationPolicy>,
}

impl ParsedPolicy {
    /// `None` for a policy that cannot be parsed; it is ignored.
    pub fn new(object: Object) -> Option<Self> {
        let view = object.decode().ok()?;
        Some(Self { object, view })
    }

    pub fn is_lazy(&self) -> bool {
        self.view.spec.activation_preference == "Lazy"
    }

    /// Whether it preempts other policies.
    pub fn preempts(&self) -> bool {
        self.view.spec.preemption == "Always"
    }

    pub fn matches(&self, served: &RestMapping, head: &ObjectMeta) -> bool {
        self.implicit_priority(served, head) > ImplicitPriority::Mismatch
    }

    /// Whether a selector names the template. Preemption considers no others.
    pub fn names_template(&self, served: &RestMapping, template: &Object) -> bool {
        let local = self.object.namespace();
        let mut selectors = self.view.spec.resource_selectors.iter();
        selectors.any(|selector| {
            let namespace = match local {
                "" => selector.namespace.as_str(),
                local => local,
            };
            (selector.api_version.as_str(), selector.kind.as_str()) == served.api_version_and_kind()
                && selector.name == template.name()
                && namespace == template.namespace()
        })
    }

    fn implicit_priority(&self, served: &RestMapping, head: &ObjectMeta) -> ImplicitPriority {
        let local = self.object.namespace();
        if !local.is_empty() && local != &*head.namespace {
            return ImplicitPriority::Mismatch;
        }
        let selectors = &self.view.spec.resource_selectors;
        let kind = served.api_version_and_kind();
        let closeness = highest_implicit_priority(selectors, kind.0, kind.1, head);
        match is_default_service_account(kind, head) && closeness < ImplicitPriority::MatchName {
            true => ImplicitPriority::Mismatch,
            false => closeness,
        }
    }
}

/// Every namespace of every cluster has this account of its own. Only who names it wants it propagated.
fn is_default_service_account(kind: (&str, &str), head: &ObjectMeta) -> bool {
    kind == ("v1", "ServiceAccount") && &*head.name == "default"
}

/// The matching policy of the highest rank: by explicit priority, then by implicit priority, then
/// by name. Policies that are being deleted do not count.
pub(crate) fn highest_ranked(
    policies: impl IntoIterator<Item = Object>,
    served: &RestMapping,
    head: &ObjectMeta,
) -> Option<ParsedPolicy> {
    matching(policies, served, head)
        .max_by(|a, b| rank(a).cmp(&rank(b)))
        .map(|(_, policy)| policy)
}

/// The matching policies, highest rank first.
pub fn rank_matching(
    policies: impl IntoIterator<Item = Object>,
    served: &RestMapping,
    head: &ObjectMeta,
) -> Vec<(ImplicitPriority, ParsedPolicy)> {
    let mut all: Vec<_> = matching(policies, served, head).collect();
    all.sort_by(|a, b| rank(b).cmp(&rank(a)));
    all
}

fn matching(
    policies: impl IntoIterator<Item = Object>,
    served: &RestMapping,
    head: &ObjectMeta,
) -> impl Iterator<Item = (ImplicitPriority, ParsedPolicy)> {
    policies
        .into_iter()
        .filter(|p| !p.meta().deleting)
        .filter_map(ParsedPolicy::new)
        .filter_map(|policy| {
            let closeness = policy.implicit_priority(served, head);
            (closeness > ImplicitPriority::Mismatch).then_some((closeness, policy))
        })
}

/// A greater value ranks higher.
fn rank(
    (closeness, policy): &(ImplicitPriority, ParsedPolicy),
) -> (i64, ImplicitPriority, Reverse<&str>) {
    let priority = policy.view.spec.priority;
    (priority, *closeness, Reverse(policy.object.name()))
}

/// The index keys of a policy: the namespace (empty for a cluster policy), the kind, and one
/// condition of each selector that every selected object meets: a name, one of some labels, or
/// none.
pub(crate) fn index_keys(policy: &Object) -> Vec<String> {
    let Ok(view) = policy.decode::<PropagationPolicy>() else {
        return Vec::new();
    };
    let mut keys: Vec<String> = Vec::new();
    for selector in &view.spec.resource_selectors {
        let kind = (selector.api_version.as_str(), selector.kind.as_str());
        let key = |condition: SelectorIndexTerm<'_>| index_key(policy.namespace(), kind, condition);
        match indexable_terms(selector) {
            Some(any_of) => keys.extend(any_of.into_iter().map(key)),
            None => keys.push(key(SelectorIndexTerm::Any)),
        }
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The index keys under which every policy is found that may match an object.
pub(crate) fn lookup_keys(namespace: &str, served: &RestMapping, head: &ObjectMeta) -> Vec<String> {
    let key = |condition: SelectorIndexTerm<'_>| {
        index_key(namespace, served.api_version_and_kind(), condition)
    };
    let labels = head
        .labels
        .iter()
        .map(|(k, v)| SelectorIndexTerm::Label(k, v));
    [SelectorIndexTerm::Any, SelectorIndexTerm::Name(&head.name)]
        .into_iter()
        .chain(labels)
        .map(key)
        .collect()
}

/// A condition that a selector places on an object.
enum SelectorIndexTerm<'a> {
    Any,
    Name(&'a str),
    Label(&'a str, &'a str),
}

/// Conditions of which every object that the selector matches meets at least one; `None` if no
/// condition can be indexed.
fn indexable_terms(selector: &ResourceSelector) -> Option<Vec<SelectorIndexTerm<'_>>> {
    if !selector.name.is_empty() {
        return Some(vec![SelectorIndexTerm::Name(&selector.name)]);
    }
    let labels = selector.label_selector.as_ref()?;
    if let Some((key, value)) = labels.match_labels.iter().next() {
        return Some(vec![SelectorIndexTerm::Label(key, value)]);
    }
    let listed = labels
        .match_expressions
        .iter()
        .find(|r| r.operator == "In")?;
    let labels = listed.values.iter();
    Some(
        labels
            .map(|v| SelectorIndexTerm::Label(&listed.key, v))
            .collect(),
    )
}

fn index_key(
    namespace: &str,
    (api_version, kind): (&str, &str),
    condition: SelectorIndexTerm<'_>,
) -> String {
    match condition {
        SelectorIndexTerm::Any => format!("{namespace}|{api_version}|{kind}"),
        SelectorIndexTerm::Name(name) => format!("{namespace}|{api_version}|{kind}|{name}"),
        SelectorIndexTerm::Label(label, value) => {
            format!("{namespace}|{api_version}|{kind}||{label}={value}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::{Gvk, Gvr};
    use serde_json::{Value, json};

    fn deployments() -> RestMapping {
        RestMapping {
            gvk: Gvk::from_static("apps", "v1", "Deployment"),
            gvr: Gvr::from_static("apps", "v1", "deployments"),
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
        let actual = highest_ranked(policies.iter().cloned(), &deployments(), template.meta());
        assert_eq!(
            actual.map(|p| p.object.name().to_owned()).as_deref(),
            expected
        );
    }

    // proves: DET-priority, DET-implicit-priority, DET-name-order, DET-ending-ignored
    #[test]
    fn policies_rank_by_priority_then_implicit_priority_then_name() {
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

    // proves: DET-default-account
    #[test]
    fn the_account_that_every_namespace_has_is_matched_by_its_name_only() {
        let accounts = RestMapping {
            gvk: Gvk::from_static("", "v1", "ServiceAccount"),
            gvr: Gvr::from_static("", "v1", "serviceaccounts"),
            api_version: "v1".into(),
            namespaced: true,
        };
        let kind = json!({"apiVersion": "v1", "kind": "ServiceAccount"});
        let labels = json!({"labelSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}});
        for (account, more, matched) in [
            ("default", json!({}), false),
            ("default", labels, false),
            ("default", json!({"name": "default"}), true),
            ("deployer", json!({}), true),
        ] {
            let mut selector = kind.clone();
            let fields = selector.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            let head = json!({"metadata": {"name": account, "namespace": "n"}});
            let head = Object::from_value(&head).unwrap();
            let actual = highest_ranked([policy("p", 0, selector)], &accounts, head.meta());
            assert_eq!(actual.is_some(), matched, "{account}: {more}");
        }
    }

    #[test]
    fn a_policy_is_indexed_by_its_selectors() {
        let labelled = json!({"labelSelector": {"matchLabels": {"app": "x", "tier": "y"}}});
        let listed = |operator: &str, values: Value| {
            json!({"labelSelector": {"matchExpressions": [
            {"key": "tier", "operator": "Exists"}, {"key": "app", "operator": operator, "values": values}]}})
        };
        for selector in [
            json!({}),
            json!({"name": "web"}),
            json!({"name": "db"}),
            labelled,
            listed("In", json!(["w", "x"])),
            listed("In", json!(["w"])),
            listed("NotIn", json!(["x"])),
            listed("NotIn", json!(["w"])),
            json!({"labelSelector": {}}),
        ] {
            let policy = policy("p", 0, selector.clone());
            let at = index_keys(&policy);
            for (name, labels) in [
                ("web", json!({})),
                ("web", json!({"app": "x", "tier": "y"})),
                ("db", json!({"app": "w", "tier": "z"})),
                ("db", json!({"app": "x"})),
            ] {
                let value = json!({"metadata": {"name": name, "namespace": "n", "labels": labels}});
                let template = Object::from_value(&value).unwrap();
                let keys = lookup_keys("n", &deployments(), template.meta());
                let actual = keys.iter().any(|key| at.contains(key));
                let policy = ParsedPolicy::new(policy.clone()).unwrap();
                let is_match = policy.matches(&deployments(), template.meta());
                assert!(actual || !is_match, "{selector} {name} {labels}");
            }
        }
        let at = |selector: Value| index_keys(&policy("p", 0, selector)).len();
        assert_eq!(at(listed("In", json!(["w", "x"]))), 2);
    }

    proptest::proptest! {
        /// The index may return too many policies, but never misses one that matches.
        #[test]
        fn the_index_finds_every_matching_policy(
            name in proptest::option::of("[ab]"),
            labels in proptest::option::of(proptest::collection::btree_map("[xy]", "[12]", 0..3)),
            listed in proptest::collection::vec(("[xy]", "In|NotIn|Exists|DoesNotExist", proptest::collection::vec("[12]", 1..3)), 0..3),
            own in proptest::collection::btree_map("[xy]", "[12]", 0..3),
            called in "[ab]",
        ) {
            let mut selector = json!({});
            if let Some(name) = name {
                selector["name"] = name.into();
            }
            if let Some(labels) = labels {
                let requirement = |(key, operator, values): (String, String, Vec<String>)| {
                    let values = if operator.ends_with("In") { values } else { Vec::new() };
                    json!({"key": key, "operator": operator, "values": values})
                };
                let listed: Vec<Value> = listed.into_iter().map(requirement).collect();
                selector["labelSelector"] = json!({"matchLabels": labels, "matchExpressions": listed});
            }
            let value = json!({"metadata": {"name": called, "namespace": "n", "labels": own}});
            let template = Object::from_value(&value).unwrap();
            let policy = policy("p", 0, selector);
            let at = index_keys(&policy);
            let keys = lookup_keys("n", &deployments(), template.meta());
            let is_match = ParsedPolicy::new(policy).unwrap().matches(&deployments(), template.meta());
            proptest::prop_assert!(!is_match || keys.iter().any(|key| at.contains(key)));
        }
    }
}
