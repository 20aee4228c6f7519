//! A resource of a member as a read-only store, from which the watch cache is filled.
//!
//! A key is the prefix with `namespace/name`, a revision is a resourceVersion of the member. The
//! store has no history: a watch continues the last list, and older revisions count as compacted.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::ListOptions;
use machinery::{ExponentialBackoff, Object};
use parking_lot::Mutex;
use storage::{
    Error, KeyValue, RangeRequest, RangeResponse, SingleKeyTxn, Store, StoreResult, StoreWatch,
    TxnResponse,
};
use tokio::time::{Instant, sleep_until};
use watchcache::{CacheSize, CacheSizeLimit};

use crate::cache_budget::CacheBudget;
use crate::member_resource::{MemberResource, store_error};
use crate::member_store_watch::MemberStoreWatch;

/// Objects per page of a list, as in client-go's pager.
const LIST_PAGE_SIZE: u64 = 500;
/// A member that refuses a list is asked again after a while: only somebody's change of its roles helps.
/// So is one whose watch does not outlive the list: it would be listed without end.
const LIST_BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(10));
/// A watch that has lasted so long ends the backoff.
const STABLE_WATCH_DURATION: Duration = Duration::from_secs(60);
/// A member with more than may be cached is asked again after a while: each list of it takes time
/// and memory.
const OVERFLOW_BACKOFF: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_secs(60), MAX_OVERFLOW_DELAY);
const MAX_OVERFLOW_DELAY: Duration = Duration::from_secs(600);
/// The longest text of a failure that is kept; a member may send more.
const MAX_FAILURE_CHARS: usize = 256;

/// How far the last list has come.
#[derive(Default)]
struct ListProgress {
    /// The first key of the next page, and its continue token.
    next_page: Option<(String, String)>,
    /// The revision of the last complete list, from which one watch may start.
    listed: Option<u64>,
    newest: u64,
}

/// The failures since the last complete list, and when the next may start.
struct ListFailures {
    /// Why the last one failed.
    last: Option<String>,
    lists: ExponentialBackoff,
    /// Goes on over complete lists, since a member may exceed the bounds by its watch.
    overflows: ExponentialBackoff,
    /// Not before then is a member listed again.
    retry_at: Option<Instant>,
    last_complete: Option<Instant>,
}

impl Default for ListFailures {
    fn default() -> Self {
        Self {
            last: None,
            lists: LIST_BACKOFF,
            overflows: OVERFLOW_BACKOFF,
            retry_at: None,
            last_complete: None,
        }
    }
}

impl ListFailures {
    fn record(&mut self, reason: &str) {
        self.last = Some(reason.chars().take(MAX_FAILURE_CHARS).collect());
    }

    /// The member has more than may be cached.
    fn record_overflow(&mut self, reason: &str) {
        self.record(reason);
        // One that was within the bounds for long begins anew.
        let was_within = self.last_complete.take();
        if was_within.is_some_and(|at| at.elapsed() >= MAX_OVERFLOW_DELAY) {
            self.overflows.reset();
        }
        self.retry_at = Some(Instant::now() + self.overflows.next_delay());
    }

    fn record_complete_list(&mut self) {
        self.last = None;
        let now = Instant::now();
        let last = self.last_complete.replace(now);
        if last.is_none_or(|last| now - last >= STABLE_WATCH_DURATION) {
            self.lists.reset();
        }
        self.retry_at = Some(now + self.lists.next_delay());
    }
}

/// The store of one resource of a member.
pub(crate) struct MemberStore {
    resource: Arc<MemberResource>,
    /// A ResourceRegistry is an administrator's choice and has none; everybody can read the fleet
    /// view, and so have it list what members have.
    budget: Option<Arc<CacheBudget>>,
    progress: Mutex<ListProgress>,
    failures: Mutex<ListFailures>,
}

