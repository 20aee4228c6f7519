//! Plans the changes of templates: which clusters would get the new revision first, and what it
//! changes in each.

use ::rollout::{
    RolloutPreview, RolloutPreviewInput, preview_rollout, revision_content, selected_policy_name,
};
use anyhow::{Context, anyhow, bail};
use client::{Api, ApiResource, ResourcePath, ignore_not_found};
use interpreter::{LuaLimits, ResourceInterpreter};
use karmada_api::resources::{BINDINGS, CLUSTERS, CUSTOMIZATIONS, WORKS};
use karmada_api::rollout::{
    REMAINING_STAGE, ROLLOUTS, RolloutPhase, RolloutStatus, StageRolloutStatus,
};
use karmada_api::{ResourceBinding, Rollout, names};
use machinery::time::{Clock, SystemClock};
use machinery::{Gvk, Object};
use overrides::CandidateOverridePolicies;
use serde_json::Value;

use super::inputs::{AbsentMetadata, ChangedObject, preview_object};
use super::policies::DefaultPolicyNamespace;
use super::rollout_policies::RolloutPolicyChanges;
use super::template_report::{PlannedCluster, TemplateChangeReport};
use crate::object_lists::{ListedPolicyNamespaces, list_all, list_overrides};
use crate::rollout::revision_differences::{changed_fields, content_differences};
use crate::rollout::{ClustersByRevision, RevisionDifference, reason_text};

/// A template before and after its change, with the binding that it has.
struct ChangedTemplate<'a> {
    resource: &'a ApiResource,
    change: ChangedObject,
    /// Whether it stays as it is, and the policy that stages it changes.
    is_of_policy: bool,
    /// The template after the change, with replicas that are the same at any scale.
    tree: Value,
    binding: Option<Object>,
}

/// Plans the changed templates of files, one after the other, and then the others that changed
/// RolloutPolicies stage.
pub(super) async fn plan_templates(
    api: &dyn Api,
    documents: Vec<Value>,
    stagings: &RolloutPolicyChanges,
    namespace: DefaultPolicyNamespace<'_>,
) -> anyhow::Result<Vec<TemplateChangeReport>> {
    if documents.is_empty() && stagings.is_empty() {
        return Ok(Vec::new());
    }
    let served = api.discover().await?.resources;
    let customizations = list_all(api, &CUSTOMIZATIONS, "").await?;
    let interpreter =
        ResourceInterpreter::from_customizations(&customizations, LuaLimits::default());
    let clusters = list_all(api, &CLUSTERS, "").await?;
    let mut reports = Vec::new();
    for mut document in documents {
        let resource = find_served(&served, &document)?;
        if !resource.namespaced {
            bail!(
                "{} is cluster-scoped; changes of such templates are not staged",
                resource.kind
            );
        }
        namespace.set_namespace(&mut document)?;
        let change = preview_object(
            api,
            &resource.resource,
            document,
            AbsentMetadata::Stays,
            "template",
        )
        .await?;
        let template = ChangedTemplate::read(api, &interpreter, resource, change).await?;
        reports.push(plan_template(api, &template, &clusters, stagings).await?);
    }
    for (resource, template) in stagings.staged_templates(api, &served).await? {
        let is_same = |report: &TemplateChangeReport| {
            (&*report.kind, &*report.namespace, &*report.name)
                == (&*resource.kind, template.namespace(), template.name())
        };
        if reports.iter().any(is_same) {
            continue;
        }
        let change = ChangedObject {
            before: Some(template.clone()),
            after: template,
        };
        let mut template = ChangedTemplate::read(api, &interpreter, resource, change).await?;
        template.is_of_policy = true;
        reports.push(plan_template(api, &template, &clusters, stagings).await?);
    }
    Ok(reports)
}

fn find_served<'a>(served: &'a [ApiResource], document: &Value) -> anyhow::Result<&'a ApiResource> {
    let text = |field: &str| document[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let mut resources = served.iter();
    resources
        .find(|r| r.kind == kind && r.resource.api_version() == version)
        .with_context(|| format!("the server does not serve {kind:?} of {version:?}"))
}

impl<'a> ChangedTemplate<'a> {
    async fn read(
        api: &dyn Api,
        interpreter: &ResourceInterpreter,
        resource: &'a ApiResource,
        change: ChangedObject,
    ) -> anyhow::Result<Self> {
        let name = names::binding_name(&resource.kind, change.after.name());
        let at = ResourcePath::object(&BINDINGS, change.after.namespace(), &name);
        let binding = ignore_not_found(api.get(at).await)?;
        let mut tree = change.after.value()?;
        tree["apiVersion"] = resource.resource.api_version().into();
        tree["kind"] = resource.kind.as_str().into();
        let view = binding.as_ref().map(|b| b.decode::<ResourceBinding>());
        if view
            .transpose()?
            .is_some_and(|view| view.spec.is_workload())
        {
            let revised = interpreter
                .revise_replica(&kind_of(resource), tree, 0)
                .await;
            tree = revised.map_err(|error| anyhow!("the replicas are unknown: {error}"))?;
        }
        Ok(Self {
            resource,
            change,
            is_of_policy: false,
            tree,
            binding,
        })
    }

