//! DELETE: at once, in steps, under conditions, in bulk.

use client::Propagation;

use super::*;

#[tokio::test]
async fn plain_objects_go_at_once() {
    let lab = lab().await;
    let made = lab.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let at = At::one(&CONFIGMAPS, "default", "a");
    let Deleted::Gone(status) = lab.delete(at).await.unwrap() else {
        panic!("still there");
    };
    let details = status.details.unwrap();
    assert_eq!(
        (status.status.as_str(), details.kind.as_str()),
        ("Success", "configmaps")
    );
    assert_eq!(made["metadata"]["uid"], details.uid);
    assert_eq!(verdict(&lab.get(at).await), "404 NotFound");
    assert_eq!(verdict(&lab.delete(at).await), "404 NotFound");
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_gone() {
    let lab = lab().await;
    let mut body = deployment("web");
    body["metadata"]["finalizers"] = json!(["example.com/hold"]);
    lab.create(&DEPLOYMENTS, body).await.unwrap();
    let at = At::one(&DEPLOYMENTS, "default", "web");
    let marked = object(lab.delete(at).await.unwrap()).value().unwrap();
    assert_eq!(
        marked["metadata"]["deletionTimestamp"],
        "2026-01-02T03:04:05Z"
    );
    assert_eq!(
        (
            &marked["metadata"]["generation"],
            &marked["metadata"]["deletionGracePeriodSeconds"]
        ),
        (&json!(2), &json!(0))
    );
    let again = object(lab.delete(at).await.unwrap());
    assert_eq!(
        again.revision().to_string(),
        marked["metadata"]["resourceVersion"]
    );
    let exists = lab
        .create(&DEPLOYMENTS, deployment("web"))
        .await
        .unwrap_err();
    assert!(
        exists.reason == "AlreadyExists" && exists.message.starts_with("object is being deleted:")
    );
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    assert_eq!(verdict(&lab.merge(at, more).await), "422 Invalid");
    let last = lab
        .merge(at, json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    assert_eq!(last["metadata"]["name"], "web");
    assert_eq!(verdict(&lab.get(at).await), "404 NotFound");
}

#[tokio::test]
async fn preconditions_are_kept() {
    let lab = lab().await;
    let made = lab.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let at = At::one(&CONFIGMAPS, "default", "a");
    let uid = made["metadata"]["uid"].as_str().map(str::to_owned);
    let revision = made["metadata"]["resourceVersion"]
        .as_str()
        .map(str::to_owned);
    let table = [
        (Some("other".to_owned()), None, "409 Conflict"),
        (None, Some("1".to_owned()), "409 Conflict"),
        (uid, revision, "ok"),
    ];
    for (uid, resource_version, want) in table {
        let options = DeleteOptions {
            uid,
            resource_version,
            ..DeleteOptions::default()
        };
        let reply = lab.registry.delete(&lab.ctx, at, &options).await;
        assert_eq!(verdict(&reply), want, "{options:?}");
    }
}

#[tokio::test]
async fn policies_leave_their_finalizer() {
    let lab = lab().await;
    let table = [
        (Some(Propagation::Foreground), Some("foregroundDeletion")),
        (Some(Propagation::Orphan), Some("orphan")),
        (Some(Propagation::Background), None),
        (None, None),
    ];
    for (propagation, want) in table {
        lab.create(&CONFIGMAPS, configmap("a")).await.unwrap();
        let at = At::one(&CONFIGMAPS, "default", "a");
        let options = DeleteOptions {
            propagation,
            ..DeleteOptions::default()
        };
        let reply = lab.registry.delete(&lab.ctx, at, &options).await.unwrap();
        let got = match reply {
            Deleted::Object { object, .. } => {
                Some(object.value().unwrap()["metadata"]["finalizers"][0].clone())
            }
            Deleted::Gone(_) => None,
        };
        assert_eq!(got, want.map(Value::from), "{propagation:?}");
        if want.is_some() {
            lab.merge(at, json!({"metadata": {"finalizers": []}}))
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let lab = lab().await;
    lab.create(&CONFIGMAPS, configmap("a")).await.unwrap();
    let at = At::one(&CONFIGMAPS, "default", "a");
    let options = DeleteOptions {
        dry_run: true,
        ..DeleteOptions::default()
    };
    lab.registry.delete(&lab.ctx, at, &options).await.unwrap();
    lab.get(at).await.unwrap();
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let lab = lab().await;
    for (name, tier) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut body = configmap(name);
        body["metadata"]["labels"] = json!({"tier": tier});
        lab.create(&CONFIGMAPS, body).await.unwrap();
    }
    let at = At::all(&CONFIGMAPS, "default");
    let select = ListOptions {
        label_selector: "tier=x".into(),
        ..ListOptions::default()
    };
    let options = DeleteOptions::default();
    let gone = lab
        .registry
        .delete_collection(&lab.ctx, at, &options, &select)
        .await
        .unwrap();
    assert_eq!(names(&gone), ["a", "c"]);
    assert_eq!(
        names(&lab.list(at, &ListOptions::default()).await.unwrap()),
        ["b"]
    );
}

#[tokio::test]
async fn namespaces_die_in_two_steps() {
    let lab = lab().await;
    for name in ["default", "kube-system", "kube-public"] {
        let reply = lab.delete(At::one(&NAMESPACES, "", name)).await;
        assert_eq!(verdict(&reply), "403 Forbidden", "{name}");
    }
    let made = lab
        .create(&NAMESPACES, json!({"metadata": {"name": "n"}}))
        .await
        .unwrap();
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(made["status"]["phase"], "Active");
    assert_eq!(
        made["metadata"]["labels"]["kubernetes.io/metadata.name"],
        "n"
    );
    let at = At::one(&NAMESPACES, "", "n");
    let cleared = lab
        .merge(at, json!({"spec": {"finalizers": []}}))
        .await
        .unwrap();
    assert_eq!(cleared["spec"]["finalizers"], json!(["kubernetes"]));
    let dying = object(lab.delete(at).await.unwrap()).value().unwrap();
    assert_eq!(dying["status"]["phase"], "Terminating");
    let mut last = dying;
    last["spec"]["finalizers"] = json!([]);
    lab.update(at.sub("finalize"), last).await.unwrap();
    assert_eq!(verdict(&lab.get(at).await), "404 NotFound");
}
