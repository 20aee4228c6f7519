//! The identity of a member, by which it is recognized under any name.

use client::{Api, Error, ResourcePath, ignore_not_found};
use machinery::Gvr;

use super::join_error::JoinError;
use crate::NAMESPACES;

/// ClusterProperty, the newest version first (KEP-2149).
static CLUSTER_PROPERTIES: [Gvr; 2] = [
    Gvr::from_static("about.k8s.io", "v1beta1", "clusterproperties"),
    Gvr::from_static("about.k8s.io", "v1alpha1", "clusterproperties"),
];
const CLUSTER_ID_PROPERTY: &str = "cluster.clusterset.k8s.io";

/// The ids that a member is registered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterIdentity {
    /// The value of the ClusterProperty `cluster.clusterset.k8s.io`, if the member has one,
    /// else the UID of its namespace `kube-system`.
    pub(crate) id: String,
    /// Karmada's clients register a member by it, whatever properties it has.
    kube_system_uid: String,
}

impl ClusterIdentity {
    /// The ids under which the member may be registered.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        let other = (self.kube_system_uid != self.id).then_some(self.kube_system_uid.as_str());
        std::iter::once(self.id.as_str()).chain(other)
    }

    /// Whether a Cluster with this id is the member.
    pub(crate) fn matches(&self, id: &str) -> bool {
        id == self.id || id == self.kube_system_uid
    }
}

/// Reads the identity of a member.
pub(crate) async fn cluster_identity(cluster: &dyn Api) -> Result<ClusterIdentity, JoinError> {
    let [newest, oldest] = &CLUSTER_PROPERTIES;
    let (system, newest, oldest) = tokio::join!(
        cluster.get(ResourcePath::object(&NAMESPACES, "", "kube-system")),
        cluster_id_property(cluster, newest),
        cluster_id_property(cluster, oldest),
    );
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source| JoinError::MemberApi { what, source }
    };
    let system = system.map_err(failed("read the namespace kube-system"))?;
    let property = newest.transpose().or_else(|| oldest.transpose());
    let property = property.transpose();
    let property = property.map_err(failed("read the ClusterProperty of its ID"))?;
    let kube_system_uid = system.uid().to_owned();
    match property.unwrap_or_else(|| kube_system_uid.clone()) {
        id if id.is_empty() => Err(JoinError::NoClusterId),
        id => Ok(ClusterIdentity {
            id,
            kube_system_uid,
        }),
    }
}

async fn cluster_id_property(cluster: &dyn Api, resource: &Gvr) -> Result<Option<String>, Error> {
    let at = ResourcePath::object(resource, "", CLUSTER_ID_PROPERTY);
    let Some(property) = ignore_not_found(cluster.get(at).await)? else {
        return Ok(None);
    };
    let value = property.value()?;
    let id = value["spec"]["value"].as_str().unwrap_or_default();
    Ok(Some(id.to_owned()).filter(|id| !id.is_empty()))
}
