//! The changes that an applied configuration makes, and the configurations that are refused.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    APPLY, ApplyFixture, MERGE, check_managers, config_map, deployment, managers, resource_version,
};
use crate::api::kubectl::{fails_with_input, succeeds, succeeds_with_input, with_each_kubectl};

/// B6.1, B6.2, B6.3, B6.8.
#[test]
fn an_apply_creates_changes_and_repeats() {
    let fixture = ApplyFixture::new("ssa-create");
    let path = fixture.config_map();
    let mut config = config_map(&json!({"k": "v"}));
    config["metadata"]["labels"] = json!({"x": "y"});
    let created = fixture.applied(&path, "one", &config, 201);
    assert_eq!(created["data"], json!({"k": "v"}));
    let entry = &created["metadata"]["managedFields"][0];
    assert_eq!(entry["apiVersion"], "v1");
    // A second may pass between the two.
    let creation = created["metadata"]["creationTimestamp"].as_str().unwrap();
    assert!(entry["time"].as_str().unwrap() >= creation, "{created}");
    let owned = json!({"f:data": {"f:k": {}}, "f:metadata": {"f:labels": {"f:x": {}}}});
    check_managers(&created, &[("one Apply", owned)]);

    let again = fixture.applied(&path, "one", &config, 200);
    assert_eq!(again, created);
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: w\n";
    let request = fixture
        .server
        .request("PATCH", &format!("{path}?fieldManager=one"));
    let changed = request.body(APPLY, text).send();
    assert_eq!(changed.code, 200, "{}", changed.text());
    let changed = changed.json();
    assert_eq!(changed["data"], json!({"k": "w"}));
    assert!(changed["metadata"].get("labels").is_none(), "{changed}");
    assert_ne!(resource_version(&changed), resource_version(&created));
    check_managers(&changed, &[("one Apply", json!({"f:data": {"f:k": {}}}))]);
    assert_eq!(fixture.object(&path), changed);
}

/// B6.4: the body of a conflict, force, shared ownership.
#[test]
fn conflicts_are_refused_forced_or_shared() {
    let fixture = ApplyFixture::new("ssa-conflict");
    let path = fixture.config_map();
    fixture.applied(&path, "one", &config_map(&json!({"k": "v", "l": "v"})), 201);
    let config = config_map(&json!({"k": "w", "l": "v"}));
    let rejection = fixture.apply(&path, "two", &config);
    assert_eq!(
        (rejection.code, rejection.json()),
        (
            409,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Apply failed with 1 conflict: conflict with \"one\": .data.k",
            "reason": "Conflict", "code": 409,
            "details": {"causes": [{"reason": "FieldManagerConflict",
                "message": "conflict with \"one\"", "field": ".data.k"}]}})
        )
    );
    let put = format!("{path}?fieldManager=editor");
    fixture.written(
        "PUT",
        &put,
        "application/json",
        &config_map(&json!({"k": "x", "l": "v"})),
    );
    let rejection = fixture.apply(&path, "two", &config).json();
    assert_eq!(
        rejection["message"],
        "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.k"
    );
    let forced = fixture.applied(&path, "two&force=true", &config, 200);
    assert_eq!(forced["data"]["k"], "w");
    check_managers(
        &forced,
        &[
            ("one Apply", json!({"f:data": {"f:l": {}}})),
            ("two Apply", json!({"f:data": {"f:k": {}, "f:l": {}}})),
        ],
    );
}

/// B6.5: fields that are no longer applied are removed, unless others own them.
#[test]
fn omitted_fields_are_removed_or_left_to_others() {
    let fixture = ApplyFixture::new("ssa-remove");
    let path = fixture.deployment();
    let both = json!([{"name": "a", "image": "a:1", "ports": [{"containerPort": 80}, {"containerPort": 81}]},
                      {"name": "b", "image": "b:1"}]);
    fixture.applied(&path, "one", &deployment(Some(3), &both), 201);
    fixture.applied(
        &path,
        "two",
        &deployment(Some(3), &json!([{"name": "a", "image": "a:1"}])),
        200,
    );
    let fewer = json!([{"name": "a", "image": "a:1", "ports": [{"containerPort": 81}]}]);
    let changed = fixture.applied(&path, "one", &deployment(None, &fewer), 200);
    let spec = &changed["spec"];
    assert_eq!(spec["replicas"], 3);
    let containers = spec["template"]["spec"]["containers"].as_array().unwrap();
    let names: Vec<_> = containers.iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["a"]);
    let ports = containers[0]["ports"].as_array().unwrap();
    let ports: Vec<_> = ports.iter().map(|p| &p["containerPort"]).collect();
    assert_eq!(ports, [81]);
    let owner = managers(&changed)
        .into_iter()
        .find(|(m, _)| m == "one Apply");
    let spec = owner.unwrap().1["f:spec"].clone();
    assert!(spec.get("f:replicas").is_none(), "{spec}");
    let changed = fixture.applied(
        &path,
        "two",
        &deployment(None, &json!([{"name": "a"}])),
        200,
    );
    assert_eq!(changed["spec"]["replicas"], 1, "the default");
}

