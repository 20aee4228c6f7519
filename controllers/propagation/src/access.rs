//! Declares what the propagation controllers need from the connections to member clusters, and
//! implements it for `apiserver/members`.

use std::sync::Arc;

use client::Api;
use machinery::Gvr;
use flotilla_runtime::{Change, Informer};

/// A callback with the cluster, the resource and the change.
pub type OnObject = Box<dyn Fn(&str, &Gvr, &Change<'_>) + Send + Sync>;
/// A callback with the cluster and whether it is connected.
pub type OnConnect = Box<dyn Fn(&str, bool) + Send + Sync>;

/// The connections to member clusters.
pub trait MemberAccess: Send + Sync + 'static {
    /// The client of a cluster, or the reason why there is none.
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String>;
    /// The informer on the objects of a resource that carry the managed label. Starts it if needed.
    fn managed(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String>;
    /// The informer of [`Self::managed_informer`] if it already runs.
    fn followed(&self, cluster: &str, resource: &Gvr) -> Option<Informer>;
    /// Stops the informer until [`Self::managed_informer`] starts it again.
    fn unfollow(&self, cluster: &str, resource: &Gvr);
    /// Registers a callback for every change of a managed object in any cluster.
    fn on_object(&self, handler: OnObject);
    /// Registers a callback for connections that open and close. It is called for the open ones
    /// too.
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
