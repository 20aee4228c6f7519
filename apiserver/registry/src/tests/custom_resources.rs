//! Tests of CRDs: their resources are served, and custom resources are validated.

use std::time::Duration;

use super::*;
use crate::{RegistryWatch, RegistryWatchItem, RegistryWatchOptions};

pub(super) static THINGS: Gvr = Gvr::from_static("example.com", "v1", "things");
static SECOND: Gvr = Gvr::from_static("example.com", "v2", "things");

fn crd() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "blue"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": schema},
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}}})
    };
    json!({"metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
        "versions": [version("v1", true), version("v2", false)]}})
}

/// Creates a definition, which is served then.
pub(super) async fn establish(fixture: &RegistryFixture) {
    fixture.create(&CRDS, crd()).await.unwrap();
}

#[tokio::test]
async fn a_definition_is_established_by_its_creation() {
    let fixture = fixture().await;
    let tried = fixture.create_with(&CRDS, crd(), &dry_run()).await.unwrap();
    let created = fixture.create(&CRDS, crd()).await.unwrap();
    let conditions = |definition: &Value| {
        let all = definition["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter();
        let pairs = all.map(|c| {
            format!(
                "{}={}",
                c["type"].as_str().unwrap(),
                c["status"].as_str().unwrap()
            )
        });
        pairs.collect::<Vec<_>>()
    };
    for definition in [&tried.object.value().unwrap(), &created] {
        assert_eq!(
            conditions(definition),
            ["NamesAccepted=True", "Established=True"]
        );
        assert_eq!(definition["status"]["acceptedNames"]["kind"], "Thing");
    }
    let served = fixture.create(&THINGS, thing(json!({"size": 1}))).await;
    assert_eq!(result_code(&served), "ok");

    let mut second = crd();
    second["metadata"]["name"] = json!("others.example.com");
    second["spec"]["names"] = json!({"plural": "others", "kind": "Thing"});
    let second = fixture.create(&CRDS, second).await.unwrap();
    assert_eq!(
        conditions(&second),
        ["NamesAccepted=False", "Established=False"]
    );
    assert_eq!(
        second["status"]["conditions"][0]["reason"],
        "ListKindConflict"
    );
    let other_gvr = Gvr::from_static("example.com", "v1", "others");
    assert!(fixture.registry.table().find(&other_gvr).is_none());
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "default"}, "spec": spec})
}

#[tokio::test]
async fn custom_resources_obey_their_schema() {
    let fixture = fixture().await;
    let before = fixture.registry.table().generation();
    establish(&fixture).await;
    assert!(fixture.registry.table().generation() > before);
    let table = [
        (json!({}), "422 Invalid"),
        (json!({"size": 0}), "422 Invalid"),
        (json!({"size": "1"}), "422 Invalid"),
        (json!({"size": 3, "other": 1}), "ok"),
    ];
    for (spec, expected) in table {
        assert_eq!(
            result_code(&fixture.create(&THINGS, thing(spec.clone())).await),
            expected,
            "{spec}"
        );
    }
    let path = ResourcePath::object(&THINGS, "default", "t");
    let read = fixture.get(path).await.unwrap();
    assert_eq!(read["spec"], json!({"size": 3, "color": "blue"}));
    assert_eq!(read["metadata"]["generation"], 1);
    let other = Gvr::from_static("example.com", "v2", "things");
    let second = fixture
        .get(ResourcePath::object(&other, "default", "t"))
        .await
        .unwrap();
    assert_eq!(
        (&second["apiVersion"], &second["metadata"]),
        (&json!("example.com/v2"), &read["metadata"])
    );
    let strategic = fixture
        .patch(path, Patch::Strategic(json!({"spec": {"size": 4}})))
        .await;
    assert_eq!(result_code(&strategic), "415 UnsupportedMediaType");
    let unconditional = fixture.update(path, thing(json!({"size": 4}))).await;
    assert_eq!(result_code(&unconditional), "422 Invalid");
    let scaled = fixture
        .merge(path.subresource("scale"), json!({"spec": {"replicas": 9}}))
        .await
        .unwrap();
    assert_eq!(scaled["spec"]["replicas"], 9);
    let selected = ListOptions {
        field_selector: "spec.color=blue".into(),
        ..ListOptions::default()
    };
    assert_eq!(
        names(
            &fixture
                .list(ResourcePath::collection(&THINGS, ""), &selected)
                .await
                .unwrap()
        ),
        ["t"]
    );
}

#[tokio::test]
async fn names_are_served_once_they_are_accepted() {
    let fixture = fixture().await;
    establish(&fixture).await;
    let path = ResourcePath::object(&CRDS, "", "things.example.com");
    let names = json!({"shortNames": ["cm"], "listKind": "Things"});
    fixture
        .merge(path, json!({"spec": {"names": names}}))
        .await
        .unwrap();
    fixture.registry.sync_crds().await.unwrap();
    let resource = fixture.registry.table().find(&THINGS).unwrap();
    assert_eq!(resource.kind.list_kind, "ThingList");
    let accepted = json!({"status": {"acceptedNames": names}});
    fixture
        .merge(path.subresource("status"), accepted)
        .await
        .unwrap();
    fixture.registry.sync_crds().await.unwrap();
    let resource = fixture.registry.table().find(&THINGS).unwrap();
    assert_eq!(resource.kind.list_kind, "Things");
    assert_eq!(resource.kind.short_names, ["cm"]);
}

