//! The controller: reacts to the Clusters of Cluster API, and joins and unjoins clusters of the
//! control plane. What it has joined is marked with an annotation; it removes nothing else.

use std::sync::Arc;
use std::time::Duration;

use client::remote::RestConfig;
use client::{
    Api, Error, Informer, ListWatchSelector, ResourcePath, ShutdownToken, TaskGroup,
    ignore_not_found,
};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers_after};
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::CLUSTER_API_CLUSTER;
use machinery::{Gvr, Object};

use super::management_cluster::{
    GROUP, find_clusters_resource, is_provisioned, workload_cluster_config,
};
use crate::join::{JoinSpec, UnjoinSpec, join, unjoin};

/// How long the controller waits before it looks for Cluster API again.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);
const WORKERS: usize = 3;

/// Connects to a workload cluster.
pub type MemberClientFactory =
    Arc<dyn Fn(RestConfig, &TaskGroup) -> Result<Arc<dyn Api>, Error> + Send + Sync>;

/// The parts that the controller needs beside its context.
pub struct ClusterApiOptions {
    /// The API of the management cluster.
    pub management: Arc<dyn Api>,
    pub connect: MemberClientFactory,
}

struct ClusterApiController {
    control_plane: Arc<dyn Api>,
    management: Arc<dyn Api>,
    connect: MemberClientFactory,
    /// Cluster API's Clusters.
    sources: Informer,
    /// The clusters of the control plane.
    clusters: Informer,
}

/// Starts the controller as soon as the management cluster serves Cluster API.
pub fn start_cluster_api(context: &ControllerContext, options: ClusterApiOptions) {
    let context = context.clone();
    let tasks = context.tasks.clone();
    tasks.spawn(async move {
        let resource = wait_for_cluster_api(&*options.management).await;
        ClusterApiController::start(&context, options, &resource);
    });
}

async fn wait_for_cluster_api(management: &dyn Api) -> Gvr {
    loop {
        match management.discover_groups(&|group| group == GROUP).await {
            Ok(served) => {
                if let Some(resource) = find_clusters_resource(&served) {
                    return resource;
                }
                tracing::warn!("the management cluster does not serve clusters.{GROUP} yet");
            }
            Err(error) => tracing::warn!(%error, "the management cluster cannot be asked"),
        }
        tokio::time::sleep(DISCOVERY_INTERVAL).await;
    }
}

impl ClusterApiController {
    fn start(context: &ControllerContext, options: ClusterApiOptions, resource: &Gvr) {
        let select = ListWatchSelector::all(resource);
        let controller = Arc::new(Self {
            sources: context.informers.get(&options.management, &select),
            clusters: context.informer(&CLUSTERS),
            control_plane: Arc::clone(&context.control_plane),
            management: options.management,
            connect: options.connect,
        });
        let queue: Workqueue<String> = Workqueue::new();
        let wake = queue.clone();
        controller.sources.add_event_handler(move |change| {
            wake.add_event(change.key(), change);
        });
        // A cluster whose source was deleted while nobody watched.
        let wake = queue.clone();
        controller.clusters.add_event_handler(move |change| {
            if let Some(source) = change.new.and_then(source_of) {
                wake.add_event(source, change);
            }
        });
        let waiting = Arc::clone(&controller);
        run_workers_after(
            &context.tasks,
            async move {
                waiting.sources.wait_for_cache_sync().await;
                waiting.clusters.wait_for_cache_sync().await;
            },
            "cluster-api-cluster-detector",
            &queue,
            WORKERS,
            move |source: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&source).await }
            },
        );
    }

    async fn reconcile(&self, source: &str) -> Result<ReconcileAction, Error> {
        let Some((namespace, name)) = source.split_once('/') else {
            return Ok(ReconcileAction::Done);
        };
        let at = ResourcePath::object(&CLUSTERS, "", name);
        match self.sources.get(namespace, name) {
            Some(cluster) if is_provisioned(&cluster) => {
                let existing = ignore_not_found(self.control_plane.get(at).await)?;
                match existing {
                    None => self.join(source, namespace, name).await?,
                    Some(other) if source_of(&other).as_deref() != Some(source) => {
                        tracing::warn!(source, name, "another cluster has this name already");
                    }
                    Some(_) => {}
                }
            }
            Some(_) => {}
            None => self.unjoin(source, at).await?,
        }
        Ok(ReconcileAction::Done)
    }

    async fn join(&self, source: &str, namespace: &str, name: &str) -> Result<(), Error> {
        let config = workload_cluster_config(&*self.management, namespace, name).await?;
        let mut spec = JoinSpec::for_member(name, &config)
            .map_err(|e| Error::Protocol(format!("the cluster {source}: {e}")))?;
        let mark = (CLUSTER_API_CLUSTER.to_owned(), source.to_owned());
        spec.annotations.insert(mark.0, mark.1);
        // The connection lasts as long as the join.
        let tasks = TaskGroup::new(ShutdownToken::new());
        let joined = async {
            let member = (self.connect)(config, &tasks)?;
            let progress = |text: &str| tracing::debug!(source, "{text}");
            let joined = join(&*self.control_plane, &*member, &spec, &progress).await;
            joined.map_err(|e| Error::Protocol(format!("the cluster {source} is not joined: {e}")))
        };
        let joined = joined.await;
        tasks.stop().await;
        joined?;
        tracing::info!(source, name, "joined a cluster of Cluster API");
        Ok(())
    }

    /// Removes the Cluster of a source that is gone. What a member that is gone too does not
    /// delete is given up after a minute.
    async fn unjoin(&self, source: &str, at: ResourcePath<'_>) -> Result<(), Error> {
        let Some(cluster) = ignore_not_found(self.control_plane.get(at).await)? else {
            return Ok(());
        };
        if source_of(&cluster).as_deref() != Some(source) {
            return Ok(());
        }
        let spec = UnjoinSpec {
            name: at.name.to_owned(),
            force: true,
            ..UnjoinSpec::default()
        };
        let progress = |text: &str| tracing::debug!(source, "{text}");
        let removed = unjoin(&*self.control_plane, None, &spec, &progress).await;
        let report = removed
            .map_err(|e| Error::Protocol(format!("the cluster {source} is not removed: {e}")))?;
        for line in report.lines() {
            tracing::info!(source, "removed a cluster of Cluster API: {line}");
        }
        Ok(())
    }
}

/// The `namespace/name` of the Cluster of Cluster API that a Cluster was joined for.
fn source_of(cluster: &Object) -> Option<String> {
    cluster.annotation(CLUSTER_API_CLUSTER)
}
