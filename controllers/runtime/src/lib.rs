//! Building blocks shared by all controllers: a workqueue with workers, event recording, leader
//! election.
//!
//! server ──watch──► [`Informer`](client::Informer) ──change──► [`Workqueue`] ──key──► [`run_workers`] ──► reconcile ──► writes, [`EventRecorder`]
//!
//! Invariants: nothing polls where an event exists; at most one worker processes a key
//! at a time; a reconciliation that calls a server which may hang runs the call in a
//! [`blocking_section`]; nothing here blocks a caller; every task has an owner
//! ([`TaskGroup`](client::TaskGroup)) and ends with its [`ShutdownToken`](client::ShutdownToken).
//!
//! Entry points: [`ControllerContext`], [`ClusterLister`], [`Workqueue`], [`run_workers`], [`blocking_section`],
//! [`EventRecorder`], [`Expectations`], [`LastAppliedVersionByKey`], [`StatusWriter`], [`RestMapper`], [`LeaderElector`], [`LeaderFence`], [`HostWorkloadFilter`],
//! [`create_missing_definitions`].

mod access;
mod blocking_section;
mod cluster_lister;
mod controller_context;
mod event_predicates;
mod event_recorder;
mod expectations;
mod fence;
mod finalizers;
mod host_workloads;
mod index_key_workqueue;
mod kind_definitions;
mod last_applied_version;
mod leader_election;
mod metrics;
mod reconcile_error;
mod rest_mapper;
mod sharded_map;
mod status_writer;
mod token_bucket;
mod workers;
mod workqueue;

pub use access::{RequiredRight, missing_rights};
pub use blocking_section::blocking_section;
pub use cluster_lister::{ClusterLister, ListedCluster};
pub use controller_context::ControllerContext;
pub use event_predicates::is_generation_or_deletion_changed;
pub use event_recorder::EventRecorder;
pub use expectations::{Expectations, PendingWrite, PreviousExpectation, ReconcileReadiness};
pub use fence::LeaderFence;
pub use finalizers::{add_finalizer, remove_finalizers};
pub use host_workloads::HostWorkloadFilter;
pub use index_key_workqueue::IndexKeyWorkqueue;
pub use kind_definitions::create_missing_definitions;
pub use last_applied_version::LastAppliedVersionByKey;
pub use leader_election::{LeaderElector, LeaderTerm};
pub use metrics::ControllerName;
pub use reconcile_error::ReconcileError;
pub use rest_mapper::{DiscoveredResource, RestMapper, RestMapping};
pub use sharded_map::ShardedMap;
pub use status_writer::StatusWriter;
pub use workers::{ReconcileAction, run_workers, run_workers_after};
pub use workqueue::{PriorityQueueLane, Workqueue};
