//! Tests of gets and lists: the revision that is read, and the pages.

use super::*;
use crate::{CacherList, CacherListRequest, Error, ListRevision, ReadFreshness};

async fn list(
    bed: &CacherFixture,
    filter: SelectionPredicate,
    revision: ListRevision,
    limit: usize,
) -> Result<CacherList, Error> {
    bed.cache
        .list(CacherListRequest {
            filter,
            revision,
            limit,
        })
        .await
}

fn names(reply: &CacherList) -> Vec<String> {
    let items = reply.items.iter();
    items
        .map(|o| format!("{}@{}", o.meta().key(), o.revision()))
        .collect()
}

/// Three objects, of which one was updated and one deleted.
async fn fixture_with_objects(ring_bytes: usize, uncached: bool) -> CacherFixture {
    let bed = CacherFixture::with_ring(ring_bytes, uncached);
    bed.store.put("a/x", "red"); // 1
    bed.cache.get("a/x", ReadFreshness::Newest).await.unwrap();
    bed.store.put("b/x", "red"); // 2
    bed.store.put("b/y", "blue"); // 3
    bed.store.put("a/x", "blue"); // 4
    bed.store.delete("b/y"); // 5
    bed
}

const FIXTURE_OPTIONS: [(usize, bool); 3] = [(32 << 20, false), (0, false), (0, true)];

