//! Tells the binding controller which revision of a template each cluster may have.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Informer, InformerEvent, ListWatchSelector};
use controller_context::PropagationContext;
use flotilla_runtime::{PriorityQueueLane, Workqueue};
use karmada_api::Rollout;
use karmada_api::names::binding_reference_key;
use karmada_api::rollout::{
    CLUSTER_ROLLOUT_POLICIES, REVISION_OF, ROLLOUT_POLICIES, ROLLOUTS, RolloutPhase, RolloutStatus,
};
use machinery::{Gvk, Object};

use crate::policies::RolloutPolicies;
use crate::revision::{CONTROLLER_REVISIONS, TemplateRevision, read_revision, revision_number};

const BY_BINDING: &str = "binding";

/// The informers of rollouts, and the queue of their controller. Clones share them.
#[derive(Clone)]
pub struct RevisionResolver {
    pub(crate) policies: RolloutPolicies,
    pub(crate) rollouts: Informer,
    pub(crate) revisions: Informer,
    /// Bindings, by `namespace/name`, whose Rollouts have to be reconciled.
    pub(crate) queue: Workqueue<String>,
}

/// Whether the changes of a template are staged.
pub enum StagedTemplate {
    Unstaged,
    /// The Rollout has no status for this template yet.
    Awaiting,
    Staged(StagedRevisions),
}

/// The revisions that the clusters of a template may have.
pub struct StagedRevisions {
    rollout: Arc<Rollout>,
}

impl StagedRevisions {
    fn status(&self) -> Option<&RolloutStatus> {
        self.rollout.status.as_ref()
    }

    /// The revision of a cluster; `None` until the Rollout has the cluster.
    pub fn revision_of(&self, cluster: &str) -> Option<&str> {
        let cluster = self.status()?.cluster(cluster)?;
        Some(&*cluster.revision).filter(|revision| !revision.is_empty())
    }

    /// How many percent of the replicas of a cluster may have its revision; `None` if nothing
    /// divides them.
    pub fn batch_percent_of(&self, cluster: &str) -> Option<u64> {
        let percent = self.status()?.cluster(cluster)?.batch_percent;
        u64::try_from(percent).ok().filter(|percent| *percent > 0)
    }

    /// The generation of the template that Works with a revision name: `None` for that of the
    /// revision.
    fn generation_of(&self, revision: &str) -> Option<i64> {
        let status = self.status()?;
        (status.target_revision == revision).then_some(status.observed_template_generation)
    }
}

impl RevisionResolver {
    pub fn new(context: &PropagationContext) -> Self {
        let revisions = ListWatchSelector::all(&CONTROLLER_REVISIONS).labels(REVISION_OF);
        let resolver = Self {
            policies: RolloutPolicies::new(
                context.controller.informer(&ROLLOUT_POLICIES),
                context.controller.informer(&CLUSTER_ROLLOUT_POLICIES),
            ),
            rollouts: context.controller.informer(&ROLLOUTS),
            revisions: context.controller.select(&revisions),
            queue: Workqueue::new(),
        };
        resolver.revisions.add_index(BY_BINDING, |revision| {
            let label = revision.meta().label(REVISION_OF);
            label.map(str::to_owned).into_iter().collect()
        });
        resolver
    }

    pub async fn wait_synced(&self) {
        self.policies.wait_synced().await;
        self.rollouts.wait_for_cache_sync().await;
        self.revisions.wait_for_cache_sync().await;
    }

    /// Calls `handler` with the key of a binding whose clusters may have other revisions.
    pub fn add_event_handler(
        &self,
        handler: impl Fn(String, PriorityQueueLane) + Send + Sync + 'static,
    ) {
        self.rollouts.add_event_handler(move |change| {
            if !keeps_works(change) {
                handler(change.key(), PriorityQueueLane::of(change));
            }
        });
    }

