//! Reconciles Rollouts: keeps the revisions of staged templates, and writes which of them each
//! cluster may have.

use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, DeleteOptions, Informer, InformerEvent, InvolvedObject, Patch, ResourcePath, TaskGroup,
    WriteOptions, ignore_not_found,
};
use controller_context::{Error, PropagationContext, TemplateInformers, binding_key_of_work};
use flotilla_runtime::{
    ClusterLister, EventRecorder, Expectations, IndexKeyWorkqueue, ReconcileAction, RestMapping,
    StatusWriter, add_finalizer, remove_finalizers, run_workers,
};
use interpreter::ResourceInterpreter;
use karmada_api::kind_in_namespace::{KindInNamespace, RESOURCE_GROUP_INDEX, index_keys};
use karmada_api::names::binding_name;
use karmada_api::partition::partition_path;
use karmada_api::resources::BINDINGS;
use karmada_api::rollout::{ROLLOUT_FINALIZER, ROLLOUTS, RolloutStatus};
use karmada_api::well_known_keys::BINDING_NAME;
use karmada_api::{ResourceBinding, ResourceBindingSpec, Rollout, RolloutPolicy};
use machinery::time::Clock;
use machinery::{Gvk, Object};
use overrides::OverrideManager;
use serde_json::{Value, json};

use crate::decision::{DecisionInput, ObservedTarget, plan_next_step};
use crate::gate_jobs::GateJobs;
use crate::metrics::report_rollouts;
use crate::policies::SelectedPolicy;
use crate::query_evaluator::{QueryEvaluator, query_demands};
use crate::query_servers::QueryServers;
use crate::resolver::{RevisionResolver, may_own};
use crate::revision::{
    CONTROLLER_REVISIONS, controller_revision, next_revision_number, revision_content,
    revision_name, revision_number,
};
use crate::target_observer::TargetObserver;

const ROLLOUT_WORKERS: usize = 4;
const DEFAULT_REVISION_HISTORY_LIMIT: usize = 10;
/// Time in which reports of several clusters are batched: each alone would cost a step, with a write
/// that has all clusters.
const WORK_BATCH_WINDOW: Duration = Duration::from_millis(20);

/// The options of the controller, beside its context.
pub struct RolloutControllerOptions {
    pub templates: Arc<TemplateInformers>,
    pub works: Informer,
    pub overrides: OverrideManager,
    pub resolver: RevisionResolver,
    pub queries: QueryServers,
}

pub struct RolloutController {
    pub(crate) api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    pub(crate) recorder: EventRecorder,
    interpreter: ResourceInterpreter,
    clusters: ClusterLister,
    bindings: Informer,
    pub(crate) templates: Arc<TemplateInformers>,
    works: Informer,
    targets: TargetObserver,
    overrides: OverrideManager,
    pub(crate) resolver: RevisionResolver,
    queries: QueryEvaluator,
    jobs: GateJobs,
    /// The last written status of each Rollout.
    expectations: Expectations<String>,
}

/// A template under a policy, with its binding.
pub(crate) struct PolicedTemplate<'a> {
    pub(crate) binding: &'a Object,
    view: &'a ResourceBinding,
    pub(crate) mapping: &'a RestMapping,
    pub(crate) template: &'a Object,
    policy: SelectedPolicy,
}

