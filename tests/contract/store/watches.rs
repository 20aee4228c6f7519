//! Contract of watches: order, completeness, progress, and behavior under compaction.

use std::time::Duration;

use bytes::Bytes;
use storage::{ConsistentReadSupport, Error, SingleKeyTxnOp, StoreWatch};

use crate::contract::store::operations::{
    ArcDynStore, create, format_events, next_events, next_response, put, within_timeout, write,
};

pub(crate) async fn watch_from_a_revision(store: &ArcDynStore) {
    let mut revisions = Vec::new();
    for i in 0..6 {
        revisions.push(create(store, &format!("/a/{i}"), "x").await);
    }
    let expected = |from: usize| {
        let keys = (from..6).map(|i| format!("/a/{i}=x@{}", revisions[i]));
        keys.collect::<Vec<_>>()
    };
    for (from, after) in revisions.iter().enumerate().take(5) {
        let mut watch = store.watch("/a/", *after).await.unwrap();
        assert_eq!(
            format_events(&next_events(&mut watch, 5 - from).await),
            expected(from + 1)
        );
    }
    let mut watch = store.watch("/a/", 0).await.unwrap();
    assert_eq!(
        format_events(&next_events(&mut watch, 6).await),
        expected(0)
    );
    let mut watch = store.watch("/a/", revisions[5]).await.unwrap();
    let live = create(store, "/a/9", "y").await;
    assert_eq!(
        format_events(&next_events(&mut watch, 1).await),
        [format!("/a/9=y@{live}")]
    );
}

pub(crate) async fn watch_delivers_previous_values(store: &ArcDynStore) {
    let mut watch = store.watch("/a/", 0).await.unwrap();
    let one = create(store, "/a/1", "one").await;
    let two = write(store, "/a/1", one, put("two")).await;
    let deleted = write(store, "/a/1", two, SingleKeyTxnOp::Delete).await;
    let expected = [
        format!("/a/1=one@{one}"),
        format!("/a/1=two@{two}<one@{one}"),
        format!("/a/1=-@{deleted}<two@{two}"),
    ];
    assert_eq!(format_events(&next_events(&mut watch, 3).await), expected);
    let mut late = store.watch("/a/", 0).await.unwrap();
    assert_eq!(format_events(&next_events(&mut late, 3).await), expected);
}

pub(crate) async fn watch_is_limited_to_its_prefix(store: &ArcDynStore) {
    let mut mine = store.watch("/a/foo/", 0).await.unwrap();
    let mut all = store.watch("/a/", 0).await.unwrap();
    create(store, "/a/foobar/a", "x").await;
    create(store, "/a/fo/a", "x").await;
    let at = create(store, "/a/foo/a", "x").await;
    assert_eq!(
        format_events(&next_events(&mut mine, 1).await),
        [format!("/a/foo/a=x@{at}")]
    );
    assert_eq!(next_events(&mut all, 3).await.len(), 3);
}

/// Waits until a watch without events reaches a revision, if the engine reports progress.
async fn wait_for_progress(store: &ArcDynStore, watch: &mut Box<dyn StoreWatch>, to: u64) {
    while store.consistent_read_support() != ConsistentReadSupport::Unsupported
        && next_response(watch).await.revision < to
    {}
}

pub(crate) async fn watch_of_an_idle_prefix_progresses(store: &ArcDynStore) {
    if store.consistent_read_support() == ConsistentReadSupport::Unsupported {
        return;
    }
    let mut quiet = store.watch("/quiet/", 0).await.unwrap();
    let mut last = 0;
    for i in 0..5 {
        last = create(store, &format!("/a/{i}"), "x").await;
    }
    // The watch makes progress without a call of `revision`.
    let mut reached = 0;
    while reached < last {
        let response = next_response(&mut quiet).await;
        assert!(response.events.is_empty());
        assert!(response.revision > reached, "progress must ascend");
        reached = response.revision;
    }
    assert_eq!(reached, last);
}

pub(crate) async fn revision_of_an_idle_prefix_is_reached(store: &ArcDynStore) {
    let mut watch = store.watch("/quiet/", 0).await.unwrap();
    let mine = create(store, "/quiet/1", "x").await;
    let revision = store.prefix_revision("/quiet/").await.unwrap();
    assert!(revision >= mine);
    next_events(&mut watch, 1).await;
    for i in 0..5 {
        let other = create(store, &format!("/a/{i}"), "x").await;
        let revision = store.revision().await.unwrap();
        assert!(revision >= other);
        wait_for_progress(store, &mut watch, revision).await;
        // The revision of an idle prefix stays cached.
        assert!(store.prefix_revision("/quiet/").await.unwrap() <= revision);
    }
    assert!(store.prefix_revision("/none/").await.unwrap() >= mine);
}

pub(crate) async fn watch_after_compaction_is_rejected(store: &ArcDynStore) {
    let one = create(store, "/a/1", "one").await;
    let two = write(store, "/a/1", one, put("two")).await;
    let three = write(store, "/a/1", two, put("three")).await;
    store.compact(two).await.unwrap();
    for after in [0, one] {
        match store.watch("/a/", after).await {
            Err(Error::Compacted { at }) => assert_eq!(at, two),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("history after {after} is gone"),
        }
    }
    let mut watch = store.watch("/a/", two).await.unwrap();
    assert_eq!(
        format_events(&next_events(&mut watch, 1).await),
        [format!("/a/1=three@{three}<two@{two}")]
    );
}

