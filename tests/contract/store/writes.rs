//! Contract of writes: compare-and-swap on revisions, conflicts, request size, time to live.

use std::time::Duration;

use bytes::Bytes;
use storage::{Error, MAX_REQUEST_BYTES, SingleKeyTxn, SingleKeyTxnOp, TxnResponse};

use crate::contract::store::operations::{
    ArcDynStore, commit, create, expect_conflict, format_events, key_value, next_events, put,
    within_timeout, write,
};

pub(crate) async fn create_returns_the_next_revision(store: &ArcDynStore) {
    let before = store.revision().await.unwrap();
    for step in 1..=3 {
        assert_eq!(
            create(store, &format!("/a/{step}"), "x").await,
            before + step
        );
        assert_eq!(store.revision().await.unwrap(), before + step);
    }
}

pub(crate) async fn create_of_an_existing_key_conflicts(store: &ArcDynStore) {
    let revision = create(store, "/a/1", "old").await;
    let current = expect_conflict(store, "/a/1", 0, put("new")).await;
    assert_eq!(current, Some(key_value("/a/1", "old", revision)));
}

pub(crate) async fn update_requires_the_current_revision(store: &ArcDynStore) {
    let first = create(store, "/a/1", "one").await;
    let second = write(store, "/a/1", first, put("two")).await;
    let current = expect_conflict(store, "/a/1", first, put("three")).await;
    assert_eq!(current, Some(key_value("/a/1", "two", second)));
    assert_eq!(expect_conflict(store, "/a/2", second, put("x")).await, None);
}

pub(crate) async fn delete_requires_the_current_revision(store: &ArcDynStore) {
    let first = create(store, "/a/1", "one").await;
    let second = write(store, "/a/1", first, put("two")).await;
    let current = expect_conflict(store, "/a/1", first, SingleKeyTxnOp::Delete).await;
    assert_eq!(current, Some(key_value("/a/1", "two", second)));
    write(store, "/a/1", second, SingleKeyTxnOp::Delete).await;
    assert_eq!(store.get("/a/1").await.unwrap(), None);
}

pub(crate) async fn delete_of_an_absent_key_conflicts(store: &ArcDynStore) {
    assert_eq!(
        expect_conflict(store, "/a/1", 0, SingleKeyTxnOp::Delete).await,
        None
    );
    assert_eq!(
        expect_conflict(store, "/a/1", 7, SingleKeyTxnOp::Delete).await,
        None
    );
    let revision = create(store, "/a/1", "x").await;
    let deleted = write(store, "/a/1", revision, SingleKeyTxnOp::Delete).await;
    assert_eq!(
        expect_conflict(store, "/a/1", 0, SingleKeyTxnOp::Delete).await,
        None
    );
    assert_eq!(
        expect_conflict(store, "/a/1", deleted, SingleKeyTxnOp::Delete).await,
        None
    );
}

pub(crate) async fn recreated_key_has_new_revisions(store: &ArcDynStore) {
    let first = create(store, "/a/1", "one").await;
    let deleted = write(store, "/a/1", first, SingleKeyTxnOp::Delete).await;
    let again = create(store, "/a/1", "two").await;
    assert!(first < deleted && deleted < again);
    let current = expect_conflict(store, "/a/1", first, put("x")).await;
    assert_eq!(current, Some(key_value("/a/1", "two", again)));
    let mut watch = store.watch("/a/", first).await.unwrap();
    let expected = [
        format!("/a/1=-@{deleted}<one@{first}"),
        format!("/a/1=two@{again}"),
    ];
    assert_eq!(format_events(&next_events(&mut watch, 2).await), expected);
}

