//! Declares what the propagation controllers need from the connections to member clusters, and
//! implements it for `apiserver/members`.

use std::sync::Arc;

use client::Api;
use flotilla_runtime::{Informer, InformerEvent};
use machinery::Gvr;

/// A callback with the cluster, the resource and the change.
pub type MemberObjectCallback = Box<dyn Fn(&str, &Gvr, &InformerEvent<'_>) + Send + Sync>;
/// A callback with the cluster and whether it is connected.
pub type MemberConnectionCallback = Box<dyn Fn(&str, bool) + Send + Sync>;

/// The connections to member clusters.
pub trait MemberAccess: Send + Sync + 'static {
    /// The client of a cluster, or the reason why there is none.
    fn api(&self, cluster: &str) -> Result<Arc<dyn Api>, String>;
    /// The informer on the objects of a resource that carry the managed label. Starts it if needed.
    fn managed_informer(&self, cluster: &str, resource: &Gvr) -> Result<Informer, String>;
    /// The informer of [`Self::managed_informer`] if it already runs.
    fn find_managed_informer(&self, cluster: &str, resource: &Gvr) -> Option<Informer>;
    /// Stops the informer until [`Self::managed_informer`] starts it again.
    fn stop_managed_informer(&self, cluster: &str, resource: &Gvr);
    /// Registers a callback for every change of a managed object in any cluster.
    fn on_managed_object(&self, handler: MemberObjectCallback);
    /// Registers a callback for connections that open and close. It is called for the open ones
    /// too.
    fn on_connect(&self, handler: MemberConnectionCallback);
}

impl MemberAccess for members::MemberClusterManager {
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

    fn on_connect(&self, handler: MemberConnectionCallback) {
        Self::on_connection_change(self, handler);
    }
}
