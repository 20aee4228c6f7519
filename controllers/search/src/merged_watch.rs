//! A watch of all members: merges the watches of their caches, and resumes each where the
//! resourceVersion of the client says.
//!
//! It ends when the members change. The client resumes, and gets the objects of a new member as
//! added; a client that knows a member which is not cached any more has to list again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::ShutdownToken;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream, SelectAll};
use machinery::Status;
use members::{MemberWatchEvent, MemberWatchRequest, MemberWatchStream};
use rand::Rng;
use tokio::time::Instant;
use watchcache::{
    CacheWatcher, CacheWatcherItem, CacherWatchRequest, Error, ObjectEvent, ReadFreshness,
    ResourceVersionParams, WatchStart,
};

use crate::cache_requests::{freshness, member_status, rule_version, selection_predicate};
use crate::resource_caches::ResourceCaches;
use crate::resource_version::{MultiClusterResourceVersion, WatchPosition};

/// The timeout of watches without one is random, between this and twice this.
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// An item of the watch of one member; `None`: it has ended.
type MemberItem = (Arc<str>, Option<Result<CacheWatcherItem, Error>>);

/// The watches of all members of one resource.
pub(crate) struct MergedWatch {
    watchers: SelectAll<BoxStream<'static, MemberItem>>,
    /// The objects of each member that the client has seen.
    position: WatchPosition,
    /// Members whose existing objects are not all sent yet.
    initial: BTreeSet<Arc<str>>,
    /// The member with whose bookmarks the client gets one.
    bookmark_cluster: Option<Arc<str>>,
    sends_bookmarks: bool,
    /// Whether a bookmark marks the end of the initial events, and is not sent yet.
    sends_initial_end: bool,
    deadline: Instant,
    replaced: ShutdownToken,
    ended: bool,
    /// Keeps the caches while they are watched.
    _usage: Option<Arc<()>>,
}

/// Where the watch of one member starts.
fn member_start(request: &MemberWatchRequest, fresh: ReadFreshness) -> WatchStart {
    match (request.send_initial_events, fresh) {
        (Some(true), _) | (None, ReadFreshness::Any) => WatchStart::Initial(fresh),
        (_, ReadFreshness::AtLeast(revision)) => WatchStart::After(revision),
        _ => WatchStart::Now(fresh),
    }
}

/// 410 for a client that knows objects of members which are not cached any more: nothing would
/// tell it that they are gone.
fn check_members(
    version: &MultiClusterResourceVersion,
    caches: &ResourceCaches,
) -> Result<(), Status> {
    let mut clusters = version.clusters();
    match clusters.find(|cluster| !caches.members.contains_key(*cluster)) {
        None => Ok(()),
        Some(cluster) => Err(Status::expired(format!(
            "too old resource version: cluster {cluster:?} is not cached any more"
        ))),
    }
}

fn member_stream(cluster: Arc<str>, watcher: CacheWatcher) -> BoxStream<'static, MemberItem> {
    let items = stream::unfold(Some(watcher), move |watcher| {
        let cluster = Arc::clone(&cluster);
        async move {
            let mut watcher = watcher?;
            let item = watcher.next().await;
            let more = item.is_some().then_some(watcher);
            Some(((cluster, item), more))
        }
    });
    items.boxed()
}