/// B6.9, B6.11: types of fields from the schema of a definition, and its versions.
#[test]
fn custom_resources_are_merged_by_their_schema() {
    let fixture = ApplyFixture::new("ssa-custom");
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string"}}}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "atomic": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
        "plain": {"type": "array", "items": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}});
    let version = |name: &str, stored: bool| {
        json!({"name": name, "served": true, "storage": stored,
        "schema": {"openAPIV3Schema": schema}})
    };
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "applieds.ssa.io"}, "spec": {"group": "ssa.io", "scope": "Namespaced",
            "names": {"plural": "applieds", "singular": "applied", "kind": "Applied"},
            "versions": [version("v1", true), version("v2", false)]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    fixture.written("POST", definitions, "application/json", &definition);
    let path = |version: &str| format!("/apis/ssa.io/{version}/namespaces/ssa-custom/applieds/a");
    let end = Instant::now() + Duration::from_secs(90);
    while fixture.server.get(path("v1").trim_end_matches("/a")).code != 200 {
        assert!(Instant::now() < end, "the definition is not served");
        harness::sleep_blocking(Duration::from_millis(20));
    }
    let object = |version: &str, spec: Value| {
        json!({"apiVersion": format!("ssa.io/{version}"),
        "kind": "Applied", "metadata": {"name": "a"}, "spec": spec})
    };
    let one = json!({"keyed": [{"k": "a", "v": "1"}], "set": ["x"], "atomic": {"x": "1"},
        "plain": ["x"], "free": {"list": [{"y": 1}], "map": {"z": 1}}});
    let created = fixture.applied(&path("v1"), "one", &object("v1", one), 201);
    check_managers(
        &created,
        &[(
            "one Apply",
            json!({"f:spec": {"f:atomic": {}, "f:free": {"f:list": {}, "f:map": {".": {}, "f:z": {}}},
        "f:keyed": {"k:{\"k\":\"a\"}": {".": {}, "f:k": {}, "f:v": {}}}, "f:plain": {}, "f:set": {"v:\"x\"": {}}}}),
        )],
    );
    let two = json!({"keyed": [{"k": "b"}], "set": ["y"], "free": {"map": {"w": 1}}});
    let merged = fixture.applied(&path("v2"), "two", &object("v2", two), 200);
    assert_eq!(
        merged["spec"]["keyed"],
        json!([{"k": "a", "v": "1"}, {"k": "b"}])
    );
    assert_eq!(merged["spec"]["set"], json!(["x", "y"]));
    assert_eq!(merged["spec"]["free"]["map"], json!({"z": 1, "w": 1}));
    // The owner in v1 is known to an apply in v2.
    let changed = object(
        "v2",
        json!({"keyed": [{"k": "a", "v": "2"}], "atomic": {"y": "1"}}),
    );
    let rejection = fixture.apply(&path("v2"), "two", &changed).json();
    let fields: Vec<_> = rejection["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["field"])
        .collect();
    assert_eq!(
        fields,
        [".spec.atomic", ".spec.keyed[k=\"a\"].v"],
        "{rejection}"
    );
    let dropped = fixture.applied(&path("v1"), "one", &object("v1", json!({})), 200);
    assert_eq!(
        dropped["spec"],
        json!({"keyed": [{"k": "b"}], "set": ["y"], "free": {"map": {"w": 1}}})
    );
    let twice = object("v1", json!({"keyed": [{"k": "c"}, {"k": "c"}]}));
    let rejection = fixture.apply(&path("v1"), "one", &twice);
    assert!(
        rejection.code >= 400 && rejection.text().contains("duplicate"),
        "{}",
        rejection.text()
    );
    let unknown = fixture.apply(&path("v1"), "one", &object("v1", json!({"other": 1})));
    let message = "failed to create typed patch object (ssa-custom/a; ssa.io/v1, Kind=Applied): .spec.other: field not declared in schema";
    let mut unfit = object("v1", json!({"other": 1}));
    unfit["metadata"]["namespace"] = "ssa-custom".into();
    let unknown_there = fixture.apply(&path("v1"), "one", &unfit);
    assert_eq!((unknown.code, unknown_there.code), (500, 500));
    assert_eq!(unknown_there.json()["message"], message);
}

/// B7.1, B7.2.
#[test]
fn dry_runs_change_nothing() {
    let fixture = ApplyFixture::new("ssa-dry");
    let path = fixture.config_map();
    let config = config_map(&json!({"k": "v"}));
    let created = fixture.applied(&path, "one&dryRun=All", &config, 201);
    assert!(
        created["metadata"]["uid"].is_string()
            && created["metadata"].get("resourceVersion").is_none()
    );
    assert_eq!(managers(&created).len(), 1);
    assert_eq!(fixture.server.get(&path).code, 404);
    let live = fixture.applied(&path, "one", &config, 201);
    assert_eq!(fixture.applied(&path, "one&dryRun=All", &config, 200), live);
    let other = config_map(&json!({"k": "w"}));
    assert_eq!(fixture.apply(&path, "two&dryRun=All", &other).code, 409);
    let forced = fixture.applied(&path, "two&dryRun=All&force=true", &other, 200);
    assert_eq!(forced["data"]["k"], "w");
    assert_eq!(resource_version(&forced), resource_version(&live));
    assert_eq!(fixture.object(&path), live);
}

/// B6.1, B5.1, B7.5, and preconditions.
#[test]
fn malformed_applies_are_refused() {
    let fixture = ApplyFixture::new("ssa-refused");
    let path = fixture.config_map();
    let config = config_map(&json!({"k": "v"}));
    let reply = fixture.send("PATCH", &path, APPLY, &config);
    assert_eq!(reply.code, 422, "{}", reply.text());
    assert_eq!(
        reply.json()["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let long = "m".repeat(129);
    assert_eq!(fixture.apply(&path, &long, &config).code, 422);
    let forced = fixture.send("PATCH", &format!("{path}?force=true"), MERGE, &json!({}));
    assert_eq!(forced.code, 422, "{}", forced.text());
    let request = fixture
        .server
        .request("PATCH", &format!("{path}?fieldManager=one"));
    assert_eq!(request.body(APPLY, "a: [").send().code, 400);
    let edited = |pointer: &str, value: Value| {
        let mut config = config.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[field] = value;
        config
    };
    for (pointer, value, code) in [
        ("/kind", json!("Secret"), 400),
        ("/apiVersion", json!("v2"), 400),
        ("/metadata/name", json!("b"), 400),
        ("/metadata/managedFields", json!([]), 400),
        ("/metadata/uid", json!("1"), 409),
        ("/more", json!(1), 500),
    ] {
        let reply = fixture.apply(&path, "one", &edited(pointer, value));
        assert_eq!(reply.code, code, "{pointer}: {}", reply.text());
        assert_eq!(fixture.server.get(&path).code, 404);
    }
    let created = fixture.applied(&path, "one", &config, 201);
    for (pointer, value, code) in [
        ("/metadata/uid", json!("1"), 422),
        ("/metadata/uid", created["metadata"]["uid"].clone(), 200),
        ("/metadata/resourceVersion", json!("1"), 409),
        (
            "/metadata/resourceVersion",
            json!(resource_version(&created)),
            200,
        ),
    ] {
        let reply = fixture.apply(&path, "one", &edited(pointer, value));
        assert_eq!(reply.code, code, "{pointer}: {}", reply.text());
    }
    assert_eq!(fixture.object(&path), created);
    let repeated = r#"{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"v","k":"w"}}"#;
    let strict = format!("{path}?fieldManager=one&fieldValidation=Strict");
    let reply = fixture
        .server
        .request("PATCH", &strict)
        .body(APPLY, repeated)
        .send();
    assert_eq!(reply.code, 400, "{}", reply.text());
    assert!(
        reply.text().contains("error strict decoding YAML"),
        "{}",
        reply.text()
    );
}

/// B6.10: `kubectl apply --server-side`, also over client-side apply.
#[test]
fn kubectl_applies_on_the_server() {
    with_each_kubectl("ssa-kubectl", |kubectl| {
        let map = |data: &str| {
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {data}\n")
        };
        kubectl.run_commands(&[
            succeeds_with_input(
                "apply --server-side -f -",
                &map("{k: v}"),
                &["configmap/a serverside-applied"],
            ),
            succeeds_with_input(
                "apply --server-side -f -",
                &map("{k: v}"),
                &["configmap/a serverside-applied"],
            ),
            succeeds(
                "get cm a -o jsonpath='{.metadata.managedFields[*].operation}'",
                &["Apply"],
            ),
            fails_with_input(
                "apply --server-side --field-manager=other -f -",
                &map("{k: w}"),
                &["Apply failed with 1 conflict: conflict with \"kubectl\": .data.k"],
            ),
            succeeds_with_input(
                "apply --server-side --field-manager=other --force-conflicts -f -",
                &map("{k: w}"),
                &["serverside-applied"],
            ),
            succeeds("get cm a -o jsonpath='{.data}'", &["{\"k\":\"w\"}"]),
            succeeds("delete cm a", &["deleted"]),
            succeeds_with_input("apply -f -", &map("{k: v, l: v}"), &["configmap/a created"]),
            succeeds_with_input(
                "apply --server-side -f -",
                &map("{k: w}"),
                &["configmap/a serverside-applied"],
            ),
        ]);
        if kubectl.label == "new" {
            // The new kubectl passes the ownership of its client-side apply on.
            let data = kubectl.output("get cm a -o jsonpath='{.data}'");
            assert_eq!(data, "{\"k\":\"w\"}");
        }
    });
}
