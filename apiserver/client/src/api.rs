//! What a controller, a command or a test may ask of an API server, whoever
//! answers: the registry in this process, a server far away, or a fake.
//!
//! Enters: resource names, trees of values for writes. Leaves: shared
//! [`Object`]s and watch events.

use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use machinery::names::split_api_version;
use machinery::{Gvr, Object, Status};
use serde_json::Value;

use crate::encoded::EncodedBody;
use crate::event::{EVENTS, Event};

/// Events under way at once where each is a call of its own.
const EVENTS_AT_ONCE: usize = 8;

/// Why a call gave no result, by what the caller does next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a `Status`.
    #[error("{0}")]
    Status(Box<Status>),
    /// No answer: connection, TLS, credentials or time. Worth a retry.
    #[error("{host}: {message}")]
    Transport { host: String, message: String },
    /// An answer that is not what the protocol promises.
    #[error("unexpected reply: {0}")]
    Protocol(String),
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl From<machinery::object::Malformed> for Error {
    fn from(e: machinery::object::Malformed) -> Self {
        Self::Protocol(e.to_string())
    }
}

impl Error {
    /// The server's answer, when there was one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(s) => Some(s),
            _ => None,
        }
    }

    fn reason_is(&self, reason: &str) -> bool {
        self.status().is_some_and(|s| s.reason == reason)
    }

    /// 404: no such object.
    pub fn is_not_found(&self) -> bool {
        self.reason_is("NotFound")
    }

    /// 409: the object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.reason_is("AlreadyExists")
    }

    /// 409: the object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.reason_is("Conflict")
    }

    /// 410: the revision is gone; list again.
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|s| s.code == 410)
    }

    /// Create refused because the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.status()
            .is_some_and(|s| s.has_cause("NamespaceTerminating"))
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Where a request goes. Empty strings mean "none": no namespace (cluster scope,
/// or all namespaces in a list), no name (the collection), no subresource.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub resource: &'a Gvr,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
}

impl<'a> At<'a> {
    /// A collection: of one namespace, or of all when `namespace` is empty.
    pub fn all(resource: &'a Gvr, namespace: &'a str) -> Self {
        Self {
            resource,
            namespace,
            name: "",
            subresource: "",
        }
    }

    /// One object.
    pub fn one(resource: &'a Gvr, namespace: &'a str, name: &'a str) -> Self {
        Self {
            resource,
            namespace,
            name,
            subresource: "",
        }
    }

    /// The place of an object already at hand.
    pub fn of(resource: &'a Gvr, object: &'a Object) -> Self {
        Self::one(resource, object.namespace(), object.name())
    }

    /// The same place's subresource.
    #[expect(
        clippy::should_implement_trait,
        reason = "reads as a path does; places are not subtracted"
    )]
    pub fn sub(self, subresource: &'a str) -> Self {
        Self {
            subresource,
            ..self
        }
    }
}

/// How a list's `resourceVersion` is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Match {
    #[default]
    Unset,
    Exact,
    NotOlderThan,
}

/// What to list.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// Empty: newest.
    pub resource_version: String,
    pub resource_version_match: Match,
    /// 0: no limit.
    pub limit: u64,
    pub continue_token: String,
}

/// What to watch.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// Events after this revision; empty or "0": the present state first.
    pub resource_version: String,
    pub bookmarks: bool,
    /// Watch-list: the present state as ADDED, then a bookmark that says so.
    pub send_initial_events: bool,
    /// 0: the server decides.
    pub timeout_seconds: u32,
}

/// How to write.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
}

/// What happens to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// How to delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<Propagation>,
    pub grace_period_seconds: Option<i64>,
    pub dry_run: bool,
}

/// A patch and its dialect.
#[derive(Clone, Debug)]
pub enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' strategic merge patch; built-in kinds only.
    Strategic(Value),
}

/// A page of a list, true at one revision.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub items: Vec<Object>,
    /// The list's `resourceVersion`.
    pub revision: u64,
    /// Non-empty when more pages follow.
    pub continue_token: String,
}

