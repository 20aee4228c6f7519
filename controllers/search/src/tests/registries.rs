//! The caches follow ResourceRegistries and Clusters that come, change and go.

use serde_json::{Value, json};

use super::*;

fn maps() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap"})
}

// proves: SRC-registry-changes
#[tokio::test]
async fn a_cluster_that_joins_later_is_cached() {
    let fixture = SearchFixture::new();
    fixture.members[0].seed(&MAPS, map("ns", "a"));
    let target = json!({"clusterNames": ["m1"]});
    let registry = registry_of("r", target, json!([maps()]));
    fixture.host.seed(&RESOURCE_REGISTRIES, registry);
    // The kind is the cache's, but no cluster has it.
    fixture.wait_for_clusters(&[]).await;
    let page = fixture.list(MemberListRequest::default()).await.unwrap();
    assert_eq!((page.items.len(), &*page.resource_version), (0, ""));
    let missing = fixture.cache.get(&MAPS, "ns", "a", "").await;
    assert_eq!(missing.unwrap_err().code, 404);
    let mut watch = fixture.watch("").await.unwrap();

    for name in ["m1", "m2"] {
        fixture.host.seed(&CLUSTERS, cluster(name, true));
    }
    assert!(next_event(&mut watch).await.is_none());
    fixture.wait_for_clusters(&["m1"]).await;
    let page = fixture.list(MemberListRequest::default()).await.unwrap();
    assert_eq!(names(&page.items), ["m1/a"]);

    fixture.host.remove(&CLUSTERS, "", "m1");
    fixture.wait_for_clusters(&[]).await;
    let watch = fixture.watch(&page.resource_version).await;
    assert_eq!(watch.err().map(|status| status.code), Some(410));
    fixture.stop().await;
}

// proves: SRC-registry-changes
#[tokio::test]
async fn the_labels_of_clusters_select_them() {
    let fixture = SearchFixture::new();
    let expression = json!({"key": "searched", "operator": "Exists"});
    let target = json!({"labelSelector": {"matchExpressions": [expression]}});
    let registry = registry_of("r", target, json!([maps()]));
    fixture.host.seed(&RESOURCE_REGISTRIES, registry);
    for (labeled, unlabeled) in [
        (&[][..], &["m1", "m2"][..]),
        (&["m1"], &["m2"]),
        (&["m1", "m2"], &[]),
        (&["m1"], &["m2"]),
        (&[], &["m1"]),
    ] {
        for name in unlabeled {
            fixture.host.seed(&CLUSTERS, cluster(name, true));
        }
        for name in labeled {
            let mut cluster = cluster(name, true);
            cluster["metadata"]["labels"] = json!({"searched": "true"});
            fixture.host.seed(&CLUSTERS, cluster);
        }
        fixture.wait_for_clusters(labeled).await;
    }
    fixture.stop().await;
}

// proves: SRC-registry-changes
#[tokio::test]
async fn a_kind_is_cached_as_long_as_a_registry_selects_it() {
    let fixture = SearchFixture::with_registry([&["a"], &["b"]]).await;
    let seed = |name: &str, selectors: Value| {
        let registry = registry_of(name, json!({}), selectors);
        fixture.host.seed(&RESOURCE_REGISTRIES, registry);
    };
    let has_secrets = || fixture.cache.cached_kind(&SECRETS).is_some();
    let listed = fixture.list(MemberListRequest::default()).await.unwrap();
    let mut watch = fixture.watch(&listed.resource_version).await.unwrap();
    assert!(!has_secrets());
    let secrets = json!({"apiVersion": "v1", "kind": "Secret"});
    seed("r", json!([maps(), secrets]));
    wait_until(async || has_secrets()).await;
    seed("second", json!([secrets]));
    seed("r", json!([maps()]));
    // Another registry, which the cache has read by now, still selects the kind.
    seed("third", json!([{"apiVersion": "v1", "kind": "Service"}]));
    let services = Gvr::from_static("", "v1", "services");
    wait_until(async || fixture.cache.cached_kind(&services).is_some()).await;
    assert!(has_secrets());
    fixture.host.remove(&RESOURCE_REGISTRIES, "", "second");
    wait_until(async || !has_secrets()).await;

    // The watches of the kinds that stay go on.
    fixture.members[1].seed(&MAPS, map("ns", "c"));
    let (line, _) = next_event(&mut watch).await.unwrap().unwrap();
    assert_eq!(line, "ADDED m2/c");
    fixture.stop().await;
}

// proves: SRC-namespaces
#[tokio::test]
async fn a_request_reads_its_namespace_if_that_is_cached() {
    let fixture = SearchFixture::with_registry([&[], &[]]).await;
    for (member, objects) in fixture.members.iter().zip([
        &[("one", "a"), ("two", "b")][..],
        &[("one", "c"), ("two", "d"), ("none", "e")],
    ]) {
        for (namespace, name) in objects {
            member.seed(&MAPS, map(namespace, name));
        }
    }
    let of = |cluster: &str, namespaces: &[&str]| {
        let select = |ns| json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": ns});
        let selectors: Vec<Value> = namespaces.iter().map(select).collect();
        registry_of(
            cluster,
            json!({"clusterNames": [cluster]}),
            json!(selectors),
        )
    };
    for (cluster, namespaces) in [("m1", &["one"][..]), ("m2", &["one", "two", "three"])] {
        let registry = of(cluster, namespaces);
        fixture.host.seed(&RESOURCE_REGISTRIES, registry);
    }
    fixture.host.remove(&RESOURCE_REGISTRIES, "", "r");
    let list = async |namespace: &str| {
        let selection = MemberObjectSelection {
            namespace: Some(namespace.to_owned()).filter(|ns| !ns.is_empty()),
            ..MemberObjectSelection::default()
        };
        let request = MemberListRequest {
            selection,
            ..MemberListRequest::default()
        };
        names(&fixture.list(request).await.unwrap().items)
    };
    let all = ["m1/a", "m2/c", "m2/d"];
    wait_until(async || list("").await == all).await;
    for (namespace, expected) in [
        ("one", &["m1/a", "m2/c"][..]),
        ("two", &["m2/d"]),
        ("three", &[]),
        ("none", &[]),
    ] {
        assert_eq!(list(namespace).await, expected, "{namespace}");
    }
    for (namespace, name, is_cached) in [
        ("one", "a", true),
        ("two", "b", false),
        ("two", "d", true),
        ("none", "e", false),
    ] {
        let object = fixture.cache.get(&MAPS, namespace, name, "").await;
        assert_eq!(object.is_ok(), is_cached, "{namespace}/{name}");
    }
    let selection = MemberObjectSelection {
        namespace: Some("one".to_owned()),
        ..MemberObjectSelection::default()
    };
    let request = MemberWatchRequest {
        selection,
        ..MemberWatchRequest::default()
    };
    let mut watch = fixture.cache.watch(&MAPS, request).await.unwrap();
    let mut lines = Vec::new();
    for _ in 0..2 {
        lines.push(next_event(&mut watch).await.unwrap().unwrap().0);
    }
    lines.sort();
    assert_eq!(lines, ["ADDED m1/a", "ADDED m2/c"]);
    fixture.members[1].seed(&MAPS, map("two", "f"));
    fixture.members[1].seed(&MAPS, map("one", "g"));
    let (line, _) = next_event(&mut watch).await.unwrap().unwrap();
    assert_eq!(line, "ADDED m2/g");
    fixture.stop().await;
}
