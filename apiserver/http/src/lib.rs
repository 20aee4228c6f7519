//! Serves the Kubernetes API over HTTPS: listener, filters, routing, content
//! negotiation, discovery, streaming and the cluster proxy.
//!
//! TLS ──► secure_serving ──► filters (authentication, limits, authorization, ...) ──► handler ──► resource_handlers | non_resource_paths ──► registry ──► response_writers | watch ──► [`ServerResponseBody`]
//!
//! Invariants: no code knows a kind by name; the resource table decides what is served.
//! No response is copied into one buffer when it can be spliced from shared bytes.
//! Every connection is a task that is joined. Bodies, headers, requests in flight and
//! time are bounded.
//!
//! Entry points: [`ApiServer`], [`ApiServerOptions`], [`creators()`], [`SubresourceConnector`],
//! [`ClusterProxy`], [`HealthCheck`].

mod admission_review;
mod api_server;
pub mod audit;
mod authorized_request;
mod backup;
mod compressed_document;
mod creators;
mod discovery;
mod documents;
mod dynamic_groups;
mod filters;
mod flowcontrol;
mod handler;
mod health;
mod lingering_stream;
mod lone_surrogates;
mod metrics;
mod negotiation;
mod non_resource_paths;
mod openapi_v3;
mod options;
mod own_requests;
mod probe_server;
mod profiling;
mod protobuf_responses;
mod proxy;
mod request_body;
mod request_memory;
mod requestinfo;
mod resource_handlers;
mod response_body;
mod response_writers;
mod scope;
mod secure_serving;
mod server_drain;
mod subresources;
mod table;
mod verb_check;
mod version;
mod watch;
mod watch_drain;
mod websocket_handshake;
mod websocket_watch;
mod yaml_body;

#[cfg(test)]
mod tests;

pub use admission_review::{AdmissionReviewHandler, AdmissionReviewHandlers};
pub use api_server::ApiServer;
pub use backup::{BACKUP_PATH, BackupOpener};
pub use creators::creators;
pub use dynamic_groups::{
    DynamicGroupProvider, DynamicGroupProviders, DynamicResourceRequest, DynamicResponse,
};
pub use flowcontrol::FlowController;
pub use health::{HealthCheck, HealthProbe};
pub use negotiation::RequestBodySerialization;
pub use options::ApiServerOptions;
pub use own_requests::{ControlPlaneBackend, OwnControlPlane};
pub use probe_server::{BindAddress, LOOPBACK_METRICS, ProbeEndpoint, serve_probes};
pub use proxy::{
    AGENT_TUNNEL, AgentTunnelEndpoint, CLUSTER_PROXY, ClusterProxy, FleetView, GLOBAL_PROXY,
    GlobalProxy, HostControlPlane, MemberRead, MemberReader, MemberReply, MemberResourceReader,
    MemberSearch, NamedProxies, SEARCH, TunnelRefusalCallback, is_unserved_path,
};
pub use request_body::{DecodedBody, DecodedPatch, decode_object_of_kind, decode_patch};
pub use response_body::ServerResponseBody;
pub use subresources::{
    SubresourceConnectRequest, SubresourceConnector, SubresourceConnectors, SubresourceGetter,
    SubresourceGetters,
};
pub use version::VersionInfo;
pub use websocket_handshake::{accept_websocket, is_websocket_request};
