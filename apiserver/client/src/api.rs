//! The API of one server as a trait of one function, for controllers, commands and tests.
//! The registry in this process, a remote server and the fake implement it; wrappers limit,
//! fence or route its calls.
//!
//! caller ──► [`Api::get`], [`Api::create`], … ──[`ApiCall`]──► [`Api::call`] ──► [`ApiReply`]

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use machinery::names::split_api_version;
use machinery::{Gvr, Object, Status, UserInfo};
use serde_json::Value;

use crate::event::{CoreEvent, EVENTS};
use crate::write_body::WriteBody;

/// How many events [`create_each_event`] creates concurrently.
const MAX_CONCURRENT_EVENT_WRITES: usize = 8;

/// The error of a call, by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with a `Status`.
    #[error("{0}")]
    Status(Box<Status>),
    /// No response: the connection, TLS, the credentials or a timeout. Worth a retry.
    #[error("{host}: {message}")]
    Transport { host: String, message: String },
    /// A response that breaks the protocol.
    #[error("unexpected reply: {0}")]
    Protocol(String),
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl From<machinery::object::MalformedObject> for Error {
    fn from(e: machinery::object::MalformedObject) -> Self {
        Self::Protocol(e.to_string())
    }
}

impl Error {
    /// The server's `Status`, if it sent one.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(s) => Some(s),
            _ => None,
        }
    }

    fn has_reason(&self, reason: &str) -> bool {
        self.status().is_some_and(|s| s.reason == reason)
    }

    /// 404: no such object.
    pub fn is_not_found(&self) -> bool {
        self.has_reason("NotFound")
    }

    /// 403: the client has not the right.
    pub fn is_forbidden(&self) -> bool {
        self.has_reason("Forbidden")
    }

    /// 409: the object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.has_reason("AlreadyExists")
    }

    /// 409: the object has changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.has_reason("Conflict")
    }

    /// 410: the resource version is too old; list again.
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|s| s.code == 410)
    }

    /// A create was refused because the namespace is terminating.
    pub fn is_namespace_terminating(&self) -> bool {
        self.status()
            .is_some_and(|s| s.has_cause("NamespaceTerminating"))
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// An object that does not exist is `None` instead of an error (controller-runtime's
/// `client.IgnoreNotFound`).
pub fn ignore_not_found<T>(outcome: Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The target of a request. Empty strings mean "none": no namespace (cluster scope, or
/// all namespaces in a list), no name (the collection), no subresource.
#[derive(Clone, Copy, Debug)]
pub struct ResourcePath<'a> {
    pub resource: &'a Gvr,
    pub namespace: &'a str,
    pub name: &'a str,
    pub subresource: &'a str,
}

impl<'a> ResourcePath<'a> {
    /// A collection: of one namespace, or of all namespaces if `namespace` is empty.
    pub fn collection(resource: &'a Gvr, namespace: &'a str) -> Self {
        Self {
            resource,
            namespace,
            name: "",
            subresource: "",
        }
    }

    /// One object.
    pub fn object(resource: &'a Gvr, namespace: &'a str, name: &'a str) -> Self {
        Self {
            resource,
            namespace,
            name,
            subresource: "",
        }
    }

    /// The path of an existing object.
    pub fn of_object(resource: &'a Gvr, object: &'a Object) -> Self {
        Self::object(resource, object.namespace(), object.name())
    }

    /// A subresource of the same object.
    pub fn subresource(self, subresource: &'a str) -> Self {
        Self {
            subresource,
            ..self
        }
    }
}

/// How the server matches the `resourceVersion` of a list (`resourceVersionMatch`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    #[default]
    Unset,
    Exact,
    NotOlderThan,
}

/// The options of a list (`metav1.ListOptions`).
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// Empty: the most recent.
    pub resource_version: String,
    pub resource_version_match: ResourceVersionMatch,
    /// 0: no limit.
    pub limit: u64,
    pub continue_token: String,
}

