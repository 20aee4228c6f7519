//! Fields of an object have the right owner after creates, updates, patches, and writes of
//! subresources, and reads return the owners.

use serde_json::{Value, json};

use super::{
    ApplyFixture, JSON_PATCH, MERGE, check_managers, config_map, deployment, managers,
    resource_version,
};

/// B6.6, B4.1: ownership of creates, updates and patches.
#[test]
fn other_writes_own_what_they_change() {
    let fixture = ApplyFixture::new("ssa-update");
    let path = fixture.config_map();
    let collection = path.trim_end_matches("/a");
    let body = config_map(&json!({"k": "v", "l": "v"})).to_string();
    let request = fixture.server.request("POST", collection);
    let created = request
        .header("User-Agent", "my-tool/v1.2 (linux)")
        .body("application/json", body);
    let created = created.send().json();
    let owned = json!({"f:data": {".": {}, "f:k": {}, "f:l": {}}});
    check_managers(&created, &[("my-tool Update", owned)]);

    let patch = format!("{path}?fieldManager=patcher");
    let patched = fixture.written("PATCH", &patch, MERGE, &json!({"data": {"k": "w"}}));
    check_managers(
        &patched,
        &[
            ("my-tool Update", json!({"f:data": {".": {}, "f:l": {}}})),
            ("patcher Update", json!({"f:data": {"f:k": {}}})),
        ],
    );
    // The same again is no write.
    let same = fixture.written("PATCH", &patch, MERGE, &json!({"data": {"k": "w"}}));
    assert_eq!(same, patched);
    let put = format!("{path}?fieldManager=other");
    let same = fixture.written("PUT", &put, "application/json", &patched);
    assert_eq!(same, patched);

    for i in 0..12 {
        let patch = format!("{path}?fieldManager=m{i}");
        fixture.written(
            "PATCH",
            &patch,
            MERGE,
            &json!({"data": {format!("k{i}"): "v"}}),
        );
    }
    let object = fixture.object(&path);
    let names: Vec<String> = managers(&object).into_iter().map(|(m, _)| m).collect();
    assert_eq!(names.len(), 10, "{names:?}");
    assert!(
        names.contains(&"ancient-changes Update".to_owned()),
        "{names:?}"
    );
}

/// B6.7, B6.6: resets, and the first apply after one.
#[test]
fn managers_are_reset_and_begin_again() {
    let fixture = ApplyFixture::new("ssa-reset");
    let path = fixture.config_map();
    fixture.applied(&path, "one", &config_map(&json!({"k": "v"})), 201);
    for reset in [json!([]), json!([{}])] {
        let body = json!({"metadata": {"managedFields": reset}});
        let object = fixture.written("PATCH", &path, MERGE, &body);
        assert!(
            object["metadata"].get("managedFields").is_none(),
            "{object}"
        );
        let object = fixture.written("PATCH", &path, MERGE, &json!({"data": {"l": "v"}}));
        check_managers(&object, &[]);
        let object = fixture.applied(&path, "one", &config_map(&json!({"k": "v"})), 200);
        check_managers(
            &object,
            &[
                ("one Apply", json!({"f:data": {"f:k": {}}})),
                (
                    "before-first-apply Update",
                    json!({"f:data": {".": {}, "f:k": {}, "f:l": {}}}),
                ),
            ],
        );
    }
    // Malformed entries are ignored, and omitting them keeps them.
    let body = json!({"metadata": {"managedFields": [{"manager": "x", "operation": "Steal"}]}});
    let object = fixture.written("PATCH", &path, MERGE, &body);
    assert_eq!(managers(&object).len(), 2, "{object}");
    let mut body = object.clone();
    body["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    assert_eq!(
        fixture.written("PUT", &path, "application/json", &body),
        object
    );
}

/// B6.10: the JSON patch with which Flux and Argo CD take over from client-side apply.
#[test]
fn managers_are_replaced_by_a_json_patch() {
    let fixture = ApplyFixture::new("ssa-upgrade");
    let path = fixture.config_map();
    let post = format!(
        "{}?fieldManager=kubectl-client-side-apply",
        path.trim_end_matches("/a")
    );
    let created = fixture.written(
        "POST",
        &post,
        "application/json",
        &config_map(&json!({"k": "v"})),
    );
    let mut entries = created["metadata"]["managedFields"].clone();
    entries[0]["manager"] = "flux".into();
    entries[0]["operation"] = "Apply".into();
    let patch = |revision: &str| {
        json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": revision},
        ])
    };
    let stale = fixture.send("PATCH", &path, JSON_PATCH, &patch("1"));
    assert_eq!(stale.code, 409, "{}", stale.text());
    let patched = fixture.written(
        "PATCH",
        &path,
        JSON_PATCH,
        &patch(resource_version(&created)),
    );
    check_managers(
        &patched,
        &[("flux Apply", json!({"f:data": {".": {}, "f:k": {}}}))],
    );
    let object = fixture.applied(&path, "flux", &config_map(&json!({"l": "v"})), 200);
    assert_eq!(object["data"], json!({"l": "v"}));
}

