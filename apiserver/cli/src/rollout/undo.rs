//! Writes a template back from one of its revisions.

use ::rollout::{is_outside_revisions, verified_content};
use anyhow::{Context, Error, anyhow, bail, ensure};
use client::{ResourcePath, WriteOptions};
use interpreter::{LuaLimits, ResourceInterpreter};
use karmada_api::resources::{BINDINGS, CUSTOMIZATIONS};
use karmada_api::rollout::RolloutStatus;
use karmada_api::{ResourceBinding, Rollout};
use machinery::{Gvk, Gvr, Object};
use serde_json::Value;

use super::template_rollout::TemplateRollout;
use crate::conflicts::retry_on_conflict;
use crate::object_lists::list_all;
use crate::output;

/// Writes the template of a rollout back from the revision with a number, or from the one before.
pub(super) async fn undo(rollout: &TemplateRollout, number: Option<i64>) -> anyhow::Result<()> {
    let (number, content) = rollout.read_revision(number).await?;
    let is_written = retry_on_conflict(|| async {
        let Some(template) = rollout.revised(&content).await? else {
            return Ok(false);
        };
        rollout.write_template(template).await?;
        Ok(true)
    });
    let outcome = match is_written.await? {
        true => "rolled back to",
        false => "already has",
    };
    output::print_line(format!("{} {outcome} revision {number}", rollout.text));
    Ok(())
}

/// The revision with a number. Whoever may write ControllerRevisions can give one that another has.
fn numbered_revision(revisions: &[(i64, Object)], number: i64) -> anyhow::Result<&(i64, Object)> {
    let mut numbered = revisions.iter().filter(|(other, _)| *other == number);
    let revision = numbered
        .next()
        .with_context(|| format!("unable to find specified revision {number} in history"))?;
    if let Some((_, other)) = numbered.next() {
        bail!(
            "several controllerrevisions have the number {number}, {} and {} among them: delete the ones that are not genuine",
            revision.1.name(),
            other.name()
        );
    }
    Ok(revision)
}

impl TemplateRollout {
    /// The number and the content of a revision, by default of the one before.
    pub async fn read_revision(&self, number: Option<i64>) -> anyhow::Result<(i64, Value)> {
        let revisions = self.revisions().await?;
        let (number, revision) = match number {
            Some(number) => numbered_revision(&revisions, number)?,
            None => self.previous_revision(&revisions)?,
        };
        let mut content = verified_content(self.object.name(), revision).map_err(Error::msg)?;
        let tree = content["template"].take();
        ensure!(
            tree["metadata"].is_object(),
            "the controllerrevision {} has no template",
            revision.name()
        );
        Ok((*number, tree))
    }

    fn previous_revision<'r>(
        &self,
        revisions: &'r [(i64, Object)],
    ) -> anyhow::Result<&'r (i64, Object)> {
        let view = self.object.decode::<Rollout>()?;
        let name = previous_revision_name(self.staged().current_status(&view)?);
        let mut revisions = revisions.iter();
        let revision = revisions.find(|(_, revision)| revision.name() == name);
        revision.with_context(|| {
            format!(
                "no rollout history found for {}: no revision has gone through all stages before; name one of flotilla rollout history with --to-revision",
                self.text
            )
        })
    }

    /// The template as it is now, with the content of a revision; `None` if it has it.
    pub async fn revised(&self, content: &Value) -> anyhow::Result<Option<Value>> {
        let at = ResourcePath::of_object(&self.resource.resource, &self.template);
        let template = self.api.get(at).await?;
        ensure!(
            template.uid() == self.template.uid(),
            "{} was deleted and created again meanwhile",
            self.text
        );
        let tree = self.with_replicas_of(&template, content.clone()).await?;
        let current = template.value()?;
        let revised = revised_template(current.clone(), tree);
        Ok((revised != current).then_some(revised))
    }

    /// Writes the template over the version that it was revised from.
    pub async fn write_template(&self, template: Value) -> anyhow::Result<()> {
        let at = ResourcePath::of_object(&self.resource.resource, &self.template);
        let options = WriteOptions::default();
        self.api.update(at, template.into(), &options).await?;
        Ok(())
    }

    /// The content of a revision, which has no replicas, with those of a template.
    async fn with_replicas_of(&self, template: &Object, tree: Value) -> anyhow::Result<Value> {
        let customizations = list_all(&*self.api, &CUSTOMIZATIONS, "").await?;
        let interpreter =
            ResourceInterpreter::from_customizations(&customizations, LuaLimits::default());
        let Gvr { group, version, .. } = self.resource.resource.clone();
        let kind = Gvk::new(group, version, self.resource.kind.clone());
        let replicas = interpreter.replicas(&kind, template).await;
        let replicas = replicas.map_err(|error| anyhow!("the replicas are unknown: {error}"))?;
        if let Some(replicas) = replicas {
            let revised = interpreter.revise_replica(&kind, tree, replicas.count);
            return Ok(revised.await?);
        }
        let at = ResourcePath::object(&BINDINGS, self.object.namespace(), self.object.name());
        let binding = self.api.get(at).await?;
        ensure!(
            !binding.decode::<ResourceBinding>()?.spec.is_workload(),
            "the replicas of {} are interpreted by a webhook, which this command does not call",
            self.text
        );
        Ok(tree)
    }
}

