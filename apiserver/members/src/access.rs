//! The interface to member clusters that the controllers need: clients, informers of managed
//! objects, and notifications about changes.

use std::sync::Arc;

use client::{Api, Informer, InformerEvent};
use machinery::Gvr;

use crate::manager::MemberClusterManager;

/// Called with the cluster, the resource and the change.
pub type MemberObjectCallback = Box<dyn Fn(&str, &Gvr, &InformerEvent<'_>) + Send + Sync>;
/// Called with the cluster and whether it is connected.
pub type MemberConnectionCallback = Box<dyn Fn(&str, bool) + Send + Sync>;

/// The connections to member clusters. Handlers must not block.
pub trait MemberAccess: Send + Sync + 'static {
    /// The client of a cluster, or the reason why there is none.
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String>;
    /// Starts or returns the informer of a resource's managed objects (by label). The error
    /// says why the cluster cannot be reached.
    fn managed_informer(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String>;
    /// The same informer, if it is already running.
    fn find_managed_informer(&self, cluster: &str, resource: &Gvr) -> Option<Informer>;
    /// Stops the informer until [`Self::managed_informer`] starts it again.
    fn stop_managed_informer(&self, cluster: &str, resource: &Gvr);
    /// Calls `handler` for every change of a managed object in any cluster.
    fn on_managed_object(&self, handler: MemberObjectCallback);
    /// Calls `handler` for every connection that is made or lost, and for existing ones.
    fn on_connection_change(&self, handler: MemberConnectionCallback);
}

impl MemberAccess for MemberClusterManager {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        Ok(Arc::clone(self.get(cluster)?.api()))
    }

    fn managed_informer(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        Ok(self.get(cluster)?.managed_informer(resource))
    }

    fn find_managed_informer(&self, cluster: &str, resource: &Gvr) -> Option<Informer> {
        self.get(cluster).ok()?.find_managed_informer(resource)
    }

    fn stop_managed_informer(&self, cluster: &str, resource: &Gvr) {
        if let Ok(member) = self.get(cluster) {
            member.stop_managed_informer(resource);
        }
    }

    fn on_managed_object(&self, handler: MemberObjectCallback) {
        Self::on_managed_object(self, handler);
    }

    fn on_connection_change(&self, handler: MemberConnectionCallback) {
        Self::on_connection_change(self, handler);
    }
}
