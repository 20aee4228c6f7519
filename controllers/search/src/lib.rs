//! The caches of objects of members: behind the search and the global proxy (Karmada: `pkg/search`),
//! and behind the fleet view.
//!
//! ResourceRegistries + Clusters ──[`selected_resources`]──► [`member_store`] of each member ──► watch cache
//! watch caches of all members ──[`multi_cluster_cache`]──► lists, watches and gets of [`members::MemberResourceCache`]
//! reads of the fleet view + Clusters ──[`fleet`]──► the same, for what is read
//!                          └──[`backend_store`]──► OpenSearch, from the replica that leads
//!
//! Invariants: without a ResourceRegistry, and while nobody reads the fleet view, no member is
//! connected and nothing is cached. An object
//! is encoded once, and lists and watches share it. A list or a watch is of all members that are
//! cached, or fails; only a search and the fleet view answer without those that cannot be read, and
//! name them.
//!
//! Entry points: [`MemberCaches`], [`start`], [`start_fleet`], [`start_backend_stores`].

mod backend_store;
mod cache_budget;
mod cache_requests;
mod continue_token;
mod controller;
mod fleet;
mod member_resource;
mod member_store;
mod member_store_watch;
mod merged_watch;
mod metrics;
mod multi_cluster_cache;
mod process_memory;
mod resource_caches;
mod resource_version;
mod selected_resources;
mod stored_value;
#[cfg(test)]
mod tests;

pub use backend_store::{BackendStoreOptions, start_backend_stores};
pub use controller::{MemberCaches, SearchOptions, start};
pub use fleet::{FleetOptions, start_fleet};
