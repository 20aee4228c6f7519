//! Bases are added once, and deleted after the last value that refers to them, while other processes
//! write and read.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::RangeRequest;
use crate::etcd::base_collection::collect;

/// Bases that concurrent writes of one process to one template add.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_of_a_template_share_one_base() {
    let Some(etcd) = start_etcd() else { return };
    let store = open_with_deltas(delta_options(&etcd)).await;
    let mut works: Vec<_> = (0..40).map(|c| (key(c, 0), 0, work(c, 0, ""))).collect();
    write_works(&store, &mut works).await;
    assert_eq!(etcd.list_prefix(BASES).len(), 1);
    // Another process learns the base from what it reads.
    let other = open_with_deltas(delta_options(&etcd)).await;
    other.range(&RangeRequest::prefix(PREFIX)).await.unwrap();
    put(&other, &key(40, 0), 0, work(40, 0, "")).await;
    assert_eq!(etcd.list_prefix(BASES).len(), 1);
}

// proves: WRK-stored-once-collected
#[tokio::test]
async fn a_base_is_retired_and_then_deleted_when_no_value_refers_to_it() {
    let Some(etcd) = start_etcd() else { return };
    let store = open_with_deltas(delta_options(&etcd)).await;
    let mut revisions = Vec::new();
    for cluster in 0..2 {
        revisions.push(put(&store, &key(cluster, 0), 0, work(cluster, 0, "")).await);
    }
    let created = store.revision().await.unwrap();
    collect(&store.client).await.unwrap();
    collect(&store.client).await.unwrap();
    assert_eq!(etcd.list_prefix(BASES).len(), 1, "it is referred to");
    for (cluster, revision) in revisions.iter().enumerate() {
        commit(&store, &key(cluster, 0), *revision, None)
            .await
            .unwrap();
    }
    collect(&store.client).await.unwrap();
    let retired = etcd.list_prefix(BASES).remove(0);
    // The store still remembers the base, and must not use it.
    put(&store, &key(2, 0), 0, work(2, 0, "")).await;
    let bases = etcd.list_prefix(BASES);
    assert_eq!(bases.len(), 2);
    collect(&store.client).await.unwrap();
    let bases = etcd.list_prefix(BASES);
    assert!(bases.len() == 1 && bases[0].key != retired.key);

    // The history still finds the base.
    let reader = EtcdStore::open(plain_options(&etcd)).await.unwrap();
    let range = RangeRequest {
        revision: created,
        ..RangeRequest::prefix(PREFIX)
    };
    let page = reader.range(&range).await.unwrap();
    for cluster in 0..2 {
        assert_eq!(page.kvs[cluster].value, work(cluster, 0, ""));
    }
    let mut watch = reader.watch(PREFIX, revisions[0]).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 4 {
        events.extend(watch.next().await.unwrap().events);
    }
    assert_eq!(events[0].value.as_deref(), Some(work(1, 0, "").as_bytes()));
    assert_eq!(events[1].previous.as_ref().unwrap().value, work(0, 0, ""));
    assert_eq!(events[3].value.as_deref(), Some(work(2, 0, "").as_bytes()));
}

/// A value refers to a base that is retired just then: the base stays as long as the value.
#[tokio::test]
async fn a_retired_base_stays_as_long_as_a_value_refers_to_it() {
    let Some(etcd) = start_etcd() else { return };
    let store = open_with_deltas(delta_options(&etcd)).await;
    let revision = put(&store, &key(0, 0), 0, work(0, 0, "")).await;
    let base = etcd.list_prefix(BASES).remove(0);
    let content = String::from_utf8(base.value).unwrap();
    etcd.etcdctl(&["put", &base.key, &content]);
    for _ in 0..3 {
        collect(&store.client).await.unwrap();
    }
    let reader = EtcdStore::open(plain_options(&etcd)).await.unwrap();
    let entry = reader.get(&key(0, 0)).await.unwrap().unwrap();
    assert_eq!(entry.value, work(0, 0, ""));
    put(&store, &key(0, 0), revision, work(0, 0, APPLIED)).await;
    collect(&store.client).await.unwrap();
    let bases = etcd.list_prefix(BASES);
    assert!(bases.len() == 1 && bases[0].key != base.key);
}

#[tokio::test]
async fn rounds_run_by_themselves() {
    let Some(etcd) = start_etcd() else { return };
    let mut options = delta_options(&etcd);
    options.deltas.collection_interval = Duration::from_millis(50);
    let store = Arc::new(open_with_deltas(options).await);
    let revision = put(&*store, &key(0, 0), 0, work(0, 0, "")).await;
    commit(&*store, &key(0, 0), revision, None).await.unwrap();
    wait_for_bases(&etcd, 0).await;
}