/// The revision that has gone through all stages before the target; empty if none has. The Rollout
/// knows it: the numbers are no proof, since others may write ControllerRevisions too.
fn previous_revision_name(status: &RolloutStatus) -> &str {
    match status.stable_revision == status.target_revision {
        true => &status.former_revision,
        false => &status.stable_revision,
    }
}

/// The present template with the content of a revision. What a revision does not have stays: claims,
/// the last applied configuration, and what the server sets.
fn revised_template(mut current: Value, mut tree: Value) -> Value {
    let mut revised = tree["metadata"].take();
    for map in ["labels", "annotations"] {
        let mut entries = revised[map].take();
        for (key, value) in current["metadata"][map].as_object().into_iter().flatten() {
            if is_outside_revisions(key) {
                entries[key] = value.clone();
            }
        }
        if !entries.is_null() {
            current["metadata"][map] = entries;
        } else if let Some(metadata) = current["metadata"].as_object_mut() {
            metadata.remove(map);
        }
    }
    tree["metadata"] = current["metadata"].take();
    if let Some(status) = current.get_mut("status") {
        tree["status"] = status.take();
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;
    use karmada_api::well_known_keys::POLICY_ID;
    use serde_json::json;

    const LAST_APPLIED_CONFIGURATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

    // proves: ROL-undo-known
    #[test]
    fn the_revision_before_is_one_that_has_gone_through_all_stages() {
        for (former, stable, target, expected) in [
            ("", "1", "1", ""),
            ("1", "2", "2", "1"),
            ("1", "2", "3", "2"),
            ("", "1", "2", "1"),
        ] {
            let status = json!({"formerRevision": former, "stableRevision": stable, "targetRevision": target});
            let status: RolloutStatus = serde_json::from_value(status).unwrap();
            assert_eq!(previous_revision_name(&status), expected);
        }
    }

    // proves: ROL-undo-ambiguous
    #[test]
    fn a_number_of_several_revisions_names_none() {
        let revision = |name: &str| {
            let tree = json!({"metadata": {"name": name}});
            Object::from_value(&tree).unwrap()
        };
        let revisions = [(1, revision("a")), (1, revision("b")), (2, revision("c"))];
        assert_eq!(numbered_revision(&revisions, 2).unwrap().1.name(), "c");
        for (number, message) in [
            (
                1,
                "several controllerrevisions have the number 1, a and b among them",
            ),
            (3, "unable to find specified revision 3 in history"),
        ] {
            let error = numbered_revision(&revisions, number).unwrap_err();
            assert!(error.to_string().starts_with(message), "{error}");
        }
    }

    // proves: ROL-undo
    #[test]
    fn the_content_returns_and_the_rest_stays() {
        let current = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "resourceVersion": "7", "finalizers": ["f"], "labels": {"new": "1", POLICY_ID: "id"},
                "annotations": {LAST_APPLIED_CONFIGURATION: "{}"}},
            "spec": {"replicas": 4, "paused": true}, "status": {"replicas": 4}});
        let tree = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"old": "1"}}, "spec": {"replicas": 4}});
        let expected = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "resourceVersion": "7", "finalizers": ["f"], "labels": {"old": "1", POLICY_ID: "id"},
                "annotations": {LAST_APPLIED_CONFIGURATION: "{}"}},
            "spec": {"replicas": 4}, "status": {"replicas": 4}});
        assert_eq!(revised_template(current, tree), expected);
        // The present revision changes nothing.
        let current = json!({"kind": "Deployment", "metadata": {"name": "web", "resourceVersion": "7"}, "spec": {"replicas": 4}, "status": {}});
        let tree =
            json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 4}});
        assert_eq!(revised_template(current.clone(), tree), current);
    }
}
