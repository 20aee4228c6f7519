//! The cluster controller: reacts to Clusters, namespaces and bindings, and writes
//! execution spaces, taints and finalizers. A deletion waits for events, and for an agent no longer than
//! [`AGENT_DEPARTURE_TIMEOUT`].

use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, DeleteOptions, Error, Informer, InformerEvent, InvolvedObject, ListOptions, Patch,
    ResourcePath, Result, WriteOptions, ignore_not_found,
};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, Workqueue, remove_finalizers,
    run_workers_after,
};
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::well_known_keys::{CLUSTER_FINALIZER, SYSTEM, WORK_FINALIZER};
use karmada_api::{Cluster, names};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::agent_registration;
use super::condition_taints::{desired_taints, taint_event_message};
use crate::NAMESPACES;
use crate::bindings::{BindingClient, scheduled_clusters};
use crate::options::ClusterControllersOptions;

/// How long the agent of a Cluster that is being deleted keeps its rights, to finish its Works. After
/// that it may be unwilling; a silent one is not waited for at all.
const AGENT_DEPARTURE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

pub(super) struct ClusterController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    clusters: Informer,
    namespaces: Informer,
    bindings: BindingClient,
    works: Informer,
    queue: Workqueue<String>,
}

impl ClusterController {
    pub(super) fn start(context: &ControllerContext, options: &ClusterControllersOptions) {
        let bindings = BindingClient::new(context);
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            clock: Arc::clone(&context.clock),
            recorder: context.recorder.with_component("cluster-controller"),
            clusters: context.informer(&CLUSTERS),
            namespaces: context.informer(&NAMESPACES),
            bindings,
            works: context.informer(&WORKS),
            queue: Workqueue::new(),
        });
        controller.add_event_handlers();
        let (waiting, queue) = (Arc::clone(&controller), controller.queue.clone());
        run_workers_after(
            &context.tasks,
            async move { waiting.wait_for_cache_sync().await },
            "cluster",
            &queue,
            options.settings.concurrent_syncs,
            move |name: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&name).await }
            },
        );
    }

    /// A deletion must not miss a binding that is not listed yet.
    async fn wait_for_cache_sync(&self) {
        self.clusters.wait_for_cache_sync().await;
        self.namespaces.wait_for_cache_sync().await;
        self.bindings.wait_for_cache_sync().await;
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.clusters.add_event_handler(move |change| {
            queue.add_event(change.key(), change);
        });
        let queue = self.queue.clone();
        self.namespaces.add_event_handler(move |change| {
            if change.new.is_none()
                && let Some(cluster) = names::cluster_of_execution_space(change.object().name())
            {
                queue.add(cluster.to_owned());
            }
        });
        let controller = Arc::downgrade(self);
        self.bindings.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.binding_changed(change);
            }
        });
        let controller = Arc::downgrade(self);
        self.works.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.work_changed(change.object());
            }
        });
    }

    /// Enqueues a terminating cluster: a Work created meanwhile goes too, and the last one
    /// that goes lets the execution space go.
    fn work_changed(&self, work: &Object) {
        if let Some(cluster) = names::cluster_of_execution_space(work.namespace())
            && self.is_terminating(cluster)
        {
            self.queue.add(cluster.to_owned());
        }
    }

    fn is_terminating(&self, cluster: &str) -> bool {
        let object = self.clusters.get("", cluster);
        object.is_some_and(|c| c.meta().deleting)
    }

    /// Enqueues the terminating clusters that this binding was the last to block.
    fn binding_changed(&self, change: &InformerEvent<'_>) {
        let Some(old) = change.old else { return };
        if change
            .new
            .is_some_and(|n| n.meta().generation == old.meta().generation)
        {
            return;
        }
        let left = change.new.map(scheduled_clusters).unwrap_or_default();
        for cluster in scheduled_clusters(old) {
            if !left.contains(&cluster) && self.is_terminating(&cluster) {
                self.queue.add(cluster);
            }
        }
    }

    async fn reconcile(&self, name: &str) -> Result<ReconcileAction> {
        let Some(object) = self.clusters.get("", name) else {
            // Its finalizer may have been removed by somebody else.
            agent_registration::end_of_former_cluster(&*self.api, name).await?;
            return Ok(ReconcileAction::Done);
        };
        let cluster = object.decode::<Cluster>()?;
        let done = if object.meta().deleting {
            self.remove_cluster(&object, &cluster).await
        } else {
            let synced = self.sync_cluster(&object, &cluster).await;
            synced.map(|()| ReconcileAction::Done)
        };
        match done {
            Ok(action) => Ok(action),
            Err(e) if e.is_not_found() => Ok(ReconcileAction::Done),
            Err(e) if e.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
            Err(e) => Err(e),
        }
    }

    async fn sync_cluster(&self, object: &Object, cluster: &Cluster) -> Result<()> {
        self.create_execution_space(object).await?;
        let now = rfc3339_seconds(self.clock.now());
        let ready = cluster.condition("Ready").map(|c| c.status.as_str());
        let taints = desired_taints(&cluster.spec.taints, ready, &now);
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
        if !patch["metadata"]["finalizers"].is_null() && cluster.spec.sync_mode == "Pull" {
            agent_registration::bind_to_cluster(&*self.api, object).await?;
        }
        let written = self.patch(&CLUSTERS, object, patch).await;
        if let Some(taints) = taints {
            let about = InvolvedObject::from_object(object);
            match &written {
                Ok(()) => self.recorder.normal(
                    &about,
                    "TaintClusterSucceed",
                    taint_event_message(&taints),
                ),
                Err(e) if e.is_conflict() => {}
                Err(e) => self
                    .recorder
                    .warning(&about, "TaintClusterFailed", e.to_string()),
            }
        }
        written
    }

    async fn create_execution_space(&self, object: &Object) -> Result<()> {
        let space = names::execution_space_name(object.name());
        if self.namespaces.get("", &space).is_some() {
            return Ok(());
        }
        let body = json!({"apiVersion": "v1", "kind": "Namespace",
                          "metadata": {"name": space, "labels": {SYSTEM: "true"}}});
        let at = ResourcePath::collection(&NAMESPACES, "");
        let about = InvolvedObject::from_object(object);
        match self
            .api
            .create(at, body.into(), &WriteOptions::default())
            .await
        {
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

    async fn remove_cluster(&self, object: &Object, cluster: &Cluster) -> Result<ReconcileAction> {
        let finalizers = &cluster.metadata.finalizers;
        if !finalizers.iter().any(|f| f == CLUSTER_FINALIZER) {
            return Ok(ReconcileAction::Done);
        }
        if cluster.spec.sync_mode == "Pull" {
            let left = self.remaining_departure_time(object);
            if !left.is_zero() && cluster.is_ready() && self.waits_for_agent(object).await? {
                return Ok(ReconcileAction::RequeueAfter(left));
            }
        }
        // From here on nothing waits for the agent, so its rights end, whatever else keeps the Cluster.
        self.end_agent_registration(object).await?;
        if !self.remove_execution_space(object, cluster).await?
            || !self.bindings.scheduled_to(object.name()).is_empty()
        {
            return Ok(ReconcileAction::Done);
        }
        remove_finalizers(&*self.api, &CLUSTERS, object, &[CLUSTER_FINALIZER]).await?;
        Ok(ReconcileAction::Done)
    }

    /// How long the agent of a Cluster that is being deleted still has.
    fn remaining_departure_time(&self, object: &Object) -> Duration {
        let deleted = object.deletion_timestamp().unwrap_or_default();
        let passed = self.clock.now().duration_since(deleted).unsigned_abs();
        AGENT_DEPARTURE_TIMEOUT.saturating_sub(passed)
    }

    async fn end_agent_registration(&self, object: &Object) -> Result<()> {
        let ended = agent_registration::end(&*self.api, object.name()).await;
        ended.inspect_err(|error| {
            let about = InvolvedObject::from_object(object);
            let text = error.to_string();
            self.recorder
                .warning(&about, "RemoveAgentRolesFailed", text);
        })
    }

    /// Deletes the execution space; returns whether it is gone.
    async fn remove_execution_space(&self, object: &Object, cluster: &Cluster) -> Result<bool> {
        let space = names::execution_space_name(object.name());
        let about = InvolvedObject::from_object(object);
        let done = async {
            if cluster.spec.sync_mode == "Pull" {
                // An agent without rights does not remove the finalizers of its Works.
                self.remove_work_finalizers(&space).await?;
            }
            let namespace = self.namespaces.get("", &space);
            if namespace.is_some_and(|n| n.meta().deleting) {
                return Ok(false);
            }
            let at = ResourcePath::object(&NAMESPACES, "", &space);
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

    /// Deletes the Works of an agent that lives; returns whether there are any, or may be new
    /// ones.
    async fn waits_for_agent(&self, cluster: &Object) -> Result<bool> {
        let space = names::execution_space_name(cluster.name());
        let namespace = self.namespaces.get("", &space);
        let may_have_new_works = namespace.is_some_and(|n| !n.meta().deleting);
        if may_have_new_works && !self.bindings.scheduled_to(cluster.name()).is_empty() {
            return Ok(true);
        }
        let all = ResourcePath::collection(&WORKS, &space);
        let works = self.api.list(all, &ListOptions::default()).await?.items;
        for work in works.iter().filter(|work| !work.meta().deleting) {
            let at = ResourcePath::of_object(&WORKS, work);
            ignore_not_found(self.api.delete(at, &DeleteOptions::default()).await)?;
        }
        Ok(!works.is_empty())
    }

    async fn remove_work_finalizers(&self, space: &str) -> Result<()> {
        let works = self
            .api
            .list(
                ResourcePath::collection(&WORKS, space),
                &ListOptions::default(),
            )
            .await?;
        for work in &works.items {
            remove_finalizers(&*self.api, &WORKS, work, &[WORK_FINALIZER]).await?;
        }
        Ok(())
    }

    /// Merge-patches an object unless it has changed since it was read.
    async fn patch(&self, resource: &Gvr, object: &Object, mut patch: Value) -> Result<()> {
        patch["metadata"]["resourceVersion"] = object.revision().to_string().into();
        let at = ResourcePath::of_object(resource, object);
        self.api
            .patch(at, Patch::Merge(patch), &WriteOptions::default())
            .await
            .map(drop)
    }
}
