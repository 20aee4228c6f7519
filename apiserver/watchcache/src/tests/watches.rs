//! Tests of watches: their start, their events and their end.

use super::*;
use crate::{Error, ReadFreshness};

/// Checks the events of a watch that starts at `start` after some writes and before others.
async fn check(filter: SelectionPredicate, start: WatchStart, expected: &[&str]) {
    // With a large ring, an empty ring and without a cache the events are the same.
    for (ring_bytes, uncached) in [(32 << 20, false), (0, false), (0, true)] {
        let bed = CacherFixture::with_ring(ring_bytes, uncached);
        bed.store.put("a/x", "red"); // 1
        bed.cache.get("a/x", ReadFreshness::Newest).await.unwrap();
        bed.store.put("a/y", "red"); // 2
        bed.store.put("b/x", "blue"); // 3
        bed.cache
            .get("a/x", ReadFreshness::AtLeast(3))
            .await
            .unwrap();
        let mut watcher = bed.watch(filter.clone(), start).await;
        let mut items = drain(&mut watcher).await;
        bed.store.put("a/x", "blue"); // 4
        bed.store.put("a/x", "green"); // 5
        items.extend(drain(&mut watcher).await);
        bed.store.delete("a/y"); // 6
        bed.store.put("a/y", "red"); // 7
        bed.store.delete("b/x"); // 8
        items.extend(drain(&mut watcher).await);
        assert_eq!(items, expected, "ring of {ring_bytes}, uncached {uncached}");
        bed.caches.shutdown().await;
    }
}