impl RolloutController {
    pub async fn start(context: &PropagationContext, options: RolloutControllerOptions) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.controller.control_plane),
            clock: Arc::clone(&context.controller.clock),
            recorder: context
                .controller
                .recorder
                .with_component("rollout-controller"),
            interpreter: context.interpreter.clone(),
            clusters: context.clusters.clone(),
            bindings: context.controller.informer(&BINDINGS),
            templates: options.templates,
            targets: TargetObserver::new(context.clusters.clone(), options.works.clone()),
            jobs: GateJobs::new(
                Arc::clone(&context.controller.control_plane),
                options.works.clone(),
                context.clusters.clone(),
                options.overrides.clone(),
            ),
            works: options.works,
            overrides: options.overrides,
            queries: QueryEvaluator::new(context, options.queries, options.resolver.queue.clone()),
            expectations: Expectations::default(),
            resolver: options.resolver,
        });
        controller.resolver.wait_synced().await;
        controller.targets.wait_synced().await;
        controller.overrides.wait_synced().await;
        controller.add_event_handlers(&context.controller.tasks);
        let shutdown = context.controller.tasks.shutdown();
        report_rollouts(&controller.resolver, &controller.clock, shutdown);
        let queue = controller.resolver.queue.clone();
        run_workers(
            &context.controller.tasks,
            "rollouts",
            &queue,
            ROLLOUT_WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>, tasks: &TaskGroup) {
        let queue = self.resolver.queue.clone();
        self.resolver.rollouts.add_event_handler(move |change| {
            queue.add_event(change.key(), change);
        });
        let queue = self.resolver.queue.clone();
        self.resolver.revisions.add_event_handler(move |change| {
            let revision = change.object();
            if let Some(binding) = revision.annotation(BINDING_NAME)
                && !change.in_initial_list
            {
                queue.add(format!("{}/{binding}", revision.namespace()));
            }
        });
        // Only bindings with a Rollout follow their Works.
        let (queue, rollouts) = (self.resolver.queue.clone(), self.resolver.rollouts.clone());
        self.works.add_event_handler(move |change| {
            if !change.in_initial_list
                && !rollouts.is_empty()
                && let Some(key) = binding_key_of_work(change.object())
                && rollouts.get_by_key(&key).is_some()
            {
                queue.add_after(key, WORK_BATCH_WINDOW);
            }
        });
        self.jobs.add_event_handler(&self.resolver.queue);
        // Rollout and revisions that a deleted template has left go with its binding.
        let (queue, rollouts) = (self.resolver.queue.clone(), self.resolver.rollouts.clone());
        self.bindings.add_event_handler(move |change| {
            let is_gone = change.new.is_none_or(|binding| binding.meta().deleting);
            if is_gone && rollouts.get_by_key(&change.key()).is_some() {
                queue.add(change.key());
            }
        });
        self.follow_labels();
        self.follow_policies(tasks);
        self.follow_clusters(tasks);
    }

    /// Enqueues the Rollout of a template whose labels change: by them policies select it, and if none does
    /// any more, its binding is not written.
    fn follow_labels(&self) {
        let (queue, rollouts) = (self.resolver.queue.clone(), self.resolver.rollouts.clone());
        self.templates.add_template_handler(move |mapping, change| {
            if let (Some(old), Some(new)) = (change.old, change.new)
                && old.meta().labels != new.meta().labels
            {
                let binding = binding_name(&mapping.gvk.kind, new.name());
                let key = format!("{}/{binding}", new.namespace());
                if rollouts.get_by_key(&key).is_some() {
                    queue.add(key);
                }
            }
        });
    }

    /// Enqueues the bindings of the kinds that a changed policy selects, or has selected.
    fn follow_policies(&self, tasks: &TaskGroup) {
        self.bindings.add_index(RESOURCE_GROUP_INDEX, index_keys);
        let queue = self.resolver.queue.clone();
        let visit = move |binding: &Object| queue.add_low(binding.meta().key());
        let informers = [&self.bindings];
        let sweep = IndexKeyWorkqueue::start(
            tasks,
            "staged-kinds",
            &informers,
            RESOURCE_GROUP_INDEX,
            visit,
        );
        self.resolver.policies.add_event_handler(move |change| {
            sweep.add(|key| {
                KindInNamespace::parse(key).is_some_and(|group| may_select(change, &group))
            });
        });
    }

    /// Enqueues all Rollouts when a cluster becomes ready or not, on a task of its own.
    fn follow_clusters(&self, tasks: &TaskGroup) {
        const ALL: &str = "all";
        self.resolver
            .rollouts
            .add_index(ALL, |_| vec![ALL.to_owned()]);
        let queue = self.resolver.queue.clone();
        let visit = move |rollout: &Object| queue.add_low(rollout.meta().key());
        let informers = [&self.resolver.rollouts];
        let sweep = IndexKeyWorkqueue::start(tasks, "rollout-clusters", &informers, ALL, visit);
        self.clusters.informer().add_event_handler(move |change| {
            if is_ready(change.old) != is_ready(change.new) {
                sweep.add(|_| true);
            }
        });
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let rollout = self.resolver.rollouts.get_by_key(key);
        match &rollout {
            None => {
                self.queries.forget(key);
                self.targets.forget(key);
                self.expectations.forget(&key.to_owned());
                self.jobs.prune(key, None, None).await?;
            }
            // The event of the last step leads here again.
            Some(rollout) if self.expectations.is_ahead_of(&key.to_owned(), rollout) => {
                return Ok(ReconcileAction::Done);
            }
            Some(_) => {}
        }
        let binding = self.bindings.get_by_key(key);
        let Some(binding) = binding.filter(|binding| !binding.meta().deleting) else {
            return self.reconcile_without_binding(rollout).await;
        };
        let view = binding.decode::<ResourceBinding>()?;
        let of = &view.spec.resource;
        let mapping = self.templates.rest_mapper.find(&of.api_version, &of.kind);
        let Some(mapping) = mapping else {
            return Ok(ReconcileAction::Done);
        };
        let version = of.resource_version.parse().unwrap_or(0);
        let lookup = self
            .templates
            .get_at_least(&mapping, binding.namespace(), &of.name, version)
            .await?;
        let Some(template) = lookup else {
            return self.release_deleted(rollout).await;
        };
        let policy = self.resolver.policies.select(&mapping.gvk, template.meta());
        match (policy, rollout) {
            (None, None) => Ok(ReconcileAction::Done),
            (None, Some(rollout)) => {
                let result = self
                    .unstage(&binding, (&mapping, &template), &rollout)
                    .await;
                after_conflict(result)
            }
            // The Rollout of an earlier template, which is about to be collected with it.
            (_, Some(rollout)) if !may_own(&template, &rollout) => self.delete(&rollout).await,
            (Some(policy), rollout) => {
                let staged = PolicedTemplate {
                    binding: &binding,
                    view: &view,
                    mapping: &mapping,
                    template: &template,
                    policy,
                };
                after_conflict(self.sync(&staged, rollout).await)
            }
        }
    }

    pub(crate) async fn delete_revision(&self, revision: &Object) -> Result<(), Error> {
        let options = DeleteOptions {
            uid: Some(revision.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::of_object(&CONTROLLER_REVISIONS, revision);
        ignore_not_found(self.api.delete(at, &options).await)?;
        Ok(())
    }

    pub(crate) async fn delete(&self, rollout: &Object) -> Result<ReconcileAction, Error> {
        if rollout.meta().deleting {
            return self.release(rollout).await;
        }
        let options = DeleteOptions {
            uid: Some(rollout.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::of_object(&ROLLOUTS, rollout);
        ignore_not_found(self.api.delete(at, &options).await)?;
        Ok(ReconcileAction::Done)
    }

    /// Lets a Rollout go that was deleted and whose template is gone. One without an owner has been
    /// left to the next template.
    async fn release_deleted(&self, rollout: Option<Object>) -> Result<ReconcileAction, Error> {
        let is_owned = |rollout: &Object| rollout.meta().controller().is_some();
        match rollout.filter(|rollout| rollout.meta().deleting && is_owned(rollout)) {
            Some(rollout) => self.release(&rollout).await,
            None => Ok(ReconcileAction::Done),
        }
    }

    pub(crate) async fn release(&self, rollout: &Object) -> Result<ReconcileAction, Error> {
        let removed = remove_finalizers(&*self.api, &ROLLOUTS, rollout, &[ROLLOUT_FINALIZER]);
        let next = ReconcileAction::after_write(removed.await, ReconcileAction::Done);
        next.map_err(Error::from)
    }

    /// Lets a Rollout stay until it has ended, if it is deleted; returns whether it was written.
    async fn ensure_finalizer(&self, rollout: &Object) -> Result<bool, Error> {
        if rollout.meta().deleting {
            return Ok(false);
        }
        let newest = add_finalizer(&*self.api, &ROLLOUTS, rollout, ROLLOUT_FINALIZER);
        let newest = ignore_not_found(newest.await)?;
        Ok(newest.is_none_or(|newest| newest.revision() != rollout.revision()))
    }

    /// Does the next step of a rollout. Each step is one write, whose event leads to the next.
    async fn sync(
        &self,
        staged: &PolicedTemplate<'_>,
        rollout: Option<Object>,
    ) -> Result<ReconcileAction, Error> {
        let content = self.content(staged).await?;
        let target = revision_name(staged.binding.name(), &content);
        let revisions = self.resolver.revisions_of(staged.binding, staged.template);
        if !self
            .ensure_revision(staged, &revisions, &target, content)
            .await?
            || self.adopt_revisions(staged, &revisions).await?
        {
            return Ok(ReconcileAction::Done);
        }
        let Some(rollout) = rollout else {
            return self.create(staged).await;
        };
        if self.ensure_finalizer(&rollout).await? {
            return Ok(ReconcileAction::Done);
        }
        let view = rollout.decode::<Rollout>()?;
        let spec = &staged.policy.policy.spec;
        let key = staged.binding.meta().key();
        let (binding, status) = (&staged.view.spec, view.status.as_ref());
        let (mut targets, leaving) = self
            .targets
            .observe(&key, spec, binding, status, &revisions);
        let next_query = self.observe_queries(staged, view.status.as_ref(), &mut targets);
        let jobs = self.jobs.observe(&rollout, view.status.as_ref(), spec);
        let (jobs, observed_jobs) = jobs.await;
        let unusable_revisions = self.unusable_revisions(staged, status).await?;
        let decision = plan_next_step(DecisionInput {
            policy: spec,
            policy_id: &staged.policy.id(),
            spec: &view.spec,
            has_partition: has_partition(&staged.mapping.gvk),
            has_prometheus: self.queries.has_prometheus(),
            target: &target,
            unusable_revisions: &unusable_revisions,
            rollout_uid: rollout.uid(),
            previous: view.status.as_ref(),
            targets: &targets,
            jobs: &jobs,
            binding_generation: staged.binding.meta().generation,
            is_unplaced: is_unplaced(&staged.view.spec),
            leaving: &leaving,
            now: self.clock.now(),
        });
        let mut status = decision.status;
        status.observed_generation = rollout.meta().generation;
        status.observed_template_generation = staged.template.meta().generation;
        let changed = view.status.as_ref() != Some(&status);
        let body = changed.then(|| json!(status));
        let writer = StatusWriter::new(&*self.api, "rollout");
        if changed {
            if let Some(written) = writer.update(&ROLLOUTS, &rollout, body).await? {
                let look = || self.resolver.rollouts.get_by_key(&key);
                self.expectations.expect(&key, &written, look);
            }
            self.report_given_up(staged, &decision.given_up);
            self.report_unusable_revisions(&rollout, view.status.as_ref(), &status);
        } else if rollout.meta().deleting && is_settled(&status) {
            return self.release(&rollout).await;
        } else if self.adopt(&ROLLOUTS, &rollout, staged).await? {
            return Ok(ReconcileAction::Done);
        } else {
            self.prune_revisions(&revisions, &status, spec.revision_history_limit)
                .await?;
            self.jobs.prune(&key, Some(&rollout), Some(&status)).await?;
        }
        observed_jobs?;
        let next = decision.next.into_iter().chain(next_query).min();
        Ok(next.map_or(ReconcileAction::Done, ReconcileAction::RequeueAfter))
    }

    /// Records the clusters that lose replicas at the deadline though too few others are available.
    fn report_given_up(&self, staged: &PolicedTemplate<'_>, given_up: &[String]) {
        let mapping = staged.mapping;
        let about = InvolvedObject::new(&mapping.api_version, mapping.kind(), staged.template);
        for reason in given_up {
            let text = format!("Replicas are not kept any longer in {reason}.");
            self.recorder.warning(&about, "MinAvailableGivenUp", text);
        }
    }

    /// Gives the targets the latest results of the queries that they await; returns after how long
    /// the next one is due.
    fn observe_queries(
        &self,
        staged: &PolicedTemplate<'_>,
        status: Option<&RolloutStatus>,
        targets: &mut [ObservedTarget],
    ) -> Option<Duration> {
        let spec = &staged.policy.policy.spec;
        let is_confined = staged.policy.is_namespaced();
        let demands = query_demands(spec, status, staged.binding.namespace(), is_confined);
        let key = staged.binding.meta().key();
        self.queries.observe(&key, demands, targets)
    }

    async fn create(&self, staged: &PolicedTemplate<'_>) -> Result<ReconcileAction, Error> {
        let (namespace, name) = (staged.binding.namespace(), staged.binding.name());
        let at = ResourcePath::collection(&ROLLOUTS, namespace);
        let owner = staged.owner_reference();
        let body = json!({
            "apiVersion": ROLLOUTS.api_version(), "kind": "Rollout",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner],
                "finalizers": [ROLLOUT_FINALIZER]},
            "spec": {},
        });
        let options = WriteOptions::default();
        self.api.create(at, body.into(), &options).await?;
        Ok(ReconcileAction::Done)
    }

    /// The content of the template as it is now, with replicas that are the same at any scale.
    async fn content(&self, staged: &PolicedTemplate<'_>) -> Result<Value, Error> {
        let mut tree = staged.template.value()?;
        tree["apiVersion"] = staged.mapping.api_version.as_str().into();
        tree["kind"] = staged.mapping.kind().into();
        let kind = &staged.mapping.gvk;
        if staged.view.spec.is_workload() {
            let revised = self.interpreter.revise_replica(kind, tree, 0).await;
            tree = revised.map_err(Error::blocked)?;
        }
        let candidates = self.overrides.candidates(kind, staged.template.meta());
        let overrides = candidates.selecting_specs(kind, staged.template.meta());
        Ok(revision_content(tree, overrides))
    }

    /// Makes the revision of the current content exist and be the newest one; returns whether it
    /// already is.
    async fn ensure_revision(
        &self,
        staged: &PolicedTemplate<'_>,
        revisions: &[Object],
        target: &str,
        content: Value,
    ) -> Result<bool, Error> {
        let newest = revisions.first().map_or(0, revision_number);
        let existing = revisions.iter().find(|revision| revision.name() == target);
        if let Some(existing) = existing {
            if revision_number(existing) == newest {
                return Ok(true);
            }
            let version = existing.revision().to_string();
            let patch = json!({"metadata": {"resourceVersion": version}, "revision": next_revision_number(newest)});
            let at = ResourcePath::of_object(&CONTROLLER_REVISIONS, existing);
            let options = WriteOptions::default();
            self.api.patch(at, Patch::Merge(patch), &options).await?;
            return Ok(false);
        }
        // The garbage collector would not know that it is left, or collect it alone.
        if staged.template.meta().deleting {
            return Ok(false);
        }
        let generation = staged.template.meta().generation;
        let owner = staged.owner_reference();
        let number = next_revision_number(newest);
        let body = controller_revision(staged.binding, &owner, generation, number, content);
        let at = ResourcePath::collection(&CONTROLLER_REVISIONS, staged.binding.namespace());
        let created = self
            .api
            .create(at, body.into(), &WriteOptions::default())
            .await;
        if let Err(error) = created {
            // One of an earlier template of the name is about to be collected.
            if error.is_already_exists() {
                return Err(Error::blocked(error));
            }
            if !error.is_conflict() {
                let mapping = staged.mapping;
                let about =
                    InvolvedObject::new(&mapping.api_version, mapping.kind(), staged.template);
                self.recorder
                    .warning(&about, "CreateRevisionFailed", error.to_string());
            }
            return Err(error.into());
        }
        Ok(false)
    }

    /// Deletes the oldest revisions beyond the limit that no cluster may have. The one to which an undo
    /// returns is the last of them.
    async fn prune_revisions(
        &self,
        revisions: &[Object],
        status: &RolloutStatus,
        limit: Option<i64>,
    ) -> Result<(), Error> {
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(DEFAULT_REVISION_HISTORY_LIMIT);
        let is_used = |name: &str| {
            let mut clusters = status.stages.iter().flat_map(|stage| &stage.clusters);
            [&status.target_revision, &status.stable_revision]
                .iter()
                .any(|used| *used == name)
                || clusters.any(|cluster| cluster.revision == name)
                || status.replicas.iter().any(|kept| kept.revision == name)
        };
        let unused = revisions
            .iter()
            .filter(|revision| !is_used(revision.name()));
        let (former, others): (Vec<_>, Vec<_>) =
            unused.partition(|revision| *revision.name() == status.former_revision);
        for revision in former.into_iter().chain(others).skip(limit) {
            self.delete_revision(revision).await?;
        }
        Ok(())
    }
}

impl PolicedTemplate<'_> {
    /// The reference of what goes with the template.
    pub(crate) fn owner_reference(&self) -> Value {
        json!({"apiVersion": self.mapping.api_version.as_str(), "kind": self.mapping.kind(),
            "name": self.template.name(), "uid": self.template.uid(), "controller": true})
    }
}

