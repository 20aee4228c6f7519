//! Lists: selects the revision and the source of a list and divides it into pages.
//! Source: `apiserver/pkg/storage/cacher/delegator`, `storage/continue.go`.

use machinery::Object;
use storage::RangeRequest;

use crate::cacher::{Cacher, ReadFreshness};
use crate::continue_token::ContinueToken;
use crate::error::Error;
use crate::event::{ObjectDecodeResult, decode};
use crate::filter::{KeySelector, SelectionPredicate};
use crate::snapshot::{CacheSnapshot, entries};

/// With a predicate, the number of keys after which a list yields to other tasks.
const KEYS_PER_SLICE: usize = 512;
/// The smallest and largest limit of one read from the store, in keys.
const MIN_READ_KEYS: usize = 500;
const MAX_READ_KEYS: usize = 10_000;

/// The revision at which a list is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListRevision {
    Newest,
    Any,
    AtLeast(u64),
    Exact(u64),
    /// The next page of the list that returned this continue token.
    Continue(String),
}

#[derive(Clone)]
pub struct CacherListRequest {
    pub filter: SelectionPredicate,
    pub revision: ListRevision,
    /// The most items to return; 0: no limit.
    pub limit: usize,
}

#[derive(Clone, Debug, Default)]
pub struct CacherList {
    /// In the order of their keys.
    pub items: Vec<Object>,
    /// The revision at which the list was read, the same for all its pages.
    pub revision: u64,
    /// `metadata.continue`.
    pub continue_token: Option<String>,
    /// `metadata.remainingItemCount`; `None` with selectors.
    pub remaining_item_count: Option<u64>,
}

/// One list in progress.
struct ListWalk {
    selector: KeySelector,
    filter: SelectionPredicate,
    limit: usize,
    start: String,
    end: String,
}

impl Cacher {
    /// Lists objects. A corrupt value among the listed keys fails the whole list.
    pub async fn list(&self, request: CacherListRequest) -> Result<CacherList, Error> {
        let keys = KeySelector::new(self.prefix(), &request.filter);
        let (start, end) = keys.bounds();
        let mut walk = ListWalk {
            selector: keys,
            filter: request.filter,
            limit: request.limit,
            start,
            end,
        };
        let fresh = match request.revision {
            ListRevision::Newest => ReadFreshness::Newest,
            ListRevision::Any => ReadFreshness::Any,
            ListRevision::AtLeast(revision) => ReadFreshness::AtLeast(revision),
            ListRevision::Exact(revision) => return self.list_at(revision, &walk).await,
            ListRevision::Continue(text) => {
                let token = ContinueToken::decode(&text)?;
                walk.start = format!("{}{}", walk.selector.prefix, token.start);
                match token.revision {
                    None => ReadFreshness::Newest,
                    Some(revision) => {
                        let reply = self.list_at(revision, &walk).await;
                        return reply.map_err(|e| with_new_token(e, token.start));
                    }
                }
            }
        };
        match self.snapshot_for(fresh).await? {
            Some(snapshot) => self.list_snapshot(&snapshot, &walk).await,
            None => self.list_store(0, &walk).await,
        }
    }

    async fn list_at(&self, revision: u64, walk: &ListWalk) -> Result<CacherList, Error> {
        match self.snapshot_for(ReadFreshness::AtLeast(revision)).await {
            // The cache does not have the revision; the store may.
            Ok(_) | Err(Error::NotReady) => {}
            Err(e) => return Err(e),
        }
        match self.cache.snapshot_at(revision) {
            Some(snapshot) if !self.cache.uncached => self.list_snapshot(&snapshot, walk).await,
            _ => self.list_store(revision, walk).await,
        }
    }

    async fn list_snapshot(
        &self,
        snapshot: &CacheSnapshot,
        walk: &ListWalk,
    ) -> Result<CacherList, Error> {
        let reply = match &walk.filter.matches {
            None => walk.list_unfiltered(snapshot)?,
            Some(_) => walk.list_filtered(snapshot).await?,
        };
        if reply.continue_token.is_some() {
            self.cache.keep_snapshot(snapshot);
        }
        self.increment(|c| &c.lists, 1);
        self.increment(|c| &c.listed_objects, reply.items.len() as u64);
        Ok(reply)
    }

