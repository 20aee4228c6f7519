//! Writes the placement before the last move of a template back.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use client::{ResourcePath, WriteOptions};
use karmada_api::history::TemplateHistory;
use karmada_api::policy::ImplicitPriority;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS, CLUSTER_POLICIES, CLUSTERS, POLICIES};
use karmada_api::well_known_keys::{
    APPLIED_PLACEMENT, CLUSTER_POLICY_ID, CLUSTER_POLICY_NAME, POLICY_ID, POLICY_NAME,
    POLICY_NAMESPACE,
};
use karmada_api::{Cluster, Placement, PropagationPolicy, ResourceBinding, TargetCluster};
use machinery::{Gvk, Gvr, Object};
use serde_json::json;

use super::moved_template::MovedTemplate;
use super::undo_plan::{UndoCluster, UndoPlan, last_move, plan_undo};
use crate::conflicts::retry_on_conflict;
use crate::object_lists::list_all;
use crate::output;
use crate::placement_text::format_clusters;

/// The field manager of what is restored, which the history names as the actor.
const FIELD_MANAGER: &str = "flotilla-undo";

/// The policy of a binding.
struct BindingPolicy {
    resource: &'static Gvr,
    object: Object,
}

/// The undo of the last move of a template.
pub struct PlannedUndo {
    binding: Object,
    view: Arc<ResourceBinding>,
    plan: UndoPlan,
}

impl PlannedUndo {
    pub fn clusters_before(&self) -> &[TargetCluster] {
        &self.view.spec.clusters
    }

    pub fn clusters_after(&self) -> &[TargetCluster] {
        &self.plan.clusters
    }

    /// All that it writes, and the state that it is about.
    pub fn content(&self) -> String {
        let (before, plan) = (self.clusters_before(), &self.plan);
        json!([self.binding.uid(), before, plan.clusters, plan.placement]).to_string()
    }
}

pub(super) async fn undo(template: &MovedTemplate, dry_run: bool) -> anyhow::Result<()> {
    let planned = template.plan_undo().await?;
    let restored_policy = template.undo(&planned, dry_run).await?;
    let suffix = if dry_run { " (dry run)" } else { "" };
    if let Some(name) = restored_policy {
        output::print_line(format!(
            "the former placement returned to policy {name}{suffix}"
        ));
    }
    let clusters = format_clusters(planned.clusters_after(), false);
    output::print_line(format!(
        "{} moved back to {clusters}{suffix}",
        template.text
    ));
    Ok(())
}

impl MovedTemplate {
    /// How the last move is undone. The error says why it cannot be.
    pub async fn plan_undo(&self) -> anyhow::Result<PlannedUndo> {
        let unmoved = || format!("{} has not moved", self.text);
        let history = self.history.as_ref().with_context(unmoved)?;
        let history = history.decode::<TemplateHistory>()?;
        let entry = last_move(&history).with_context(unmoved)?;
        let clusters: Vec<UndoCluster> = list_all(&*self.api, &CLUSTERS, "")
            .await?
            .iter()
            .filter_map(|object| {
                let cluster = object.decode::<Cluster>().ok()?;
                let is_leaving = object.meta().deleting;
                Some(UndoCluster::new(object.name(), &cluster, is_leaving))
            })
            .collect();
        let binding = self.binding().await?;
        let view = binding.decode::<ResourceBinding>()?;
        let plan = plan_undo(entry, &view, &clusters);
        Ok(PlannedUndo {
            plan: plan.with_context(|| self.refusal())?,
            binding,
            view,
        })
    }

    fn refusal(&self) -> String {
        format!("{} cannot be moved back", self.text)
    }

    /// Undoes the last move as it was planned, and returns the name of the policy that gets its former
    /// placement, if one does.
    pub async fn undo(
        &self,
        planned: &PlannedUndo,
        dry_run: bool,
    ) -> anyhow::Result<Option<String>> {
        let mut restored_policy = None;
        if let Some(placement) = &planned.plan.placement {
            let restored = retry_on_conflict(|| async {
                let policy = self.changed_policy(&planned.binding, &planned.view).await;
                let policy = policy.with_context(|| self.refusal())?;
                // A refusal for the binding has to come before the policy is written.
                self.restore_binding(&planned.plan, true).await?;
                self.restore_policy(&policy, placement, dry_run).await?;
                Ok(policy.object.meta().key())
            });
            restored_policy = Some(restored.await?);
        }
        self.restore_binding(&planned.plan, dry_run).await?;
        Ok(restored_policy)
    }