/// The options of a watch (`metav1.ListOptions`).
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    pub label_selector: String,
    pub field_selector: String,
    /// Events after this resource version; empty or "0": the current objects first.
    pub resource_version: String,
    pub bookmarks: bool,
    /// Streaming list: the current objects as ADDED, then a bookmark with
    /// `k8s.io/initial-events-end`.
    pub send_initial_events: bool,
    /// 0: the server decides.
    pub timeout_seconds: u32,
}

/// The options of a create, an update or a patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub field_manager: String,
    /// Whether unknown and duplicate fields are refused (`fieldValidation=Strict`), as for kubectl.
    /// Otherwise the server ignores them.
    pub strict: bool,
}

/// The garbage collector's treatment of the dependents (`metav1.DeletionPropagation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionPropagation {
    Background,
    Foreground,
    Orphan,
}

impl DeletionPropagation {
    /// The value of `propagationPolicy`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// The options of a delete (`metav1.DeleteOptions`).
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Option<DeletionPropagation>,
    pub grace_period_seconds: Option<i64>,
    pub dry_run: bool,
}

/// The body of a patch, by patch type.
#[derive(Clone, Debug)]
pub enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' strategic merge patch; built-in kinds only.
    Strategic(Value),
}

/// One page of a list, consistent at one resource version.
#[derive(Clone, Debug, Default)]
pub struct ObjectList {
    pub items: Vec<Object>,
    /// The list's `resourceVersion`.
    pub revision: u64,
    /// Non-empty when more pages follow.
    pub continue_token: String,
}

/// A watch event. If a stream ends without an error, resume after the last revision
/// received.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    Added(Object),
    Modified(Object),
    Deleted(Object),
    /// Everything up to `revision` was sent; `initial_end` marks the end of the initial
    /// events of a streaming list.
    Bookmark {
        revision: u64,
        initial_end: bool,
    },
}

/// Watch events in the order of their revisions. An error is the last item.
pub type WatchStream = Pin<Box<dyn Stream<Item = Result<WatchEvent>> + Send>>;

/// A resource in the server's discovery document (`metav1.APIResource`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    pub resource: Gvr,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    /// The names without the resource, as in `status`.
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

/// One call to a server. `at` comes first, then the body, then the options.
pub enum ApiCall<'a> {
    Get(ResourcePath<'a>),
    GetCached(ResourcePath<'a>),
    List(ResourcePath<'a>, &'a ListOptions),
    Watch(ResourcePath<'a>, &'a WatchOptions),
    Create(ResourcePath<'a>, WriteBody, &'a WriteOptions),
    CreateEvents(Vec<CoreEvent>),
    Update(ResourcePath<'a>, WriteBody, &'a WriteOptions),
    Patch(ResourcePath<'a>, Patch, &'a WriteOptions),
    Delete(ResourcePath<'a>, &'a DeleteOptions),
    DeleteCollection(ResourcePath<'a>, &'a DeleteOptions, &'a ListOptions),
    Discover(GroupFilter<'a>),
    /// With the most bytes that the body may have.
    GetRaw(&'a str, usize),
}

impl<'a> ApiCall<'a> {
    /// The path of the resource; `None` for discovery and for raw paths.
    pub fn path(&self) -> Option<ResourcePath<'a>> {
        match self {
            Self::Get(at)
            | Self::GetCached(at)
            | Self::List(at, _)
            | Self::Watch(at, _)
            | Self::Create(at, ..)
            | Self::Update(at, ..)
            | Self::Patch(at, ..)
            | Self::Delete(at, _)
            | Self::DeleteCollection(at, ..) => Some(*at),
            Self::CreateEvents(_) => Some(ResourcePath::collection(&EVENTS, "")),
            Self::Discover(_) | Self::GetRaw(..) => None,
        }
    }

    /// The verb as RBAC has it; `discover` and `raw` for calls without a resource.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Get(_) | Self::GetCached(_) => "get",
            Self::List(..) => "list",
            Self::Watch(..) => "watch",
            Self::Create(..) | Self::CreateEvents(_) => "create",
            Self::Update(..) => "update",
            Self::Patch(..) => "patch",
            Self::Delete(..) => "delete",
            Self::DeleteCollection(..) => "deletecollection",
            Self::Discover(_) => "discover",
            Self::GetRaw(..) => "raw",
        }
    }

    /// Whether the call changes objects, if it is no dry run.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb(), "get" | "list" | "watch" | "discover" | "raw")
    }
}

