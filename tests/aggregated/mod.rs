//! Tests of Flotilla with real components on loopback: etcd, and the kube-apiservers and
//! kube-controller-managers of its host and of its member clusters.
//!
//! Scenarios take the control plane as an argument: standalone, or in aggregated mode behind
//! its host. A scenario polls until the expected state is reached; when it times out, the
//! panic shows the last state.

/// Each promise once, on one control plane.
mod promises;

/// Objects of the host that must not be deleted.
mod deletion_protection;

/// 503 instead of 404 while the store is unavailable.
mod store_outage;

/// Member clusters of real components.
pub(crate) mod real_clusters;

/// The cluster proxy in aggregated mode.
mod proxy;

/// Simulated member clusters.
pub(crate) mod simulated_member;

/// The search and the global proxy.
mod search;

/// The fleet tree.
mod fleet_tree;

/// The fleet view.
mod fleet_view;

/// Propagation from policy to member objects, and the status back to the template.
mod propagation_scenario;

/// Retention of fields that members set.
mod retention;

/// Conflict resolution for objects that exist in a member.
mod conflict_resolution;

/// Standalone mode with real clusters as members.
mod standalone;

/// Flotilla in aggregated mode behind its host.
mod aggregated_control_plane;

/// Direct HTTP requests to Flotilla with any certificate and any header.
mod direct_client;

/// Authentication and authorization.
pub(crate) mod auth;

/// kubectl against the host, for resources that Flotilla serves.
mod kubectl;

/// The host's garbage collector and namespace controller.
mod garbage_collection;

/// Restarts of each component under load.
mod restarts;

/// All scenarios in one aggregated control plane.
mod lifecycle;

/// APIServices, also while certificates change.
mod registration;

/// Karmada's CRDs in the host.
mod karmada_crds;

/// Resource templates that the host stores.
mod host_templates;

/// Autoscalers and services of the host's objects, and the user guide.
mod autoscalers_and_services;

/// Members in pull mode, registered with the host.
pub(crate) mod pull_members;

/// Workloads of a host that has nodes.
mod host_workloads;

/// The host's admission webhooks, called for resources that Flotilla serves.
mod webhooks;

/// A change that goes through twelve members in stages.
mod rollout_story;

/// The records of a Karmada that is taken over.
mod karmada_records;

/// The takeover of a Karmada in place, and the way back.
mod takeover;

/// The takeover of a Karmada with thousands of bindings.
mod takeover_size;

/// The move of a Karmada to a standalone Flotilla.
mod takeover_standalone;
