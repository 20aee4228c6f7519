//! End-to-end tests of propagation: they create templates and policies over HTTPS, and check
//! the objects in simulated members and the status that comes back.
//!
//! The tests share one `flotilla up --members 3` and use separate namespaces; tests that
//! kill processes start their own. No test sleeps for a fixed time: it waits for a state,
//! and panics with the object last read when the state does not come.

/// A control plane with members and clients of them.
mod fleet;

/// Waits for the caches of controllers.
mod cache_waits;

use harness::objects;

/// A Deployment from its creation to its deletion.
mod lifecycle;

/// The order in which the control plane writes objects and status.
mod write_order;

/// Policies that are edited, compete and are deleted.
mod policies;

/// Preemption between policies.
mod preemption;

/// Dependencies that are propagated with their template.
mod dependency_propagation;

/// Override policies.
mod overrides;

/// Works: suspension, eviction, conflict resolution, preservation and retention.
mod works;

/// Objects in members that are edited, deleted or already exist.
mod member_drift;

/// Fields of propagated objects that a member sets, too.
mod member_fields;

/// Kinds other than Deployments.
mod resource_kinds;

/// Custom resources interpreted by Lua scripts.
mod interpreter_customizations;

/// Custom resources interpreted by webhooks.
mod interpreter_webhooks;

/// Templates that are nested as deep as objects may be.
mod deep_objects;

/// Namespaces that are synced to all members.
mod namespaces;

/// Scheduling: affinity, taints, spread constraints, events.
mod scheduling;

/// Available replicas estimated by nodes.
mod node_estimates;

/// Federated quotas, the workload rebalancer, and workloads that members scale.
mod quotas;

/// Remedies.
mod remedies;

/// Kinds that are switched, gates of namespaces, and objects that members keep.
mod kubefed_options;

/// Autoscalers of the control plane.
mod autoscalers;

/// Services across clusters.
mod services;

/// MultiClusterServices.
mod multi_cluster_services;

/// Kinds, media types and clients of the global proxy.
mod global_proxy;
/// The search and the global proxy.
pub(crate) mod search;

/// Trees of owners that tools draw from the fleet view.
mod fleet_tree;
/// The fleet tree: objects of all members beside those of the control plane.
mod fleet_tree_names;
/// The fleet tree for clients that keep all objects of a cluster by their names, as Argo CD does.
pub(crate) mod fleet_tree_watches;
/// The fleet view: objects of all members as of one cluster.
mod fleet_view;
/// The fleet view of a member in pull mode.
mod fleet_view_pull;

/// The detector of service name resolution beside a member.
mod name_resolution;

/// Addons that are switched while the control plane runs.
mod addons;

/// The subresource `decision` of bindings.
mod decision_subresource;

/// `flotilla why` and `flotilla plan`.
mod why_and_plan;

/// Metrics of the scheduler.
mod scheduler_metrics;

/// A member in pull mode: token, registration, agent, a cut network, and its removal.
mod pull_members;

/// Clusters that Cluster API provisions.
mod cluster_api;

/// The credentials of a member are replaced.
mod member_credentials;

/// The cluster proxy to a member that knows constrained impersonation.
mod member_impersonation;

/// The cluster proxy to a member in pull mode.
mod agent_tunnels;

/// Many requests in a tunnel, and clients that do not read.
mod tunnel_limits;

mod tunnel_proxies;

/// Several agents of one member.
mod agent_election;

/// Objects that are rolled out while networks fail.
mod rollout;

/// A change that goes through members in stages.
mod staged_rollouts;

/// A stage that awaits a Job.
mod rollout_jobs;

/// Queries that clusters have to satisfy.
mod rollout_queries;

/// A change that goes through twelve members, seen through kubectl.
pub(crate) mod rollout_story;

/// A member in pull mode behind bad networks.
mod pull_networks;

/// Members in push mode, in pull mode, and in a network namespace, side by side.
mod member_kinds;

/// A member that dies, comes back and is unjoined.
mod member_outage;

/// Failover of workloads when their cluster fails.
mod failover;

/// A control plane that is killed under load.
mod crash_recovery;

/// The benchmark of a large fleet, in its smallest size.
mod fleet_benchmark;