/// B6.3, B6.8: `status` and `scale` have entries of their own.
#[test]
fn subresources_are_applied() {
    let fixture = ApplyFixture::new("ssa-subresources");
    let path = fixture.deployment();
    let containers = json!([{"name": "a", "image": "a:1"}]);
    let missing = fixture.apply(
        &format!("{path}/status"),
        "s",
        &deployment(None, &containers),
    );
    assert_eq!(missing.code, 404, "{}", missing.text());
    let mut config = deployment(Some(2), &containers);
    config["status"] = json!({"replicas": 7});
    let created = fixture.applied(&path, "one", &config, 201);
    assert!(created["status"].get("replicas").is_none(), "{created}");
    assert!(
        managers(&created)[0].1.get("f:status").is_none(),
        "{created}"
    );

    config["status"] = json!({"conditions": [{"type": "Available", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"}]});
    config["spec"]["replicas"] = 9.into();
    let object = fixture.applied(&format!("{path}/status"), "status&force=true", &config, 200);
    assert_eq!(object["spec"]["replicas"], 2);
    let (manager, fields) = managers(&object)
        .into_iter()
        .find(|(m, _)| m.starts_with("status"))
        .unwrap();
    assert_eq!(manager, "status Apply status");
    assert_eq!(
        fields,
        json!({"f:status": {"f:conditions": {"k:{\"type\":\"Available\"}":
        {".": {}, "f:lastTransitionTime": {}, "f:lastUpdateTime": {}, "f:status": {}, "f:type": {}}}}})
    );

    let scale = |replicas: i64| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "web"}, "spec": {"replicas": replicas}})
    };
    let rejection = fixture.apply(&format!("{path}/scale"), "scaler", &scale(5));
    assert_eq!(
        rejection.json()["details"]["causes"][0]["field"],
        ".spec.replicas",
        "{}",
        rejection.text()
    );
    let scaled = fixture.applied(
        &format!("{path}/scale"),
        "scaler&force=true",
        &scale(5),
        200,
    );
    assert_eq!(scaled["spec"]["replicas"], 5);
    let object = fixture.object(&path);
    assert_eq!(object["spec"]["replicas"], 5);
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    assert!(
        managers(&object).contains(&("scaler Apply scale".into(), replicas.clone())),
        "{object}"
    );
    let put = format!("{path}/scale?fieldManager=hpa");
    fixture.written("PUT", &put, "application/json", &scale(6));
    let object = fixture.object(&path);
    assert!(
        managers(&object).contains(&("hpa Update scale".into(), replicas)),
        "{object}"
    );
    let conflict = fixture
        .apply(&path, "one", &deployment(Some(2), &containers))
        .json();
    assert_eq!(
        conflict["message"],
        "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using apps/v1: .spec.replicas"
    );
}

/// Lists, watches, tables and metadata contain the managers.
#[test]
fn reads_return_managers() {
    let fixture = ApplyFixture::new("ssa-reads");
    let path = fixture.config_map();
    let collection = path.trim_end_matches("/a").to_owned();
    let created = fixture.applied(&path, "one", &config_map(&json!({"k": "v"})), 201);
    let entries = &created["metadata"]["managedFields"];
    assert_eq!(
        fixture.object(&collection)["items"][0]["metadata"]["managedFields"],
        *entries
    );
    let accept = |path: &str, media_type: &str| {
        let request = fixture.server.request("GET", path);
        request.header("Accept", media_type).send().json()
    };
    let partial = accept(
        &path,
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    );
    assert_eq!(partial["metadata"]["managedFields"], *entries);
    let table = accept(&collection, "application/json;as=Table;g=meta.k8s.io;v=v1");
    assert_eq!(
        table["rows"][0]["object"]["metadata"]["managedFields"],
        *entries
    );
    let watch = fixture
        .server
        .request("GET", &format!("{collection}?watch=1&timeoutSeconds=30"));
    let mut stream = watch.send_streaming();
    let chunk = String::from_utf8(stream.next_chunk().unwrap()).unwrap();
    let event: Value = machinery::json::from_str(chunk.lines().next().unwrap()).unwrap();
    assert_eq!(event["object"], created);
}
