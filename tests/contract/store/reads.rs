//! Contract of reads: at the newest and at older revisions, in pages, and after compactions.

use storage::{Error, RangeRequest, RangeResponse, SingleKeyTxnOp, prefix_end};

use crate::contract::store::operations::{ArcDynStore, create, key_value, put, write};

async fn range(store: &ArcDynStore, prefix: &str, at: u64) -> storage::StoreResult<RangeResponse> {
    let range = RangeRequest {
        revision: at,
        ..RangeRequest::prefix(prefix)
    };
    store.range(&range).await
}

fn joined_values(page: &RangeResponse) -> String {
    let values = page
        .kvs
        .iter()
        .map(|e| String::from_utf8_lossy(&e.value).into_owned());
    values.collect::<Vec<_>>().join(" ")
}

pub(crate) async fn get_returns_the_newest(store: &ArcDynStore) {
    assert_eq!(store.get("/a/1").await.unwrap(), None);
    let first = create(store, "/a/1", "one").await;
    assert_eq!(
        store.get("/a/1").await.unwrap(),
        Some(key_value("/a/1", "one", first))
    );
    let second = write(store, "/a/1", first, put("two")).await;
    assert_eq!(
        store.get("/a/1").await.unwrap(),
        Some(key_value("/a/1", "two", second))
    );
    assert_eq!(store.get("/a/").await.unwrap(), None);
}

pub(crate) async fn prefix_does_not_match_longer_names(store: &ArcDynStore) {
    for key in [
        "/foo/b",
        "/foobar/a",
        "/foo",
        "/foo/a",
        "/fo/z",
        "/foo/a/x",
        "/foo0",
    ] {
        create(store, key, key).await;
    }
    let page = range(store, "/foo/", 0).await.unwrap();
    assert_eq!(joined_values(&page), "/foo/a /foo/a/x /foo/b");
    assert_eq!(page.remaining, 0);
    assert_eq!(page.revision, store.revision().await.unwrap());
    assert_eq!(joined_values(&range(store, "/none/", 0).await.unwrap()), "");
}

pub(crate) async fn pages_are_of_one_revision(store: &ArcDynStore) {
    let mut first = 0;
    for i in 0..10 {
        first = create(store, &format!("/a/{i}"), &format!("old{i}")).await;
    }
    let mut next_page = RangeRequest {
        limit: 4,
        ..RangeRequest::prefix("/a/")
    };
    let mut pages = Vec::new();
    let mut sizes = Vec::new();
    loop {
        let page = store.range(&next_page).await.unwrap();
        assert_eq!(page.revision, first);
        pages.push(joined_values(&page));
        sizes.push((page.kvs.len(), page.remaining));
        // Write between two pages.
        let last = page.kvs.last().unwrap();
        write(
            store,
            "/a/9",
            store.get("/a/9").await.unwrap().unwrap().mod_revision,
            put("new"),
        )
        .await;
        create(store, &format!("{}x", last.key), "new").await;
        if page.remaining == 0 {
            break;
        }
        next_page.revision = page.revision;
        next_page.start = format!("{}\0", last.key);
    }
    assert_eq!(sizes, [(4, 6), (4, 2), (2, 0)]);
    assert_eq!(
        pages.join(" "),
        "old0 old1 old2 old3 old4 old5 old6 old7 old8 old9"
    );
}

pub(crate) async fn range_at_an_older_revision(store: &ArcDynStore) {
    let one = create(store, "/a/1", "one").await;
    let two = write(store, "/a/1", one, put("two")).await;
    let deleted = write(store, "/a/1", two, SingleKeyTxnOp::Delete).await;
    let other = create(store, "/a/2", "other").await;
    let again = create(store, "/a/1", "again").await;
    let table = [
        (one, "one"),
        (two, "two"),
        (deleted, ""),
        (other, "other"),
        (again, "again other"),
    ];
    for (at, expected) in table {
        let page = range(store, "/a/", at).await.unwrap();
        assert_eq!(joined_values(&page), expected, "at {at}");
        assert_eq!(page.revision, at);
    }
}

pub(crate) async fn range_at_a_future_revision_is_rejected(store: &ArcDynStore) {
    let now = create(store, "/a/1", "one").await;
    let result = range(store, "/a/", now + 1).await;
    let Err(Error::Future { requested, current }) = result else {
        panic!("{result:?}");
    };
    assert_eq!((requested, current), (now + 1, now));
}

pub(crate) async fn compaction_keeps_its_own_revision(store: &ArcDynStore) {
    let one = create(store, "/a/1", "one").await;
    let two = write(store, "/a/1", one, put("two")).await;
    create(store, "/a/2", "other").await;
    let three = write(store, "/a/1", two, put("three")).await;
    store.compact(two).await.unwrap();
    let result = range(store, "/a/", one).await;
    assert!(
        matches!(result, Err(Error::Compacted { at }) if at == two),
        "{result:?}"
    );
    assert_eq!(
        joined_values(&range(store, "/a/", two).await.unwrap()),
        "two"
    );
    assert_eq!(
        joined_values(&range(store, "/a/", three).await.unwrap()),
        "three other"
    );
    assert_eq!(
        joined_values(&range(store, "/a/", 0).await.unwrap()),
        "three other"
    );
}

pub(crate) async fn compaction_removes_deleted_keys(store: &ArcDynStore) {
    let one = create(store, "/a/1", "one").await;
    let deleted = write(store, "/a/1", one, SingleKeyTxnOp::Delete).await;
    store.compact(deleted).await.unwrap();
    assert_eq!(store.get("/a/1").await.unwrap(), None);
    assert_eq!(
        joined_values(&range(store, "/a/", deleted).await.unwrap()),
        ""
    );
    assert_eq!(store.revision().await.unwrap(), deleted);
    assert_eq!(create(store, "/a/1", "again").await, deleted + 1);
}

pub(crate) async fn compaction_twice_is_harmless(store: &ArcDynStore) {
    let one = create(store, "/a/1", "one").await;
    let two = write(store, "/a/1", one, put("two")).await;
    for at in [two, two, one, 0] {
        store.compact(at).await.unwrap();
    }
    let result = store.compact(two + 1).await;
    assert!(matches!(result, Err(Error::Future { .. })), "{result:?}");
    assert_eq!(
        joined_values(&range(store, "/a/", two).await.unwrap()),
        "two"
    );
    assert_eq!(prefix_end("/a/"), "/a0");
}
