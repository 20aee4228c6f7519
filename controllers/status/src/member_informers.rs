//! The interface to member clusters that the status controllers need: informers of managed
//! objects, and notifications about changes.

use flotilla_runtime::{Informer, InformerEvent};
use machinery::Gvr;
use members::MemberClusterManager;

/// Called with the cluster, the resource and the change.
pub type StatusObjectHandler = Box<dyn Fn(&str, &Gvr, &InformerEvent<'_>) + Send + Sync>;
/// Called with the cluster and whether it is connected.
pub type StatusConnectionHandler = Box<dyn Fn(&str, bool) + Send + Sync>;

/// Informers of member clusters. Handlers must not block.
pub trait MemberInformers: Send + Sync + 'static {
    /// Starts or returns the informer of a resource's managed objects (by label). The error
    /// says why the cluster cannot be reached.
    fn managed_informer(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String>;
    /// The same informer, if it is already running.
    fn find_managed_informer(&self, cluster: &str, resource: &Gvr) -> Option<Informer>;
    /// Calls `handler` for every change of a managed object in any cluster.
    fn on_managed_object(&self, handler: StatusObjectHandler);
    /// Calls `handler` for every connection that is made or lost, and for existing ones.
    fn on_connection_change(&self, handler: StatusConnectionHandler);
}

impl MemberInformers for MemberClusterManager {
    fn managed_informer(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        Ok(self.get(cluster)?.managed_informer(resource))
    }

    fn find_managed_informer(&self, cluster: &str, resource: &Gvr) -> Option<Informer> {
        self.get(cluster).ok()?.find_managed_informer(resource)
    }

    fn on_managed_object(&self, handler: StatusObjectHandler) {
        MemberClusterManager::on_managed_object(self, handler);
    }

    fn on_connection_change(&self, handler: StatusConnectionHandler) {
        MemberClusterManager::on_connection_change(self, handler);
    }
}
