//! The member clusters, as the control plane reaches them.
//!
//! Cluster + Secret ──► [`MemberEndpoint`] ──[`MemberConnector`]──► client with a concurrency limit ──► [`MemberCluster`]:
//! informers of managed objects, running totals of nodes and pods
//!
//! Cluster + its secrets ──► [`ClusterProxyBackends`] ──► users' requests, forwarded with impersonation
//!
//! Invariants: a slow or dead member delays no other. Nodes and pods are never kept, only
//! their numbers (and, as an option, what the scheduler needs to know of a node).
//! Everything that belongs to a member ends with its Cluster or its connection, with all
//! tasks joined. No credential is printed.
//!
//! Entry points: [`MemberClusterManager`], [`MemberCluster`], [`ClusterProxyBackends`].

mod endpoint;
mod figures;
mod fold;
mod gateway;
mod limit;
mod member;
mod members;
mod nodes;
mod quotas;
mod sums;

pub use endpoint::{Connector, Endpoint, RemoteConnector};
pub use gateway::{Gateway, Gateways, Place, Refused};
pub use limit::Limited;
pub use member::{Detail, Member};
pub use members::Members;
pub use nodes::{Node, Nodes, ResourceId};
pub use quotas::{Quota, Scope};
pub use sums::{Model, Summary};
