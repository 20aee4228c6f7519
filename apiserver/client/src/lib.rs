//! A client of the Kubernetes API, as a trait and as its remote form.
//!
//! caller ──► [`Api`] ──► loopback (in `registry`) | [`remote`] (kubeconfig, TLS, HTTP/2) | [`Split`] (of both) | fake
//!                 └──► [`reflect`] (list, watch, resume) ──► [`Informer`] or any other [`Sink`]
//!
//! Invariants: callers never learn which form answers. No typed Kubernetes
//! structs: objects are bytes with a head. Credentials never reach an error text.
//! No task without an owner ([`Tasks`]).
//!
//! Entry points: [`Api`], [`remote::kubeconfig::Source`] and [`Remote`], [`Informers`],
//! [`Tasks`], [`webhook::Caller`].

pub mod api;
pub mod encoded;
pub mod event;
#[cfg(feature = "fake")]
pub mod fake;
pub mod informer;
pub mod reflect;
pub mod remote;
pub mod split;
pub mod tasks;
pub mod webhook;

pub use api::{
    Api, ApiResource, At, DeleteOptions, Discovered, Error, Groups, List, ListOptions, Match,
    Patch, Propagation, Result, WatchEvent, WatchOptions, WatchStream, WriteOptions,
};
pub use encoded::EncodedBody;
pub use event::{Event, EventMeta, ObjectRef};
pub use informer::{Change, Informer, Informers};
pub use reflect::{Select, Sink, reflect};
pub use remote::Remote;
pub use split::Split;
pub use tasks::{Shutdown, Tasks};
