//! The objects that are read from the management cluster of Cluster API. Pure, but for the Secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::remote::RestConfig;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::{Api, Error, ResourcePath, ServerResources};
use machinery::{Gvr, Object};

use crate::join::objects::SECRETS;

pub(super) const GROUP: &str = "cluster.x-k8s.io";
const PROVISIONED: &str = "Provisioned";
/// The key in the Secret with the kubeconfig of a workload cluster.
const KUBECONFIG_KEY: &str = "value";

/// The resource of Cluster API's Clusters, in the version that the server prefers.
pub(super) fn find_clusters_resource(served: &ServerResources) -> Option<Gvr> {
    let mut all = served.resources.iter().map(|api| &api.resource);
    all.find(|gvr| *gvr.group == *GROUP && *gvr.resource == *"clusters")
        .cloned()
}

/// Whether the cluster can be joined: it is provisioned, and nobody deletes it.
pub(super) fn is_provisioned(cluster: &Object) -> bool {
    let phase = cluster.value().unwrap_or_default()["status"]["phase"].take();
    phase == PROVISIONED && !cluster.meta().deleting
}

/// The kubeconfig of a workload cluster, from the Secret `<name>-kubeconfig` beside its Cluster.
pub(super) async fn workload_cluster_config(
    management: &dyn Api,
    namespace: &str,
    name: &str,
) -> Result<RestConfig, Error> {
    let secret_name = format!("{name}-kubeconfig");
    let at = ResourcePath::object(&SECRETS, namespace, &secret_name);
    let secret = management.get(at).await?.value()?;
    let data = secret["data"][KUBECONFIG_KEY].as_str();
    let text = data.and_then(|text| STANDARD.decode(text).ok());
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    let invalid = |reason: String| {
        Error::Protocol(format!(
            "the Secret {namespace}/{secret_name} has no kubeconfig: {reason}"
        ))
    };
    let text = text.ok_or_else(|| invalid(format!("its key {KUBECONFIG_KEY} is not text")))?;
    KubeconfigLoadingRules::parse(&text).map_err(|e| invalid(e.to_string()))
}
