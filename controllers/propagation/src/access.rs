//! What propagation asks of the connections to member clusters.

use std::sync::Arc;

use client::Api;
use machinery::Gvr;
use runtime::{Change, Informer};

/// Called with the cluster, the resource and the change.
pub type OnObject = Box<dyn Fn(&str, &Gvr, &Change<'_>) + Send + Sync>;
/// Called with the cluster and whether it is connected.
pub type OnConnect = Box<dyn Fn(&str, bool) + Send + Sync>;

/// The connections to member clusters.
pub trait MemberAccess: Send + Sync + 'static {
    /// The API of a cluster, or why there is none.
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String>;
    /// The objects of a resource that carry the label of managed objects.
    fn managed(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String>;
    /// The same, where they are followed already.
    fn followed(&self, cluster: &str, resource: &Gvr) -> Option<Informer>;
    /// They are followed no longer, until [`Self::managed`] is asked for them again.
    fn unfollow(&self, cluster: &str, resource: &Gvr);
    /// Tells every change of managed objects of every cluster.
    fn on_object(&self, handler: OnObject);
    /// Tells connections that come and go, and those there already.
    fn on_connect(&self, handler: OnConnect);
}

impl MemberAccess for members::Members {
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String> {
        Ok(Arc::clone(self.get(cluster)?.api()))
    }

    fn managed(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String> {
        Ok(self.get(cluster)?.managed(resource))
    }

    fn followed(&self, cluster: &str, resource: &Gvr) -> Option<Informer> {
        self.get(cluster).ok()?.followed(resource)
    }

    fn unfollow(&self, cluster: &str, resource: &Gvr) {
        if let Ok(member) = self.get(cluster) {
            member.unfollow(resource);
        }
    }

    fn on_object(&self, handler: OnObject) {
        Self::on_object(self, handler);
    }

    fn on_connect(&self, handler: OnConnect) {
        Self::on_connect(self, handler);
    }
}
