//! Reconciles bindings: enqueues them after changes, and writes and deletes their Works.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Informer, InformerEvent, InvolvedObject, TaskGroup};
use controller_context::{
    Error, ManifestMemoryBudget, NamespaceGates, PropagationContext, TemplateInformers, WorkClient,
    binding_key_of_work, is_small_tree,
};
use flotilla_runtime::{
    ClusterLister, ControllerName, EventRecorder, IndexKeyWorkqueue, ReconcileAction, RestMapping,
    Workqueue, remove_finalizers, run_workers,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use interpreter::InterpreterOperation;
use karmada_api::kind_in_namespace::{KindInNamespace, RESOURCE_GROUP_INDEX};
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use karmada_api::well_known_keys::{
    BINDING_FINALIZER, BINDING_ID, CLUSTER_BINDING_FINALIZER, CLUSTER_BINDING_ID,
};
use karmada_api::{ResourceBinding, TargetCluster, kind_in_namespace};
use machinery::tree_memory::estimate_tree_bytes;
use machinery::{Gvk, Gvr, Object};
use overrides::OverrideManager;
use parking_lot::Mutex;
use rollout::{RevisionResolver, StagedTemplate};
use serde_json::Value;
use tokio::time::Instant;

use crate::changed_override_policies::ChangedOverridePolicies;
use crate::event_filter::needs_reconcile;
use crate::gated_targets::{follow_gates, within_gate};
use crate::kept_replicas::with_kept_replicas;
use crate::manifest::{PerClusterManifestPreparer, WorkSource, binding_id};
use crate::metrics::SYNC_WORK_OUTCOMES;
use crate::removed_bindings::RemovedBindings;
use crate::work_builder::{
    SharedManifestInputs, WorkBuilder, WorkFailure, parse_manifest, unknown_cluster,
};
use crate::work_cleanup::{is_late, plan_cleanup};

const BY_BINDING: &str = "binding";
const BINDING_WORKERS: usize = 8;
/// Concurrent writes of Works of one binding.
const MAX_CONCURRENT_WORK_WRITES: usize = 16;
/// A manifest stands in memory as a tree, as part of the Work that is read or written, and
/// as that Work's encoded form.
const COPIES: usize = 3;
const PURGE_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The interpreter operations that manifests depend on.
const REVISION_OPERATIONS: &[InterpreterOperation] = &[InterpreterOperation::ReviseReplica];

/// `namespace/name`, or the name of a ClusterResourceBinding.
type BindingKey = String;

/// Creates, updates and deletes the Works of bindings.
/// The options of the controller, beside its context.
pub struct BindingControllerOptions {
    pub templates: Arc<TemplateInformers>,
    pub works: WorkClient,
    pub overrides: OverrideManager,
    pub memory: Arc<ManifestMemoryBudget>,
    pub revisions: RevisionResolver,
}

pub struct BindingController {
    api: Arc<dyn Api>,
    recorder: EventRecorder,
    override_recorder: EventRecorder,
    builder: WorkBuilder,
    pub(crate) templates: Arc<TemplateInformers>,
    clusters: ClusterLister,
    pub(crate) overrides: OverrideManager,
    works: WorkClient,
    pub(crate) bindings: Informer,
    pub(crate) cluster_bindings: Informer,
    pub(crate) queue: Workqueue<BindingKey>,
    manifest_memory: Arc<ManifestMemoryBudget>,
    pub(crate) override_changes: ChangedOverridePolicies,
    /// The ids of bindings whose finalizer was removed, by key: a Work whose creation was under way
    /// then must be deleted.
    removed_bindings: Mutex<RemovedBindings>,
    pub(crate) revisions: RevisionResolver,
    namespace_gates: NamespaceGates,
}

impl BindingController {
    pub async fn start(context: &PropagationContext, options: BindingControllerOptions) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.controller.control_plane),
            recorder: context.controller.recorder.clone(),
            override_recorder: context
                .controller
                .recorder
                .with_component("override-manager"),
            builder: WorkBuilder {
                interpreter: context.interpreter.clone(),
                feature_gates: context.feature_gates,
            },
            templates: options.templates,
            clusters: context.clusters.clone(),
            overrides: options.overrides,
            works: options.works,
            bindings: context.controller.informer(&BINDINGS),
            cluster_bindings: context.controller.informer(&CLUSTER_BINDINGS),
            queue: Workqueue::new(),
            manifest_memory: options.memory,
            override_changes: ChangedOverridePolicies::default(),
            removed_bindings: Mutex::default(),
            revisions: options.revisions,
            namespace_gates: NamespaceGates::new(context),
        });
        controller.works.informer.add_index(BY_BINDING, |work| {
            [BINDING_ID, CLUSTER_BINDING_ID]
                .iter()
                .filter_map(|label| work.meta().label(label).map(str::to_owned))
                .collect()
        });
        controller.works.informer.wait_for_cache_sync().await;
        controller.clusters.informer().wait_for_cache_sync().await;
        controller.overrides.wait_synced().await;
        controller.revisions.wait_synced().await;
        controller.namespace_gates.wait_synced().await;
        controller.add_event_handlers(&context.controller.tasks);
        let queue = controller.queue.clone();
        run_workers(
            &context.controller.tasks,
            ControllerName::with_stage("bindings", "work"),
            &queue,
            BINDING_WORKERS,
            move |key| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>, tasks: &TaskGroup) {
        for informer in [&self.bindings, &self.cluster_bindings] {
            informer.add_index(RESOURCE_GROUP_INDEX, kind_in_namespace::index_keys);
            let queue = self.queue.clone();
            informer.add_event_handler(move |change| {
                if needs_reconcile(change) {
                    queue.add_event(change.key(), change);
                }
            });
        }
        let controller = Arc::downgrade(self);
        self.works.informer.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.on_work_event(change);
            }
        });
        let queue = self.queue.clone();
        self.revisions
            .add_event_handler(move |binding, lane| queue.add_to_lane(binding, lane));
        // Changed interpreter rules may revise replicas in another way.
        let queue = self.queue.clone();
        let visit = move |binding: &Object| queue.add_low(binding.meta().key());
        let informers = [&self.bindings, &self.cluster_bindings];
        let sweep = IndexKeyWorkqueue::start(
            tasks,
            "revised-kinds",
            &informers,
            RESOURCE_GROUP_INDEX,
            visit,
        );
        let sweep = Arc::new(sweep);
        let switched_kinds = Arc::clone(&sweep);
        self.templates.type_configs.on_change(move |targets| {
            switched_kinds.add(|key| {
                let group = KindInNamespace::parse(key);
                group.is_some_and(|group| targets.iter().any(|target| target.is(&group.gvk())))
            });
        });
        follow_gates(&self.namespace_gates, &sweep);
        self.builder
            .interpreter
            .add_change_listener(move |changed| {
                if changed.affects_operations(REVISION_OPERATIONS) {
                    let concerns = |group: KindInNamespace<'_>| {
                        changed.affects_kind(&group.gvk(), REVISION_OPERATIONS)
                    };
                    sweep.add(|key| KindInNamespace::parse(key).is_some_and(concerns));
                }
            });
        self.add_override_event_handlers(tasks);
    }

    /// Enqueues the binding of a Work that another writer has changed or deleted.
    fn on_work_event(&self, change: &InformerEvent<'_>) {
        let Some(old) = change.old else {
            self.on_work_created(change);
            return;
        };
        let changed = match change.new {
            None => {
                self.works.forget(old);
                true
            }
            Some(new) => {
                old.meta().generation != new.meta().generation
                    && !new.meta().deleting
                    && !self.works.is_own_update(new)
            }
        };
        if changed && let Some(key) = binding_key_of_work(old) {
            self.queue.add(key);
        }
    }

    /// Enqueues a binding whose Work appears late: its creation was not seen yet when the binding
    /// left the cluster or was deleted, or a former leader made it.
    fn on_work_created(&self, change: &InformerEvent<'_>) {
        let work = change.object();
        let Some(key) = binding_key_of_work(work).filter(|_| !change.in_initial_list) else {
            return;
        };
        let (_, informer) = self.resource_and_informer(&key);
        let binding = informer.get_by_key(&key);
        if binding.is_some_and(|binding| is_late(work, &binding))
            || self.removed_bindings.lock().id_of(&key).is_some()
        {
            self.queue.add(key);
        }
    }

    fn resource_and_informer(&self, key: &str) -> (&'static Gvr, &Informer) {
        match key.contains('/') {
            true => (&BINDINGS, &self.bindings),
            false => (&CLUSTER_BINDINGS, &self.cluster_bindings),
        }
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let (resource, informer) = self.resource_and_informer(key);
        let Some(binding) = informer.get_by_key(key) else {
            let removed = self.removed_bindings.lock().id_of(key);
            if let Some(id) = removed {
                self.delete_works(key, &id).await?;
            }
            return Ok(ReconcileAction::Done);
        };
        if binding.meta().deleting {
            self.finalize_binding(resource, &binding).await
        } else {
            self.sync_binding(&binding).await
        }
    }

    /// Deletes all Works of the binding and removes its finalizer.
    async fn finalize_binding(
        &self,
        resource: &Gvr,
        binding: &Object,
    ) -> Result<ReconcileAction, Error> {
        let view = binding.decode::<ResourceBinding>()?;
        if view.spec.preserve_resources_on_deletion == Some(true) {
            self.preserve_works(&binding.meta().key(), binding_id(binding))
                .await?;
        }
        self.delete_works(&binding.meta().key(), binding_id(binding))
            .await?;
        let own_finalizers = [BINDING_FINALIZER, CLUSTER_BINDING_FINALIZER];
        let finalizers = &view.metadata.finalizers;
        if !finalizers
            .iter()
            .any(|f| own_finalizers.contains(&f.as_str()))
        {
            return Ok(ReconcileAction::Done);
        }
        let (key, id) = (binding.meta().key(), binding_id(binding).to_owned());
        self.removed_bindings.lock().insert(key, id);
        remove_finalizers(&*self.api, resource, binding, &own_finalizers).await?;
        Ok(ReconcileAction::Done)
    }

    /// Has the Works of a deleted binding leave their objects: the binding may have been deleted
    /// before its last change reached them.
    async fn preserve_works(&self, key: &str, id: &str) -> Result<(), Error> {
        for work in self.works_of(key, id) {
            if !work.meta().deleting {
                self.works.preserve(&work).await?;
            }
        }
        Ok(())
    }

    async fn delete_works(&self, key: &str, id: &str) -> Result<(), Error> {
        for work in self.works_of(key, id) {
            self.works.delete(&work).await?;
        }
        Ok(())
    }

    /// The Works of a binding: they carry its permanent id, and name no other binding. A user may
    /// give a new binding an id that another one has.
    fn works_of(&self, key: &str, id: &str) -> Vec<Object> {
        let mut works = self.works.informer.by_index(BY_BINDING, id);
        works.retain(|work| binding_key_of_work(work).is_none_or(|named| named == key));
        works
    }

    async fn sync_binding(&self, binding: &Object) -> Result<ReconcileAction, Error> {
        let view = binding.decode::<ResourceBinding>()?;
        let gate = self.namespace_gates.clusters_of(binding.namespace());
        let gate = gate.await?;
        let template_uid = &view.spec.resource.uid;
        let Some(mut kept) = self.revisions.kept_replicas(binding, template_uid) else {
            // The event of the Rollout leads here again.
            return Ok(ReconcileAction::Done);
        };
        kept.retain(|cluster, _| gate.as_ref().is_none_or(|gate| gate.contains(cluster)));
        let view = with_kept_replicas(within_gate(view, gate), &kept);
        let spec = &view.spec;
        let of = &spec.resource;
        let kind = Gvk::from_api_version(&of.api_version, &of.kind);
        if self.templates.type_configs.is_disabled(&kind) {
            // All that is propagated stays as it is until the kind is switched on again.
            return Ok(ReconcileAction::Done);
        }
        let targets = spec.targets();
        let works = self.works_of(&binding.meta().key(), binding_id(binding));
        let cleanup = plan_cleanup(spec, &works, |cluster| kept.contains_key(cluster));
        let mut failed = Vec::new();
        for orphan in cleanup.orphans {
            let deleted = self.works.delete(orphan).await;
            failed.extend(deleted.err().map(Error::from));
        }
        if let Err(error) = Error::aggregate(failed) {
            let text = error.to_string();
            let about = InvolvedObject::from_object(binding);
            self.recorder_for(binding)
                .warning(&about, "CleanupWorkFailed", text);
            return Err(error);
        }
        if cleanup.must_wait {
            return Ok(ReconcileAction::RequeueAfter(PURGE_RETRY_INTERVAL));
        }
        let Some(served) = self.templates.rest_mapper.find(&of.api_version, &of.kind) else {
            let text = format!(
                "no matches for kind {:?} in version {:?}",
                of.kind, of.api_version
            );
            return Err(Error::Blocked(text));
        };
        of.check_scope(binding.namespace(), served.namespaced)
            .map_err(|reason| Error::Blocked(format!("spec.resource.namespace: {reason}")))?;
        if targets.is_empty() {
            return Ok(ReconcileAction::Done);
        }
        let revision = of.resource_version.parse().unwrap_or(0);
        let lookup = self
            .templates
            .get_at_least(&served, &of.namespace, &of.name, revision)
            .await?;
        let Some(template) = lookup else {
            return Ok(ReconcileAction::Done);
        };
        let began = Instant::now();
        let outcome = match self.revisions.resolve(binding, &served.gvk, &template) {
            // The event of the Rollout leads here again.
            StagedTemplate::Awaiting => return Ok(ReconcileAction::Done),
            StagedTemplate::Unstaged => {
                let source = WorkSource {
                    template: &template,
                    overrides: self.overrides.candidates(&served.gvk, template.meta()),
                    revision: None,
                    targets,
                };
                self.ensure_works(binding, &view, &served, source).await
            }
            StagedTemplate::Staged(staged) => {
                self.ensure_staged_works(binding, &view, (&served, &template), &staged)
                    .await
            }
        };
        SYNC_WORK_OUTCOMES.observe(began.elapsed(), outcome.is_ok());
        self.record_sync_event(binding, &served, &template, &outcome);
        outcome.map(|_| ReconcileAction::Done)
    }

    fn recorder_for(&self, binding: &Object) -> EventRecorder {
        self.recorder
            .with_component(if binding.namespace().is_empty() {
                "cluster-resource-binding-controller"
            } else {
                "binding-controller"
            })
    }

    fn record_sync_event(
        &self,
        binding: &Object,
        served: &RestMapping,
        template: &Object,
        outcome: &Result<bool, Error>,
    ) {
        let key = binding.meta().key();
        let kind = if binding.namespace().is_empty() {
            "ClusterResourceBinding"
        } else {
            "ResourceBinding"
        };
        let recorder = self.recorder_for(binding);
        let abouts = [
            InvolvedObject::from_object(binding),
            InvolvedObject::new(&served.api_version, served.kind(), template),
        ];
        for about in abouts {
            match outcome {
                Ok(false) => {}
                Ok(true) => {
                    let text = format!("Sync work of {kind}({key}) successful.");
                    recorder.normal(&about, "SyncWorkSucceed", text);
                }
                // The newer object is about to arrive by the watch.
                Err(e) if e.is_conflict() => {}
                Err(e) => recorder.warning(&about, "SyncWorkFailed", e.to_string()),
            }
        }
    }

    /// Creates or updates one Work per target; returns whether any was written. A failure for one
    /// cluster does not affect the others. Each manifest is built just before its Work is written,
    /// so that few manifests are in memory at a time.
    pub(crate) async fn ensure_works(
        &self,
        binding: &Object,
        view: &ResourceBinding,
        served: &RestMapping,
        source: WorkSource<'_>,
    ) -> Result<bool, Error> {
        let (template, targets) = (source.template, source.targets);
        let tree = parse_manifest(served, template)?;
        let common = PerClusterManifestPreparer::new(
            served.gvk.clone(),
            template,
            &tree,
            binding,
            &view.spec,
            &view.spec.targets(),
        );
        let about = InvolvedObject::new(&served.api_version, served.kind(), template);
        let tree_bytes = estimate_tree_bytes(&tree);
        // A large manifest is parsed again once memory is reserved for it.
        let mut parsed = Some(tree).filter(|_| is_small_tree(tree_bytes));
        let source = SharedManifestInputs {
            mapping: served,
            template,
            tree_bytes,
            collects_status: self.templates.type_configs.collects_status(&served.gvk),
            builder: common,
            overrides: source.overrides,
            revision: source.revision,
            template_reference: about,
        };
        let (mut written, mut failed) = (false, Vec::new());
        // Several writes run at once, so that the store commits them together.
        let (mut rest, mut puts) = (targets.iter(), FuturesOrdered::new());
        loop {
            for target in rest.by_ref().take(MAX_CONCURRENT_WORK_WRITES - puts.len()) {
                puts.push_back(self.ensure_work(&source, parsed.take(), target));
            }
            match puts.next().await {
                None => break,
                Some(outcome) => match outcome {
                    Ok(wrote) => written |= wrote,
                    Err(e) => failed.push(e),
                },
            }
        }
        Error::aggregate(failed).map(|()| written)
    }

    /// Creates or updates the Work of one target after reserving memory for its manifest.
    async fn ensure_work(
        &self,
        source: &SharedManifestInputs<'_>,
        parsed: Option<Value>,
        target: &TargetCluster,
    ) -> Result<bool, Error> {
        let _memory = self
            .manifest_memory
            .reserve(source.tree_bytes, COPIES)
            .await;
        let copy = match parsed {
            Some(tree) => tree,
            None => parse_manifest(source.mapping, source.template)?,
        };
        let Some(cluster) = self.clusters.get(&target.name) else {
            return Err(unknown_cluster(&target.name));
        };
        let cluster = cluster.attributes();
        let built = self.builder.build(source, copy, target, &cluster).await;
        let (record, draft) = built.map_err(|failure| {
            if let WorkFailure::Override(failed) = &failure {
                failed.record_event(&self.override_recorder, &source.template_reference);
            }
            Error::blocked(failure)
        })?;
        let written = self
            .works
            .create_or_update(draft, source.builder.template_uid)
            .await?;
        if written {
            record.record_events(
                &self.override_recorder,
                &source.template_reference,
                &target.name,
            );
        }
        Ok(written)
    }
}