#[tokio::test(start_paused = true)]
async fn each_read_returns_its_revision() {
    let newest: &[&str] = &["a/x@4", "b/x@2"];
    let table = [
        (ListRevision::Newest, 5, newest),
        (ListRevision::AtLeast(5), 5, newest),
        (ListRevision::AtLeast(2), 5, newest),
        (ListRevision::Exact(5), 5, newest),
        (ListRevision::Exact(4), 4, &["a/x@4", "b/x@2", "b/y@3"]),
        (ListRevision::Exact(3), 3, &["a/x@1", "b/x@2", "b/y@3"]),
        (ListRevision::Exact(1), 1, &["a/x@1"]),
        (ListRevision::Any, 5, newest),
    ];
    for (ring_bytes, uncached) in FIXTURE_OPTIONS {
        let bed = fixture_with_objects(ring_bytes, uncached).await;
        for (at, revision, expected) in &table {
            let reply = list(&bed, SelectionPredicate::default(), at.clone(), 0)
                .await
                .unwrap();
            assert_eq!(names(&reply), *expected, "{at:?}");
            assert_eq!(
                (
                    reply.revision,
                    &reply.continue_token,
                    reply.remaining_item_count
                ),
                (*revision, &None, None)
            );
        }
        let filtered = [
            (namespace("b"), vec!["b/x@2"]),
            (namespace("c"), vec![]),
            (labelled("blue"), vec!["a/x@4"]),
            (named(None, "x"), vec!["a/x@4", "b/x@2"]),
            (named(Some("b"), "x"), vec!["b/x@2"]),
            (named(Some("b"), "y"), vec![]),
        ];
        for (filter, expected) in filtered {
            let reply = list(&bed, filter, ListRevision::Newest, 0).await.unwrap();
            assert_eq!(names(&reply), expected);
        }
        bed.caches.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn unavailable_revisions_are_errors() {
    for (ring_bytes, uncached) in FIXTURE_OPTIONS {
        let bed = fixture_with_objects(ring_bytes, uncached).await;
        for revision in [ListRevision::AtLeast(6), ListRevision::Exact(6)] {
            let begin = tokio::time::Instant::now();
            let error = list(&bed, SelectionPredicate::default(), revision, 0)
                .await
                .err()
                .unwrap();
            assert!(matches!(
                error,
                Error::TooLargeResourceVersion {
                    requested: 6,
                    current: 5
                }
            ));
            assert!(error.status().has_cause("ResourceVersionTooLarge"));
            assert_eq!(begin.elapsed().as_secs(), 3);
        }
        let get = bed.cache.get("a/x", ReadFreshness::AtLeast(6)).await;
        assert!(matches!(get, Err(Error::TooLargeResourceVersion { .. })));
        let invalid = list(
            &bed,
            SelectionPredicate::default(),
            ListRevision::Continue("x".into()),
            0,
        )
        .await;
        assert_eq!(invalid.err().unwrap().status().code, 400);
        bed.store.write(&[("b/bad", Some("{}".into()))]);
        let error = list(&bed, SelectionPredicate::default(), ListRevision::Newest, 0)
            .await
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("/registry/things/b/bad"),
            "{error}"
        );
        let other = list(&bed, namespace("a"), ListRevision::Newest, 0).await;
        assert_eq!(names(&other.unwrap()), ["a/x@4"]);
        bed.caches.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_write_is_decoded_once() {
    let bed = fixture_with_objects(32 << 20, false).await;
    bed.cache
        .get("a/x", ReadFreshness::AtLeast(5))
        .await
        .unwrap();
    let written = |suffix: &str, revision| {
        let key = format!("{PREFIX}{suffix}").into();
        let value = thing_json(suffix, "red");
        bed.cache
            .decode_written(&key, value.as_bytes(), revision)
            .unwrap()
    };
    // The writer decodes first.
    bed.store.stall_after(Some(5));
    let revision = bed.store.put("c/x", "red");
    let written_object = written("c/x", revision);
    bed.store.stall_after(None);
    let cached = bed.cache.get("c/x", ReadFreshness::AtLeast(revision)).await;
    assert!(cached.unwrap().unwrap().ptr_eq(&written_object));
    // The watch decodes first.
    let revision = bed.store.put("c/x", "red");
    let cached = bed.cache.get("c/x", ReadFreshness::AtLeast(revision)).await;
    assert!(cached.unwrap().unwrap().ptr_eq(&written("c/x", revision)));
    assert_eq!(written("c/y", revision).name(), "y", "not there: decoded");
    bed.caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_unset_revision_is_a_consistent_read() {
    let bed = fixture_with_objects(32 << 20, false).await;
    bed.cache
        .get("a/x", ReadFreshness::AtLeast(5))
        .await
        .unwrap();
    bed.store.stall_after(Some(5));
    bed.store.put("c/x", "red");
    let stale = list(&bed, SelectionPredicate::default(), ListRevision::Any, 0)
        .await
        .unwrap();
    assert_eq!(stale.revision, 5);
    // The watch is stalled: after the timeout the store answers.
    let fresh = list(&bed, SelectionPredicate::default(), ListRevision::Newest, 0)
        .await
        .unwrap();
    assert_eq!((fresh.revision, names(&fresh).len()), (6, 3));
    let object = bed.cache.get("c/x", ReadFreshness::Newest).await.unwrap();
    assert!(object.is_some());
    // The watch continues while a reader waits.
    bed.store.put("c/y", "red");
    let (reply, ()) = tokio::join!(
        list(&bed, SelectionPredicate::default(), ListRevision::Newest, 0),
        async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            bed.store.stall_after(None);
        }
    );
    assert_eq!(reply.unwrap().revision, 7);
    let ranges = bed.store.range_count();
    list(&bed, SelectionPredicate::default(), ListRevision::Newest, 0)
        .await
        .unwrap();
    assert_eq!(
        bed.store.range_count(),
        ranges,
        "fresh, so read from the cache"
    );
    bed.caches.shutdown().await;
}

/// All pages of a list, with writes between them.
async fn pages(
    bed: &CacherFixture,
    filter: SelectionPredicate,
    limit: usize,
) -> (Vec<String>, Vec<Option<u64>>) {
    let mut next_page = ListRevision::Newest;
    let (mut all, mut remaining, mut revision) = (Vec::new(), Vec::new(), None);
    loop {
        let reply = list(bed, filter.clone(), next_page, limit).await.unwrap();
        assert!(reply.items.len() <= limit);
        assert_eq!(*revision.get_or_insert(reply.revision), reply.revision);
        all.extend(names(&reply));
        remaining.push(reply.remaining_item_count);
        bed.store.put("a/00", "blue");
        bed.store.delete("a/05");
        bed.store.put("z/new", "red");
        match reply.continue_token {
            Some(next) => next_page = ListRevision::Continue(next),
            None => return (all, remaining),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_are_of_one_state() {
    for (ring_bytes, uncached) in FIXTURE_OPTIONS {
        let bed = CacherFixture::with_ring(ring_bytes, uncached);
        for n in 0..10 {
            let app = if n % 2 == 0 { "red" } else { "blue" };
            bed.store.put(&format!("a/{n:02}"), app);
        }
        bed.store.put("b/00", "red");
        let before = list(&bed, SelectionPredicate::default(), ListRevision::Newest, 0)
            .await
            .unwrap();
        let (all, remaining) = pages(&bed, SelectionPredicate::default(), 4).await;
        assert_eq!(all, names(&before));
        assert_eq!(remaining, [Some(7), Some(3), None]);

        bed.store.put("a/05", "blue");
        let before = list(&bed, namespace("a"), ListRevision::Newest, 0)
            .await
            .unwrap();
        let (all, remaining) = pages(&bed, namespace("a"), 5).await;
        assert_eq!(all, names(&before));
        assert_eq!(remaining, [Some(5), None]);

        let before = list(&bed, labelled("red"), ListRevision::Newest, 0)
            .await
            .unwrap();
        let (all, remaining) = pages(&bed, labelled("red"), 2).await;
        assert_eq!(all, names(&before), "the limit counts what matches");
        assert!(remaining.iter().all(Option::is_none));
        bed.caches.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_has_a_new_continue_token() {
    let bed = fixture_with_objects(0, false).await;
    let first = list(&bed, SelectionPredicate::default(), ListRevision::Newest, 1)
        .await
        .unwrap();
    assert_eq!(
        (names(&first), first.remaining_item_count),
        (vec!["a/x@4".into()], Some(1))
    );
    bed.store.put("c/x", "red");
    bed.cache.get("c/x", ReadFreshness::Newest).await.unwrap();
    bed.store.compact_to(6);
    let revision = ListRevision::Continue(first.continue_token.unwrap());
    let error = list(&bed, SelectionPredicate::default(), revision, 1)
        .await
        .err()
        .unwrap();
    let status = error.status();
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    let revision = ListRevision::Continue(status.continue_token.unwrap().into());
    let second = list(&bed, SelectionPredicate::default(), revision, 1)
        .await
        .unwrap();
    assert_eq!((names(&second), second.revision), (vec!["b/x@2".into()], 6));
    let revision = ListRevision::Continue(second.continue_token.unwrap());
    let third = list(&bed, SelectionPredicate::default(), revision, 1)
        .await
        .unwrap();
    assert_eq!(
        (names(&third), third.continue_token),
        (vec!["c/x@6".into()], None)
    );
    bed.caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn past_revisions_within_the_ring_are_read_from_the_cache() {
    let bed = CacherFixture::new();
    for n in 0..50 {
        bed.store.put(&format!("a/{n:02}"), "red");
    }
    bed.cache.get("a/00", ReadFreshness::Newest).await.unwrap();
    let first = list(
        &bed,
        SelectionPredicate::default(),
        ListRevision::Newest,
        10,
    )
    .await
    .unwrap();
    let ranges = bed.store.range_count();
    for n in 0..50 {
        bed.store.delete(&format!("a/{n:02}"));
    }
    let empty = list(&bed, SelectionPredicate::default(), ListRevision::Newest, 0)
        .await
        .unwrap();
    assert!(empty.items.is_empty());
    let next_page = ListRevision::Continue(first.continue_token.unwrap());
    let rest = list(&bed, SelectionPredicate::default(), next_page, 0)
        .await
        .unwrap();
    assert_eq!((rest.items.len(), rest.revision), (40, 50));
    for revision in (50..=100).rev() {
        let reply = list(
            &bed,
            SelectionPredicate::default(),
            ListRevision::Exact(revision),
            0,
        )
        .await
        .unwrap();
        assert_eq!(reply.items.len() as u64, 100 - revision);
    }
    assert_eq!(bed.store.range_count(), ranges);
    bed.caches.shutdown().await;
}