    /// Looks up the revisions of the clusters of a binding, and lets the Rollout be reconciled,
    /// since the template or its overrides may have changed.
    pub fn resolve(&self, binding: &Object, kind: &Gvk, template: &Object) -> StagedTemplate {
        let key = binding.meta().key();
        let Some(rollout) = self.rollouts.get_by_key(&key) else {
            return match self.policies.select(kind, template.meta()) {
                None => StagedTemplate::Unstaged,
                Some(_) => {
                    self.queue.add(key);
                    StagedTemplate::Awaiting
                }
            };
        };
        self.queue.add(key);
        let is_of_template = is_owned_by(&rollout, template);
        let view = rollout.decode::<Rollout>().ok().filter(|_| is_of_template);
        match view.filter(|rollout| rollout.status.is_some()) {
            Some(rollout) => StagedTemplate::Staged(StagedRevisions { rollout }),
            None => StagedTemplate::Awaiting,
        }
    }

    /// The replicas that clusters keep, by name, whatever the binding says; `None` if the Rollout has
    /// to decide about this version of the binding first.
    pub fn kept_replicas(
        &self,
        binding: &Object,
        template_uid: &str,
    ) -> Option<BTreeMap<String, i64>> {
        let key = binding.meta().key();
        let rollout = self.rollouts.get_by_key(&key);
        let is_of_template = |rollout: &Object| {
            let owner = rollout.meta().controller();
            owner.is_some_and(|owner| *owner.uid == *template_uid)
        };
        let view = rollout.filter(is_of_template);
        let view = view.and_then(|rollout| rollout.decode::<Rollout>().ok());
        let status = view.as_ref().and_then(|rollout| rollout.status.as_ref());
        let Some(status) = status.filter(|s| s.observed_binding_generation != 0) else {
            return Some(BTreeMap::new());
        };
        if status.observed_binding_generation != binding.meta().generation {
            self.queue.add(key);
            return None;
        }
        let replicas = status.replicas.iter();
        Some(replicas.map(|r| (r.cluster.clone(), r.replicas)).collect())
    }

    /// Reads a revision of the template of a binding. `template`: as it is now, with its kind.
    pub fn read(
        &self,
        binding: &Object,
        name: &str,
        template: (&Gvk, &Object),
        staged: &StagedRevisions,
    ) -> Result<TemplateRevision, String> {
        let revision = self.revisions.get(binding.namespace(), name);
        let revision = revision.ok_or_else(|| format!("controllerrevision {name} not found"))?;
        read_revision(
            binding.name(),
            &revision,
            template,
            staged.generation_of(name),
        )
    }

    /// The ControllerRevisions of the template of a binding, with those that an earlier one has left,
    /// the newest first.
    pub(crate) fn revisions_of(&self, binding: &Object, template: &Object) -> Vec<Object> {
        let key = binding_reference_key(binding.namespace(), binding.name());
        let mut revisions = self.revisions.by_index(BY_BINDING, &key);
        revisions.retain(|revision| may_own(template, revision));
        revisions.sort_by_cached_key(|revision| Reverse(revision_number(revision)));
        revisions
    }

    /// The ControllerRevisions of a Rollout that no template owns.
    pub(crate) fn orphaned_revisions(&self, rollout: &Object) -> Vec<Object> {
        let key = binding_reference_key(rollout.namespace(), rollout.name());
        let mut revisions = self.revisions.by_index(BY_BINDING, &key);
        revisions.retain(|revision| revision.meta().controller().is_none());
        revisions
    }
}

/// Whether a template is the controlling owner of an object.
fn is_owned_by(object: &Object, template: &Object) -> bool {
    let owner = object.meta().controller();
    owner.is_some_and(|owner| *owner.uid == *template.uid())
}

/// Whether a Rollout or revision is that of a template, or has no owner: an earlier template of the
/// name has left it.
pub(crate) fn may_own(template: &Object, object: &Object) -> bool {
    object.meta().controller().is_none() || is_owned_by(object, template)
}

