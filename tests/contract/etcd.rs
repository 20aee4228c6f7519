//! Tests of the etcd engine beyond the contract of every engine: shared leases, compaction by
//! one of several replicas, renewed TLS keys, large responses, and the errors of an etcd that is
//! full, unreachable or restored to an older revision.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use harness::Daemon;
use storage::etcd::{CurrentEtcdTlsFn, EtcdOptions, EtcdStore, EtcdTls};
use storage::{
    Error, RangeRequest, SingleKeyTxn, SingleKeyTxnOp, Store, StoreWatch, TxnResponse,
    WatchResponse,
};
use tokio::time::{Instant, sleep, timeout};

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn options(servers: &str) -> EtcdOptions {
    EtcdOptions {
        servers: vec![servers.to_owned()],
        history_retention: None,
        ..EtcdOptions::default()
    }
}

async fn open(options: EtcdOptions) -> Arc<EtcdStore> {
    Arc::new(EtcdStore::open(options).await.unwrap())
}

async fn put(
    store: &dyn Store,
    key: &str,
    expected: u64,
    bytes: usize,
    ttl: Option<Duration>,
) -> storage::StoreResult<u64> {
    let value = Bytes::from(vec![b'x'; bytes]);
    let op = SingleKeyTxnOp::Put { value, ttl };
    let key = key.into();
    match store.commit(SingleKeyTxn { key, expected, op }).await? {
        TxnResponse::Committed { revision } => Ok(revision),
        TxnResponse::Conflict { current } => panic!("found {current:?}"),
    }
}

async fn next_response(watch: &mut Box<dyn StoreWatch>) -> storage::StoreResult<WatchResponse> {
    timeout(TIMEOUT, watch.next()).await.unwrap()
}

/// Asserts that a call to an etcd that is down fails as unavailable.
fn assert_unavailable<T>(result: storage::StoreResult<T>) {
    match result {
        Err(Error::Unavailable(_)) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a response without a server"),
    }
}

/// Reads the TLS files of an etcd cluster, as a server does with those its flags name.
fn read_tls(tls: &harness::etcd::EtcdClientCertificates) -> EtcdTls {
    let read = |file: &Path| std::fs::read(file).unwrap();
    EtcdTls {
        ca: Some(read(&tls.ca)),
        identity: Some((read(&tls.certificate), read(&tls.key))),
    }
}

/// The CA and the certificates of server and client all change at once, as after a restore. A
/// store that keeps the old ones is rejected.
#[tokio::test(flavor = "multi_thread")]
async fn renewed_tls_keys_are_loaded_without_a_restart() {
    let Some(mut server) = harness::EtcdCluster::start_tls(harness::etcd::VERSION_3_5, 1) else {
        return;
    };
    let [ca, certificate, key] = {
        let tls = server.tls().unwrap();
        [tls.ca.clone(), tls.certificate.clone(), tls.key.clone()]
    };
    let files = harness::etcd::EtcdClientCertificates {
        ca,
        certificate,
        key,
    };
    let pki = files.ca.parent().unwrap().to_owned();
    let with_keys = EtcdOptions {
        tls: Some(read_tls(&files)),
        ..options(&server.endpoints())
    };
    let stale = open(with_keys.clone()).await;
    let renewing = open(EtcdOptions {
        renewed_tls: Some(CurrentEtcdTlsFn(Arc::new(move || Ok(read_tls(&files))))),
        ..with_keys
    })
    .await;
    let mut watch = renewing.watch("/registry/", 0).await.unwrap();
    put(&*renewing, "/registry/a", 0, 1, None).await.unwrap();
    put(&*stale, "/registry/b", 0, 1, None).await.unwrap();
    server.nodes[0].daemon.kill();
    std::fs::remove_dir_all(&pki).unwrap();
    harness::etcd::EtcdClientCertificates::generate(&pki);
    server.nodes[0].daemon.restart();
    server.wait_ready();
    let end = Instant::now() + TIMEOUT;
    while let Err(error) = renewing.get("/registry/a").await {
        assert!(Instant::now() < end, "{error}");
        sleep(POLL_INTERVAL).await;
    }
    put(&*renewing, "/registry/c", 0, 1, None).await.unwrap();
    let mut keys = BTreeSet::new();
    while keys.len() < 3 {
        let response = next_response(&mut watch).await.unwrap();
        keys.extend(response.events.iter().map(|event| event.key.clone()));
    }
    assert_unavailable(stale.get("/registry/a").await);
    stale.close().await;
    renewing.close().await;
}

