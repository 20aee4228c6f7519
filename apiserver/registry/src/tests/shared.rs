//! Several registries on one store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use client::{At, DeleteOptions};
use machinery::Gvr;
use machinery::time::FakeClock;
use serde_json::{Value, json};
use storage::{Embedded, Op, Store, Txn};
use watchcache::{Config, Hub};

use super::custom::{THINGS, establish};
use super::{Lab, SERVICES, dry_run, verdict};
use crate::{Ctx, Options, Registry};

const START: &str = "2026-01-02T03:04:05Z";

struct Pair {
    labs: [Lab; 2],
    store: Arc<Embedded>,
    /// On the wall of each.
    clocks: [Arc<FakeClock>; 2],
}

async fn pair() -> Pair {
    let store = Arc::new(Embedded::memory(storage::Options::default()).unwrap());
    let clocks = [(); 2].map(|()| Arc::new(FakeClock::new(START.parse().unwrap())));
    let labs = clocks.clone().map(|clock| {
        let chain = Arc::new(admission::Chain::new(admission::Options::default()));
        let options = Options {
            clock,
            shared_store: true,
            ..Options::new(chain)
        };
        let hub = Hub::new(store.clone(), Config::default());
        Lab {
            registry: Registry::new(store.clone(), hub, options),
            ctx: Ctx::internal(),
        }
    });
    let [a, b] = &labs;
    let (a, b) = tokio::join!(a.registry.bootstrap(), b.registry.bootstrap());
    a.and(b).unwrap();
    Pair {
        labs,
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
async fn an_address_is_given_once_by_all_together() {
    let Pair { labs, store, .. } = pair().await;
    let [a, b] = &labs;
    let ip = "10.96.0.77";
    a.create(&SERVICES, with_ip("one", ip)).await.unwrap();
    let clash = b.create(&SERVICES, with_ip("two", ip)).await;
    assert_eq!(verdict(&clash), "422 Invalid");
    // At once: one of them.
    let port = |name: &str| {
        let ports = json!([{"port": 80, "nodePort": 30123}]);
        service(name, json!({"type": "NodePort", "ports": ports}))
    };
    let (x, y) = tokio::join!(
        a.create(&SERVICES, port("x")),
        b.create(&SERVICES, port("y"))
    );
    assert!(x.is_ok() != y.is_ok(), "{x:?} {y:?}");
    // A clash of names gives back what was drawn for it.
    let again = b.create(&SERVICES, with_ip("one", "10.96.0.78")).await;
    assert_eq!(verdict(&again), "409 AlreadyExists");
    let free = a.create(&SERVICES, with_ip("three", "10.96.0.78")).await;
    assert_eq!(verdict(&free), "ok");
    // Free again at once, wherever it was freed.
    let at = At::one(&SERVICES, "default", "one");
    let options = DeleteOptions::default();
    a.registry.delete(&a.ctx, at, &options).await.unwrap();
    let reused = b.create(&SERVICES, with_ip("two", ip)).await;
    assert_eq!(verdict(&reused), "ok");
    let at = At::one(&SERVICES, "default", "two");
    let external = json!({"spec": {"type": "ExternalName", "externalName": "x.example",
        "clusterIP": null, "clusterIPs": null}});
    b.merge(at, external).await.unwrap();
    let rehearsed = a
        .create_with(&SERVICES, with_ip("four", ip), &dry_run())
        .await;
    assert_eq!(verdict(&rehearsed), "ok");
    let reused = a.create(&SERVICES, with_ip("four", ip)).await;
    assert_eq!(verdict(&reused), "ok");
    let claims = storage::Range::prefix("/registry/flotilla/services/ips/");
    let claims = store.range(&claims).await.unwrap().entries.len();
    let held = |s: &&Value| s["spec"]["clusterIP"].is_string();
    let all = a.list(At::all(&SERVICES, ""), &Default::default()).await;
    let all: Vec<Value> = all
        .unwrap()
        .items
        .iter()
        .map(|o| o.value().unwrap())
        .collect();
    assert_eq!(claims, all.iter().filter(held).count());
}

#[tokio::test]
async fn many_services_made_at_once_share_nothing() {
    let Pair { labs, .. } = pair().await;
    let all = (0..60).map(|n| {
        let lab = &labs[n % 2];
        lab.create(
            &SERVICES,
            service(&format!("s{n}"), json!({"type": "NodePort"})),
        )
    });
    let made = futures_util::future::join_all(all).await;
    let made: Vec<Value> = made.into_iter().map(Result::unwrap).collect();
    let distinct = |path: &str| {
        let values = made.iter().map(|s| s.pointer(path).unwrap().to_string());
        values.collect::<BTreeSet<_>>().len()
    };
    assert_eq!(distinct("/spec/clusterIP"), 60);
    assert_eq!(distinct("/spec/ports/0/nodePort"), 60);
}

/// A claim that its process has not followed by a service yet, or never will.
async fn claimed_alone(store: &Embedded, ip: &str) {
    let value = json!({"service": "default/never", "at": 1_767_323_045});
    let claim = Txn {
        key: format!("/registry/flotilla/services/ips/{ip}").into(),
        expected: 0,
        op: Op::Put {
            value: value.to_string().into(),
            ttl: None,
        },
    };
    store.commit(claim).await.unwrap();
}

/// Time that passes for everybody, whatever the clocks on the walls show.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn what_a_dead_process_claimed_is_free_after_a_while() {
    let Pair { labs, store, .. } = pair().await;
    let ip = "10.96.0.99";
    claimed_alone(&store, ip).await;
    let early = labs[0].create(&SERVICES, with_ip("a", ip)).await;
    assert_eq!(verdict(&early), "422 Invalid");
    pass(Duration::from_secs(60)).await;
    let early = labs[0].create(&SERVICES, with_ip("a", ip)).await;
    assert_eq!(verdict(&early), "422 Invalid");
    pass(Duration::from_secs(61)).await;
    // Another replica has not seen it for long enough.
    let other = labs[1].create(&SERVICES, with_ip("b", ip)).await;
    assert_eq!(verdict(&other), "422 Invalid");
    let late = labs[0].create(&SERVICES, with_ip("a", ip)).await;
    assert_eq!(verdict(&late), "ok");
    pass(Duration::from_secs(121)).await;
    let taken = labs[1].create(&SERVICES, with_ip("b", ip)).await;
    assert_eq!(verdict(&taken), "422 Invalid");
}

#[tokio::test]
async fn clocks_of_replicas_do_not_decide_who_has_an_address() {
    let Pair {
        labs,
        store,
        clocks,
    } = pair().await;
    let ip = "10.96.0.99";
    claimed_alone(&store, ip).await;
    for clock in ["2026-01-02T04:04:05Z", "2026-01-02T02:04:05Z"] {
        clocks[1].set(clock.parse().unwrap());
        let clash = labs[1].create(&SERVICES, with_ip("a", ip)).await;
        assert_eq!(verdict(&clash), "422 Invalid", "at {clock}");
    }
    pass(Duration::from_secs(121)).await;
    let late = labs[1].create(&SERVICES, with_ip("a", ip)).await;
    assert_eq!(verdict(&late), "ok");
}

#[tokio::test]
async fn a_definition_that_another_established_is_served_when_asked_for() {
    let Pair { labs, .. } = pair().await;
    establish(&labs[0]).await;
    let other = &labs[1].registry;
    assert!(other.table().find(&THINGS).is_none());
    assert!(other.served(&THINGS).await.is_ok());
    let unknown = Gvr::new("example.com", "v1", "others");
    assert_eq!(verdict(&other.served(&unknown).await), "404 NotFound");
}
