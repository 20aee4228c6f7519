//! Serves `metrics.k8s.io` in a simulated cluster: the metrics of hollow nodes and pods,
//! computed for each request from the stored objects.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use client::ResourcePath;
use hollow::NodeUsages;
use machinery::time::Clock;
use machinery::{Gvr, Object, Status};
use registry::{
    ComputedListRequest, ComputedObjects, ComputedResourceProvider, ComputedResourceProviders,
    RegistryReader,
};

static PODS: Gvr = Gvr::from_static("", "v1", "pods");
static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
static POD_METRICS: Gvr = Gvr::from_static("metrics.k8s.io", "v1beta1", "pods");
static NODE_METRICS: Gvr = Gvr::from_static("metrics.k8s.io", "v1beta1", "nodes");

/// The providers of PodMetrics and NodeMetrics.
pub fn hollow_metrics_providers(clock: &Arc<dyn Clock>) -> ComputedResourceProviders {
    let pods = HollowPodMetrics {
        clock: Arc::clone(clock),
    };
    let nodes = HollowNodeMetrics {
        clock: Arc::clone(clock),
    };
    HashMap::from([
        (POD_METRICS.clone(), Arc::new(pods) as _),
        (NODE_METRICS.clone(), Arc::new(nodes) as _),
    ])
}

struct HollowPodMetrics {
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl ComputedResourceProvider for HollowPodMetrics {
    async fn list(
        &self,
        registry: &dyn RegistryReader,
        request: &ComputedListRequest<'_>,
    ) -> Result<ComputedObjects, Status> {
        let at = ResourcePath::object(&PODS, request.namespace, request.name);
        let pods = registry
            .list_objects(request.context, at, request.label_selector)
            .await?;
        let now = self.clock.now();
        let metrics = pods
            .iter()
            .filter_map(|pod| hollow::pod_metrics(pod, now).transpose());
        let metrics: Result<Vec<Object>, _> = metrics.collect();
        Ok(metrics.map_err(Status::internal)?.into())
    }
}

struct HollowNodeMetrics {
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl ComputedResourceProvider for HollowNodeMetrics {
    async fn list(
        &self,
        registry: &dyn RegistryReader,
        request: &ComputedListRequest<'_>,
    ) -> Result<ComputedObjects, Status> {
        let at = ResourcePath::object(&NODES, "", request.name);
        let nodes = registry
            .list_objects(request.context, at, request.label_selector)
            .await?;
        let all = ResourcePath::collection(&PODS, "");
        let pods = registry.list_objects(request.context, all, "").await?;
        let usages = NodeUsages::from_pods(&pods).map_err(Status::internal)?;
        let now = self.clock.now();
        let metrics = nodes.iter().map(|node| usages.node_metrics(node, now));
        let metrics: Result<Vec<Object>, _> = metrics.collect();
        Ok(metrics.map_err(Status::internal)?.into())
    }
}
