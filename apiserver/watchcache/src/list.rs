//! Lists: selects the revision and the source of a list and divides it into pages.
//! Source: `apiserver/pkg/storage/cacher/delegator`, `storage/continue.go`.

use machinery::Object;
use storage::Range;

use crate::cache::{Cache, Freshness};
use crate::error::Error;
use crate::event::{Slot, decode};
use crate::filter::{Filter, Keys};
use crate::snapshot::{Snapshot, entries};
use crate::token::Token;

/// With a predicate, the number of keys after which a list yields to other tasks.
const SLICE: usize = 512;
/// The smallest and largest limit of one read from the store, in keys.
const SMALLEST_READ: usize = 500;
const LARGEST_READ: usize = 10_000;

/// The revision at which a list is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    Newest,
    Any,
    AtLeast(u64),
    Exact(u64),
    /// The next page of the list that returned this continue token.
    Continue(String),
}

#[derive(Clone)]
pub struct ListRequest {
    pub filter: Filter,
    pub at: At,
    /// The most items to return; 0: no limit.
    pub limit: usize,
}

#[derive(Clone, Debug, Default)]
pub struct ListReply {
    /// In the order of their keys.
    pub items: Vec<Object>,
    /// The revision at which the list was read, the same for all its pages.
    pub revision: u64,
    /// `metadata.continue`.
    pub next: Option<String>,
    /// `metadata.remainingItemCount`; `None` with selectors.
    pub remaining: Option<u64>,
}

/// One list in progress.
struct Walk {
    keys: Keys,
    filter: Filter,
    limit: usize,
    start: String,
    end: String,
}

impl Cache {
    /// Lists objects. A corrupt value among the listed keys fails the whole list.
    pub async fn list(&self, request: ListRequest) -> Result<ListReply, Error> {
        let keys = Keys::new(self.prefix(), &request.filter);
        let (start, end) = keys.bounds();
        let mut walk = Walk {
            keys,
            filter: request.filter,
            limit: request.limit,
            start,
            end,
        };
        let fresh = match request.at {
            At::Newest => Freshness::Newest,
            At::Any => Freshness::Any,
            At::AtLeast(revision) => Freshness::AtLeast(revision),
            At::Exact(revision) => return self.list_exactly(revision, &walk).await,
            At::Continue(text) => {
                let token = Token::decode(&text)?;
                walk.start = format!("{}{}", walk.keys.base, token.start);
                match token.revision {
                    None => Freshness::Newest,
                    Some(revision) => {
                        let reply = self.list_exactly(revision, &walk).await;
                        return reply.map_err(|e| afresh(e, token.start));
                    }
                }
            }
        };
        match self.state(fresh).await? {
            Some(snapshot) => self.list_snapshot(&snapshot, &walk).await,
            None => self.list_store(0, &walk).await,
        }
    }

    async fn list_exactly(&self, revision: u64, walk: &Walk) -> Result<ListReply, Error> {
        match self.state(Freshness::AtLeast(revision)).await {
            // The cache does not have the revision; the store may.
            Ok(_) | Err(Error::NotReady) => {}
            Err(e) => return Err(e),
        }
        match self.shared.snapshot_at(revision) {
            Some(snapshot) if !self.shared.uncached => self.list_snapshot(&snapshot, walk).await,
            _ => self.list_store(revision, walk).await,
        }
    }

    async fn list_snapshot(&self, at: &Snapshot, walk: &Walk) -> Result<ListReply, Error> {
        let reply = match &walk.filter.matches {
            None => walk.whole(at)?,
            Some(_) => walk.sliced(at).await?,
        };
        if reply.next.is_some() {
            self.shared.keep(at);
        }
        self.count(|c| &c.lists, 1);
        self.count(|c| &c.listed, reply.items.len() as u64);
        Ok(reply)
    }

