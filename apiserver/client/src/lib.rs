//! A Kubernetes API client: the trait [`Api`] and its implementations.
//!
//! caller ──► [`Api`] ──► loopback (in `registry`) | [`remote`] (kubeconfig, TLS, HTTP/2) | [`GroupSplitApi`] (of both) | fake
//!                 └──► [`reflector`] (list, watch, resume) ──► [`Informer`] or any other [`ReflectorSink`]
//!
//! Invariants: callers never learn which implementation answers. There are no typed
//! Kubernetes structs: an object is its bytes plus its parsed metadata. Credentials never
//! appear in an error text. Every task has an owner ([`TaskGroup`]).
//!
//! Entry points: [`Api`], [`remote::kubeconfig::KubeconfigSource`] and [`RemoteApi`],
//! [`InformerFactory`], [`TaskGroup`], [`webhook::WebhookClient`].

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
