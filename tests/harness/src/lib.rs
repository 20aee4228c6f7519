//! Test support of the integration tests: processes of the binary under test, and the
//! real components (etcd, kube-apiserver, kubectl) that they run with.
//!
//! [`tools`] (paths of programs) ──► [`Daemon`] ──► [`EtcdCluster`] ──► [`KubernetesCluster`]
//!                                                      └── [`TcpRelay`] between any two
//!
//! Only tests depend on this crate. It installs nothing, all its servers listen on
//! loopback, and all its processes end with the test that started them. A failure here
//! panics with the observed value, as an assertion does.
//!
//! Entry points: [`tools::tools`], [`ServerProcess`], [`EtcdCluster`], [`KubernetesCluster`],
//! [`TcpRelay`], [`NetworkNamespace`], [`FakeHttpsServer`], [`FakeOpenSearch`],
//! [`FaultyDisk`]. Clients: [`Browser`], [`ApiServerClient`],
//! [`kubectl::with_each_kubectl`], [`raw_http::RawHttpRequest`], and [`HttpTestClient`] for
//! streamed responses.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

pub mod api_server_client;
pub mod browser;
pub mod certificate_requests;
pub mod cluster;
pub mod daemon;
pub mod disk;
pub mod etcd;
pub mod etcdctl;
pub mod fake_open_search;
pub mod fake_proxy;
pub mod http_client;
pub mod https_server;
pub mod karmada_crds;
pub mod karmada_kinds;
pub mod kubectl;
pub mod network_namespace;
pub mod objects;
pub mod port;
pub mod port_forward;
pub mod process;
pub mod process_stat;
pub mod raw_http;
pub mod relay;
pub mod shared_services;
pub mod token_issuer;
pub mod tools;
pub mod up;

pub use api_server_client::ApiServerClient;
pub use browser::Browser;
pub use cluster::KubernetesCluster;
pub use daemon::Daemon;
pub use disk::{FaultyDisk, FsyncMode};
pub use etcd::EtcdCluster;
pub use fake_open_search::FakeOpenSearch;
pub use harness_macros::slow;
pub use http_client::HttpTestClient;
pub use https_server::FakeHttpsServer;
pub use network_namespace::NetworkNamespace;
pub use process::ServerProcess;
pub use relay::TcpRelay;
pub use tools::tools;
pub use up::FlotillaUpProcess;

/// Sleeps between two polls, on threads without a tokio runtime.
#[expect(
    clippy::disallowed_methods,
    reason = "these threads run no tokio worker that could be blocked"
)]
pub fn sleep_blocking(time: std::time::Duration) {
    std::thread::sleep(time);
}
