//! Tests of several registries that share a store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::{DeleteOptions, ResourcePath};
use machinery::Gvr;
use machinery::time::FakeClock;
use serde_json::{Value, json};
use storage::{EmbeddedStore, SingleKeyTxn, SingleKeyTxnOp, Store};
use watchcache::{WatchCacheConfig, WatchCaches};

use super::custom_resources::{THINGS, establish};
use super::{RegistryFixture, SERVICES, dry_run, result_code};
use crate::{Registry, RegistryOptions, RequestContext};

const START: &str = "2026-01-02T03:04:05Z";

struct SharedStoreFixture {
    fixtures: [RegistryFixture; 2],
    store: Arc<EmbeddedStore>,
    /// The wall clock of each.
    clocks: [Arc<FakeClock>; 2],
}

async fn shared_store_fixture() -> SharedStoreFixture {
    let store =
        Arc::new(EmbeddedStore::in_memory(storage::EmbeddedStoreOptions::default()).unwrap());
    let clocks = [(); 2].map(|()| Arc::new(FakeClock::new(START.parse().unwrap())));
    let fixtures = clocks.clone().map(|clock| {
        let chain = Arc::new(admission::AdmissionChain::new(
            admission::AdmissionChainOptions::default(),
        ));
        let options = RegistryOptions {
            clock,
            shared_store: true,
            ..RegistryOptions::new(chain)
        };
        let watch_caches = WatchCaches::new(store.clone(), WatchCacheConfig::default());
        RegistryFixture {
            registry: Registry::new(store.clone(), watch_caches, options),
            ctx: RequestContext::internal(),
        }
    });
    let [a, b] = &fixtures;
    let (a, b) = tokio::join!(a.registry.bootstrap(), b.registry.bootstrap());
    a.and(b).unwrap();
    SharedStoreFixture {
        fixtures,
        store,
        clocks,
    }
}

