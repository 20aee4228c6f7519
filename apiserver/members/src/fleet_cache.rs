//! The interface to the cache behind the fleet view: every kind of the members, cached while
//! somebody reads it.
//!
//! Its objects have the annotation and the label `resource.karmada.io/cached-from-cluster`, and a uid
//! that is [`fleet_uid`] of the one in their member, also in the references to their owners.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use machinery::{Gvr, Status};
use sha2::{Digest, Sha256};

use crate::member_resource_cache::MemberResourceCache;

/// The name of the control plane beside those of the members, where its own objects are read with theirs.
/// No Cluster has it.
pub const CONTROL_PLANE: &str = "@control-plane";

/// The servers whose objects are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetSources {
    Members,
    MembersAndControlPlane,
}

/// The names of the resources that one member serves by its API enablements, by `groupVersion`.
pub type ServedResources = BTreeMap<String, BTreeSet<String>>;

/// Caches resources of all members on demand.
#[async_trait]
pub trait FleetCache: Send + Sync + 'static {
    /// Whether there is a Cluster of this name.
    async fn has_cluster(&self, name: &str) -> bool;

    /// The uids of the Clusters, by name.
    async fn cluster_uids(&self) -> BTreeMap<String, String>;

    /// The resources that the Ready members serve, by cluster and `groupVersion`.
    async fn served_resources(&self) -> BTreeMap<String, ServedResources>;

    /// The members that serve a resource, and whether they can be read.
    async fn serving_members(&self, resource: &Gvr) -> BTreeMap<String, bool>;

    /// The resource, cached from now on until nobody has read it for some time. It waits for members
    /// whose objects are not read yet, but not long. 404 if no member serves the resource, 429 if
    /// too many others are read. The control plane is left out if it does not list and watch the
    /// resource.
    async fn resource(
        &self,
        resource: &Gvr,
        sources: FleetSources,
    ) -> Result<Arc<dyn FleetResource>, Status>;

    /// The resourceVersion that an object has in its member; `None` if the text does not stand
    /// for resourceVersions of members.
    fn member_resource_version(&self, cluster: &str, text: &str) -> Option<String>;
}

/// A resource of all members.
pub trait FleetResource: Send + Sync {
    /// The members whose objects are cached.
    fn clusters(&self) -> Vec<String>;

    /// The members that serve the resource and whose objects are not cached, and why.
    fn missing(&self) -> &BTreeMap<String, String>;

    /// The cache as if there were only these of the cached members.
    fn restricted(&self, members: RestrictedMembers) -> Arc<dyn MemberResourceCache>;
}

/// The members that one request reads.
#[derive(Clone, Debug, Default)]
pub struct RestrictedMembers {
    pub clusters: BTreeSet<String>,
    /// Why others that should be read are not, for the warnings of the response.
    pub missing: BTreeMap<String, String>,
    /// Whether another request may soon read more, so that a watch ends early.
    pub is_transient: bool,
}

/// The uid under which the fleet view shows an object of a member: of its own uid and the cluster, so
/// that no two members have the same, even if one of them tries.
pub fn fleet_uid(cluster: &str, uid: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(cluster);
    hash.update([0]);
    hash.update(uid);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_custom_bytes(bytes)
        .into_uuid()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: FLV-uid
    #[test]
    fn uids_are_of_cluster_and_object() {
        let uid = fleet_uid("m1", "a");
        assert_eq!(uid, fleet_uid("m1", "a"));
        assert_eq!((uid.len(), &uid[14..15]), (36, "8"));
        for other in [
            fleet_uid("m2", "a"),
            fleet_uid("m1", "b"),
            fleet_uid("m", "1a"),
        ] {
            assert_ne!(uid, other);
        }
    }
}