    /// The fields that differ between the template before and after the change.
    fn changed_fields(&self) -> anyhow::Result<Vec<String>> {
        let before = self.change.before.as_ref();
        let before = before.map(Object::value).transpose()?.unwrap_or_default();
        Ok(changed_fields(&before, &self.change.after.value()?))
    }
}

fn kind_of(resource: &ApiResource) -> Gvk {
    resource.resource.with_kind(&*resource.kind)
}

async fn plan_template(
    api: &dyn Api,
    template: &ChangedTemplate<'_>,
    clusters: &[Object],
    stagings: &RolloutPolicyChanges,
) -> anyhow::Result<TemplateChangeReport> {
    let after = &template.change.after;
    let mut report = TemplateChangeReport {
        kind: template.resource.kind.clone(),
        namespace: after.namespace().to_owned(),
        name: after.name().to_owned(),
        is_of_policy: template.is_of_policy,
        ..TemplateChangeReport::default()
    };
    let kind = kind_of(template.resource);
    let policies = stagings.policies_of(api, after.namespace()).await?;
    let Some(binding) = &template.binding else {
        report.policy = selected_policy_name(&policies.after, &kind, after.meta());
        report.is_unpropagated = true;
        return Ok(report);
    };
    let at = ResourcePath::object(&ROLLOUTS, after.namespace(), binding.name());
    let rollout = ignore_not_found(api.get(at).await)?;
    let scope = ListedPolicyNamespaces::Namespace(after.namespace());
    let candidates = CandidateOverridePolicies::of_objects(&list_overrides(api, scope).await?);
    let preview = preview_rollout(RolloutPreviewInput {
        kind: &kind,
        template: after,
        tree: template.tree.clone(),
        overrides: &candidates,
        binding,
        rollout: rollout.as_ref(),
        policies: &policies.after,
        clusters,
        works: &works_of(api, binding).await?,
        now: SystemClock.now(),
    });
    let before = rollout.as_ref().map(|rollout| rollout.decode::<Rollout>());
    let before = before.transpose()?;
    let before = before.as_ref().and_then(|view| view.status.as_ref());
    let mut empty_stages = Vec::new();
    match preview.map_err(anyhow::Error::msg)? {
        Some(preview) => {
            empty_stages = stages_without_clusters(&preview.status);
            report.add_stages(&preview, before);
            match before {
                Some(_) => {
                    let overrides = candidates.selecting_specs(&kind, after.meta());
                    let content = revision_content(template.tree.clone(), overrides);
                    add_differences(api, &content, binding, &mut report).await?;
                }
                None => report.add_first_staging(template)?,
            }
        }
        None => report.add_unstaged(template, binding, before)?,
    }
    report.changes = match template.is_of_policy {
        true => report.clusters.iter().any(|cluster| cluster.gets_change),
        false => report.differences.iter().any(|d| !d.fields.is_empty()),
    };
    if (report.changes || report.is_of_policy) && before.is_some() {
        report.note_empty_stages(&empty_stages);
    }
    Ok(report)
}

/// The stages of a policy that have no cluster, so that they are passed.
fn stages_without_clusters(status: &RolloutStatus) -> Vec<String> {
    let is_empty =
        |stage: &&StageRolloutStatus| stage.clusters.is_empty() && stage.name != REMAINING_STAGE;
    let stages = status.stages.iter().filter(is_empty);
    stages.map(|stage| stage.name.clone()).collect()
}

/// The Works of the target clusters of a binding that exist.
async fn works_of(api: &dyn Api, binding: &Object) -> anyhow::Result<Vec<Object>> {
    let view = binding.decode::<ResourceBinding>()?;
    let resource = &view.spec.resource;
    let name = names::work_name(&resource.kind, &resource.name, &resource.namespace);
    let mut works = Vec::new();
    for target in view.spec.targets() {
        let namespace = names::execution_space_name(&target.name);
        let at = ResourcePath::object(&WORKS, &namespace, &name);
        works.extend(ignore_not_found(api.get(at).await)?);
    }
    Ok(works)
}

