//! Changed RolloutPolicies of a plan: how policies would be then, and whose changes they would stage.

use std::collections::{BTreeMap, BTreeSet};

use ::rollout::{policy_name, selected_policy_name};
use client::{Api, ApiResource};
use karmada_api::RolloutPolicy;
use karmada_api::rollout::{CLUSTER_ROLLOUT_POLICIES, ROLLOUT_POLICIES};
use machinery::Object;
use serde_json::Value;

use super::inputs::{AbsentMetadata, ChangedObject, preview_object, replace_changed};
use super::policies::{self, DefaultPolicyNamespace};
use crate::object_lists::list_all;

/// The changed RolloutPolicies and ClusterRolloutPolicies of the files.
#[derive(Default)]
pub(super) struct RolloutPolicyChanges(Vec<ChangedObject>);

/// A kind that a policy selects.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SelectedKind {
    api_version: String,
    kind: String,
    /// Empty for all.
    namespace: String,
}

/// The policies that may stage the templates of a namespace, before and after the changes.
pub(super) struct NamespaceRolloutPolicies {
    before: Vec<Object>,
    pub(super) after: Vec<Object>,
}

impl RolloutPolicyChanges {
    /// Sends the policies to the server as a dry run.
    pub(super) async fn read(
        api: &dyn Api,
        documents: Vec<Value>,
        namespace: DefaultPolicyNamespace<'_>,
    ) -> anyhow::Result<Self> {
        let mut changes = Vec::new();
        for mut document in documents {
            namespace.set_namespace(&mut document)?;
            let resource = match policies::is_cluster_scoped(&document) {
                true => &CLUSTER_ROLLOUT_POLICIES,
                false => &ROLLOUT_POLICIES,
            };
            changes.push(
                preview_object(api, resource, document, AbsentMetadata::Stays, "policy").await?,
            );
        }
        Ok(Self(changes))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) async fn policies_of(
        &self,
        api: &dyn Api,
        namespace: &str,
    ) -> anyhow::Result<NamespaceRolloutPolicies> {
        let mut before = list_all(api, &ROLLOUT_POLICIES, namespace).await?;
        before.extend(list_all(api, &CLUSTER_ROLLOUT_POLICIES, "").await?);
        let is_in_scope =
            |change: &&ChangedObject| ["", namespace].contains(&change.after.namespace());
        let after = replace_changed(before.clone(), self.0.iter().filter(is_in_scope));
        Ok(NamespaceRolloutPolicies { before, after })
    }

    /// The templates that a changed policy stages, before or after the change.
    pub(super) async fn staged_templates<'a>(
        &self,
        api: &dyn Api,
        served: &'a [ApiResource],
    ) -> anyhow::Result<Vec<(&'a ApiResource, Object)>> {
        let mut templates = BTreeMap::new();
        let mut policies: BTreeMap<String, NamespaceRolloutPolicies> = BTreeMap::new();
        for selected in self.selected_kinds()? {
            let mut resources = served.iter().filter(|resource| resource.namespaced);
            let resource = resources.find(|resource| {
                resource.kind == selected.kind
                    && resource.resource.api_version() == selected.api_version
            });
            let Some(resource) = resource else {
                continue;
            };
            for template in list_all(api, &resource.resource, &selected.namespace).await? {
                let of = template.namespace().to_owned();
                if !policies.contains_key(&of) {
                    let of_namespace = self.policies_of(api, &of).await?;
                    policies.insert(of.clone(), of_namespace);
                }
                let is_staged = policies
                    .get(&of)
                    .is_some_and(|of_namespace| self.stages(of_namespace, resource, &template));
                if is_staged {
                    let key = (resource.resource.to_string(), template.meta().key());
                    templates.insert(key, (resource, template));
                }
            }
        }
        Ok(templates.into_values().collect())
    }

    fn selected_kinds(&self) -> anyhow::Result<BTreeSet<SelectedKind>> {
        let mut kinds = BTreeSet::new();
        for change in &self.0 {
            for version in change.before.iter().chain([&change.after]) {
                for selector in &version.decode::<RolloutPolicy>()?.spec.resource_selectors {
                    let namespace = match version.namespace() {
                        "" => &selector.namespace,
                        namespace => namespace,
                    };
                    kinds.insert(SelectedKind {
                        api_version: selector.api_version.clone(),
                        kind: selector.kind.clone(),
                        namespace: namespace.to_owned(),
                    });
                }
            }
        }
        Ok(kinds)
    }

    fn stages(
        &self,
        policies: &NamespaceRolloutPolicies,
        resource: &ApiResource,
        template: &Object,
    ) -> bool {
        let kind = resource.resource.with_kind(&*resource.kind);
        let changed: Vec<String> = self
            .0
            .iter()
            .map(|change| policy_name(&change.after))
            .collect();
        [&policies.before, &policies.after].into_iter().any(|all| {
            let name = selected_policy_name(all, &kind, template.meta());
            name.is_some_and(|name| changed.contains(&name))
        })
    }
}