impl MergedWatch {
    pub(crate) async fn start(
        caches: Arc<ResourceCaches>,
        request: MemberWatchRequest,
    ) -> Result<Self, Status> {
        ResourceVersionParams {
            resource_version: rule_version(&request.resource_version),
            resource_version_match: &request.resource_version_match,
            limit: 0,
            continue_token: "",
            send_initial_events: request.send_initial_events,
        }
        .for_watch()?;
        let version = MultiClusterResourceVersion::parse(&request.resource_version)?;
        let sends_all = request.send_initial_events == Some(true);
        if !sends_all {
            check_members(&version, &caches)?;
        }
        let mut timeout = request
            .timeout
            .unwrap_or_else(|| MIN_WATCH_TIMEOUT.mul_f64(rand::rng().random_range(1.0..2.0)));
        if let Some(reader) = &caches.reader {
            timeout = timeout.min(reader.max_watch_duration);
        }
        let mut merged = Self {
            watchers: SelectAll::new(),
            position: WatchPosition::default(),
            initial: BTreeSet::new(),
            bookmark_cluster: caches
                .members
                .keys()
                .next()
                .map(|name| name.as_str().into()),
            sends_bookmarks: request.bookmarks,
            sends_initial_end: sends_all && request.bookmarks,
            deadline: Instant::now() + timeout,
            replaced: caches.replaced.clone(),
            ended: false,
            _usage: caches.reader.as_ref().map(|r| Arc::clone(&r.usage)),
        };
        for (cluster, member) in &caches.members {
            let start = member_start(&request, freshness(&version, cluster));
            let watcher = member.cacher.watch(CacherWatchRequest {
                filter: selection_predicate(&request.selection),
                start,
                // They tell how far a member without events has come.
                bookmarks: true,
                deadline: None,
            });
            let watcher = watcher.await.map_err(|e| member_status(cluster, &e))?;
            let name: Arc<str> = cluster.as_str().into();
            match start {
                WatchStart::Initial(_) => {
                    merged.initial.insert(Arc::clone(&name));
                }
                WatchStart::After(revision) => _ = merged.position.advance(&name, revision),
                WatchStart::Now(_) => {}
            }
            merged.watchers.push(member_stream(name, watcher));
        }
        Ok(merged)
    }

    pub(crate) fn into_stream(self) -> MemberWatchStream {
        let events = stream::unfold(self, |mut merged| async move {
            let event = merged.next().await?;
            Some((event, merged))
        });
        Box::pin(events)
    }

    async fn next(&mut self) -> Option<Result<MemberWatchEvent, Status>> {
        while !self.ended {
            if self.initial.is_empty() && std::mem::take(&mut self.sends_initial_end) {
                return Some(Ok(self.bookmark(true)));
            }
            let has_members = !self.watchers.is_empty();
            let item = tokio::select! {
                biased;
                () = self.replaced.wait() => None,
                () = tokio::time::sleep_until(self.deadline) => None,
                item = self.watchers.next(), if has_members => item,
            };
            let Some((cluster, Some(item))) = item else {
                break;
            };
            match item {
                Ok(CacheWatcherItem::Event(event)) => {
                    let event = self.object_event(&cluster, &event);
                    self.ended = event.is_err();
                    return Some(event);
                }
                Ok(CacheWatcherItem::Bookmark {
                    revision,
                    initial_end,
                }) => {
                    self.position.advance(&cluster, revision);
                    if initial_end {
                        self.initial.remove(&cluster);
                    } else if self.is_bookmark_due(&cluster) {
                        return Some(Ok(self.bookmark(false)));
                    }
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(member_status(&cluster, &error)));
                }
            }
        }
        self.ended = true;
        None
    }

    /// One bookmark for those of all members.
    fn is_bookmark_due(&self, cluster: &Arc<str>) -> bool {
        self.sends_bookmarks
            && self.initial.is_empty()
            && self.bookmark_cluster.as_ref() == Some(cluster)
    }

    fn bookmark(&self, initial_end: bool) -> MemberWatchEvent {
        MemberWatchEvent::Bookmark {
            resource_version: self.position.encode(),
            initial_end,
        }
    }

    fn object_event(
        &mut self,
        cluster: &Arc<str>,
        event: &ObjectEvent,
    ) -> Result<MemberWatchEvent, Status> {
        let former = self.position.advance(cluster, event.revision());
        let version = self.position.encode();
        // An initial event is not where the client is: older objects may follow.
        if self.initial.contains(cluster) {
            self.position.restore(cluster, former);
        }
        let object = event.object().with_resource_version(&version);
        Ok(MemberWatchEvent::Object {
            event_type: event.event_type().as_str(),
            object: object.map_err(Status::internal)?,
        })
    }
}