impl MemberStore {
    pub(crate) fn new(resource: MemberResource, budget: Option<Arc<CacheBudget>>) -> Self {
        Self {
            resource: Arc::new(resource),
            budget,
            progress: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// Why the objects could not be listed, if the last list has failed.
    pub(crate) fn last_failure(&self) -> Option<String> {
        self.failures.lock().last.clone()
    }

    /// The continue token of a page: of the first, or of the one after the last.
    fn page_token(&self, range: &RangeRequest) -> StoreResult<String> {
        let mut progress = self.progress.lock();
        if range.revision == 0 && range.start == self.resource.prefix {
            *progress = ListProgress::default();
            return Ok(String::new());
        }
        match progress.next_page.take() {
            Some((start, token)) if start == range.start => Ok(token),
            _ => Err(Error::Compacted {
                at: progress.newest,
            }),
        }
    }

    async fn list_page(&self, token: String) -> StoreResult<client::ObjectList> {
        let options = ListOptions {
            limit: LIST_PAGE_SIZE,
            continue_token: token,
            ..ListOptions::default()
        };
        if options.continue_token.is_empty() {
            let retry_at = self.failures.lock().retry_at;
            if let Some(at) = retry_at {
                sleep_until(at).await;
            }
        }
        let page = self.resource.api.list(self.resource.path(), &options).await;
        page.map_err(|error| {
            if error.is_forbidden() {
                let mut failures = self.failures.lock();
                failures.retry_at = Some(Instant::now() + failures.lists.next_delay());
            }
            // Whoever is shown the reason need not know the address.
            match &error {
                client::Error::Transport { message, .. } => self.record_failure(message),
                error => self.record_failure(&error.to_string()),
            }
            store_error(&self.resource.cluster, &error)
        })
    }

    /// The pages of a list of all keys, in turn. The limit is that of the member's pages.
    async fn next_page(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        let mut token = self.page_token(range)?;
        loop {
            let page = self.list_page(token).await?;
            let revision = self.resource.check_revision(page.revision);
            let revision = revision.inspect_err(|error| self.record_failure(&error.to_string()))?;
            token = page.continue_token;
            let kvs = self.key_values(page.items);
            // A page without selected objects has no key after which the list continues.
            if kvs.is_empty() && !token.is_empty() {
                continue;
            }
            let mut progress = self.progress.lock();
            progress.newest = revision;
            match kvs.last().filter(|_| !token.is_empty()) {
                Some(last) => progress.next_page = Some((format!("{}\0", last.key), token.clone())),
                None => progress.listed = Some(revision),
            }
            return Ok(RangeResponse {
                kvs,
                remaining: u64::from(!token.is_empty()),
                revision,
            });
        }
    }

    fn record_failure(&self, reason: &str) {
        self.failures.lock().record(reason);
    }

    fn key_values(&self, objects: Vec<Object>) -> Vec<KeyValue> {
        let resource = &self.resource;
        let objects = objects.into_iter().filter(|o| resource.selects(o));
        let key_value = |object: Object| {
            Some(KeyValue {
                key: resource.key(&object),
                value: resource.stored_value(&object)?,
                mod_revision: object.revision(),
            })
        };
        objects.filter_map(key_value).collect()
    }
}

fn read_only() -> Error {
    Error::Unavailable("the objects of members are read from the cache only".to_owned())
}

#[async_trait]
impl Store for MemberStore {
    async fn revision(&self) -> StoreResult<u64> {
        Ok(self.progress.lock().newest)
    }

    async fn get(&self, _: &str) -> StoreResult<Option<KeyValue>> {
        Err(read_only())
    }

    async fn range(&self, range: &RangeRequest) -> StoreResult<RangeResponse> {
        let page = self.next_page(range).await;
        if page.as_ref().is_ok_and(|page| page.remaining == 0) {
            self.failures.lock().record_complete_list();
        }
        page
    }

    async fn commit(&self, _: SingleKeyTxn) -> StoreResult<TxnResponse> {
        Err(read_only())
    }

    async fn watch(&self, _: &str, after: u64) -> StoreResult<Box<dyn StoreWatch>> {
        let mut progress = self.progress.lock();
        if progress.listed.take_if(|listed| *listed == after).is_none() {
            return Err(Error::Compacted {
                at: progress.newest,
            });
        }
        let resource = Arc::clone(&self.resource);
        Ok(Box::new(MemberStoreWatch::new(resource, after)))
    }

    async fn compact(&self, _: u64) -> StoreResult<()> {
        Ok(())
    }
}

impl CacheSizeLimit for MemberStore {
    fn resize(&self, from: CacheSize, to: CacheSize) -> StoreResult<()> {
        let Some(budget) = &self.budget else {
            return Ok(());
        };
        let MemberResource {
            cluster, resource, ..
        } = &*self.resource;
        budget.resize(cluster, from, to).map_err(|overflow| {
            let reason = overflow.reason(cluster, &resource.resource);
            self.failures.lock().record_overflow(&reason);
            Error::Unavailable(reason)
        })
    }
}