    /// The policy whose change moved the template. One that places other templates too, or does not
    /// say what the binding has, is refused.
    async fn changed_policy(
        &self,
        binding: &Object,
        view: &ResourceBinding,
    ) -> anyhow::Result<BindingPolicy> {
        let annotations = &view.metadata.annotations;
        let annotation = |key: &str| annotations.get(key).map(String::as_str);
        let (resource, namespace, name, label) =
            match (annotation(POLICY_NAME), annotation(CLUSTER_POLICY_NAME)) {
                (Some(name), _) => {
                    let namespace = annotation(POLICY_NAMESPACE).unwrap_or_default();
                    (&POLICIES, namespace, name, POLICY_ID)
                }
                (None, Some(name)) => (&CLUSTER_POLICIES, "", name, CLUSTER_POLICY_ID),
                (None, None) => bail!("no policy places it any more"),
            };
        let object = self
            .api
            .get(ResourcePath::object(resource, namespace, name));
        let object = object.await?;
        let policy = object.decode::<PropagationPolicy>()?;
        check_selection(&object, &policy, &self.kind, &self.object)?;
        ensure!(
            object.meta().generation > 1,
            "policy {name} has not been changed since it was created, so that the former placement is not its own"
        );
        ensure!(
            view.spec.placement.as_ref() == Some(&policy.spec.placement),
            "the placement of policy {name} is not that of the template: it was changed again, or the namespace restricts it"
        );
        let id = object.meta().label(label).unwrap_or_default();
        ensure!(
            !id.is_empty() && binding.meta().label(label) == Some(id),
            "policy {name} is not the one that placed it"
        );
        let placed = self.count_placed_by(label, id).await?;
        ensure!(
            placed <= 1,
            "policy {name} places {placed} templates; change the policy instead"
        );
        Ok(BindingPolicy { resource, object })
    }

    /// How many templates a policy places.
    async fn count_placed_by(&self, label: &str, id: &str) -> anyhow::Result<usize> {
        let mut bindings = list_all(&*self.api, &BINDINGS, "").await?;
        bindings.extend(list_all(&*self.api, &CLUSTER_BINDINGS, "").await?);
        let placed = bindings
            .iter()
            .filter(|binding| binding.meta().label(label) == Some(id));
        Ok(placed.count())
    }

    async fn restore_policy(
        &self,
        policy: &BindingPolicy,
        placement: &Placement,
        dry_run: bool,
    ) -> anyhow::Result<()> {
        let mut body = policy.object.value()?;
        body["spec"]["placement"] = json!(placement);
        let at = ResourcePath::of_object(policy.resource, &policy.object);
        self.api
            .update(at, body.into(), &write_options(dry_run))
            .await?;
        Ok(())
    }

    /// Writes the former clusters into the binding, with the placement that they belong to. The
    /// detector and the scheduler may have acted on the restored policy before, or do so later:
    /// what they find then is what they would write.
    async fn restore_binding(&self, plan: &UndoPlan, dry_run: bool) -> anyhow::Result<()> {
        retry_on_conflict(|| async {
            let binding = self.binding().await?;
            let mut body = binding.value()?;
            body["spec"]["clusters"] = json!(plan.clusters);
            if let Some(placement) = &plan.placement {
                body["spec"]["placement"] = json!(placement);
                let applied = serde_json::to_string(placement)?;
                body["metadata"]["annotations"][APPLIED_PLACEMENT] = applied.into();
            }
            let at = ResourcePath::of_object(self.binding_resource(), &binding);
            let options = write_options(dry_run);
            self.api.update(at, body.into(), &options).await?;
            Ok(())
        })
        .await
    }
}

/// Refuses a policy that does not select the template. The binding names the policy, and who may
/// write bindings of a namespace need not have rights to the policy.
fn check_selection(
    object: &Object,
    policy: &PropagationPolicy,
    kind: &Gvk,
    template: &Object,
) -> anyhow::Result<()> {
    let (local, head) = (object.namespace(), template.meta());
    let mut selectors = policy.spec.resource_selectors.iter();
    let is_selected = selectors.any(|selector| {
        let selected = Gvk::from_api_version(&selector.api_version, &selector.kind);
        (&selected.group, &selected.kind) == (&kind.group, &kind.kind)
            && selector.implicit_priority(&selector.api_version, &selector.kind, head)
                > ImplicitPriority::Mismatch
    });
    ensure!(
        is_selected && (local.is_empty() || local == template.namespace()),
        "policy {} does not select it",
        object.name()
    );
    Ok(())
}

fn write_options(dry_run: bool) -> WriteOptions {
    WriteOptions {
        dry_run,
        field_manager: FIELD_MANAGER.to_owned(),
        ..WriteOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: HIS-undo-policy
    #[test]
    fn only_a_policy_that_selects_the_template_is_written() {
        let template = json!({"metadata": {"name": "web", "namespace": "n"}});
        let template = Object::from_value(&template).unwrap();
        let kind = Gvk::from_static("apps", "v1", "Deployment");
        for (namespace, selector, expected) in [
            (
                "n",
                json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
                true,
            ),
            (
                "",
                json!({"apiVersion": "apps/v1beta1", "kind": "Deployment", "name": "web"}),
                true,
            ),
            (
                "",
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "m"}),
                false,
            ),
            (
                "",
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}),
                false,
            ),
            ("", json!({"apiVersion": "v1", "kind": "ConfigMap"}), false),
            (
                "m",
                json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
                false,
            ),
        ] {
            let object = json!({"metadata": {"name": "p", "namespace": namespace},
                "spec": {"resourceSelectors": [selector]}});
            let object = Object::from_value(&object).unwrap();
            let policy = object.decode::<PropagationPolicy>().unwrap();
            let result = check_selection(&object, &policy, &kind, &template);
            assert_eq!(result.is_ok(), expected, "{namespace} {selector}");
        }
    }
}