#[tokio::test]
async fn leases_are_shared() {
    const KEYS: usize = 1500;
    for version in [harness::etcd::VERSION_3_4, harness::etcd::VERSION_3_5] {
        let Some(server) = harness::EtcdCluster::start(version, 1) else {
            return;
        };
        let store = open(options(&server.endpoints())).await;
        let hour = Duration::from_secs(3600);
        for n in 0..KEYS {
            put(&*store, &format!("/e/{n}"), 0, 1, Some(hour))
                .await
                .unwrap();
        }
        put(&*store, "/e/other", 0, 1, Some(hour * 2))
            .await
            .unwrap();
        let output = server.etcdctl(&["lease", "list"]);
        let leases: Vec<&str> = output.lines().skip(1).collect();
        // One lease for 1000 keys, one for the other 500, and one for the other time to live.
        assert_eq!(leases.len(), 3, "{output}");
        for lease in leases {
            let output = server.etcdctl(&["lease", "timetolive", lease]);
            let granted = output.split("granted with TTL(").nth(1).unwrap();
            let granted = granted.split('s').next().unwrap();
            assert!(["3660", "7260"].contains(&granted), "{output}");
        }
        store.close().await;
    }
}

#[tokio::test]
async fn keys_that_expire_together_are_one_revision() {
    const KEYS: usize = 40;
    for version in [harness::etcd::VERSION_3_4, harness::etcd::VERSION_3_5] {
        let Some(server) = harness::EtcdCluster::start(version, 1) else {
            return;
        };
        let store = open(options(&server.endpoints())).await;
        // With the previous values these events exceed the limit of one gRPC message.
        // Long enough that a lease is shared for a minute, however slow the machine is.
        let ttl = Duration::from_secs(3600);
        let mut last = 0;
        for n in 0..KEYS {
            let key = format!("/e/{n}");
            last = put(&*store, &key, 0, 100 << 10, Some(ttl)).await.unwrap();
        }
        let mut watch = store.watch("/e/", last).await.unwrap();
        let output = server.etcdctl(&["lease", "list"]);
        server.etcdctl(&["lease", "revoke", output.lines().nth(1).unwrap()]);
        let response = next_response(&mut watch).await.unwrap();
        let expired: BTreeSet<_> = response.events.iter().map(|e| e.key.clone()).collect();
        assert_eq!(expired.len(), KEYS);
        assert!(response.events.iter().all(|e| e.revision == last + 1));
        let before = |e: &storage::StoreEvent| e.previous.as_ref().map(|p| p.value.len());
        assert!(response.events.iter().all(|e| before(e) == Some(100 << 10)));
        // The lease was revoked before its expiry: the next key needs a new one.
        put(&*store, "/e/next", 0, 1, Some(ttl)).await.unwrap();
        store.close().await;
    }
}

#[tokio::test]
async fn large_responses_are_accepted() {
    let Some(server) = harness::EtcdCluster::start(harness::etcd::VERSION_3_4, 1) else {
        return;
    };
    let store = open(options(&server.endpoints())).await;
    for n in 0..20 {
        put(&*store, &format!("/a/{n}"), 0, 1 << 20, None)
            .await
            .unwrap();
    }
    let page = store.range(&RangeRequest::prefix("/a/")).await.unwrap();
    assert_eq!(page.kvs.len(), 20);
    let mut watch = store.watch("/a/", 0).await.unwrap();
    let mut event_count = 0;
    while event_count < 20 {
        event_count += next_response(&mut watch).await.unwrap().events.len();
    }
    store.close().await;
}

#[tokio::test]
async fn one_of_two_replicas_compacts() {
    const EVERY: Duration = Duration::from_millis(700);
    let Some(server) = harness::EtcdCluster::start(harness::etcd::VERSION_3_5, 1) else {
        return;
    };
    let start = Instant::now();
    let compacting = EtcdOptions {
        history_retention: Some(EVERY),
        ..options(&server.endpoints())
    };
    let replicas = [open(compacting.clone()).await, open(compacting).await];
    let mut last = 0;
    let end = Instant::now() + TIMEOUT;
    // Until the first revision is compacted.
    let first = put(&*replicas[0], "/a/1", 0, 1, None).await.unwrap();
    loop {
        assert!(Instant::now() < end, "no replica compacts");
        let expected = if last == 0 { first } else { last };
        last = put(&*replicas[1], "/a/1", expected, 1, None).await.unwrap();
        match replicas[0].watch("/a/", first).await {
            Ok(_) => sleep(POLL_INTERVAL).await,
            Err(Error::Compacted { at }) => {
                assert!(at > first && at < last);
                break;
            }
            Err(other) => panic!("{other}"),
        }
    }
    let output = server.etcdctl(&["get", "compact_rev_key", "-w", "fields"]);
    let version = output
        .lines()
        .find(|l| l.starts_with("\"Version\""))
        .unwrap();
    let compactions: u32 = version.split(':').nth(1).unwrap().trim().parse().unwrap();
    let most = start.elapsed().as_millis() / EVERY.as_millis() + 1;
    assert!(
        u128::from(compactions) <= most,
        "{compactions} compactions instead of {most}"
    );
    for replica in replicas {
        replica.close().await;
    }
}