/// Declares [`ApiReply`] and its conversions from and to the types that calls return.
macro_rules! api_reply {
    ($($variant:ident($reply:ty),)*) => {
        /// The reply to an [`ApiCall`].
        pub enum ApiReply {
            $($variant($reply),)*
        }
        $(
            impl From<$reply> for ApiReply {
                fn from(reply: $reply) -> Self {
                    Self::$variant(reply)
                }
            }

            impl TryFrom<ApiReply> for $reply {
                type Error = Error;

                fn try_from(reply: ApiReply) -> Result<Self> {
                    match reply {
                        ApiReply::$variant(reply) => Ok(reply),
                        _ => Err(Error::Protocol("the reply to another call".into())),
                    }
                }
            }
        )*
    };
}

api_reply! {
    Object(Object),
    List(ObjectList),
    Watch(WatchStream),
    Events(Vec<Result<()>>),
    Deleted(Option<Object>),
    CollectionDeleted(()),
    Resources(ServerResources),
    Raw(Bytes),
}

/// The API of one server. Dropping a call cancels it; a canceled write may or may not
/// have happened.
///
/// A server implements [`Api::call`]; the methods named after verbs are for callers. A
/// wrapper looks at the call and passes it on.
#[async_trait]
pub trait Api: Send + Sync + 'static {
    async fn call(&self, call: ApiCall<'_>) -> Result<ApiReply>;
    /// GET of one object or subresource.
    async fn get(&self, at: ResourcePath<'_>) -> Result<Object> {
        self.call(ApiCall::Get(at)).await?.try_into()
    }
    /// GET of one object with `resourceVersion=0`: the server may answer from its watch
    /// cache, which can lag behind its store. A server without a watch cache returns the
    /// most recent object.
    async fn get_cached(&self, at: ResourcePath<'_>) -> Result<Object> {
        self.call(ApiCall::GetCached(at)).await?.try_into()
    }
    /// GET of a collection. A remote server may leave out `managedFields`, here and in a
    /// watch.
    async fn list(&self, at: ResourcePath<'_>, options: &ListOptions) -> Result<ObjectList> {
        self.call(ApiCall::List(at, options)).await?.try_into()
    }
    /// GET of a collection with `watch=1`.
    async fn watch(&self, at: ResourcePath<'_>, options: &WatchOptions) -> Result<WatchStream> {
        self.call(ApiCall::Watch(at, options)).await?.try_into()
    }
    /// POST to a collection, or to a named subresource.
    async fn create(
        &self,
        at: ResourcePath<'_>,
        body: WriteBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        let call = ApiCall::Create(at, body, options);
        self.call(call).await?.try_into()
    }
    /// Creates events independently of each other; the results are in the order of the
    /// events. The loopback implementation has a cheaper way than [`create_each_event`].
    async fn create_events(&self, events: Vec<CoreEvent>) -> Vec<Result<()>> {
        let count = events.len();
        let reply = self.call(ApiCall::CreateEvents(events)).await;
        let results = reply.and_then(TryInto::<Vec<Result<()>>>::try_into);
        results.unwrap_or_else(|error| vec![Err(error); count])
    }
    /// PUT.
    async fn update(
        &self,
        at: ResourcePath<'_>,
        body: WriteBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        let call = ApiCall::Update(at, body, options);
        self.call(call).await?.try_into()
    }
    /// PATCH.
    async fn patch(
        &self,
        at: ResourcePath<'_>,
        patch: Patch,
        options: &WriteOptions,
    ) -> Result<Object> {
        let call = ApiCall::Patch(at, patch, options);
        self.call(call).await?.try_into()
    }
    /// DELETE of one object. Returns the object if finalizers or a graceful deletion keep
    /// it, `None` if it is gone.
    async fn delete(
        &self,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
    ) -> Result<Option<Object>> {
        self.call(ApiCall::Delete(at, options)).await?.try_into()
    }
    /// DELETE of the objects in a collection that `select` matches.
    async fn delete_collection(
        &self,
        at: ResourcePath<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        let call = ApiCall::DeleteCollection(at, options, select);
        self.call(call).await?.try_into()
    }
    /// Discovery: every resource served, each group's preferred version first. A group
    /// that cannot be read is reported in `failed_group_versions`; the others are
    /// returned.
    async fn discover(&self) -> Result<ServerResources> {
        self.discover_groups(&|_| true).await
    }
    /// As [`Self::discover`], limited to the groups that pass the filter. Where each
    /// group has its own discovery document, a remote server is not asked for the other
    /// groups.
    async fn discover_groups(&self, filter: GroupFilter<'_>) -> Result<ServerResources> {
        self.call(ApiCall::Discover(filter)).await?.try_into()
    }
    /// GET of a path outside the resources, such as `/version` or `/readyz`.
    async fn get_raw(&self, path: &str) -> Result<Bytes> {
        self.get_raw_within(path, usize::MAX).await
    }
    /// As [`Self::get_raw`]; fails as soon as the body has more bytes.
    async fn get_raw_within(&self, path: &str, most: usize) -> Result<Bytes> {
        self.call(ApiCall::GetRaw(path, most)).await?.try_into()
    }
    /// Ends when the server answers a call after it could not be reached, so that others need not
    /// wait for the end of their backoff. Never ends where that is not observed.
    async fn wait_until_reachable_again(&self) {
        std::future::pending().await
    }
    /// A client of the same server as another user; `None` if the user cannot be chosen.
    fn with_user(&self, _user: &UserInfo) -> Option<Arc<dyn Api>> {
        None
    }
    /// The parts that clients of one server share, whoever their user is: they share
    /// informers. `None` if the client shares them with nobody.
    fn server_identity(&self) -> Option<usize> {
        None
    }
}