/// Whatever its status says, and when it is deleted.
#[tokio::test]
async fn a_definition_of_a_built_in_resource_is_not_served() {
    let fixture = fixture().await;
    let leases = || fixture.registry.table().find(&LEASES).unwrap();
    let lease = json!({"metadata": {"name": "l", "namespace": "default"}});
    fixture.create(&LEASES, lease).await.unwrap();
    let name = "leases.coordination.k8s.io";
    let names = json!({"plural": "leases", "kind": "Lease"});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let approved = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    let definition = json!({"metadata": {"name": name, "annotations": approved},
        "spec": {"group": "coordination.k8s.io",
        "scope": "Cluster", "names": names,
        "versions": [{"name": "v2", "served": true, "storage": true, "schema": schema}]}});
    fixture.create(&CRDS, definition).await.unwrap();
    let path = ResourcePath::object(&CRDS, "", name);
    let forged = json!({"status": {"acceptedNames": names, "conditions": [{"type": "Established",
        "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    fixture
        .merge(path.subresource("status"), forged)
        .await
        .unwrap();
    fixture.registry.sync_crds().await.unwrap();
    let second = Gvr::from_static("coordination.k8s.io", "v2", "leases");
    assert!(fixture.registry.table().find(&second).is_none());
    fixture.delete(path).await.unwrap();
    fixture
        .merge(path, json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    fixture.registry.sync_crds().await.unwrap();
    assert!(!leases().custom);
    fixture
        .get(ResourcePath::object(&LEASES, "default", "l"))
        .await
        .unwrap();
}

/// The name of the object in the next event of a watch; `None` at its end.
async fn next_name(watch: &mut RegistryWatch) -> Option<String> {
    let next = tokio::time::timeout(Duration::from_secs(20), watch.next());
    match next.await.expect("the watch delivers an event or ends")? {
        Ok(RegistryWatchItem::Event(event)) => Some(event.object().name().to_owned()),
        Ok(RegistryWatchItem::Bookmark { .. }) => panic!("an unrequested bookmark"),
        Err(status) => panic!("{status:?}"),
    }
}

#[tokio::test]
async fn watches_end_when_the_definition_changes() {
    let fixture = fixture().await;
    establish(&fixture).await;
    let options = RegistryWatchOptions::default();
    let open = async |gvr: &'static Gvr| {
        let watching =
            fixture
                .registry
                .watch(&fixture.ctx, ResourcePath::collection(gvr, ""), &options);
        watching.await.unwrap()
    };
    let mut watches = [open(&THINGS).await, open(&SECOND).await];
    let path = ResourcePath::object(&CRDS, "", "things.example.com");

    // Labels and conditions do not affect how custom resources are served.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    fixture.merge(path, label).await.unwrap();
    fixture.registry.sync_crds().await.unwrap();
    fixture
        .create(&THINGS, thing(json!({"size": 1})))
        .await
        .unwrap();
    for watch in &mut watches {
        assert_eq!(next_name(watch).await.as_deref(), Some("t"));
    }

    let narrower = json!({"spec": {"names": {"categories": ["all"]}}});
    fixture.merge(path, narrower).await.unwrap();
    fixture.registry.sync_crds().await.unwrap();
    for watch in &mut watches {
        assert_eq!(next_name(watch).await, None);
        assert!(watch.try_next().is_none());
    }

    // While the CRD is deleted, a watch delivers the deletions of its custom resources.
    let mut watch = open(&THINGS).await;
    assert_eq!(next_name(&mut watch).await.as_deref(), Some("t"));
    fixture.delete(path).await.unwrap();
    fixture.registry.sync_crds().await.unwrap();
    fixture
        .delete(ResourcePath::object(&THINGS, "default", "t"))
        .await
        .unwrap();
    assert_eq!(next_name(&mut watch).await.as_deref(), Some("t"));
    fixture
        .merge(path, json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    fixture.registry.sync_crds().await.unwrap();
    assert_eq!(next_name(&mut watch).await, None);
}

#[tokio::test]
async fn a_deleted_definition_is_no_longer_served() {
    let fixture = fixture().await;
    establish(&fixture).await;
    fixture
        .create(&THINGS, thing(json!({"size": 1})))
        .await
        .unwrap();
    let path = ResourcePath::object(&CRDS, "", "things.example.com");
    let dying = deleted_object(fixture.delete(path).await.unwrap())
        .value()
        .unwrap();
    assert_eq!(
        dying["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    fixture.registry.sync_crds().await.unwrap();
    assert_eq!(
        result_code(&fixture.create(&THINGS, thing(json!({"size": 1}))).await),
        "405 MethodNotAllowed"
    );
    fixture
        .delete(ResourcePath::object(&THINGS, "default", "t"))
        .await
        .unwrap();
    fixture
        .merge(path, json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    fixture.registry.sync_crds().await.unwrap();
    assert!(fixture.registry.table().find(&THINGS).is_none());
    assert_eq!(
        result_code(
            &fixture
                .list(
                    ResourcePath::collection(&THINGS, ""),
                    &ListOptions::default()
                )
                .await
        ),
        "404 NotFound"
    );
}
