//! The interface to member clusters that the status controllers need: informers of managed
//! objects, and notifications about changes.

use machinery::Gvr;
use members::Members;
use flotilla_runtime::{Change, Informer};

/// Called with the cluster, the resource and the change.
pub type OnObject = Box<dyn Fn(&str, &Gvr, &Change<'_>) + Send + Sync>;
/// Called with the cluster and whether it is connected.
pub type OnConnect = Box<dyn Fn(&str, bool) + Send + Sync>;

/// Informers of member clusters. Handlers must not block.
pub trait MemberStatus: Send + Sync + 'static {
    /// Starts or returns the informer of a resource's managed objects (by label). The error
    /// says why the cluster cannot be reached.
    fn managed(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String>;
    /// The same informer, if it is already running.
    fn followed(&self, cluster: &str, resource: &Gvr) -> Option<Informer>;
    /// Calls `handler` for every change of a managed object in any cluster.
    fn on_object(&self, handler: OnObject);
    /// Calls `handler` for every connection that is made or lost, and for existing ones.
    fn on_connect(&self, handler: OnConnect);
}

impl MemberStatus for Members {
    fn managed(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        Ok(self.get(cluster)?.managed(resource))
    }

    fn followed(&self, cluster: &str, resource: &Gvr) -> Option<Informer> {
        self.get(cluster).ok()?.followed(resource)
    }

    fn on_object(&self, handler: OnObject) {
        Members::on_object(self, handler);
    }

    fn on_connect(&self, handler: OnConnect) {
        Members::on_connect(self, handler);
    }
}
