//! Finds the policy under which a template is staged.

use std::sync::Arc;

use client::{Informer, InformerEvent};
use karmada_api::RolloutPolicy;
use karmada_api::policy::{ImplicitPriority, highest_implicit_priority};
use machinery::{Gvk, Object, ObjectMeta};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// RolloutPolicies and ClusterRolloutPolicies.
#[derive(Clone)]
pub struct RolloutPolicies {
    policies: Informer,
    cluster_policies: Informer,
}

/// The policy of a template.
pub(crate) struct SelectedPolicy {
    object: Object,
    pub(crate) policy: Arc<RolloutPolicy>,
}

/// Kind and name of a policy.
pub fn policy_name(policy: &Object) -> String {
    let kind = match policy.namespace() {
        "" => "ClusterRolloutPolicy",
        _ => "RolloutPolicy",
    };
    format!("{kind}/{}", policy.name())
}

impl SelectedPolicy {
    /// Whether the policy is about its own namespace alone.
    pub(crate) fn is_namespaced(&self) -> bool {
        !self.object.namespace().is_empty()
    }

    /// Kind and name.
    pub(crate) fn name(&self) -> String {
        policy_name(&self.object)
    }

    /// Names the policy, its incarnation by uid, and its generation.
    pub(crate) fn id(&self) -> String {
        let meta = self.object.meta();
        format!("{} {}/{}", self.name(), meta.uid, meta.generation)
    }
}

impl RolloutPolicies {
    pub fn new(policies: Informer, cluster_policies: Informer) -> Self {
        Self {
            policies,
            cluster_policies,
        }
    }

    pub(crate) async fn wait_synced(&self) {
        self.policies.wait_for_cache_sync().await;
        self.cluster_policies.wait_for_cache_sync().await;
    }