fn service(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec["ports"].is_null() {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn with_ip(name: &str, ip: &str) -> Value {
    service(name, json!({"clusterIP": ip}))
}

#[tokio::test]
async fn processes_do_not_allocate_an_address_twice() {
    let SharedStoreFixture {
        fixtures, store, ..
    } = shared_store_fixture().await;
    let [a, b] = &fixtures;
    let ip = "10.96.0.77";
    a.create(&SERVICES, with_ip("one", ip)).await.unwrap();
    let clash = b.create(&SERVICES, with_ip("two", ip)).await;
    assert_eq!(result_code(&clash), "422 Invalid");
    // Of two concurrent requests, one succeeds.
    let port = |name: &str| {
        let ports = json!([{"port": 80, "nodePort": 30123}]);
        service(name, json!({"type": "NodePort", "ports": ports}))
    };
    let (x, y) = tokio::join!(
        a.create(&SERVICES, port("x")),
        b.create(&SERVICES, port("y"))
    );
    assert!(x.is_ok() != y.is_ok(), "{x:?} {y:?}");
    // A name conflict frees the addresses that were allocated.
    let duplicate = b.create(&SERVICES, with_ip("one", "10.96.0.78")).await;
    assert_eq!(result_code(&duplicate), "409 AlreadyExists");
    let third = a.create(&SERVICES, with_ip("three", "10.96.0.78")).await;
    assert_eq!(result_code(&third), "ok");
    // A freed address is available in all processes at once.
    let path = ResourcePath::object(&SERVICES, "default", "one");
    let options = DeleteOptions::default();
    a.registry.delete(&a.ctx, path, &options).await.unwrap();
    let reused = b.create(&SERVICES, with_ip("two", ip)).await;
    assert_eq!(result_code(&reused), "ok");
    let path = ResourcePath::object(&SERVICES, "default", "two");
    let external = json!({"spec": {"type": "ExternalName", "externalName": "x.example",
        "clusterIP": null, "clusterIPs": null}});
    b.merge(path, external).await.unwrap();
    let dry_run_result = a
        .create_with(&SERVICES, with_ip("four", ip), &dry_run())
        .await;
    assert_eq!(result_code(&dry_run_result), "ok");
    let reused = a.create(&SERVICES, with_ip("four", ip)).await;
    assert_eq!(result_code(&reused), "ok");
    let claims = storage::RangeRequest::prefix("/registry/flotilla/services/ips/");
    let claims = store.range(&claims).await.unwrap().kvs.len();
    let has_ip = |s: &&Value| s["spec"]["clusterIP"].is_string();
    let all = a
        .list(ResourcePath::collection(&SERVICES, ""), &Default::default())
        .await;
    let all: Vec<Value> = all
        .unwrap()
        .items
        .iter()
        .map(|o| o.value().unwrap())
        .collect();
    assert_eq!(claims, all.iter().filter(has_ip).count());
}

#[tokio::test]
async fn concurrent_services_get_distinct_addresses() {
    let SharedStoreFixture { fixtures, .. } = shared_store_fixture().await;
    let all = (0..60).map(|n| {
        let fixture = &fixtures[n % 2];
        fixture.create(
            &SERVICES,
            service(&format!("s{n}"), json!({"type": "NodePort"})),
        )
    });
    let created = futures_util::future::join_all(all).await;
    let created: Vec<Value> = created.into_iter().map(Result::unwrap).collect();
    let distinct = |path: &str| {
        let values = created.iter().map(|s| s.pointer(path).unwrap().to_string());
        values.collect::<BTreeSet<_>>().len()
    };
    assert_eq!(distinct("/spec/clusterIP"), 60);
    assert_eq!(distinct("/spec/ports/0/nodePort"), 60);
}

/// Creates a claim without a Service, as a process that died leaves it.
async fn create_orphan_claim(store: &EmbeddedStore, ip: &str) {
    let value = json!({"service": "default/never", "at": 1_767_323_045});
    let claim = SingleKeyTxn {
        key: format!("/registry/flotilla/services/ips/{ip}").into(),
        expected: 0,
        op: SingleKeyTxnOp::Put {
            value: value.to_string().into(),
            ttl: None,
        },
    };
    store.commit(claim).await.unwrap();
}

/// Advances the monotonic time of all processes, independently of their wall clocks.
async fn advance_time(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_claim_of_a_dead_process_expires() {
    let SharedStoreFixture {
        fixtures, store, ..
    } = shared_store_fixture().await;
    let ip = "10.96.0.99";
    create_orphan_claim(&store, ip).await;
    let before_expiry = fixtures[0].create(&SERVICES, with_ip("a", ip)).await;
    assert_eq!(result_code(&before_expiry), "422 Invalid");
    advance_time(Duration::from_secs(60)).await;
    let before_expiry = fixtures[0].create(&SERVICES, with_ip("a", ip)).await;
    assert_eq!(result_code(&before_expiry), "422 Invalid");
    advance_time(Duration::from_secs(61)).await;
    // The other process has not observed the claim for long enough.
    let other = fixtures[1].create(&SERVICES, with_ip("b", ip)).await;
    assert_eq!(result_code(&other), "422 Invalid");
    let after_expiry = fixtures[0].create(&SERVICES, with_ip("a", ip)).await;
    assert_eq!(result_code(&after_expiry), "ok");
    advance_time(Duration::from_secs(121)).await;
    let conflict = fixtures[1].create(&SERVICES, with_ip("b", ip)).await;
    assert_eq!(result_code(&conflict), "422 Invalid");
}

#[tokio::test]
async fn wall_clocks_do_not_affect_claims() {
    let SharedStoreFixture {
        fixtures,
        store,
        clocks,
    } = shared_store_fixture().await;
    let ip = "10.96.0.99";
    create_orphan_claim(&store, ip).await;
    for clock in ["2026-01-02T04:04:05Z", "2026-01-02T02:04:05Z"] {
        clocks[1].set(clock.parse().unwrap());
        let clash = fixtures[1].create(&SERVICES, with_ip("a", ip)).await;
        assert_eq!(result_code(&clash), "422 Invalid", "at {clock}");
    }
    advance_time(Duration::from_secs(121)).await;
    let after_expiry = fixtures[1].create(&SERVICES, with_ip("a", ip)).await;
    assert_eq!(result_code(&after_expiry), "ok");
}

#[tokio::test]
async fn a_definition_established_by_another_process_is_served_on_request() {
    let SharedStoreFixture { fixtures, .. } = shared_store_fixture().await;
    establish(&fixtures[0]).await;
    let other = &fixtures[1].registry;
    assert!(other.table().find(&THINGS).is_none());
    assert!(other.resource_info_synced(&THINGS).await.is_ok());
    let unknown = Gvr::new("example.com", "v1", "others");
    assert_eq!(
        result_code(&other.resource_info_synced(&unknown).await),
        "404 NotFound"
    );
}
