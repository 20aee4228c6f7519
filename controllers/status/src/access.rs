//! What the way back asks of the connections to member clusters: copies of managed
//! objects, and to be told of changes.

use machinery::Gvr;
use members::Members;
use flotilla_runtime::{Change, Informer};

/// Called with the cluster, the resource and the change.
pub type OnObject = Box<dyn Fn(&str, &Gvr, &Change<'_>) + Send + Sync>;
/// Called with the cluster and whether it is connected.
pub type OnConnect = Box<dyn Fn(&str, bool) + Send + Sync>;

/// The connections to member clusters. Handlers must not block.
pub trait MemberStatus: Send + Sync + 'static {
    /// The objects of a resource that carry the label of managed objects; or why
    /// the cluster cannot be reached.
    fn managed(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String>;
    /// The same, where they are followed already.
    fn followed(&self, cluster: &str, resource: &Gvr) -> Option<Informer>;
    /// Tells every change of managed objects of every cluster.
    fn on_object(&self, handler: OnObject);
    /// Tells connections that come and go, and those there already.
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