pub(crate) async fn too_large_request_is_rejected(store: &ArcDynStore) {
    let txn = |bytes: usize| SingleKeyTxn {
        key: "/a/1".into(),
        expected: 0,
        op: SingleKeyTxnOp::Put {
            value: Bytes::from(vec![b'x'; bytes]),
            ttl: None,
        },
    };
    let most = MAX_REQUEST_BYTES - "/a/1".len();
    let result = store.commit(txn(most + 1)).await;
    assert!(matches!(result, Err(Error::TooLarge)), "{result:?}");
    let committed = store.commit(txn(most)).await.unwrap();
    assert!(matches!(committed, TxnResponse::Committed { .. }));
    assert_eq!(store.get("/a/1").await.unwrap().unwrap().value.len(), most);
}

pub(crate) async fn conflicts_do_not_move_the_revision(store: &ArcDynStore) {
    let revision = create(store, "/a/1", "x").await;
    expect_conflict(store, "/a/1", 0, put("y")).await;
    expect_conflict(store, "/a/2", 5, SingleKeyTxnOp::Delete).await;
    assert_eq!(store.revision().await.unwrap(), revision);
    assert_eq!(create(store, "/a/2", "z").await, revision + 1);
}

pub(crate) async fn concurrent_creates_have_one_winner(store: &ArcDynStore) {
    let tries = (0..50).map(|i| {
        let store = store.clone();
        tokio::spawn(async move { commit(&store, "/a/1", 0, put(&i.to_string())).await })
    });
    let mut revisions = Vec::new();
    let mut current_revisions = Vec::new();
    for task in tries.collect::<Vec<_>>() {
        match task.await.unwrap() {
            TxnResponse::Committed { revision } => revisions.push(revision),
            TxnResponse::Conflict { current } => {
                current_revisions.push(current.unwrap().mod_revision)
            }
        }
    }
    assert_eq!(revisions.len(), 1);
    assert!(
        current_revisions
            .iter()
            .all(|revision| *revision == revisions[0]),
        "{current_revisions:?}"
    );
}

pub(crate) async fn concurrent_updates_lose_nothing(store: &ArcDynStore) {
    create(store, "/a/1", "0").await;
    let add = |store: ArcDynStore| async move {
        for _ in 0..10 {
            let mut current = store.get("/a/1").await.unwrap().unwrap();
            loop {
                let number: u64 = String::from_utf8_lossy(&current.value).parse().unwrap();
                let next = put(&(number + 1).to_string());
                match commit(&store, "/a/1", current.mod_revision, next).await {
                    TxnResponse::Committed { .. } => break,
                    TxnResponse::Conflict { current: newer } => current = newer.unwrap(),
                }
            }
        }
    };
    let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(add(store.clone()))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(store.get("/a/1").await.unwrap().unwrap().value, "80");
}

fn put_with_ttl(value: &str, ttl: Duration) -> SingleKeyTxnOp {
    SingleKeyTxnOp::Put {
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl: Some(ttl),
    }
}

pub(crate) async fn key_expires_after_its_time_to_live(store: &ArcDynStore) {
    let stays = put_with_ttl("stays", Duration::from_secs(3600));
    write(store, "/a/2", 0, stays).await;
    let goes = put_with_ttl("goes", Duration::from_millis(1));
    let revision = write(store, "/a/1", 0, goes).await;
    let mut watch = store.watch("/a/", revision).await.unwrap();
    let expired = next_events(&mut watch, 1).await;
    assert_eq!(
        format_events(&expired),
        [format!("/a/1=-@{}<goes@{revision}", revision + 1)]
    );
    assert_eq!(store.get("/a/1").await.unwrap(), None);
    assert!(store.get("/a/2").await.unwrap().is_some());
}

pub(crate) async fn update_removes_the_time_to_live(store: &ArcDynStore) {
    let ttl = Duration::from_millis(300);
    let first = write(store, "/a/1", 0, put_with_ttl("one", ttl)).await;
    write(store, "/a/1", first, put("two")).await;
    // When this key, which is written later, has expired, the other would have, too.
    write(store, "/b/1", 0, put_with_ttl("other", ttl)).await;
    within_timeout(async {
        while store.get("/b/1").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(store.get("/a/1").await.unwrap().unwrap().value, "two");
}
