//! A client of the Kubernetes API, as a trait and as its remote form.
//!
//! caller ──► [`Api`] ──► loopback (in `registry`) | [`remote`] (kubeconfig, TLS, HTTP/2) | fake
//!
//! Invariants: callers never learn which form answers. No typed Kubernetes
//! structs: objects are bytes with a head. Credentials never reach an error text.
//!
//! Entry points: [`Api`].

pub mod api;

pub use api::{
    Api, ApiResource, At, DeleteOptions, Discovered, Error, List, ListOptions, Match, Patch,
    Propagation, Result, WatchEvent, WatchOptions, WatchStream, WriteOptions,
};
