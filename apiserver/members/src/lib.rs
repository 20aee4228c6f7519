//! The member clusters, as the control plane reaches them.
//!
//! Cluster + Secret ──► [`Endpoint`] ──[`Connector`]──► client, limited ──► [`Member`]:
//! informers of managed objects, running sums of nodes and pods
//!
//! Cluster + its secrets ──► [`Gateways`] ──► requests of users, passed on in their names
//!
//! Invariants: a member that is slow or dead delays no other; nodes and pods are
//! never kept, only their numbers; what belongs to a member ends with its Cluster
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
mod sums;

pub use endpoint::{Connector, Endpoint, RemoteConnector};
pub use gateway::{Gateway, Gateways, Place, Refused};
pub use limit::Limited;
pub use member::Member;
pub use members::Members;
pub use sums::{Model, Summary};
