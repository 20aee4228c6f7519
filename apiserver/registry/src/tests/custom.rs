//! CRDs become rows; their instances obey the schema.

use std::time::Duration;

use super::*;
use crate::{Item, Watch, WatchOptions};

pub(super) static THINGS: Gvr = Gvr::constant("example.com", "v1", "things");
static SECOND: Gvr = Gvr::constant("example.com", "v2", "things");

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

pub(super) async fn establish(lab: &Lab) {
    lab.create(&CRDS, crd()).await.unwrap();
    lab.registry.sync_crds().await.unwrap();
    assert!(lab.registry.table().find(&THINGS).is_none());
    let at = At::one(&CRDS, "", "things.example.com").sub("status");
    let conditions: Vec<Value> = ["NamesAccepted", "Established"]
        .iter()
        .map(|t| json!({"type": t, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
        .collect();
    let names = json!({"plural": "things", "kind": "Thing"});
    lab.merge(at, json!({"status": {"conditions": conditions, "acceptedNames": names, "storedVersions": ["v1"]}})).await.unwrap();
    lab.registry.sync_crds().await.unwrap();
}

fn thing(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "default"}, "spec": spec})
}

#[tokio::test]
async fn instances_obey_their_schema() {
    let lab = lab().await;
    let before = lab.registry.table().generation();
    establish(&lab).await;
    assert!(lab.registry.table().generation() > before);
    let table = [
        (json!({}), "422 Invalid"),
        (json!({"size": 0}), "422 Invalid"),
        (json!({"size": "1"}), "422 Invalid"),
        (json!({"size": 3, "other": 1}), "ok"),
    ];
    for (spec, want) in table {
        assert_eq!(
            verdict(&lab.create(&THINGS, thing(spec.clone())).await),
            want,
            "{spec}"
        );
    }
    let at = At::one(&THINGS, "default", "t");
    let read = lab.get(at).await.unwrap();
    assert_eq!(read["spec"], json!({"size": 3, "color": "blue"}));
    assert_eq!(read["metadata"]["generation"], 1);
    let other = Gvr::constant("example.com", "v2", "things");
    let second = lab.get(At::one(&other, "default", "t")).await.unwrap();
    assert_eq!(
        (&second["apiVersion"], &second["metadata"]),
        (&json!("example.com/v2"), &read["metadata"])
    );
    let strategic = lab
        .patch(at, Patch::Strategic(json!({"spec": {"size": 4}})))
        .await;
    assert_eq!(verdict(&strategic), "415 UnsupportedMediaType");
    let unconditional = lab.update(at, thing(json!({"size": 4}))).await;
    assert_eq!(verdict(&unconditional), "422 Invalid");
    let scaled = lab
        .merge(at.sub("scale"), json!({"spec": {"replicas": 9}}))
        .await
        .unwrap();
    assert_eq!(scaled["spec"]["replicas"], 9);
    let selected = ListOptions {
        field_selector: "spec.color=blue".into(),
        ..ListOptions::default()
    };
    assert_eq!(
        names(&lab.list(At::all(&THINGS, ""), &selected).await.unwrap()),
        ["t"]
    );
}

#[tokio::test]
async fn names_are_served_once_they_are_accepted() {
    let lab = lab().await;
    establish(&lab).await;
    let at = At::one(&CRDS, "", "things.example.com");
    let names = json!({"shortNames": ["cm"], "listKind": "Things"});
    lab.merge(at, json!({"spec": {"names": names}}))
        .await
        .unwrap();
    lab.registry.sync_crds().await.unwrap();
    let row = lab.registry.table().find(&THINGS).unwrap();
    assert_eq!(row.kind.list_kind, "ThingList");
    let accepted = json!({"status": {"acceptedNames": names}});
    lab.merge(at.sub("status"), accepted).await.unwrap();
    lab.registry.sync_crds().await.unwrap();
    let row = lab.registry.table().find(&THINGS).unwrap();
    assert_eq!(row.kind.list_kind, "Things");
    assert_eq!(row.kind.short_names, ["cm"]);
}

