//! The cluster controller: reacts to Clusters, namespaces and bindings, and writes
//! execution spaces, taints and finalizers. A deletion waits for events, never for time.

use std::sync::Arc;

use client::{Api, At, DeleteOptions, Error, ListOptions, Patch, Result, WriteOptions};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use openapi::karmada::labels::{CLUSTER_FINALIZER, SYSTEM, WORK_FINALIZER};
use openapi::karmada::resources::{CLUSTERS, WORKS};
use openapi::karmada::{Cluster, Work, names};
use flotilla_runtime::{Action, Change, Informer, ObjectRef, Queue, Recorder, Select, run_workers};
use serde_json::{Value, json};

use super::decide::{taints, taints_text};
use crate::NAMESPACES;
use crate::bindings::{Bindings, targets};
use crate::start::Deps;

pub(super) struct Controller {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    clusters: Informer,
    namespaces: Informer,
    bindings: Bindings,
    works: Informer,
    queue: Queue<String>,
}

impl Controller {
    pub(super) fn start(deps: &Deps, bindings: &Bindings) {
        let informer = |resource| deps.informers.get(&deps.control, &Select::all(resource));
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control),
            clock: Arc::clone(&deps.clock),
            recorder: deps.recorder.named("cluster-controller"),
            clusters: informer(&CLUSTERS),
            namespaces: informer(&NAMESPACES),
            bindings: bindings.clone(),
            works: informer(&WORKS),
            queue: Queue::new(),
        });
        it.listen();
        let (tasks, workers) = (deps.tasks.clone(), deps.options.workers);
        let shutdown = deps.tasks.shutdown().clone();
        deps.tasks.spawn(async move {
            if shutdown.unless(it.wait_synced()).await.is_none() {
                return;
            }
            let queue = it.queue.clone();
            run_workers(&tasks, "cluster", &queue, workers, move |name: String| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&name).await }
            });
        });
    }

    /// A deletion must not miss a binding that is not listed yet.
    async fn wait_synced(&self) {
        self.clusters.wait_synced().await;
        self.namespaces.wait_synced().await;
        self.bindings.wait_synced().await;
    }

    fn listen(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.clusters.on_change(move |change| {
            if change.new.is_some() {
                queue.add_lane(change.key(), change.initial);
            }
        });
        let queue = self.queue.clone();
        self.namespaces.on_change(move |change| {
            if change.new.is_none()
                && let Some(cluster) = names::cluster_of_space(change.object().name())
            {
                queue.add(cluster.to_owned());
            }
        });
        let it = Arc::downgrade(self);
        self.bindings.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.binding_changed(change);
            }
        });
        let it = Arc::downgrade(self);
        self.works.on_change(move |change| {
            if let (Some(it), Some(work)) = (it.upgrade(), change.new) {
                it.work_changed(work);
            }
        });
    }

    /// Enqueues a terminating cluster, so that a Work created meanwhile loses its
    /// finalizer too.
    fn work_changed(&self, work: &Object) {
        if let Some(cluster) = names::cluster_of_space(work.namespace())
            && self.is_leaving(cluster)
        {
            self.queue.add(cluster.to_owned());
        }
    }

    fn is_leaving(&self, cluster: &str) -> bool {
        let known = self.clusters.get("", cluster);
        known.is_some_and(|c| c.head().deleting)
    }

    /// Enqueues the terminating clusters that this binding was the last to block.
    fn binding_changed(&self, change: &Change<'_>) {
        let Some(old) = change.old else { return };
        if change
            .new
            .is_some_and(|n| n.head().generation == old.head().generation)
        {
            return;
        }
        let left = change.new.map(targets).unwrap_or_default();
        for cluster in targets(old) {
            if !left.contains(&cluster) && self.is_leaving(&cluster) {
                self.queue.add(cluster);
            }
        }
    }

    async fn reconcile(&self, name: &str) -> Result<Action> {
        let Some(object) = self.clusters.get("", name) else {
            return Ok(Action::Done);
        };
        let cluster = object.view::<Cluster>()?;
        let done = if object.head().deleting {
            self.remove(&object, &cluster).await
        } else {
            self.keep(&object, &cluster).await
        };
        match done {
            Ok(()) => Ok(Action::Done),
            Err(e) if e.is_not_found() => Ok(Action::Done),
            Err(e) if e.is_conflict() => Ok(Action::AFTER_CONFLICT),
            Err(e) => Err(e),
        }
    }

    async fn keep(&self, object: &Object, cluster: &Cluster) -> Result<()> {
        self.create_space(object).await?;
        let now = rfc3339_seconds(self.clock.now());
        let ready = cluster.condition("Ready").map(|c| c.status.as_str());
        let taints = taints(&cluster.spec.taints, ready, &now);
        let mut patch = json!({});
        if let Some(taints) = &taints {
            // An empty list is an absent field, as with Go's `omitempty`.
            patch["spec"]["taints"] = match taints.as_slice() {
                [] => Value::Null,
                taints => json!(taints),
            };
        }
        let finalizers = &cluster.metadata.finalizers;
        if !finalizers.iter().any(|f| f == CLUSTER_FINALIZER) {
            let with: Vec<&str> = finalizers
                .iter()
                .map(String::as_str)
                .chain([CLUSTER_FINALIZER])
                .collect();
            patch["metadata"]["finalizers"] = json!(with);
        }
        if patch == json!({}) {
            return Ok(());
        }
        let written = self.patch(&CLUSTERS, object, patch).await;
        if let Some(taints) = taints {
            let about = ObjectRef::of(object);
            match &written {
                Ok(()) => self
                    .recorder
                    .normal(&about, "TaintClusterSucceed", taints_text(&taints)),
                Err(e) if e.is_conflict() => {}
                Err(e) => self
                    .recorder
                    .warning(&about, "TaintClusterFailed", e.to_string()),
            }
        }
        written
    }

    async fn create_space(&self, object: &Object) -> Result<()> {
        let space = names::execution_space(object.name());
        if self.namespaces.get("", &space).is_some() {
            return Ok(());
        }
        let body = json!({"apiVersion": "v1", "kind": "Namespace",
                          "metadata": {"name": space, "labels": {SYSTEM: "true"}}});
        let at = At::all(&NAMESPACES, "");
        let about = ObjectRef::of(object);
        match self.api.create(at, body, &WriteOptions::default()).await {
            Ok(_) => {
                let text = format!(
                    "Created execution space({space}) for cluster({}).",
                    object.name()
                );
                self.recorder
                    .normal(&about, "CreateExecutionSpaceSucceed", text);
                Ok(())
            }
            Err(e) if e.is_already_exists() => Ok(()),
            Err(e) => {
                self.recorder
                    .warning(&about, "CreateExecutionSpaceFailed", e.to_string());
                Err(e)
            }
        }
    }

    async fn remove(&self, object: &Object, cluster: &Cluster) -> Result<()> {
        let finalizers = &cluster.metadata.finalizers;
        if !finalizers.iter().any(|f| f == CLUSTER_FINALIZER) {
            return Ok(());
        }
        if !self.remove_space(object, cluster).await? {
            return Ok(());
        }
        if !self.bindings.placed_on(object.name()).is_empty() {
            return Ok(());
        }
        let patch = json!({"metadata": {"finalizers": without(finalizers, CLUSTER_FINALIZER)}});
        self.patch(&CLUSTERS, object, patch).await
    }

    /// Deletes the execution space; returns whether it is gone.
    async fn remove_space(&self, object: &Object, cluster: &Cluster) -> Result<bool> {
        let space = names::execution_space(object.name());
        let about = ObjectRef::of(object);
        let done = async {
            // A silent agent does not remove the finalizers of its Works.
            if cluster.spec.sync_mode == "Pull" && !cluster.is_ready() {
                self.release_works(&space).await?;
            }
            let known = self.namespaces.get("", &space);
            if known.is_some_and(|n| n.head().deleting) {
                return Ok(false);
            }
            let at = At::one(&NAMESPACES, "", &space);
            let left = self.api.delete(at, &DeleteOptions::default()).await?;
            let text = format!("Removed execution space for cluster({}).", object.name());
            self.recorder
                .normal(&about, "RemoveExecutionSpaceSucceed", text);
            Ok(left.is_none())
        };
        match done.await {
            Err(Error::Status(s)) if s.reason == "NotFound" => Ok(true),
            Err(e) if !e.is_conflict() => {
                self.recorder
                    .warning(&about, "RemoveExecutionSpaceFailed", e.to_string());
                Err(e)
            }
            other => other,
        }
    }

    async fn release_works(&self, space: &str) -> Result<()> {
        let works = self
            .api
            .list(At::all(&WORKS, space), &ListOptions::default())
            .await?;
        for work in &works.items {
            let finalizers = &work.view::<Work>()?.metadata.finalizers;
            if !finalizers.iter().any(|f| f == WORK_FINALIZER) {
                continue;
            }
            let patch = json!({"metadata": {"finalizers": without(finalizers, WORK_FINALIZER)}});
            match self.patch(&WORKS, work, patch).await {
                Err(e) if e.is_not_found() => {}
                other => other?,
            }
        }
        Ok(())
    }

    /// Merge-patches an object unless it has changed since it was read.
    async fn patch(&self, resource: &Gvr, object: &Object, mut patch: Value) -> Result<()> {
        patch["metadata"]["resourceVersion"] = object.revision().to_string().into();
        let at = At::of(resource, object);
        self.api
            .patch(at, Patch::Merge(patch), &WriteOptions::default())
            .await
            .map(drop)
    }
}

fn without<'a>(all: &'a [String], one: &str) -> Vec<&'a String> {
    all.iter().filter(|f| *f != one).collect()
}