    pub(crate) fn add_event_handler(
        &self,
        handler: impl Fn(&InformerEvent<'_>) + Send + Sync + 'static,
    ) {
        let handler = Arc::new(handler);
        for informer in [&self.policies, &self.cluster_policies] {
            let handler = Arc::clone(&handler);
            informer.add_event_handler(move |change| handler(change));
        }
    }

    /// The policy that an id names, for a Rollout of a namespace.
    pub(crate) fn by_id(&self, namespace: &str, id: &str) -> Option<Arc<RolloutPolicy>> {
        let (kind, rest) = id.split_once('/')?;
        let (name, _) = rest.split_once(' ')?;
        let object = match kind {
            "RolloutPolicy" => self.policies.get(namespace, name),
            _ => self.cluster_policies.get_by_key(name),
        };
        object?.decode::<RolloutPolicy>().ok()
    }

    /// The policy of a namespaced template: a RolloutPolicy of its namespace precedes a
    /// ClusterRolloutPolicy; of several the one that selects most specifically, then the first by
    /// name. Cluster-scoped objects, Secrets, and roles and their bindings are not staged.
    pub(crate) fn select(&self, kind: &Gvk, head: &ObjectMeta) -> Option<SelectedPolicy> {
        if !is_stageable(kind, head) {
            return None;
        }
        let of_namespace = || match self.policies.is_empty() {
            true => Vec::new(),
            false => self.policies.list_namespace(&head.namespace),
        };
        most_specific(of_namespace(), kind, head).or_else(|| {
            match self.cluster_policies.is_empty() {
                true => None,
                false => most_specific(self.cluster_policies.list(), kind, head),
            }
        })
    }
}

/// A revision would show the data of a Secret. What grants rights is decided when the template is
/// written; no revision may bring other rights.
fn is_stageable(kind: &Gvk, head: &ObjectMeta) -> bool {
    !head.namespace.is_empty()
        && (&*kind.group, &*kind.kind) != ("", "Secret")
        && kind.group != *RBAC_GROUP
}

/// Kind and name of the policy of a template, for commands; see [`select_among`].
pub fn selected_policy_name(policies: &[Object], kind: &Gvk, head: &ObjectMeta) -> Option<String> {
    select_among(policies, kind, head).map(|policy| policy.name())
}

/// The policy of a namespaced template among those of its namespace and ClusterRolloutPolicies.
pub(crate) fn select_among(
    policies: &[Object],
    kind: &Gvk,
    head: &ObjectMeta,
) -> Option<SelectedPolicy> {
    let policies = policies.iter().cloned();
    let (cluster_policies, policies) = policies.partition(|policy| policy.namespace().is_empty());
    let selected = is_stageable(kind, head).then(|| {
        most_specific(policies, kind, head).or_else(|| most_specific(cluster_policies, kind, head))
    });
    selected.flatten()
}

fn most_specific(policies: Vec<Object>, kind: &Gvk, head: &ObjectMeta) -> Option<SelectedPolicy> {
    let selecting = policies.into_iter().filter_map(|object| {
        let policy = object.decode::<RolloutPolicy>().ok()?;
        let selectors = &policy.spec.resource_selectors;
        let priority = highest_implicit_priority(selectors, &kind.api_version(), &kind.kind, head);
        let selected = SelectedPolicy { object, policy };
        (priority > ImplicitPriority::Mismatch).then_some((priority, selected))
    });
    let best = selecting.max_by(|(a, first), (b, second)| {
        a.cmp(b)
            .then_with(|| second.object.name().cmp(first.object.name()))
    });
    best.map(|(_, selected)| selected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(name: &str, namespace: &str, selector: Value) -> Object {
        let mut metadata = json!({"name": name, "uid": name, "generation": 2});
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        let mut full = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let fields = full.as_object_mut().unwrap();
        fields.extend(selector.as_object().unwrap().clone());
        let spec = json!({"resourceSelectors": [full]});
        Object::from_value(&json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    // proves: ROL-selected
    #[test]
    fn the_most_specific_policy_of_the_narrowest_scope_applies() {
        let by_name = || policy("by-name", "n", json!({"name": "web"}));
        let by_kind = |name: &str| policy(name, "n", json!({}));
        let by_label = || {
            policy(
                "by-label",
                "n",
                json!({"labelSelector": {"matchLabels": {"a": "1"}}}),
            )
        };
        let cluster = || policy("cluster", "", json!({"name": "web"}));
        let kind = Gvk::from_static("apps", "v1", "Deployment");
        let template = |namespace: &str| {
            let metadata = json!({"name": "web", "namespace": namespace, "labels": {"a": "1"}});
            Object::from_value(&json!({"metadata": metadata})).unwrap()
        };
        let secret = Gvk::from_static("", "v1", "Secret");
        let role = Gvk::from_static("rbac.authorization.k8s.io", "v1", "Role");
        for (policies, cluster_policies, kind, namespace, expected) in [
            (vec![], vec![], &kind, "n", None),
            (
                vec![by_kind("b"), by_kind("a")],
                vec![cluster()],
                &kind,
                "n",
                Some("RolloutPolicy/a a/2"),
            ),
            (
                vec![by_kind("a"), by_label(), by_name()],
                vec![],
                &kind,
                "n",
                Some("RolloutPolicy/by-name by-name/2"),
            ),
            (
                vec![by_kind("a"), by_label()],
                vec![],
                &kind,
                "n",
                Some("RolloutPolicy/by-label by-label/2"),
            ),
            (
                vec![],
                vec![cluster()],
                &kind,
                "n",
                Some("ClusterRolloutPolicy/cluster cluster/2"),
            ),
            (vec![], vec![cluster()], &kind, "", None),
            (vec![], vec![cluster()], &secret, "n", None),
            (vec![], vec![cluster()], &role, "n", None),
        ] {
            let template = template(namespace);
            let policies = [policies, cluster_policies].concat();
            let selected = select_among(&policies, kind, template.meta());
            let id = selected.map(|policy| policy.id());
            assert_eq!(id.as_deref(), expected);
        }
    }
}