    /// Lists from the store at a revision; 0: the newest.
    async fn list_store(&self, revision: u64, walk: &ListWalk) -> Result<CacherList, Error> {
        let mut range = RangeRequest {
            start: walk.start.clone(),
            end: walk.end.clone(),
            limit: walk.limit.clamp(MIN_READ_KEYS, MAX_READ_KEYS),
            revision,
        };
        let mut reply = CacherList::default();
        loop {
            let page = self.cache.store.range(&range).await;
            let page = page.map_err(|e| Error::from_read(e, range.revision))?;
            range.revision = page.revision;
            let count = page.kvs.len() as u64;
            let mut last = None;
            for (index, entry) in (1..).zip(page.kvs) {
                let slot = decode(&entry.key, &entry.value, entry.mod_revision);
                walk.add(&entry.key, &slot, &mut reply)?;
                let rest = count - index + page.remaining;
                if walk.is_full(&reply) && rest > 0 {
                    walk.end_page(&entry.key, rest, &mut reply);
                    break;
                }
                last = Some(entry.key);
            }
            match last {
                Some(last) if page.remaining > 0 && reply.continue_token.is_none() => {
                    range.start = format!("{last}\0");
                    range.limit = (range.limit * 2).min(MAX_READ_KEYS);
                }
                _ => break,
            }
        }
        reply.revision = range.revision;
        // `end_page` leaves the plain key, since the revision was not known.
        reply.continue_token = reply
            .continue_token
            .map(|start| walk.continue_token(range.revision, start));
        self.increment(|c| &c.lists_from_store, 1);
        self.increment(|c| &c.listed_objects, reply.items.len() as u64);
        Ok(reply)
    }
}

impl ListWalk {
    /// Lists without a predicate, in one iteration.
    fn list_unfiltered(&self, snapshot: &CacheSnapshot) -> Result<CacherList, Error> {
        let mut reply = CacherList::default();
        let mut rest = entries(&snapshot.map, &self.start, &self.end);
        let mut walked = 0;
        while let Some((key, slot)) = rest.next() {
            walked += 1;
            self.add(key, slot, &mut reply)?;
            if self.is_full(&reply) {
                let remaining = match self.is_first_page_of_all() {
                    true => snapshot.map.size() - walked,
                    // This takes a step for each key.
                    false => rest.count(),
                };
                if remaining > 0 {
                    self.end_page(key, remaining as u64, &mut reply);
                }
                break;
            }
        }
        Ok(self.finish(snapshot.revision, reply))
    }

    /// Lists with a predicate, which may parse objects: in slices, so that a long list
    /// does not block its thread.
    async fn list_filtered(&self, snapshot: &CacheSnapshot) -> Result<CacherList, Error> {
        let mut reply = CacherList::default();
        let mut start = self.start.clone();
        loop {
            let mut scanned = 0;
            let mut last = None;
            for (key, slot) in entries(&snapshot.map, &start, &self.end).take(KEYS_PER_SLICE) {
                scanned += 1;
                if self.is_full(&reply) {
                    // There is a further key to continue with.
                    break;
                }
                self.add(key, slot, &mut reply)?;
                last = Some(key);
            }
            if self.is_full(&reply) {
                // The limit is reached; look for a key after the last one.
                let from = last.map_or_else(|| start.clone(), |key| format!("{key}\0"));
                if entries(&snapshot.map, &from, &self.end).next().is_some() {
                    reply.continue_token = Some(from);
                }
                break;
            }
            match last {
                Some(key) if scanned == KEYS_PER_SLICE => start = format!("{key}\0"),
                _ => break,
            }
            tokio::task::yield_now().await;
        }
        Ok(self.finish(snapshot.revision, reply))
    }

    fn add(
        &self,
        key: &str,
        slot: &ObjectDecodeResult,
        reply: &mut CacherList,
    ) -> Result<(), Error> {
        if !self.selector.contains(key) {
            return Ok(());
        }
        let object = slot.as_ref().map_err(|corrupt| Error::from(&**corrupt))?;
        if self.filter.matches.as_ref().is_none_or(|m| m(object)) {
            reply.items.push(object.clone());
        }
        Ok(())
    }

    /// Whether it is the first page of a list of all keys.
    fn is_first_page_of_all(&self) -> bool {
        self.selector.scope.is_empty() && *self.start == *self.selector.prefix
    }

    fn is_full(&self, reply: &CacherList) -> bool {
        self.limit > 0 && reply.items.len() >= self.limit
    }

    /// Ends a page after a key when more keys follow. `next` is the plain start key until
    /// the revision of the list is known.
    fn end_page(&self, key: &str, rest: u64, reply: &mut CacherList) {
        reply.continue_token = Some(format!("{key}\0"));
        let selective = self.filter.matches.is_some() || self.filter.name.is_some();
        reply.remaining_item_count = (!selective).then_some(rest);
    }

    fn finish(&self, revision: u64, mut reply: CacherList) -> CacherList {
        reply.revision = revision;
        reply.continue_token = reply
            .continue_token
            .map(|start| self.continue_token(revision, start));
        reply
    }

    fn continue_token(&self, revision: u64, start: String) -> String {
        let start = start
            .strip_prefix(&*self.selector.prefix)
            .map(str::to_owned)
            .unwrap_or(start);
        ContinueToken {
            revision: Some(revision),
            start,
        }
        .encode()
    }
}

/// Adds a continue token at the newest state to the error of an expired page.
fn with_new_token(error: Error, start: String) -> Error {
    match error {
        Error::Expired {
            requested, oldest, ..
        } => Error::Expired {
            requested,
            oldest,
            next: Some(
                ContinueToken {
                    revision: None,
                    start,
                }
                .encode(),
            ),
        },
        other => other,
    }
}
