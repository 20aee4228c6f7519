//! Tests of consistent reads on engines with different support for them. The clock is
//! paused, so that a read that does not wait takes no time.

use tokio::time::Instant;

use super::*;
use crate::{CacherList, CacherListRequest, Error, ListRevision, ReadFreshness};

async fn list(bed: &CacherFixture, revision: ListRevision) -> Result<CacherList, Error> {
    let request = CacherListRequest {
        filter: SelectionPredicate::default(),
        revision,
        limit: 0,
    };
    bed.cache.list(request).await
}

fn names(reply: &CacherList) -> String {
    let names = reply.items.iter().map(|o| o.meta().key());
    names.collect::<Vec<_>>().join(" ")
}

/// A filled cache with `a/x` at 1, whose watch has not delivered `a/y` at 2 and a write to
/// another resource at 3.
async fn behind(proof: ConsistentReadSupport) -> CacherFixture {
    let bed = CacherFixture::new();
    bed.store.put("a/x", "1");
    list(&bed, ListRevision::Newest).await.unwrap();
    bed.store.set_consistent_read_support(proof);
    bed.store.stall_after(Some(1));
    bed.store.put("a/y", "1");
    bed.store.write_other_resource();
    bed
}

#[tokio::test(start_paused = true)]
async fn unreliable_progress_is_not_awaited() {
    let bed = behind(ConsistentReadSupport::Unsupported).await;
    let start = Instant::now();
    let newest = list(&bed, ListRevision::Newest).await.unwrap();
    assert_eq!((names(&newest).as_str(), newest.revision), ("a/x a/y", 3));
    for revision in [ListRevision::AtLeast(3), ListRevision::Exact(3)] {
        let reply = list(&bed, revision).await.unwrap();
        assert_eq!((names(&reply).as_str(), reply.revision), ("a/x a/y", 3));
    }
    let any_revision = list(&bed, ListRevision::Any).await.unwrap();
    assert_eq!(
        (names(&any_revision).as_str(), any_revision.revision),
        ("a/x", 1)
    );
    assert!(
        bed.cache
            .get("a/y", ReadFreshness::Newest)
            .await
            .unwrap()
            .is_some()
    );
    let least = bed
        .cache
        .get("a/y", ReadFreshness::AtLeast(3))
        .await
        .unwrap();
    assert!(least.is_some());
    assert_eq!(start.elapsed(), Duration::ZERO);

    // A read of a future revision waits, then fails.
    let not_reached = list(&bed, ListRevision::AtLeast(9)).await;
    assert!(matches!(
        not_reached,
        Err(Error::TooLargeResourceVersion {
            requested: 9,
            current: 3
        })
    ));
    bed.caches.shutdown().await;
    assert!(matches!(
        list(&bed, ListRevision::Newest).await,
        Err(Error::NotReady)
    ));
}

#[tokio::test(start_paused = true)]
async fn watches_start_from_the_store_and_continue_on_the_cache() {
    let bed = behind(ConsistentReadSupport::Unsupported).await;
    let initial = WatchStart::Initial(ReadFreshness::Newest);
    let mut watcher = bed.watch(SelectionPredicate::default(), initial).await;
    let mut live = bed
        .watch(
            SelectionPredicate::default(),
            WatchStart::Now(ReadFreshness::Newest),
        )
        .await;
    let mut least = bed
        .watch(
            SelectionPredicate::default(),
            WatchStart::Initial(ReadFreshness::AtLeast(3)),
        )
        .await;
    let all = ["ADDED a/x@1 1", "ADDED a/y@2 1", "BOOKMARK 3 end"];
    assert_eq!(drain(&mut watcher).await, all);
    assert_eq!(drain(&mut least).await, all);
    assert!(drain(&mut live).await.is_empty());
    // The cache receives the events that the watchers have sent already, and newer ones.
    bed.store.stall_after(None);
    bed.store.put("a/y", "2");
    bed.store.delete("a/x");
    for watcher in [&mut watcher, &mut least, &mut live] {
        let items = drain(watcher).await;
        assert_eq!(items, ["MODIFIED a/y@4 2", "DELETED a/x@5 1"]);
    }
    assert_eq!(bed.cache.stats().terminated, 0);
}

#[tokio::test(start_paused = true)]
async fn progress_is_requested() {
    let bed = behind(ConsistentReadSupport::ProgressRequest).await;
    bed.store.stall_after(None);
    let start = Instant::now();
    let ranges = bed.store.range_count();
    for revision in [ListRevision::AtLeast(3), ListRevision::Newest] {
        let reply = list(&bed, revision).await.unwrap();
        assert_eq!((names(&reply).as_str(), reply.revision), ("a/x a/y", 3));
    }
    bed.store.write_other_resource();
    let mut watcher = bed
        .watch(
            SelectionPredicate::default(),
            WatchStart::Initial(ReadFreshness::AtLeast(4)),
        )
        .await;
    let all = ["ADDED a/x@1 1", "ADDED a/y@2 1", "BOOKMARK 4 end"];
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(drain(&mut watcher).await, all);
    assert_eq!(bed.store.range_count(), ranges, "answered from the cache");

    // A get is one request to the store, whatever the progress of the watch.
    bed.store.stall_after(Some(4));
    bed.store.put("a/z", "1");
    let start = Instant::now();
    assert!(
        bed.cache
            .get("a/z", ReadFreshness::Newest)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
    // A list waits, then reads from the store.
    let newest = list(&bed, ListRevision::Newest).await.unwrap();
    assert_eq!(
        (names(&newest).as_str(), newest.revision),
        ("a/x a/y a/z", 5)
    );
    assert_eq!(bed.store.range_count(), ranges + 1);
}
