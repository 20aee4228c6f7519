//! Tests of two fake API servers behind one client.

use std::sync::Arc;

use client::{
    Api, ApiResource, GroupSplitApi, InformerFactory, ListOptions, ListWatchSelector, Patch,
    ResourcePath, ShutdownToken, TaskGroup, WriteOptions,
};
use machinery::{Gvr, Status};
use serde_json::json;

use crate::FakeApi;

static MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
static WORKS: Gvr = Gvr::from_static("work.karmada.io", "v1alpha1", "works");
static FOREIGN: Gvr = Gvr::from_static("operator.karmada.io", "v1alpha1", "karmadas");

fn serve(api: &FakeApi, resource: &Gvr, kind: &str) {
    api.add_resource(ApiResource {
        resource: resource.clone(),
        kind: kind.into(),
        namespaced: true,
        verbs: vec!["list".into()],
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    });
}

fn split() -> (Arc<FakeApi>, Arc<FakeApi>, Arc<dyn Api>) {
    let (own, host) = (FakeApi::new(), FakeApi::new());
    let both = GroupSplitApi::new(own.clone(), host.clone(), |g| g == "work.karmada.io");
    (own, host, both)
}

#[tokio::test]
async fn calls_go_where_their_group_is_served() {
    let (own, host, both) = split();
    let options = WriteOptions::default();
    for (resource, kind) in [
        (&MAPS, "ConfigMap"),
        (&WORKS, "Work"),
        (&FOREIGN, "Karmada"),
    ] {
        let body = json!({"apiVersion": resource.api_version(), "kind": kind,
            "metadata": {"name": "a", "namespace": "n"}});
        both.create(
            ResourcePath::collection(resource, "n"),
            body.into(),
            &options,
        )
        .await
        .unwrap();
        let at = ResourcePath::object(resource, "n", "a");
        let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
        both.patch(at, patch, &options).await.unwrap();
        let object = both.get(at).await.unwrap();
        assert_eq!(object.meta().label("a"), Some("b"));
        let options = ListOptions::default();
        let all = both
            .list(ResourcePath::collection(resource, ""), &options)
            .await
            .unwrap();
        assert_eq!(all.items.len(), 1);
    }
    let names = |api: &FakeApi| -> Vec<String> {
        let writes = api.writes();
        writes.iter().map(|w| w.resource.group_resource()).collect()
    };
    assert_eq!(names(&own), ["works.work.karmada.io"; 2]);
    assert_eq!(
        names(&host),
        [
            "configmaps",
            "configmaps",
            "karmadas.operator.karmada.io",
            "karmadas.operator.karmada.io"
        ]
    );
}

#[tokio::test]
async fn objects_of_the_host_are_read_without_the_right_to_get() {
    let (_, host, both) = split();
    for (namespace, name) in [("n", "a"), ("n", "b"), ("m", "a")] {
        let map =
            json!({"metadata": {"name": name, "namespace": namespace}, "data": {"n": namespace}});
        host.seed(&MAPS, map);
    }
    host.on_call(|call| {
        let denial = Status::failure(403, "Forbidden", "no get");
        (call.verb == "get").then(|| denial.into())
    });
    let object = both
        .get(ResourcePath::object(&MAPS, "m", "a"))
        .await
        .unwrap();
    assert_eq!(object.value().unwrap()["data"]["n"], "m");
    let missing = both
        .get(ResourcePath::object(&MAPS, "m", "b"))
        .await
        .err()
        .unwrap();
    assert!(missing.is_not_found(), "{missing}");
}

#[tokio::test]
async fn the_own_groups_are_not_taken_from_the_host() {
    let (own, host, both) = split();
    serve(&own, &WORKS, "Work");
    // Resources outside the own groups come from the host, even if the loopback
    // serves them.
    serve(&own, &MAPS, "Mine");
    serve(&host, &WORKS, "Loop");
    serve(&host, &MAPS, "ConfigMap");
    let discovery = both.discover().await.unwrap();
    let kinds: Vec<&str> = discovery.resources.iter().map(|r| &*r.kind).collect();
    assert_eq!(kinds, ["ConfigMap", "Work"]);
    host.on_call(|call| (call.verb == "discover").then(|| Status::unavailable("later").into()));
    assert!(
        both.discover().await.is_err(),
        "a partial result is an error"
    );
}

#[tokio::test]
async fn informers_follow_both_servers_by_their_own_revisions() {
    let (own, host, both) = split();
    let tasks = TaskGroup::new(ShutdownToken::new());
    let informers = InformerFactory::new(&tasks);
    for n in 0..9 {
        host.seed(
            &MAPS,
            json!({"metadata": {"name": format!("m{n}"), "namespace": "n"}}),
        );
    }
    own.seed(&WORKS, json!({"metadata": {"name": "w", "namespace": "n"}}));
    let maps = informers.get(&both, &ListWatchSelector::all(&MAPS));
    let works = informers.get(&both, &ListWatchSelector::all(&WORKS));
    informers.wait_for_cache_sync().await;
    assert_eq!((maps.len(), works.len()), (9, 1));
    assert!(works.get("n", "w").unwrap().revision() < maps.get("n", "m8").unwrap().revision());
    tasks.stop().await;
}
