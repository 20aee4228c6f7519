//! Plans the changes of templates: which clusters would get the new revision first, and what it
//! changes in each.

use std::collections::BTreeMap;

use ::rollout::{
    CONTROLLER_REVISIONS, RolloutPreview, RolloutPreviewInput, preview_rollout, revision_template,
    verified_content,
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
use serde::Serialize;
use serde_json::Value;

use super::inputs::{ChangedObject, write_object};
use super::policies::DefaultPolicyNamespace;
use super::rollout_policies::RolloutPolicyChanges;
use crate::field_differences::field_differences;
use crate::object_lists::{ListedPolicyNamespaces, list_all, list_overrides};
use crate::printers::{format_table, single_line};
use crate::rollout::reason_text;

/// The effect of a changed template on its clusters.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateChangeReport {
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Whether a cluster would get something else.
    pub(crate) changes: bool,
    /// Whether a policy changes, and the template stays as it is.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_of_policy: bool,
    /// The policy that stages the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<String>,
    /// The first stage, and the state of the rollout then.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) stage: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) state: String,
    pub(crate) clusters: Vec<PlannedCluster>,
    pub(crate) differences: Vec<RevisionDifference>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// The revision of a cluster now and after the first step.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlannedCluster {
    pub(crate) name: String,
    pub(crate) stage: String,
    /// Empty if changes of the template are not staged.
    pub(crate) now: String,
    pub(crate) then: String,
    pub(crate) gets_change: bool,
    pub(crate) reason: String,
}

/// How the change differs from what some clusters have.
#[derive(Debug, Serialize)]
pub(crate) struct RevisionDifference {
    /// Empty if changes of the template are not staged.
    pub(crate) revision: String,
    pub(crate) clusters: Vec<String>,
    /// Each as `path: old -> new`.
    pub(crate) fields: Vec<String>,
}

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
        let change = write_object(api, &resource.resource, document, "template").await?;
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
    let Some(binding) = &template.binding else {
        report.notes.push(
            "it is not propagated yet: the first revision goes to all clusters at once".to_owned(),
        );
        return Ok(report);
    };
    let kind = kind_of(template.resource);
    let at = ResourcePath::object(&ROLLOUTS, after.namespace(), binding.name());
    let rollout = ignore_not_found(api.get(at).await)?;
    let policies = stagings.policies_of(api, after.namespace()).await?;
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
                Some(_) => add_differences(api, template, binding, &mut report).await?,
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

/// How the change differs from the revisions that clusters have.
async fn add_differences(
    api: &dyn Api,
    template: &ChangedTemplate<'_>,
    binding: &Object,
    report: &mut TemplateChangeReport,
) -> anyhow::Result<()> {
    let mut by_revision: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for cluster in report.clusters.iter().filter(|c| !c.now.is_empty()) {
        by_revision
            .entry(&cluster.now)
            .or_default()
            .push(cluster.name.clone());
    }
    let mut differences = Vec::new();
    let changed = revision_template(template.tree.clone());
    for (revision, clusters) in by_revision {
        let at = ResourcePath::object(&CONTROLLER_REVISIONS, binding.namespace(), revision);
        let object = api.get(at).await?;
        let content = verified_content(binding.name(), &object).map_err(anyhow::Error::msg)?;
        differences.push(RevisionDifference {
            revision: revision.to_owned(),
            clusters,
            fields: changed_fields(&content["template"], &changed),
        });
    }
    report.differences = differences;
    Ok(())
}

fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    let differences = field_differences(before, after);
    differences.iter().map(ToString::to_string).collect()
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

    fn note_empty_stages(&mut self, names: &[String]) {
        if !names.is_empty() {
            let names = names.join(", ");
            self.notes
                .push(format!("stages that have no cluster are passed: {names}"));
        }
    }

    fn note_missing(&mut self, names: &[String]) {
        if !names.is_empty() {
            let names = names.join(", ");
            self.notes
                .push(format!("stages name clusters that do not exist: {names}"));
        }
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
        self.differences = vec![RevisionDifference {
            revision: String::new(),
            clusters: names,
            fields,
        }];
        Ok(())
    }

    /// The report as lines of text.
    pub(crate) fn lines(&self) -> Vec<String> {
        let template = format!("{} {}/{}", self.kind, self.namespace, self.name);
        let begin = match (&self.policy, &*self.stage) {
            (None, _) if self.is_of_policy => {
                "no RolloutPolicy would stage its changes, all clusters get them at once".to_owned()
            }
            (Some(policy), "") if self.is_of_policy => format!("{policy} would stage its changes"),
            (Some(policy), stage) if self.is_of_policy => format!(
                "{policy} would stage its changes, {stage} is the first stage that has not ended ({})",
                self.state
            ),
            _ if !self.changes => "nothing of a revision changes".to_owned(),
            (None, _) => {
                "no RolloutPolicy selects it, all clusters get the change at once".to_owned()
            }
            (Some(policy), "") => format!("{policy} lets all clusters get the change at once"),
            (Some(policy), stage) => {
                format!(
                    "{policy} stages the change, {stage} is the first stage ({})",
                    self.state
                )
            }
        };
        let mut lines = vec![format!("{template}: {begin}")];
        if self.changes || self.is_of_policy {
            let row = |cluster: &PlannedCluster| {
                let then = match cluster.gets_change {
                    true => "the change",
                    false => "stays",
                };
                vec![
                    cluster.name.clone(),
                    cluster.stage.clone(),
                    cluster.now.clone(),
                    then.to_owned(),
                    cluster.reason.clone(),
                ]
            };
            let rows: Vec<Vec<String>> = self.clusters.iter().map(row).collect();
            lines.push(format_table(
                &["CLUSTER", "STAGE", "NOW", "FIRST", "NOTE"],
                &rows,
            ));
        }
        for difference in self.differences.iter().filter(|d| !d.fields.is_empty()) {
            let clusters = difference.clusters.join(", ");
            lines.push(match &*difference.revision {
                "" => format!("Changes in {clusters}:"),
                revision => format!("Changes of {revision} ({clusters}):"),
            });
            let fields = difference.fields.iter();
            lines.extend(fields.map(|field| format!("  {}", single_line(field))));
        }
        let notes = self.notes.iter();
        lines.extend(notes.map(|note| format!("NOTE: {}", single_line(note))));
        lines
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
        let changed = changed_fields(&revision, &revision_template(template));
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

    // proves: CLI-plan-rollout
    #[test]
    fn a_staged_change_says_who_gets_it_first_and_what_it_changes() {
        let cluster = |name: &str, stage: &str, gets_change: bool, reason: &str| PlannedCluster {
            name: name.into(),
            stage: stage.into(),
            now: "web-1".into(),
            then: if gets_change { "web-2" } else { "web-1" }.into(),
            gets_change,
            reason: reason.into(),
        };
        let report = TemplateChangeReport {
            kind: "Deployment".into(),
            namespace: "n".into(),
            name: "web".into(),
            changes: true,
            policy: Some("RolloutPolicy web".into()),
            stage: "canary".into(),
            state: "Progressing".into(),
            clusters: vec![
                cluster("a", "canary", true, ""),
                cluster("b", "rest", false, "WaitingForStage"),
            ],
            differences: vec![RevisionDifference {
                revision: "web-1".into(),
                clusters: vec!["a".into(), "b".into()],
                fields: changed_fields(
                    &serde_json::json!({"spec": {"image": "nginx:1"}}),
                    &serde_json::json!({"spec": {"image": "nginx:2\n"}}),
                ),
            }],
            notes: vec!["stages name clusters that do not exist: z".into()],
            ..TemplateChangeReport::default()
        };
        let expected = "\
Deployment n/web: RolloutPolicy web stages the change, canary is the first stage (Progressing)
CLUSTER   STAGE    NOW     FIRST        NOTE
a         canary   web-1   the change   -
b         rest     web-1   stays        WaitingForStage
Changes of web-1 (a, b):
  spec.image: \"nginx:1\" -> \"nginx:2\\n\"
NOTE: stages name clusters that do not exist: z";
        assert_eq!(report.lines().join("\n"), expected);
    }
}
