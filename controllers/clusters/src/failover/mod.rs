//! Failover: moves workloads when they or their clusters fail.
//!
//! Evictions are started by [`no_execute`] (NoExecute taints that are not tolerated),
//! [`application`] (workloads that stay unhealthy) and [`auto_failover`] (clusters that
//! stay not Ready; not in Karmada). Each removes the cluster from a binding's targets and
//! adds an eviction task; the scheduler then selects other clusters. [`graceful`] ends
//! the tasks of the first two, and with them the old workload; the third ends its own.

mod application;
mod auto_failover;
mod graceful;
mod metrics;
mod no_execute;
pub(crate) mod options;
mod start;
mod state_preservation;

pub(crate) use start::start;

pub use options::{FailoverOptions, NoExecuteTaintEvictionPurgeMode};