/// A watch of live events, without bookmarks.
async fn watch_live(bed: &CacherFixture, filter: SelectionPredicate) -> CacheWatcher {
    let start = WatchStart::Now(ReadFreshness::Newest);
    bed.try_watch(filter, start, false).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn only_newer_events_are_sent() {
    let later = [
        "MODIFIED a/x@4 blue",
        "MODIFIED a/x@5 green",
        "DELETED a/y@6 red",
        "ADDED a/y@7 red",
        "DELETED b/x@8 blue",
    ];
    check(SelectionPredicate::default(), WatchStart::After(3), &later).await;
    check(
        SelectionPredicate::default(),
        WatchStart::Now(ReadFreshness::Newest),
        &later,
    )
    .await;
    let mut all = vec!["ADDED a/y@2 red", "ADDED b/x@3 blue"];
    all.extend(later);
    check(SelectionPredicate::default(), WatchStart::After(1), &all).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_for_a_future_revision() {
    check(
        SelectionPredicate::default(),
        WatchStart::After(6),
        &["ADDED a/y@7 red", "DELETED b/x@8 blue"],
    )
    .await;
}

// proves: TKO-versions
#[tokio::test(start_paused = true)]
async fn watches_expire_that_start_at_revisions_of_another_server() {
    for uncached in [false, true] {
        let bed = CacherFixture::with_ring(32 << 20, uncached);
        for suffix in ["a/x", "a/y", "b/x"] {
            bed.store.put(suffix, "red");
        }
        let any = SelectionPredicate::default;
        let start = async |start: WatchStart| bed.try_watch(any(), start, false).await;
        let mut open = bed.watch(any(), WatchStart::After(1)).await;
        drain(&mut open).await;
        // A second time, although nothing was written meanwhile.
        for _ in 0..2 {
            bed.caches.expire_watches().await.unwrap();
            let ended = open.next().await.unwrap();
            assert!(matches!(ended, Err(Error::Expired { .. })), "{ended:?}");
            open = bed.watch(any(), WatchStart::After(3)).await;
        }
        for (after, expires) in [(1, true), (2, true), (3, false), (9, true)] {
            let started = start(WatchStart::After(after)).await;
            let is_expired = matches!(started, Err(Error::Expired { .. }));
            assert_eq!(
                (is_expired, started.is_err()),
                (expires, expires),
                "{after}"
            );
        }
        let fresh = ReadFreshness::AtLeast(9);
        let listed = start(WatchStart::Initial(fresh)).await;
        assert!(matches!(listed, Err(Error::Expired { .. })));
        let listed = bed.cache.get("a/x", fresh).await;
        assert!(matches!(listed, Err(Error::Expired { .. })));
        let mut live = start(WatchStart::After(3)).await.unwrap();
        bed.store.put("a/x", "blue");
        assert_eq!(drain(&mut live).await, ["MODIFIED a/x@4 blue"]);
        // Of a cache that is opened later, too.
        let later = bed.caches.cacher("/registry/others/");
        assert!(later.check_watch_start(1).await.is_err());
        bed.caches.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn initial_events_end_with_a_bookmark() {
    for fresh in [
        ReadFreshness::Any,
        ReadFreshness::Newest,
        ReadFreshness::AtLeast(3),
    ] {
        check(
            SelectionPredicate::default(),
            WatchStart::Initial(fresh),
            &[
                "ADDED a/x@1 red",
                "ADDED a/y@2 red",
                "ADDED b/x@3 blue",
                "BOOKMARK 3 end",
                "MODIFIED a/x@4 blue",
                "MODIFIED a/x@5 green",
                "DELETED a/y@6 red",
                "ADDED a/y@7 red",
                "DELETED b/x@8 blue",
            ],
        )
        .await;
    }
    check(
        labelled("none"),
        WatchStart::Initial(ReadFreshness::Newest),
        &["BOOKMARK 3 end"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn selectors_turn_updates_into_additions_and_deletions() {
    check(
        labelled("red"),
        WatchStart::After(2),
        &["DELETED a/x@4 red", "DELETED a/y@6 red", "ADDED a/y@7 red"],
    )
    .await;
    check(
        labelled("blue"),
        WatchStart::After(2),
        &[
            "ADDED b/x@3 blue",
            "ADDED a/x@4 blue",
            "DELETED a/x@5 blue",
            "DELETED b/x@8 blue",
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn keys_select_events() {
    check(
        namespace("b"),
        WatchStart::Initial(ReadFreshness::Newest),
        &["ADDED b/x@3 blue", "BOOKMARK 3 end", "DELETED b/x@8 blue"],
    )
    .await;
    check(
        named(None, "x"),
        WatchStart::After(3),
        &[
            "MODIFIED a/x@4 blue",
            "MODIFIED a/x@5 green",
            "DELETED b/x@8 blue",
        ],
    )
    .await;
    check(
        named(Some("a"), "y"),
        WatchStart::After(3),
        &["DELETED a/y@6 red", "ADDED a/y@7 red"],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_carries_its_own_revision() {
    let bed = CacherFixture::new();
    bed.store.put("a/x", "red");
    let mut watcher = bed
        .watch(labelled("red"), WatchStart::Initial(ReadFreshness::Newest))
        .await;
    drain(&mut watcher).await;
    bed.store.put("a/x", "blue");
    let Some(Ok(CacheWatcherItem::Event(deleted))) = watcher.next().await else {
        panic!("no event");
    };
    let value = deleted.object().value().unwrap();
    assert_eq!(value["metadata"]["resourceVersion"], "2");
    assert_eq!(value["metadata"]["labels"]["app"], "red");
    let frame: serde_json::Value = machinery::json::from_slice(&deleted.frame()).unwrap();
    assert_eq!(
        frame,
        serde_json::json!({"type": "DELETED", "object": value})
    );
    assert!(deleted.frame().ends_with(b"}}\n"));
    bed.caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_frame_is_encoded_once_for_all() {
    let bed = CacherFixture::new();
    let mut watchers = Vec::new();
    for _ in 0..20 {
        watchers.push(
            bed.watch(
                SelectionPredicate::default(),
                WatchStart::Now(ReadFreshness::Newest),
            )
            .await,
        );
    }
    bed.store.put("a/x", "red");
    bed.store.delete("a/x");
    for watcher in &mut watchers {
        for _ in 0..2 {
            let Some(Ok(CacheWatcherItem::Event(event))) = watcher.next().await else {
                panic!("no event");
            };
            event.frame();
        }
        assert!(watcher.try_next().is_none());
    }
    assert_eq!(bed.cache.stats().encodings, 2);
    assert_eq!(bed.caches.stats().watchers, 20);
    drop(watchers);
    assert_eq!(bed.caches.stats().watchers, 0);
    bed.caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn compacted_history_is_expired() {
    for (ring_bytes, uncached) in [(0, false), (0, true)] {
        let bed = CacherFixture::with_ring(ring_bytes, uncached);
        bed.cache.get("a/x", ReadFreshness::Newest).await.unwrap();
        for _ in 0..5 {
            bed.store.put("a/x", "red");
        }
        bed.cache
            .get("a/x", ReadFreshness::AtLeast(5))
            .await
            .unwrap();
        bed.store.compact_to(4);
        let result = bed
            .try_watch(SelectionPredicate::default(), WatchStart::After(2), true)
            .await;
        let error = result.err().unwrap();
        assert_eq!(error.to_string(), "too old resource version: 2 (4)");
        let status = error.status();
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        let mut rest = bed
            .watch(SelectionPredicate::default(), WatchStart::After(4))
            .await;
        assert_eq!(drain(&mut rest).await, ["MODIFIED a/x@5 red"]);
        bed.caches.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_does_not_affect_others() {
    let bed = CacherFixture::with_ring(20_000, false);
    bed.store.put("a/x", "0");
    let mut slow = watch_live(&bed, SelectionPredicate::default()).await;
    let mut fast = watch_live(&bed, SelectionPredicate::default()).await;
    // No event concerns it, so it never falls behind.
    let mut quiet_watcher = watch_live(&bed, namespace("q")).await;
    for n in 1..=100 {
        bed.store.put("a/x", &n.to_string());
        assert_eq!(drain(&mut fast).await.len(), 1);
    }
    assert!(bed.cache.stats().ring_bytes <= 20_000);
    let items = drain(&mut slow).await;
    assert_eq!(items.len(), 100, "served from history");
    assert_eq!(bed.cache.stats().from_history, 1);

    for n in 101..=200 {
        bed.store.put("a/x", &n.to_string());
        assert_eq!(drain(&mut fast).await.len(), 1);
    }
    bed.store.compact_to(150);
    let items = drain(&mut slow).await;
    assert_eq!(items, ["ERROR too old resource version: 101 (150)", "END"]);
    bed.store.put("q/x", "new");
    assert_eq!(drain(&mut quiet_watcher).await, ["ADDED q/x@202 new"]);
    assert_eq!(drain(&mut fast).await, ["ADDED q/x@202 new"]);
    assert_eq!(bed.cache.stats().from_history, 2);
    bed.caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn each_event_of_a_revision_is_sent_once() {
    let bed = CacherFixture::with_ring(0, false);
    bed.cache.get("a/x", ReadFreshness::Newest).await.unwrap();
    let keys: Vec<String> = (0..5).map(|n| format!("a/{n}")).collect();
    let mut watcher = bed
        .watch(
            SelectionPredicate::default(),
            WatchStart::Now(ReadFreshness::Newest),
        )
        .await;
    let changes: Vec<(&str, Option<String>)> = keys
        .iter()
        .map(|k| (k.as_str(), Some(thing_json(k, "red"))))
        .collect();
    bed.store.write(&changes);
    assert_eq!(drain(&mut watcher).await.len(), 5);

    // The watcher reads two of five events from the ring, which then drops the others.
    let bed = CacherFixture::with_ring(16_000, false);
    let mut watcher = bed
        .watch(
            SelectionPredicate::default(),
            WatchStart::Now(ReadFreshness::Newest),
        )
        .await;
    bed.store.write(&changes);
    let first = watcher.next().await.unwrap().unwrap();
    let second = watcher.next().await.unwrap().unwrap();
    for _ in 0..100 {
        bed.store.put("b/x", "blue");
    }
    let rest = drain(&mut watcher).await;
    let mut all = vec![show(&first), show(&second)];
    all.extend(rest);
    assert_eq!(bed.cache.stats().from_history, 1);
    assert_eq!(all.len(), 105, "{all:?}");
    all.dedup();
    assert_eq!(all.len(), 105);
    bed.caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn bookmarks_follow_the_store_while_the_resource_is_quiet() {
    for uncached in [false, true] {
        let bed = CacherFixture::with_ring(32 << 20, uncached);
        bed.store.put("a/x", "red");
        let mut watcher = bed
            .watch(SelectionPredicate::default(), WatchStart::After(1))
            .await;
        let mut silent = bed
            .try_watch(SelectionPredicate::default(), WatchStart::After(1), false)
            .await
            .unwrap();
        assert!(drain(&mut watcher).await.is_empty());
        for _ in 0..10 {
            bed.store.write_other_resource();
        }
        let first = tokio::time::timeout(Duration::from_secs(61), watcher.next()).await;
        assert_eq!(show(&first.unwrap().unwrap().unwrap()), "BOOKMARK 11");
        let wait = tokio::time::timeout(Duration::from_secs(300), silent.next()).await;
        assert!(wait.is_err(), "bookmarks were not asked for");
        bed.caches.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_deadline_without_an_error() {
    for uncached in [false, true] {
        let bed = CacherFixture::with_ring(32 << 20, uncached);
        bed.store.put("a/x", "red");
        let begin = tokio::time::Instant::now();
        let request = CacherWatchRequest {
            filter: SelectionPredicate::default(),
            start: WatchStart::After(9),
            bookmarks: true,
            deadline: Some(begin + Duration::from_secs(10)),
        };
        let mut watcher = bed.cache.watch(request).await.unwrap();
        let farewell = watcher.next().await.unwrap().unwrap();
        assert_eq!(begin.elapsed().as_secs(), 8);
        assert_eq!(show(&farewell), "BOOKMARK 9", "never below the start");
        assert!(watcher.next().await.is_none());
        assert_eq!(begin.elapsed().as_secs(), 10);
        assert_eq!(bed.cache.stats().terminated, 0);
        bed.caches.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_feed_ends_watchers_and_lists_again() {
    let bed = CacherFixture::new();
    bed.store.put("a/x", "red");
    let mut live = bed
        .watch(SelectionPredicate::default(), WatchStart::After(1))
        .await;
    let mut initial = bed
        .watch(
            SelectionPredicate::default(),
            WatchStart::Initial(ReadFreshness::Any),
        )
        .await;
    assert!(drain(&mut live).await.is_empty());
    bed.store.set_offline(true);
    assert_eq!(drain(&mut live).await, ["END"]);
    assert_eq!(drain(&mut initial).await, ["END"]);
    let get = bed.cache.get("a/x", ReadFreshness::Any).await;
    assert!(matches!(get, Err(Error::NotReady)));
    let filled = bed.cache.get_if_filled("a/x").unwrap();
    assert!(filled.is_none(), "the cache is not filled");
    let result = bed
        .try_watch(SelectionPredicate::default(), WatchStart::After(1), true)
        .await;
    let status = result.err().unwrap().status();
    assert_eq!(
        (status.code, status.details.unwrap().retry_after_seconds),
        (429, 1)
    );
    assert!(!bed.cache.ready());

    bed.store.put("a/y", "red");
    bed.store.set_offline(false);
    let state = bed.cache.get("a/y", ReadFreshness::Newest).await.unwrap();
    assert!(state.is_some(), "from the store meanwhile");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(bed.cache.ready());
    let mut resumed = bed
        .watch(SelectionPredicate::default(), WatchStart::After(1))
        .await;
    assert_eq!(drain(&mut resumed).await, ["ADDED a/y@2 red"]);
    assert_eq!(bed.cache.stats().fills, 2);
    bed.caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_and_removal_end_everything() {
    for uncached in [false, true] {
        for remove in [false, true] {
            let bed = CacherFixture::with_ring(32 << 20, uncached);
            bed.store.put("a/x", "red");
            let mut waiting = bed
                .watch(SelectionPredicate::default(), WatchStart::After(1))
                .await;
            let mut started = bed
                .watch(
                    SelectionPredicate::default(),
                    WatchStart::Initial(ReadFreshness::Any),
                )
                .await;
            let task = tokio::spawn(async move { drain(&mut waiting).await });
            tokio::task::yield_now().await;
            if remove {
                bed.caches.remove(PREFIX).await;
            } else {
                bed.caches.shutdown().await;
            }
            assert_eq!(task.await.unwrap(), ["END"]);
            let items = drain(&mut started).await;
            assert_eq!(items.last().map(String::as_str), Some("END"), "{items:?}");
            let get = bed.cache.get("a/x", ReadFreshness::Newest).await;
            assert!(matches!(get, Err(Error::NotReady)));
            // A write must not revive an object of a removed resource.
            let filled = bed.cache.get_if_filled("a/x");
            assert!(matches!(filled, Err(Error::NotReady)));
            bed.caches.shutdown().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_value_is_an_error_and_not_an_absence() {
    for uncached in [false, true] {
        let bed = CacherFixture::with_ring(32 << 20, uncached);
        bed.store.put("a/x", "red");
        let mut all = bed
            .watch(SelectionPredicate::default(), WatchStart::After(1))
            .await;
        let mut other_watcher = bed.watch(namespace("b"), WatchStart::After(1)).await;
        bed.store.write(&[("a/bad", Some("garbage".into()))]);
        bed.store.put("b/x", "red");
        let items = drain(&mut all).await;
        assert!(items[0].starts_with("ERROR ") && items[0].contains("/registry/things/a/bad"));
        assert_eq!(items[1..], ["END"]);
        assert_eq!(drain(&mut other_watcher).await, ["ADDED b/x@3 red"]);
        let get = bed.cache.get("a/bad", ReadFreshness::Newest).await;
        let status = get.err().unwrap().status();
        assert_eq!(
            (status.code, status.reason.as_str()),
            (500, "StoreReadError")
        );
        let initial = bed.try_watch(
            SelectionPredicate::default(),
            WatchStart::Initial(ReadFreshness::Newest),
            true,
        );
        assert!(drain(&mut initial.await.unwrap()).await[0].starts_with("ERROR "));
        bed.store.delete("a/bad");
        let mut initial = bed
            .watch(
                SelectionPredicate::default(),
                WatchStart::Initial(ReadFreshness::Newest),
            )
            .await;
        assert_eq!(
            drain(&mut initial).await,
            ["ADDED a/x@1 red", "ADDED b/x@3 red", "BOOKMARK 4 end"]
        );
        bed.caches.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_initial_reader_pins_no_old_values() {
    let bed = CacherFixture::with_ring(4_000, false);
    for n in 0..300 {
        bed.store.put(&format!("a/{n:03}"), "old");
    }
    let mut watcher = bed
        .watch(
            SelectionPredicate::default(),
            WatchStart::Initial(ReadFreshness::Newest),
        )
        .await;
    let first = watcher.next().await.unwrap().unwrap();
    assert_eq!(show(&first), "ADDED a/000@1 old");
    let before = bed.store.range_count();
    for n in 0..300 {
        bed.store.put(&format!("a/{n:03}"), "new");
    }
    bed.cache.get("a/000", ReadFreshness::Newest).await.unwrap();
    let items = drain(&mut watcher).await;
    assert!(
        bed.store.range_count() > before,
        "the rest came from the store"
    );
    assert_eq!(items.len(), 299 + 1 + 300);
    assert_eq!(items[298], "ADDED a/299@300 old");
    assert_eq!(items[299], "BOOKMARK 300 end");
    assert_eq!(items[599], "MODIFIED a/299@600 new");
    bed.caches.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_too_new_is_refused_in_time() {
    for uncached in [false, true] {
        let bed = CacherFixture::with_ring(32 << 20, uncached);
        bed.store.put("a/x", "red");
        let begin = tokio::time::Instant::now();
        let start = WatchStart::Initial(ReadFreshness::AtLeast(9));
        let error = bed
            .try_watch(SelectionPredicate::default(), start, true)
            .await
            .err()
            .unwrap();
        assert!(
            matches!(
                error,
                Error::TooLargeResourceVersion {
                    requested: 9,
                    current: 1
                }
            ),
            "{error}"
        );
        assert_eq!(begin.elapsed().as_secs(), 3);
        bed.caches.shutdown().await;
    }
}
