//! A Kubernetes API client: the trait [`Api`] and its implementations.
//!
//! caller ──► [`Api`] ──► loopback (in `registry`) | [`remote`] (kubeconfig, TLS, HTTP/2) | [`GroupSplitApi`] (of both) | `client-fake`
//!                 └──► [`reflector`] (list, watch, resume) ──► [`Informer`] or any other [`ReflectorSink`]
//!
//! Invariants: callers never learn which implementation answers. There are no typed
//! Kubernetes structs: an object is its bytes plus its parsed metadata. Credentials never
//! appear in an error text. Every task has an owner ([`TaskGroup`]).
//!
//! Entry points: [`Api`], [`remote::kubeconfig::KubeconfigLoadingRules`] and [`RemoteApi`],
//! [`InformerFactory`], [`TaskGroup`], [`webhook::WebhookClient`].

pub mod api;
pub mod event;
pub mod group_split;
pub mod informer;
pub mod reflector;
pub mod remote;
pub mod tasks;
pub mod webhook;
pub mod write_body;

pub use api::{
    Api, ApiCall, ApiReply, ApiResource, DeleteOptions, DeletionPropagation, Error, GroupFilter,
    ListOptions, ObjectList, Patch, ResourcePath, ResourceVersionMatch, Result, ServerResources,
    WatchEvent, WatchOptions, WatchStream, WriteOptions, controller_client, create_each_event,
    ignore_not_found,
};
pub use event::{CoreEvent, CoreEventObjectMeta, InvolvedObject};
pub use group_split::GroupSplitApi;
pub use informer::{Informer, InformerEvent, InformerFactory};
pub use reflector::{ListWatchSelector, ReflectorSink, run_reflector};
pub use remote::RemoteApi;
pub use tasks::{ShutdownToken, TaskGroup};
pub use write_body::{EncodedObjectBody, WriteBody};