#[tokio::test]
async fn a_full_etcd_fails_writes_with_no_space_and_serves_reads() {
    let Some([program]) = harness::tools(["etcd-3.5"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let urls = [(); 2].map(|()| format!("http://127.0.0.1:{}", harness::port::free_port()));
    let flags = [
        ("data-dir", dir.path().join("data").display().to_string()),
        ("listen-client-urls", urls[0].clone()),
        ("advertise-client-urls", urls[0].clone()),
        ("listen-peer-urls", urls[1].clone()),
        ("initial-advertise-peer-urls", urls[1].clone()),
        ("initial-cluster", format!("default={}", urls[1])),
        ("quota-backend-bytes", (8 << 20).to_string()),
        ("log-level", "warn".to_owned()),
    ];
    let flags = flags.map(|(name, value)| format!("--{name}={value}"));
    let _server = Daemon::start(&program, flags.into(), &dir.path().join("log"));
    let store = open(options(&urls[0])).await;
    let mut written = 0;
    let error = loop {
        match put(&*store, &format!("/a/{written}"), 0, 1 << 20, None).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100);
    };
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    assert!(written > 2);
    let page = store.range(&RangeRequest::prefix("/a/")).await.unwrap();
    // etcd keeps the write by which its quota was passed, and answers it so as well.
    assert!((written..=written + 1).contains(&page.kvs.len()));
    assert!(store.get("/a/0").await.unwrap().is_some());
    store.revision().await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_etcd_is_unavailable_until_it_is_back() {
    let Some(mut server) = harness::EtcdCluster::start(harness::etcd::VERSION_3_4, 1) else {
        return;
    };
    let store = open(options(&server.endpoints())).await;
    let one = put(&*store, "/a/1", 0, 1, None).await.unwrap();
    let mut watch = store.watch("/a/", 0).await.unwrap();
    assert_eq!(next_response(&mut watch).await.unwrap().events.len(), 1);
    store.health().unwrap();
    server.nodes[0].daemon.kill();
    let range = RangeRequest::prefix("/a/");
    timeout(TIMEOUT, async {
        let all = tokio::join!(
            store.revision(),
            store.get("/a/1"),
            store.range(&range),
            store.watch("/a/", one),
            put(&*store, "/a/1", one, 1, None),
        );
        assert_unavailable(all.0);
        assert_unavailable(all.1);
        assert_unavailable(all.2);
        assert_unavailable(all.3);
        assert_unavailable(all.4);
    })
    .await
    .unwrap();
    let until = async |healthy: bool| {
        let end = Instant::now() + TIMEOUT;
        while store.health().is_ok() != healthy {
            assert!(Instant::now() < end, "{:?}", store.health());
            sleep(POLL_INTERVAL).await;
        }
    };
    until(false).await;
    server.nodes[0].daemon.restart();
    server.wait_ready();
    until(true).await;
    let two = put(&*store, "/a/1", one, 1, None).await.unwrap();
    let response = next_response(&mut watch).await.unwrap();
    let revisions: Vec<u64> = response.events.iter().map(|e| e.revision).collect();
    assert_eq!(revisions, [two], "the same watch continues");

    store.close().await;
    assert_unavailable(next_response(&mut watch).await);
    assert_unavailable(store.get("/a/1").await);
    assert!(store.health().is_err());
}

/// Clients have revisions that this etcd will assign a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_whose_revision_went_back_is_fatal() {
    let Some(mut server) = harness::EtcdCluster::start(harness::etcd::VERSION_3_5, 1) else {
        return;
    };
    let store = open(options(&server.endpoints())).await;
    for n in 0..10 {
        put(&*store, &format!("/a/{n}"), 0, 1, None).await.unwrap();
    }
    server.nodes[0].daemon.kill();
    std::fs::remove_dir_all(server.dir().join("n0")).unwrap();
    server.nodes[0].daemon.restart();
    server.wait_ready();
    let error = timeout(TIMEOUT, store.wait_for_failure()).await.unwrap();
    assert!(
        error
            .to_string()
            .contains("went back from revision 11 to 1"),
        "{error}"
    );
    let result = put(&*store, "/a/x", 0, 1, None).await;
    assert!(matches!(result, Err(Error::Fatal(_))), "{result:?}");
    store.close().await;
}
