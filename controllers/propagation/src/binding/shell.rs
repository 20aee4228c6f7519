//! Reconciles bindings: enqueues them after changes, and writes and deletes their Works.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, Patch, WriteOptions};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use interpreter::{Interpreter, Operation};
use machinery::{Gvr, Object};
use openapi::karmada::labels::{
    APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES, BINDING_FINALIZER, BINDING_ID, BINDING_NAME,
    BINDING_NAMESPACE, CLUSTER_BINDING_FINALIZER, CLUSTER_BINDING_ID, CLUSTER_BINDING_NAME,
};
use openapi::karmada::resource_group::{BY_RESOURCE_GROUP, ResourceGroup};
use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS};
use openapi::karmada::{Binding, FeatureGates, Gate, TargetCluster, names, resource_group};
use parking_lot::Mutex;
use flotilla_runtime::{
    Action, Change, IndexSweep, Informer, Name, ObjectRef, Queue, Recorder, Select, Tasks,
    run_workers,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cleanup::cleanup;
use super::events::is_due;
use super::manifest::{Common, identity};
use super::override_changes::OverrideChanges;
use crate::error::Error;
use crate::figures::FIGURES;
use crate::kinds::Served;
use crate::manifest_memory::{ManifestMemory, is_small, tree_bytes};
use crate::meta::Extra;
use crate::overrides::{Candidates, Overrides, Record};
use crate::run::Deps;
use crate::templates::Templates;
use crate::works::{Draft, Works};

const BY_BINDING: &str = "binding";
const WORKERS: usize = 8;
/// Concurrent writes of Works of one binding.
const PUTS_AT_ONCE: usize = 16;
/// The maximum number of deleted bindings that are remembered.
const REMEMBERED: usize = 10_000;
/// A manifest stands in memory as a tree, as part of the Work that is read or written, and
/// as that Work's encoded form.
const COPIES: usize = 3;
const RETRY_PURGE: Duration = Duration::from_secs(5);
/// The interpreter operations that manifests depend on.
const REVISION: &[Operation] = &[Operation::ReviseReplica];

/// `namespace/name`, or the name of a ClusterResourceBinding.
type Key = String;

pub(crate) struct BindingController {
    api: Arc<dyn Api>,
    recorder: Recorder,
    override_recorder: Recorder,
    interpreter: Interpreter,
    pub(super) templates: Arc<Templates>,
    clusters: scheduler::Clusters,
    pub(super) overrides: Overrides,
    gates: FeatureGates,
    works: Works,
    pub(super) bindings: Informer,
    pub(super) cluster_bindings: Informer,
    pub(super) queue: Queue<Key>,
    memory: Arc<ManifestMemory>,
    pub(super) override_changes: OverrideChanges,
    /// The ids of bindings whose finalizer was removed, by key: a Work whose creation was under way
    /// then must be deleted.
    removed: Mutex<Removed>,
}

#[derive(Default)]
struct Removed {
    ids: HashMap<Key, String>,
    order: VecDeque<Key>,
}

impl Removed {
    fn insert(&mut self, key: Key, id: String) {
        if self.ids.insert(key.clone(), id).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

impl BindingController {
    pub(crate) async fn start(
        deps: &Deps,
        templates: &Arc<Templates>,
        works: &Works,
        overrides: &Overrides,
        memory: &Arc<ManifestMemory>,
        tasks: &Tasks,
    ) {
        let informer = |resource: &Gvr| deps.informers.get(&deps.control, &Select::all(resource));
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            recorder: deps.recorder.clone(),
            override_recorder: deps.recorder.named("override-manager"),
            interpreter: deps.interpreter.clone(),
            templates: Arc::clone(templates),
            clusters: deps.clusters.clone(),
            overrides: overrides.clone(),
            gates: deps.options.gates,
            works: works.clone(),
            bindings: informer(&BINDINGS),
            cluster_bindings: informer(&CLUSTER_BINDINGS),
            queue: Queue::new(),
            memory: Arc::clone(memory),
            override_changes: OverrideChanges::default(),
            removed: Mutex::default(),
        });
        it.works.informer.add_index(BY_BINDING, |work| {
            [BINDING_ID, CLUSTER_BINDING_ID]
                .iter()
                .filter_map(|label| work.head().label(label).map(str::to_owned))
                .collect()
        });
        it.works.informer.wait_synced().await;
        it.clusters.informer().wait_synced().await;
        it.overrides.wait_synced().await;
        it.listen(tasks);
        let queue = it.queue.clone();
        run_workers(
            tasks,
            Name::stage("bindings", "work"),
            &queue,
            WORKERS,
            move |key| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&key).await }
            },
        );
    }

    fn listen(self: &Arc<Self>, tasks: &Tasks) {
        for informer in [&self.bindings, &self.cluster_bindings] {
            informer.add_index(BY_RESOURCE_GROUP, resource_group::index_keys);
            let queue = self.queue.clone();
            informer.on_change(move |change| {
                if is_due(change) {
                    queue.add_lane(change.key(), change.initial);
                }
            });
        }
        let it = Arc::downgrade(self);
        self.works.informer.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.work_changed(change);
            }
        });
        // Changed interpreter rules may revise replicas in another way.
        let queue = self.queue.clone();
        let visit = move |binding: &Object| queue.add_low(binding.head().key());
        let informers = [&self.bindings, &self.cluster_bindings];
        let sweep = IndexSweep::start(tasks, "revised-kinds", &informers, BY_RESOURCE_GROUP, visit);
        self.interpreter.on_change(move |changed| {
            if changed.touches(REVISION) {
                let concerns = |group: ResourceGroup<'_>| changed.concerns(&group.gvk(), REVISION);
                sweep.add(|key| ResourceGroup::parse(key).is_some_and(concerns));
            }
        });
        self.listen_to_overrides(tasks);
    }

    /// Enqueues the binding of a Work that another writer has changed or deleted.
    fn work_changed(&self, change: &Change<'_>) {
        let Some(old) = change.old else {
            self.work_came(change);
            return;
        };
        let changed = match change.new {
            None => {
                self.works.forget(old);
                true
            }
            Some(new) => {
                old.head().generation != new.head().generation
                    && !new.head().deleting
                    && !self.works.is_own(new)
            }
        };
        if changed && let Some(key) = binding_of(old) {
            self.queue.add(key);
        }
    }

    /// Enqueues a deleted binding whose Work appears late: its creation was under way while the
    /// other Works were deleted, or a former leader made it.
    fn work_came(&self, change: &Change<'_>) {
        if change.initial || self.removed.lock().ids.is_empty() {
            return;
        }
        if let Some(key) = binding_of(change.object())
            && self.removed.lock().ids.contains_key(&key)
        {
            self.queue.add(key);
        }
    }

    async fn reconcile(&self, key: &str) -> Result<Action, Error> {
        let (resource, informer) = if key.contains('/') {
            (&BINDINGS, &self.bindings)
        } else {
            (&CLUSTER_BINDINGS, &self.cluster_bindings)
        };
        let Some(binding) = informer.get_key(key) else {
            let removed = self.removed.lock().ids.get(key).cloned();
            if let Some(id) = removed {
                self.delete_works(&id).await?;
            }
            return Ok(Action::Done);
        };
        if binding.head().deleting {
            self.remove(resource, &binding).await
        } else {
            self.sync(&binding).await
        }
    }

    /// Deletes all Works of the binding and removes its finalizer.
    async fn remove(&self, resource: &Gvr, binding: &Object) -> Result<Action, Error> {
        self.delete_works(identity(binding)).await?;
        let ours = [BINDING_FINALIZER, CLUSTER_BINDING_FINALIZER];
        let view = binding.view::<Binding>()?;
        let all = &view.metadata.finalizers;
        let rest: Vec<&String> = all.iter().filter(|f| !ours.contains(&f.as_str())).collect();
        if rest.len() == all.len() {
            return Ok(Action::Done);
        }
        let patch = json!({"metadata": {
            "resourceVersion": binding.revision().to_string(), "finalizers": rest}});
        let at = At::of(resource, binding);
        let options = WriteOptions::default();
        let (key, id) = (binding.head().key(), identity(binding).to_owned());
        self.removed.lock().insert(key, id);
        match self.api.patch(at, Patch::Merge(patch), &options).await {
            Err(e) if !e.is_not_found() => Err(e.into()),
            _ => Ok(Action::Done),
        }
    }

    async fn delete_works(&self, id: &str) -> Result<(), Error> {
        for work in self.works.informer.by_index(BY_BINDING, id) {
            self.works.delete(&work).await?;
        }
        Ok(())
    }

    async fn sync(&self, binding: &Object) -> Result<Action, Error> {
        let view = binding.view::<Binding>()?;
        let spec = &view.spec;
        let targets = spec.targets();
        let works = self.works.informer.by_index(BY_BINDING, identity(binding));
        let cleanup = cleanup(spec, &works);
        let mut failed = Vec::new();
        for orphan in cleanup.orphans {
            failed.extend(self.works.delete(orphan).await.err());
        }
        if let Err(error) = Error::of(failed) {
            let text = error.to_string();
            let about = ObjectRef::of(binding);
            self.recorder_for(binding)
                .warning(&about, "CleanupWorkFailed", text);
            return Err(error);
        }
        if cleanup.waits {
            return Ok(Action::After(RETRY_PURGE));
        }
        let of = &spec.resource;
        let Some(served) = self.templates.kinds.find(&of.api_version, &of.kind) else {
            let text = format!(
                "no matches for kind {:?} in version {:?}",
                of.kind, of.api_version
            );
            return Err(Error::Blocked(text));
        };
        if targets.is_empty() {
            return Ok(Action::Done);
        }
        let revision = of.resource_version.parse().unwrap_or(0);
        let found = self
            .templates
            .at_least(&served, &of.namespace, &of.name, revision)
            .await?;
        let Some(template) = found else {
            return Ok(Action::Done);
        };
        let began = Instant::now();
        let outcome = self
            .ensure_works(binding, &view, &served, &template, &targets)
            .await;
        FIGURES.synced.observe(began.elapsed(), outcome.is_ok());
        self.tell(binding, &served, &template, &outcome);
        outcome.map(|_| Action::Done)
    }

    fn recorder_for(&self, binding: &Object) -> Recorder {
        self.recorder.named(if binding.namespace().is_empty() {
            "cluster-resource-binding-controller"
        } else {
            "binding-controller"
        })
    }

    fn tell(
        &self,
        binding: &Object,
        served: &Served,
        template: &Object,
        outcome: &Result<bool, Error>,
    ) {
        let key = binding.head().key();
        let kind = if binding.namespace().is_empty() {
            "ClusterResourceBinding"
        } else {
            "ResourceBinding"
        };
        let recorder = self.recorder_for(binding);
        let abouts = [
            ObjectRef::of(binding),
            ObjectRef::new(&served.api_version, served.kind(), template),
        ];
        for about in abouts {
            match outcome {
                Ok(false) => {}
                Ok(true) => {
                    let text = format!("Sync work of {kind}({key}) successful.");
                    recorder.normal(&about, "SyncWorkSucceed", text);
                }
                // The newer object is about to arrive by the watch.
                Err(e) if e.is_outdated() => {}
                Err(e) => recorder.warning(&about, "SyncWorkFailed", e.to_string()),
            }
        }
    }

    /// Creates or updates one Work per target; returns whether any was written. A failure for one
    /// cluster does not affect the others. Each manifest is built just before its Work is written,
    /// so that few manifests are in memory at a time.
    async fn ensure_works(
        &self,
        binding: &Object,
        view: &Binding,
        served: &Served,
        template: &Object,
        targets: &[&TargetCluster],
    ) -> Result<bool, Error> {
        let tree = manifest_tree(served, template)?;
        let common = Common::new(
            served.gvk.clone(),
            template,
            &tree,
            binding,
            &view.spec,
            targets,
        );
        let about = ObjectRef::new(&served.api_version, served.kind(), template);
        let tree_bytes = tree_bytes(&tree);
        // A large manifest is parsed again once memory is reserved for it.
        let mut parsed = Some(tree).filter(|_| is_small(tree_bytes));
        let source = ManifestSource {
            served,
            template,
            tree_bytes,
            common,
            overrides: self.overrides.candidates(binding.namespace()),
            about,
        };
        let (mut written, mut failed) = (false, Vec::new());
        // Several writes run at once, so that the store commits them together.
        let (mut rest, mut puts) = (targets.iter(), FuturesOrdered::new());
        loop {
            for target in rest.by_ref().take(PUTS_AT_ONCE - puts.len()) {
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
        Error::of(failed).map(|()| written)
    }

    /// Creates or updates the Work of one target after reserving memory for its manifest.
    async fn ensure_work(
        &self,
        source: &ManifestSource<'_>,
        parsed: Option<Value>,
        target: &TargetCluster,
    ) -> Result<bool, Error> {
        let _memory = self.memory.reserve(source.tree_bytes, COPIES).await;
        let copy = match parsed {
            Some(tree) => tree,
            None => manifest_tree(source.served, source.template)?,
        };
        let draft = self.draft(source, copy, target).await;
        let (record, draft) = draft.map_err(Error::Blocked)?;
        let written = self.works.put(draft, source.common.uid).await?;
        if written {
            record.tell(&self.override_recorder, &source.about, &target.name);
        }
        Ok(written)
    }

    /// Builds the Work of a target, and records which overrides were applied.
    async fn draft(
        &self,
        source: &ManifestSource<'_>,
        mut copy: Value,
        target: &TargetCluster,
    ) -> Result<(Record, Draft), String> {
        let common = &source.common;
        if common.is_workload() {
            let revised = self
                .interpreter
                .revise(&common.kind, copy, target.replicas)
                .await;
            copy = revised.map_err(|e| e.to_string())?;
        }
        common.complete(&mut copy, target)?;
        let Some(member) = self.clusters.get(&target.name) else {
            let name = &target.name;
            return Err(format!("clusters.cluster.karmada.io {name:?} not found"));
        };
        let overrides = &source.overrides;
        let applied = overrides.apply(&mut copy, &common.kind, &member.facts());
        let record = applied.map_err(|failed| {
            failed.tell(&self.override_recorder, &source.about);
            failed.to_string()
        })?;
        let (labels, mut annotations) = common.mark(&mut copy);
        for (key, applied) in [
            (APPLIED_CLUSTER_OVERRIDES, record.of_cluster()),
            (APPLIED_OVERRIDES, record.local()),
        ] {
            if let Some(text) = applied {
                annotations.insert(key.into(), text.into());
            }
        }
        if self.gates.is_on(Gate::StatefulFailoverInjection) {
            common.inject(&mut copy, &target.name);
        }
        let text = |field: &str| {
            copy["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let draft = Draft {
            namespace: names::execution_space(&target.name),
            name: names::work(
                copy["kind"].as_str().unwrap_or_default(),
                &text("name"),
                &text("namespace"),
            ),
            labels,
            annotations,
            owners: Vec::new(),
            manifest: copy,
            suspend_dispatching: Some(common.suspends(&target.name)),
            preserve_on_deletion: Some(common.preserves()),
        };
        Ok((record, draft))
    }
}

/// The inputs that the manifests of all clusters of a binding share.
struct ManifestSource<'a> {
    served: &'a Served,
    template: &'a Object,
    tree_bytes: usize,
    common: Common<'a>,
    overrides: Candidates,
    about: ObjectRef,
}

/// Parses a template as the base of a manifest.
fn manifest_tree(served: &Served, template: &Object) -> Result<Value, Error> {
    let mut tree = template.value()?;
    // Objects from a list may lack `apiVersion` and `kind`.
    tree["apiVersion"] = served.api_version.as_str().into();
    tree["kind"] = served.kind().into();
    // `managedFields` is large, and overrides do not apply to it.
    if let Some(metadata) = tree["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(tree)
}

/// The key of the binding that a Work's annotations name.
fn binding_of(work: &Object) -> Option<Key> {
    let extra = Extra::of(work);
    if let Some(name) = extra.annotation(CLUSTER_BINDING_NAME) {
        return Some(name.to_owned());
    }
    let (namespace, name) = (
        extra.annotation(BINDING_NAMESPACE)?,
        extra.annotation(BINDING_NAME)?,
    );
    Some(format!("{namespace}/{name}"))
}
