//! The integration tests, one module for each area; `tests/README.md` says what each tests.
//! In one binary, so that what they stand on is linked once.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends where its machine fails it"
)]

/// Flotilla behind a kube-apiserver, with real member clusters.
mod aggregated;

/// The served API: requests and complete answers.
mod api;

/// The commands of the binary.
mod cli;

/// Clients that Flotilla did not write, over a restart.
mod clients;

/// The requests of Karmada's clients, the cluster proxy, upgrades.
mod compat;

/// The contract of storage engines.
mod contract;

/// The same requests to Flotilla and to Kubernetes 1.36.
mod differential;

/// Propagation to simulated members.
mod flow;

/// Parsers of what clients and files send.
mod fuzz;

/// The manifests that operators apply.
mod manifests;

/// Leader election, failover, rolling restarts.
mod replicas;

/// Killed processes, failing disks and networks.
mod robustness;

/// The decisions of the controllers, as YAML.
mod scenarios;
