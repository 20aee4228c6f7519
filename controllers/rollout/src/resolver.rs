//! Tells the binding controller which revision of a template each cluster may have.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Informer, InformerEvent, ListWatchSelector};
use controller_context::PropagationContext;
use flotilla_runtime::Workqueue;
use karmada_api::Rollout;
use karmada_api::names::binding_reference_key;
use karmada_api::rollout::{
    CLUSTER_ROLLOUT_POLICIES, REVISION_OF, ROLLOUT_POLICIES, ROLLOUTS, RolloutStatus,
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
    pub fn add_event_handler(&self, handler: impl Fn(String, bool) + Send + Sync + 'static) {
        self.rollouts.add_event_handler(move |change| {
            if !is_same_status(change) {
                handler(change.key(), change.in_initial_list);
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

    /// The ControllerRevisions of the template of a binding, the newest first.
    pub(crate) fn revisions_of(&self, binding: &Object, template: &Object) -> Vec<Object> {
        let key = binding_reference_key(binding.namespace(), binding.name());
        let mut revisions = self.revisions.by_index(BY_BINDING, &key);
        revisions.retain(|revision| is_owned_by(revision, template));
        revisions.sort_by_cached_key(|revision| Reverse(revision_number(revision)));
        revisions
    }
}

/// Whether a template is the controlling owner of an object.
pub(crate) fn is_owned_by(object: &Object, template: &Object) -> bool {
    let owner = object.meta().controller();
    owner.is_some_and(|owner| *owner.uid == *template.uid())
}

fn is_same_status(change: &InformerEvent<'_>) -> bool {
    let view = |object: Option<&Object>| object?.decode::<Rollout>().ok();
    match (view(change.old), view(change.new)) {
        (Some(old), Some(new)) => old.status == new.status,
        _ => false,
    }
}