/// Whatever its status says, and when it goes.
#[tokio::test]
async fn a_definition_of_a_built_in_resource_is_not_served() {
    let lab = lab().await;
    let leases = || lab.registry.table().find(&LEASES).unwrap();
    let lease = json!({"metadata": {"name": "l", "namespace": "default"}});
    lab.create(&LEASES, lease).await.unwrap();
    let name = "leases.coordination.k8s.io";
    let names = json!({"plural": "leases", "kind": "Lease"});
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({"metadata": {"name": name}, "spec": {"group": "coordination.k8s.io",
        "scope": "Cluster", "names": names,
        "versions": [{"name": "v2", "served": true, "storage": true, "schema": schema}]}});
    lab.create(&CRDS, definition).await.unwrap();
    let at = At::one(&CRDS, "", name);
    let forged = json!({"status": {"acceptedNames": names, "conditions": [{"type": "Established",
        "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    lab.merge(at.sub("status"), forged).await.unwrap();
    lab.registry.sync_crds().await.unwrap();
    let second = Gvr::constant("coordination.k8s.io", "v2", "leases");
    assert!(lab.registry.table().find(&second).is_none());
    lab.delete(at).await.unwrap();
    lab.merge(at, json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    lab.registry.sync_crds().await.unwrap();
    assert!(!leases().custom);
    lab.get(At::one(&LEASES, "default", "l")).await.unwrap();
}

/// The name of the next object that a watch tells of; nothing at its end.
async fn next_name(watch: &mut Watch) -> Option<String> {
    let next = tokio::time::timeout(Duration::from_secs(20), watch.next());
    match next
        .await
        .expect("the watch neither tells anything nor ends")?
    {
        Ok(Item::Event(event)) => Some(event.object().name().to_owned()),
        Ok(Item::Bookmark { .. }) => panic!("a bookmark nobody asked for"),
        Err(status) => panic!("{status:?}"),
    }
}

#[tokio::test]
async fn watches_end_when_what_is_served_changes() {
    let lab = lab().await;
    establish(&lab).await;
    let options = WatchOptions::default();
    let open = async |gvr: &'static Gvr| {
        let watching = lab.registry.watch(&lab.ctx, At::all(gvr, ""), &options);
        watching.await.unwrap()
    };
    let mut watches = [open(&THINGS).await, open(&SECOND).await];
    let at = At::one(&CRDS, "", "things.example.com");

    // Labels and conditions change nothing of what is served.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    lab.merge(at, label).await.unwrap();
    lab.registry.sync_crds().await.unwrap();
    lab.create(&THINGS, thing(json!({"size": 1})))
        .await
        .unwrap();
    for watch in &mut watches {
        assert_eq!(next_name(watch).await.as_deref(), Some("t"));
    }

    let narrower = json!({"spec": {"names": {"categories": ["all"]}}});
    lab.merge(at, narrower).await.unwrap();
    lab.registry.sync_crds().await.unwrap();
    for watch in &mut watches {
        assert_eq!(next_name(watch).await, None);
        assert!(watch.try_next().is_none());
    }

    // The end of a definition is told instance by instance.
    let mut watch = open(&THINGS).await;
    assert_eq!(next_name(&mut watch).await.as_deref(), Some("t"));
    lab.delete(at).await.unwrap();
    lab.registry.sync_crds().await.unwrap();
    lab.delete(At::one(&THINGS, "default", "t")).await.unwrap();
    assert_eq!(next_name(&mut watch).await.as_deref(), Some("t"));
    lab.merge(at, json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    lab.registry.sync_crds().await.unwrap();
    assert_eq!(next_name(&mut watch).await, None);
}

#[tokio::test]
async fn a_definition_takes_its_rows_along() {
    let lab = lab().await;
    establish(&lab).await;
    lab.create(&THINGS, thing(json!({"size": 1})))
        .await
        .unwrap();
    let at = At::one(&CRDS, "", "things.example.com");
    let dying = object(lab.delete(at).await.unwrap()).value().unwrap();
    assert_eq!(
        dying["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    lab.registry.sync_crds().await.unwrap();
    assert_eq!(
        verdict(&lab.create(&THINGS, thing(json!({"size": 1}))).await),
        "405 MethodNotAllowed"
    );
    lab.delete(At::one(&THINGS, "default", "t")).await.unwrap();
    lab.merge(at, json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    lab.registry.sync_crds().await.unwrap();
    assert!(lab.registry.table().find(&THINGS).is_none());
    assert_eq!(
        verdict(
            &lab.list(At::all(&THINGS, ""), &ListOptions::default())
                .await
        ),
        "404 NotFound"
    );
}