fn after_conflict(result: Result<ReconcileAction, Error>) -> Result<ReconcileAction, Error> {
    match result {
        Err(error) if error.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
        result => result,
    }
}

/// Whether the status of a Rollout can be made again from the Works: nothing of it is staged, and no
/// cluster keeps replicas that it should not have.
fn is_settled(status: &RolloutStatus) -> bool {
    matches!(&*status.state, "Completed" | "Degraded")
        && status.rejected_revision.is_empty()
        && status.replicas.iter().all(|kept| kept.since.is_empty())
}

/// Whether a template has no cluster though its placement wants some.
fn is_unplaced(spec: &ResourceBindingSpec) -> bool {
    let placement = spec.placement.as_ref();
    let wants_clusters = placement.is_some_and(|placement| !placement.is_nowhere());
    wants_clusters && spec.replicas > 0 && spec.targets().is_empty()
}

pub(crate) fn has_partition(kind: &Gvk) -> bool {
    partition_path(&kind.group, &kind.kind).is_some()
}

fn is_ready(cluster: Option<&Object>) -> bool {
    let view = cluster.and_then(|cluster| cluster.decode::<karmada_api::Cluster>().ok());
    view.is_some_and(|cluster| cluster.is_ready())
}

/// Whether a version of a changed policy selects objects of a kind in a namespace.
fn may_select(change: &InformerEvent<'_>, group: &KindInNamespace<'_>) -> bool {
    let mut versions = [change.old, change.new].into_iter().flatten();
    versions.any(|object| {
        let is_in_scope = ["", group.namespace].contains(&object.namespace());
        let Ok(policy) = object.decode::<RolloutPolicy>() else {
            return false;
        };
        let mut selectors = policy.spec.resource_selectors.iter();
        is_in_scope
            && selectors.any(|selector| {
                (&*selector.api_version, &*selector.kind) == (group.api_version, group.kind)
            })
    })
}