    /// Lists from the store at a revision; 0: the newest.
    async fn list_store(&self, revision: u64, walk: &Walk) -> Result<ListReply, Error> {
        let mut range = Range {
            start: walk.start.clone(),
            end: walk.end.clone(),
            limit: walk.limit.clamp(SMALLEST_READ, LARGEST_READ),
            at: revision,
        };
        let mut reply = ListReply::default();
        loop {
            let page = self.shared.store.range(&range).await;
            let page = page.map_err(|e| Error::from_read(e, range.at))?;
            range.at = page.revision;
            let count = page.entries.len() as u64;
            let mut last = None;
            for (index, entry) in (1..).zip(page.entries) {
                let slot = decode(&entry.key, &entry.value, entry.revision);
                walk.take(&entry.key, &slot, &mut reply)?;
                let rest = count - index + page.remaining;
                if walk.full(&reply) && rest > 0 {
                    walk.cut(&entry.key, rest, &mut reply);
                    break;
                }
                last = Some(entry.key);
            }
            match last {
                Some(last) if page.remaining > 0 && reply.next.is_none() => {
                    range.start = format!("{last}\0");
                    range.limit = (range.limit * 2).min(LARGEST_READ);
                }
                _ => break,
            }
        }
        reply.revision = range.at;
        // `end_page` leaves the plain key, since the revision was not known.
        reply.next = reply.next.map(|start| walk.token(range.at, start));
        self.count(|c| &c.lists_from_store, 1);
        self.count(|c| &c.listed, reply.items.len() as u64);
        Ok(reply)
    }
}

impl Walk {
    /// Lists without a predicate, in one iteration.
    fn whole(&self, at: &Snapshot) -> Result<ListReply, Error> {
        let mut reply = ListReply::default();
        let mut rest = entries(&at.map, &self.start, &self.end);
        while let Some((key, slot)) = rest.next() {
            self.take(key, slot, &mut reply)?;
            if self.full(&reply) {
                let remaining = rest.count() as u64;
                if remaining > 0 {
                    self.cut(key, remaining, &mut reply);
                }
                break;
            }
        }
        Ok(self.at(at.revision, reply))
    }

    /// Lists with a predicate, which may parse objects: in slices, so that a long list
    /// does not block its thread.
    async fn sliced(&self, at: &Snapshot) -> Result<ListReply, Error> {
        let mut reply = ListReply::default();
        let mut start = self.start.clone();
        loop {
            let mut scanned = 0;
            let mut last = None;
            for (key, slot) in entries(&at.map, &start, &self.end).take(SLICE) {
                scanned += 1;
                if self.full(&reply) {
                    // There is a further key to continue with.
                    break;
                }
                self.take(key, slot, &mut reply)?;
                last = Some(key);
            }
            if self.full(&reply) {
                // The limit is reached; look for a key after the last one.
                let from = last.map_or_else(|| start.clone(), |key| format!("{key}\0"));
                if entries(&at.map, &from, &self.end).next().is_some() {
                    reply.next = Some(from);
                }
                break;
            }
            match last {
                Some(key) if scanned == SLICE => start = format!("{key}\0"),
                _ => break,
            }
            tokio::task::yield_now().await;
        }
        Ok(self.at(at.revision, reply))
    }

    fn take(&self, key: &str, slot: &Slot, reply: &mut ListReply) -> Result<(), Error> {
        if !self.keys.contains(key) {
            return Ok(());
        }
        let object = slot.as_ref().map_err(|corrupt| Error::from(&**corrupt))?;
        if self.filter.matches.as_ref().is_none_or(|m| m(object)) {
            reply.items.push(object.clone());
        }
        Ok(())
    }

    fn full(&self, reply: &ListReply) -> bool {
        self.limit > 0 && reply.items.len() >= self.limit
    }

    /// Ends a page after a key when more keys follow. `next` is the plain start key until
    /// the revision of the list is known.
    fn cut(&self, key: &str, rest: u64, reply: &mut ListReply) {
        reply.next = Some(format!("{key}\0"));
        let selective = self.filter.matches.is_some() || self.filter.name.is_some();
        reply.remaining = (!selective).then_some(rest);
    }

    fn at(&self, revision: u64, mut reply: ListReply) -> ListReply {
        reply.revision = revision;
        reply.next = reply.next.map(|start| self.token(revision, start));
        reply
    }

    fn token(&self, revision: u64, start: String) -> String {
        let start = start
            .strip_prefix(&*self.keys.base)
            .map(str::to_owned)
            .unwrap_or(start);
        Token {
            revision: Some(revision),
            start,
        }
        .encode()
    }
}

/// Adds a continue token at the newest state to the error of an expired page.
fn afresh(error: Error, start: String) -> Error {
    match error {
        Error::Expired { asked, oldest, .. } => Error::Expired {
            asked,
            oldest,
            next: Some(
                Token {
                    revision: None,
                    start,
                }
                .encode(),
            ),
        },
        other => other,
    }
}
