//! The member clusters, as the control plane reaches them.
//!
//! Cluster + Secret ──► [`Endpoint`] ──[`Connector`]──► client, limited ──► [`Member`]:
//! informers of managed objects, running sums of nodes and pods
//!
//! Invariants: a member that is slow or dead delays no other; nodes and pods are
//! never kept, only their numbers; what belongs to a member ends with its Cluster
//! or its connection, tasks joined. No credential is printed.
//!
//! Entry points: [`Members`], [`Member`].

mod endpoint;
mod figures;
mod fold;
mod limit;
mod member;
mod members;
mod sums;

pub use endpoint::{Connector, Endpoint, RemoteConnector};
pub use limit::Limited;
pub use member::Member;
pub use members::Members;
pub use sums::{Model, Summary};
