//! The connections of the cluster proxy to one cluster, and the permits of its requests.

use std::sync::Arc;

use client::remote::RequestForwarder;
use client::{ShutdownToken, TaskGroup};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::endpoint::MemberEndpoint;

/// The connections to one cluster, valid while its Cluster and secrets are unchanged.
pub struct ClusterProxyBackend {
    pub(crate) endpoint: MemberEndpoint,
    has_managed_impersonator: bool,
    forwarder: RequestForwarder,
    permits: Arc<Semaphore>,
    limit: u32,
    tasks: TaskGroup,
}

impl ClusterProxyBackend {
    /// `limit` bounds the requests in flight; `tasks` owns the connections.
    pub(crate) fn new(
        endpoint: MemberEndpoint,
        forwarder: RequestForwarder,
        limit: u32,
        tasks: TaskGroup,
    ) -> Self {
        Self {
            has_managed_impersonator: endpoint.has_managed_impersonator(),
            endpoint,
            forwarder,
            permits: Arc::new(Semaphore::new(limit as usize)),
            limit,
            tasks,
        }
    }

    pub(crate) fn shutdown(&self) -> &ShutdownToken {
        self.tasks.shutdown()
    }

    /// A permit for one request; `None` if the limit is reached.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<ClusterProxyPermit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(ClusterProxyPermit {
            backend: Arc::clone(self),
            _permit: permit,
        })
    }

    /// Ends the connections when the last request has ended.
    pub(crate) async fn drain(&self) {
        let all_permits = self.permits.acquire_many(self.limit);
        self.tasks.shutdown().run_until_triggered(all_permits).await;
        self.stop().await;
    }

    /// Ends the connections.
    pub(crate) async fn stop(&self) {
        self.tasks.stop().await;
    }
}

/// A permit for one request. It keeps its backend open.
pub struct ClusterProxyPermit {
    pub(crate) backend: Arc<ClusterProxyBackend>,
    _permit: OwnedSemaphorePermit,
}

impl ClusterProxyPermit {
    /// Forwards the request.
    pub fn forwarder(&self) -> &RequestForwarder {
        &self.backend.forwarder
    }

    /// Triggered when the Cluster is deleted or its tunnel ends; upgraded connections must end then.
    pub fn cluster_removed(&self) -> &ShutdownToken {
        self.backend.tasks.shutdown()
    }

    pub fn cluster(&self) -> &str {
        &self.backend.endpoint.cluster
    }

    /// Whether the requests have the credentials of the impersonator that the control plane
    /// manages.
    pub(crate) fn has_managed_impersonator(&self) -> bool {
        self.backend.has_managed_impersonator
    }
}