/// Whether a change of a Rollout leaves all Works as they are. Phases and conditions, which change
/// with each report of a member, are no part of them.
fn keeps_works(change: &InformerEvent<'_>) -> bool {
    let owner = |object: Option<&Object>| Some(object?.meta().controller()?.uid.clone());
    if owner(change.old) != owner(change.new) {
        return false;
    }
    let view = |object: Option<&Object>| object?.decode::<Rollout>().ok();
    let (Some(old), Some(new)) = (view(change.old), view(change.new)) else {
        return false;
    };
    match (&old.status, &new.status) {
        (Some(old), Some(new)) => has_same_works(old, new),
        (old, new) => old == new,
    }
}

/// Whether all that [`StagedRevisions`] and [`RevisionResolver::kept_replicas`] read is the same.
fn has_same_works(old: &RolloutStatus, new: &RolloutStatus) -> bool {
    old.target_revision == new.target_revision
        && old.observed_template_generation == new.observed_template_generation
        && old.observed_binding_generation == new.observed_binding_generation
        && clusters(old).eq(clusters(new))
        && replicas(old).eq(replicas(new))
}

/// Each cluster of a template with the revision and the percentage of the batch that it may have.
fn clusters(status: &RolloutStatus) -> impl Iterator<Item = (&str, &str, i64)> {
    let clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
    let clusters = clusters.filter(|cluster| cluster.phase != RolloutPhase::Skipped);
    clusters.map(|cluster| (&*cluster.name, &*cluster.revision, cluster.batch_percent))
}

fn replicas(status: &RolloutStatus) -> impl Iterator<Item = (&str, i64)> {
    let replicas = status.replicas.iter();
    replicas.map(|kept| (&*kept.cluster, kept.replicas))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn works_follow_revisions_and_replicas_alone() {
        let status = json!({"targetRevision": "2", "stableRevision": "1", "state": "Progressing",
            "observedTemplateGeneration": 3, "observedBindingGeneration": 4,
            "stages": [{"name": "first", "clusters": [
                {"name": "a", "revision": "2", "phase": "Updating", "batchPercent": 10},
                {"name": "b", "revision": "1", "phase": "Pending"},
            ]}],
            "replicas": [{"cluster": "c", "replicas": 2}]});
        let rollout = |status: &Value| {
            let rollout = json!({"metadata": {"name": "r", "namespace": "n"}, "status": status});
            Object::from_value(&rollout).unwrap()
        };
        let check = |path: &str, value: Value, expected: bool| {
            let mut changed = status.clone();
            *changed.pointer_mut(path).unwrap() = value;
            let (old, new) = (rollout(&status), rollout(&changed));
            let change = InformerEvent {
                old: Some(&old),
                new: Some(&new),
                in_initial_list: false,
            };
            assert_eq!(keeps_works(&change), expected, "{path}");
        };
        check("/state", "Paused".into(), true);
        check("/stableRevision", "2".into(), true);
        check("/stages/0/clusters/0/phase", "Soaking".into(), true);
        check("/targetRevision", "3".into(), false);
        check("/observedTemplateGeneration", 5.into(), false);
        check("/observedBindingGeneration", 5.into(), false);
        check("/stages/0/clusters/0/batchPercent", 50.into(), false);
        check("/stages/0/clusters/1/revision", "2".into(), false);
        check("/stages/0/clusters/1/phase", "Skipped".into(), false);
        check("/stages/0/clusters/1/name", "d".into(), false);
        check("/replicas/0/replicas", 1.into(), false);
        check("", Value::Null, false);
        let mut adopted = rollout(&status).value().unwrap();
        adopted["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1",
            "kind": "Deployment", "name": "w", "uid": "u", "controller": true}]);
        let adopted = Object::from_value(&adopted).unwrap();
        let change = InformerEvent {
            old: Some(&rollout(&status)),
            new: Some(&adopted),
            in_initial_list: false,
        };
        assert!(!keeps_works(&change));
    }
}