/// One change. The end of a stream without an error means: resume after the last
/// revision seen.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    Added(Object),
    Modified(Object),
    Deleted(Object),
    /// Everything up to `revision` was sent; `initial_end` marks the end of a
    /// watch-list's present state.
    Bookmark {
        revision: u64,
        initial_end: bool,
    },
}

/// Changes in the order of their revisions. An item that is an error is the last.
pub type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchEvent>> + Send>>;

/// A resource that a server serves, as discovery tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    pub resource: Gvr,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    /// Names without the parent, as in `status`.
    pub subresources: Vec<String>,
    pub categories: Vec<String>,
    pub short_names: Vec<String>,
}

impl ApiResource {
    /// Whether the resource allows a verb.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// The API of one server. Calls may be cancelled by dropping them; a write that
/// was cancelled may or may not have happened.
#[async_trait]
pub trait Api: Send + Sync + 'static {
    /// GET of one object or subresource.
    async fn get(&self, at: At<'_>) -> Result<Object>;
    /// GET of one object with `resourceVersion=0`: the state that the server has in
    /// memory, which may be behind its store. A server that keeps none gives the newest.
    async fn get_cached(&self, at: At<'_>) -> Result<Object> {
        self.get(at).await
    }
    /// GET of a collection. A server far away may leave out `managedFields`, here
    /// and in a watch.
    async fn list(&self, at: At<'_>, options: &ListOptions) -> Result<List>;
    /// GET of a collection with `watch=1`.
    async fn watch(&self, at: At<'_>, options: &WatchOptions) -> Result<WatchStream>;
    /// POST to a collection, or to a named subresource.
    async fn create(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object>;
    /// As [`Api::create`], with a body that is encoded: what is kept while a slow server is
    /// awaited is no tree.
    async fn create_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object>;
    /// Creates events, each for itself; the outcomes are in the order of the events. A
    /// server in this process has a shorter way than one [`Api::create`] for each.
    async fn record(&self, events: Vec<Event>) -> Vec<Result<()>> {
        let writes = events.into_iter().map(|event| async move {
            let body = serde_json::to_value(&event).map_err(|e| Error::Protocol(e.to_string()))?;
            let at = At::all(&EVENTS, &event.metadata.namespace);
            let created = self.create(at, body, &WriteOptions::default()).await;
            created.map(drop)
        });
        let writes = futures_util::stream::iter(writes.collect::<Vec<_>>());
        writes.buffered(EVENTS_AT_ONCE).collect().await
    }
    /// PUT.
    async fn update(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object>;
    /// As [`Api::update`], with a body that is encoded.
    async fn update_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object>;
    /// PATCH.
    async fn patch(&self, at: At<'_>, patch: Patch, options: &WriteOptions) -> Result<Object>;
    /// DELETE of one object; the object when it still exists (finalizers), `None`
    /// when it is gone.
    async fn delete(&self, at: At<'_>, options: &DeleteOptions) -> Result<Option<Object>>;
    /// DELETE of everything in a collection that `select` matches.
    async fn delete_collection(
        &self,
        at: At<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()>;
    /// Everything served, in each group's preferred version first. The error of a
    /// group that cannot be read is told beside what could be.
    async fn resources(&self) -> Result<Discovered>;
    /// As [`Self::resources`], of the wanted groups alone. A server far away is not
    /// asked for the others where each group has a document of its own.
    async fn resources_of(&self, wanted: Groups<'_>) -> Result<Discovered> {
        Ok(self.resources().await?.only(wanted))
    }
    /// GET of a path outside the resources, such as `/version` or `/readyz`.
    async fn raw(&self, path: &str) -> Result<Bytes>;
}

/// Tells by its name whether a group is meant; the core group's is empty.
pub type Groups<'a> = &'a (dyn Fn(&str) -> bool + Sync);

/// What discovery found.
#[derive(Clone, Debug, Default)]
pub struct Discovered {
    pub resources: Vec<ApiResource>,
    /// `group/version` → why it could not be read.
    pub failed: Vec<(String, String)>,
}

impl Discovered {
    /// What there is of some groups.
    pub fn only(mut self, wanted: Groups<'_>) -> Self {
        self.resources.retain(|r| wanted(&r.resource.group));
        self.failed
            .retain(|(version, _)| wanted(split_api_version(version).0));
        self
    }
}