/// Creates each event with a call of its own.
pub async fn create_each_event(api: &dyn Api, events: Vec<CoreEvent>) -> Vec<Result<()>> {
    let writes = events.into_iter().map(|event| async move {
        let body = serde_json::to_value(&event).map_err(|e| Error::Protocol(e.to_string()))?;
        let at = ResourcePath::collection(&EVENTS, &event.metadata.namespace);
        let created = api.create(at, body.into(), &WriteOptions::default()).await;
        created.map(drop)
    });
    let writes = futures_util::stream::iter(writes.collect::<Vec<_>>());
    writes.buffered(MAX_CONCURRENT_EVENT_WRITES).collect().await
}

/// The client with which a controller calls a server: as its own user where that can be
/// chosen (`ControllerClientBuilder` of kube-controller-manager).
pub fn controller_client(api: &Arc<dyn Api>, user: &UserInfo) -> Arc<dyn Api> {
    api.with_user(user).unwrap_or_else(|| Arc::clone(api))
}

/// Selects API groups by name; the core group's name is empty.
pub type GroupFilter<'a> = &'a (dyn Fn(&str) -> bool + Sync);

/// How many group versions are reported that could not be read.
const MAX_FAILED_GROUP_VERSIONS: usize = 1_000;

/// The result of discovery.
#[derive(Clone, Debug, Default)]
pub struct ServerResources {
    pub resources: Vec<ApiResource>,
    /// `group/version` and the reason why its resources could not be read.
    pub failed_group_versions: Vec<(String, String)>,
}

impl ServerResources {
    /// Records why a group version could not be read; of too many the first.
    pub(crate) fn fail(&mut self, group_version: String, why: impl Into<String>) {
        if self.failed_group_versions.len() < MAX_FAILED_GROUP_VERSIONS {
            self.failed_group_versions.push((group_version, why.into()));
        }
    }

    /// Drops the groups that do not pass the filter.
    pub fn retain_groups(mut self, filter: GroupFilter<'_>) -> Self {
        self.resources.retain(|r| filter(&r.resource.group));
        self.failed_group_versions
            .retain(|(version, _)| filter(split_api_version(version).0));
        self
    }
}
