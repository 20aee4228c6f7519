//! Names the policy of a binding, and who changed its placement last.

use client::Informer;
use flotilla_runtime::ControllerContext;
use karmada_api::ResourceBinding;
use karmada_api::history::bounded_text;
use karmada_api::resources::{CLUSTER_POLICIES, POLICIES};
use karmada_api::well_known_keys::{CLUSTER_POLICY_NAME, POLICY_NAME, POLICY_NAMESPACE};

use crate::field_managers::manager_of_field;

/// PropagationPolicies and ClusterPropagationPolicies.
#[derive(Clone)]
pub(crate) struct PolicyLister {
    policies: Informer,
    cluster_policies: Informer,
}

/// The policy that a binding names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedPolicy {
    /// Kind, namespace and name; empty if the binding names none.
    pub(crate) text: String,
    namespace: String,
    name: String,
}

impl NamedPolicy {
    pub(crate) fn of(binding: &ResourceBinding) -> Self {
        let annotation = |key: &str| {
            let annotations = &binding.metadata.annotations;
            annotations.get(key).cloned().unwrap_or_default()
        };
        let (namespace, name) = (annotation(POLICY_NAMESPACE), annotation(POLICY_NAME));
        if !name.is_empty() {
            return Self {
                text: bounded_text(&format!("PropagationPolicy {namespace}/{name}")),
                namespace,
                name,
            };
        }
        let name = annotation(CLUSTER_POLICY_NAME);
        Self {
            text: match name.is_empty() {
                true => String::new(),
                false => bounded_text(&format!("ClusterPropagationPolicy {name}")),
            },
            namespace: String::new(),
            name,
        }
    }
}

impl PolicyLister {
    pub(crate) fn new(context: &ControllerContext) -> Self {
        Self {
            policies: context.informer(&POLICIES),
            cluster_policies: context.informer(&CLUSTER_POLICIES),
        }
    }

    pub(crate) async fn wait_synced(&self) {
        self.policies.wait_for_cache_sync().await;
        self.cluster_policies.wait_for_cache_sync().await;
    }

    /// The text of a policy with its generation, and the field manager that changed its placement
    /// last.
    pub(crate) fn describe(&self, policy: &NamedPolicy) -> (String, Option<String>) {
        let object = match &*policy.namespace {
            "" => self.cluster_policies.get_by_key(&policy.name),
            namespace => self.policies.get(namespace, &policy.name),
        };
        match object {
            None => (policy.text.clone(), None),
            Some(object) => (
                format!("{} generation {}", policy.text, object.meta().generation),
                manager_of_field(&object, "placement"),
            ),
        }
    }
}
