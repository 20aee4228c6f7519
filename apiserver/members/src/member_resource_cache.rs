//! The interface to a cache of the objects of many members, from which the search and the
//! global proxy answer.
//!
//! A resourceVersion of several members is the map from their names to their own
//! resourceVersions, in JSON and base64url; callers pass it on as it is.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::Stream;
use machinery::{Gvk, Gvr, Object, Status};

/// A selector on the content of an object of a member.
pub type MemberObjectPredicate = Arc<dyn Fn(&Object) -> bool + Send + Sync>;

/// Selects objects of one resource. The default selects all.
#[derive(Clone, Default)]
pub struct MemberObjectSelection {
    /// `None`: all namespaces, or a cluster-scoped resource.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub matches: Option<MemberObjectPredicate>,
}

/// The options of a list, as they are in the query.
#[derive(Clone, Default)]
pub struct MemberListRequest {
    pub selection: MemberObjectSelection,
    pub resource_version: String,
    pub resource_version_match: String,
    /// 0: no limit.
    pub limit: usize,
    pub continue_token: String,
}

/// One page of a list over all members, in the order of their names.
#[derive(Debug, Default)]
pub struct MemberListPage {
    pub items: Vec<Object>,
    pub resource_version: String,
    /// `None` on the last page.
    pub continue_token: Option<String>,
    /// Why selected members are missing.
    pub warnings: Vec<String>,
}

/// The options of a watch, as they are in the query.
#[derive(Clone, Default)]
pub struct MemberWatchRequest {
    pub selection: MemberObjectSelection,
    pub resource_version: String,
    pub resource_version_match: String,
    pub send_initial_events: Option<bool>,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `None`: the cache decides.
    pub timeout: Option<Duration>,
}

/// An event of a watch of all members. Its resourceVersion covers all of them.
#[derive(Debug)]
pub enum MemberWatchEvent {
    Object {
        /// `ADDED`, `MODIFIED` or `DELETED`.
        event_type: &'static str,
        object: Object,
    },
    Bookmark {
        resource_version: String,
        /// Whether it marks the end of the initial events.
        initial_end: bool,
    },
}

/// The events of a watch. An error is the last item.
pub type MemberWatchStream = Pin<Box<dyn Stream<Item = Result<MemberWatchEvent, Status>> + Send>>;

/// The objects that a search has found.
#[derive(Debug, Default)]
pub struct MemberSearchResult {
    pub items: Vec<Object>,
    /// Why selected members are missing.
    pub warnings: Vec<String>,
}

/// A cache of objects of members, each of which has the annotation
/// `resource.karmada.io/cached-from-cluster`.
#[async_trait]
pub trait MemberResourceCache: Send + Sync + 'static {
    /// The kind of a resource that a ResourceRegistry selects; `None` for others.
    fn cached_kind(&self, resource: &Gvr) -> Option<Gvk>;

    /// The object of this name. 404 if no member has it, 409 if several have.
    async fn get(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Object, Status>;

    /// The member that has the object. Fails as [`Self::get`].
    async fn find_cluster(
        &self,
        resource: &Gvr,
        namespace: &str,
        name: &str,
    ) -> Result<String, Status>;

    async fn list(
        &self,
        resource: &Gvr,
        request: MemberListRequest,
    ) -> Result<MemberListPage, Status>;

    async fn watch(
        &self,
        resource: &Gvr,
        request: MemberWatchRequest,
    ) -> Result<MemberWatchStream, Status>;

    /// All selected objects of the members whose objects are cached now.
    async fn search(
        &self,
        resource: &Gvr,
        selection: MemberObjectSelection,
    ) -> Result<MemberSearchResult, Status>;

    /// The resourceVersion that an object has in its member; `None` if the text does not stand
    /// for resourceVersions of members.
    fn member_resource_version(&self, cluster: &str, text: &str) -> Option<String>;
}