/// How the content after the change differs from the revisions that clusters have.
async fn add_differences(
    api: &dyn Api,
    content: &Value,
    binding: &Object,
    report: &mut TemplateChangeReport,
) -> anyhow::Result<()> {
    let mut by_revision = ClustersByRevision::new();
    for cluster in report.clusters.iter().filter(|c| !c.now.is_empty()) {
        by_revision
            .entry(cluster.now.clone())
            .or_default()
            .push(cluster.name.clone());
    }
    let key = (binding.namespace(), binding.name());
    report.differences = content_differences(api, key, content, by_revision).await?;
    Ok(())
}

impl TemplateChangeReport {
    fn add_stages(&mut self, preview: &RolloutPreview, before: Option<&RolloutStatus>) {
        let target = &preview.status.target_revision;
        self.policy = Some(preview.policy.clone());
        self.state.clone_from(&preview.status.state);
        self.stage.clone_from(&preview.status.stage);
        for stage in &preview.status.stages {
            let clusters = stage.clusters.iter();
            for cluster in clusters.filter(|c| c.phase != RolloutPhase::Skipped) {
                let now = before.and_then(|status| status.cluster(&cluster.name));
                let now = now.map(|now| now.revision.clone()).unwrap_or_default();
                self.clusters.push(PlannedCluster {
                    name: cluster.name.clone(),
                    stage: stage.name.clone(),
                    gets_change: cluster.revision == *target && now != *target,
                    now,
                    then: cluster.revision.clone(),
                    reason: reason_text(cluster),
                });
            }
        }
        self.note_missing(&preview.missing_clusters);
    }

    /// A template that was not staged before: what it is then is its first revision, which goes to all
    /// clusters at once.
    fn add_first_staging(&mut self, template: &ChangedTemplate<'_>) -> anyhow::Result<()> {
        self.stage.clear();
        self.state.clear();
        let fields = template.changed_fields()?;
        for cluster in &mut self.clusters {
            cluster.gets_change &= !fields.is_empty();
        }
        if !fields.is_empty() {
            self.notes.push(
                "it has no Rollout yet, so that the change is its first revision: to stage it, let the Rollout complete before the change".to_owned(),
            );
        }
        self.differences = vec![RevisionDifference {
            revision: String::new(),
            clusters: self.clusters.iter().map(|c| c.name.clone()).collect(),
            fields,
        }];
        Ok(())
    }

    /// Without a policy, all clusters get the change at once, or what the stages have kept from them.
    fn add_unstaged(
        &mut self,
        template: &ChangedTemplate<'_>,
        binding: &Object,
        before: Option<&RolloutStatus>,
    ) -> anyhow::Result<()> {
        let view = binding.decode::<ResourceBinding>()?;
        let targets = view.spec.targets().into_iter();
        let names: Vec<String> = targets.map(|target| target.name.clone()).collect();
        let fields = template.changed_fields()?;
        let change = |name: &String| {
            let now = before.and_then(|status| status.cluster(name));
            let now = now.map(|cluster| cluster.revision.clone());
            let lags = before.is_some_and(|status| {
                now.as_ref()
                    .is_some_and(|now| *now != status.target_revision)
            });
            PlannedCluster {
                name: name.clone(),
                stage: String::new(),
                now: now.unwrap_or_default(),
                then: String::new(),
                gets_change: !fields.is_empty() || lags,
                reason: String::new(),
            }
        };
        self.clusters = names.iter().map(change).collect();
        self.note_skipped_stages(before);
        self.differences = vec![RevisionDifference {
            revision: String::new(),
            clusters: names,
            fields,
        }];
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: CLI-plan-rollout
    #[test]
    fn what_no_revision_has_is_no_change_of_one() {
        let revision = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"paused": true}});
        let template = json!({"metadata": {"labels": {"a": "b"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}, "spec": {"paused": true}});
        let content = revision_content(template, Vec::new());
        let changed = changed_fields(&revision, &content["template"]);
        assert_eq!(changed, [""; 0]);
    }

    // proves: CLI-plan-empty-stage
    #[test]
    fn stages_that_have_no_cluster_are_noted() {
        let clusters = json!([{"name": "a", "phase": "Done"}]);
        let left = json!([{"name": "b", "phase": "Skipped", "reason": "LeftBeforeEnd"}]);
        let status = json!({"stages": [{"name": "canary"}, {"name": "lost", "clusters": left},
            {"name": "rest", "clusters": clusters}, {"name": "remaining"}]});
        let status: RolloutStatus = serde_json::from_value(status).unwrap();
        let mut report = TemplateChangeReport::default();
        report.note_empty_stages(&stages_without_clusters(&status));
        report.note_empty_stages(&[]);
        let expected = ["stages that have no cluster are passed: canary"];
        assert_eq!(report.notes, expected);
    }
}