pub(crate) async fn watch_from_a_future_revision_is_rejected(store: &ArcDynStore) {
    let now = create(store, "/a/1", "one").await;
    match store.watch("/a/", now + 1).await {
        Err(Error::Future { requested, current }) => {
            assert_eq!((requested, current), (now + 1, now))
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} does not exist yet", now + 1),
    }
}

pub(crate) async fn running_watch_survives_compaction(store: &ArcDynStore) {
    let mut watch = store.watch("/a/", 0).await.unwrap();
    let mut last = create(store, "/a/1", "0").await;
    let mut quiet = store.watch("/quiet/", last).await.unwrap();
    let mut received = Vec::new();
    for i in 1..5 {
        last = write(store, "/a/1", last, put(&i.to_string())).await;
        if store.consistent_read_support() != ConsistentReadSupport::Local {
            // An etcd may not have sent the event yet.
            while received.last() != Some(&last) {
                received.extend(
                    next_response(&mut watch)
                        .await
                        .events
                        .iter()
                        .map(|e| e.revision),
                );
            }
        }
        store.compact(last).await.unwrap();
    }
    let rest = next_events(&mut watch, 5 - received.len()).await;
    received.extend(rest.iter().map(|e| e.revision));
    assert_eq!((received.len(), received.last()), (5, Some(&last)));
    store.revision().await.unwrap();
    wait_for_progress(store, &mut quiet, last).await;
}

/// Writes more than any engine keeps in memory for watches: 12 values of 1 MiB.
async fn write_large_values(store: &ArcDynStore, key: &str) -> Vec<u64> {
    let mut revisions = vec![0];
    for i in 0..12_u8 {
        let value = Bytes::from(vec![i; 1 << 20]);
        let op = SingleKeyTxnOp::Put { value, ttl: None };
        let revision = write(store, key, revisions[usize::from(i)], op).await;
        revisions.push(revision);
    }
    revisions
}

pub(crate) async fn slow_watch_reads_history(store: &ArcDynStore) {
    let small = create(store, "/a/0", "small").await;
    let mut slow = store.watch("/a/", small).await.unwrap();
    let mut quiet = store.watch("/quiet/", small).await.unwrap();
    let revisions = write_large_values(store, "/a/1").await;
    let received = next_events(&mut slow, 12).await;
    for (i, event) in received.iter().enumerate() {
        assert_eq!(event.revision, revisions[i + 1]);
        assert_eq!(event.value.as_ref().unwrap()[0], u8::try_from(i).unwrap());
        let previous = event.previous.as_ref();
        assert_eq!(previous.map_or(0, |e| e.mod_revision), revisions[i]);
        assert_eq!(previous.map(|e| usize::from(e.value[0])), i.checked_sub(1));
    }
    let live = create(store, "/a/2", "live").await;
    assert_eq!(
        format_events(&next_events(&mut slow, 1).await),
        [format!("/a/2=live@{live}")]
    );
    store.revision().await.unwrap();
    wait_for_progress(store, &mut quiet, live).await;
    assert_eq!(store.get("/a/0").await.unwrap().unwrap().value, "small");
}

pub(crate) async fn compaction_overtakes_a_slow_watch(store: &ArcDynStore) {
    let mut slow = store.watch("/a/", 0).await.unwrap();
    let revisions = write_large_values(store, "/a/1").await;
    let last = *revisions.last().unwrap();
    store.compact(last).await.unwrap();
    let mut received = vec![0];
    let error = loop {
        match within_timeout(slow.next()).await {
            Ok(response) => received.extend(response.events.iter().map(|e| e.revision)),
            Err(error) => break error,
        }
        // A slow watch may be late, but it has no gap.
        assert_eq!(received, revisions[..received.len()]);
        if received.len() == revisions.len() {
            assert_ne!(
                store.consistent_read_support(),
                ConsistentReadSupport::Local,
                "this engine keeps no events for slow watches"
            );
            return;
        }
    };
    assert!(
        matches!(error, Error::Compacted { at } if at == last),
        "{error:?}"
    );
}

pub(crate) async fn cancelled_wait_loses_no_event(store: &ArcDynStore) {
    let mut watch = store.watch("/a/", 0).await.unwrap();
    let writer = store.clone();
    let task = tokio::spawn(async move {
        for i in 0..200 {
            create(&writer, &format!("/a/{i}"), "x").await;
        }
    });
    let mut received = Vec::new();
    while received.len() < 200 {
        let response = within_timeout(async {
            loop {
                let wait = tokio::time::timeout(Duration::from_micros(50), watch.next());
                if let Ok(response) = wait.await {
                    break response.unwrap();
                }
            }
        });
        received.extend(response.await.events.into_iter().map(|e| e.revision));
    }
    task.await.unwrap();
    assert!(
        received.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{received:?}"
    );
}
