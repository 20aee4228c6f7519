//! The member clusters, as the control plane reaches them.
//!
//! Cluster + Secret ──► [`MemberEndpoint`] ──[`MemberConnector`]──► client with a concurrency limit ──► [`MemberCluster`]:
//! informers of managed objects, running totals of nodes and pods
//!
//! Cluster + its secrets ──► [`ClusterProxyBackends`] ──► users' requests, forwarded with impersonation
//!
//! agent ──[`run_agent_tunnels`]──► [`AgentTunnels`] ──► the same requests, to members that cannot be reached,
//! and those of the control plane itself ([`TunnelingMemberConnector`])
//!
//! Invariants: a slow or dead member delays no other. Nodes and pods are never kept, only
//! their numbers (and, as an option, what the scheduler needs to know of a node).
//! Everything that belongs to a member ends with its Cluster or its connection, with all
//! tasks joined. No credential is printed.
//!
//! Entry points: [`MemberClusterManager`], [`MemberAccess`], [`MemberCluster`],
//! [`ClusterProxyBackends`].

mod access;
mod agent_tunnels;
mod aggregator;
mod cluster_proxy;
mod cluster_proxy_backend;
mod concurrency_limit;
mod endpoint;
mod fleet_cache;
mod manager;
mod member;
mod member_resource_cache;
mod metrics;
mod node_infos;
mod nodes;
mod proxy_groups;
mod proxy_subjects;
mod resource_quotas;
mod resource_totals;
mod running_total;
mod tunnel_agent;
mod tunnel_requests;
mod tunneled_api;

pub use access::{MemberAccess, MemberConnectionCallback, MemberObjectCallback};
pub use agent_tunnels::AgentTunnels;
pub use cluster_proxy::{ClusterProxyBackends, ClusterProxyError, ControlPlanePermit};
pub use cluster_proxy_backend::{ClusterProxyBackend, ClusterProxyPermit};
pub use concurrency_limit::ConcurrencyLimitedApi;
pub use endpoint::{MemberConnector, MemberEndpoint, RemoteMemberConnector};
pub use fleet_cache::{
    CONTROL_PLANE, FleetCache, FleetResource, FleetSources, RestrictedMembers, ServedResources,
    fleet_uid,
};
pub use manager::MemberClusterManager;
pub use member::{MemberCluster, MemberTrackingOptions};
pub use member_resource_cache::{
    MemberListPage, MemberListRequest, MemberObjectPredicate, MemberObjectSelection,
    MemberResourceCache, MemberSearchResult, MemberWatchEvent, MemberWatchRequest,
    MemberWatchStream,
};
pub use node_infos::NodeInfos;
pub use nodes::{NodeInfo, ResourceNameId};
pub use proxy_groups::{ImpersonationScope, ProxyGroups};
pub use proxy_subjects::{ClusterRoleGrant, ProxySubjects, RoleBindingSubjects};
pub use resource_quotas::{MemberResourceQuota, ScopedResourceSelectorRequirement};
pub use resource_totals::{ClusterResourceSummary, ResourceModelGradeMinimums};
pub use tunnel_agent::{
    AgentTunnelState, TUNNEL_SUBRESOURCE, TunnelAgentHandle, run_agent_tunnels,
};
pub use tunneled_api::{TunneledApi, TunnelingMemberConnector};
