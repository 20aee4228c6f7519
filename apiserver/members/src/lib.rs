//! The member clusters, as the control plane reaches them.
//!
//! Cluster + Secret ──► [`Endpoint`] ──[`Connector`]──► client, limited ──► [`Member`]:
//! informers of managed objects, running sums of nodes and pods
//!
//! Cluster + its secrets ──► [`Gateways`] ──► requests of users, passed on in their names
//!
//! Invariants: a member that is slow or dead delays no other; nodes and pods are
//! never kept, only their numbers (and, where asked for, what may go to a node); what belongs to a member ends with its Cluster
//! or its connection, tasks joined. No credential is printed.
//!
//! Entry points: [`Members`], [`Member`], [`Gateways`].

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
