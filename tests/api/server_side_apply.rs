//! Server-side apply and `managedFields`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::kubectl::{fails_with_input, succeeds, succeeds_with_input, with_each_kubectl};
use crate::test_server::ApiTestServer;

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// Requests on the objects of one namespace of the shared server.
struct ApplyFixture {
    server: Arc<ApiTestServer>,
    namespace: &'static str,
}

impl ApplyFixture {
    fn new(namespace: &'static str) -> Self {
        let server = ApiTestServer::shared();
        server.create_namespace(namespace);
        Self { server, namespace }
    }

    fn config_map(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps/a", self.namespace)
    }

    fn deployment(&self) -> String {
        format!(
            "/apis/apps/v1/namespaces/{}/deployments/web",
            self.namespace
        )
    }

    fn send(&self, method: &str, path: &str, media_type: &str, body: &Value) -> RawHttpResponse {
        let request = self.server.request(method, path);
        request.body(media_type, body.to_string()).send()
    }

    /// Applies as `query`: the manager, and further parameters.
    fn apply(&self, path: &str, query: &str, config: &Value) -> RawHttpResponse {
        self.send(
            "PATCH",
            &format!("{path}?fieldManager={query}"),
            APPLY,
            config,
        )
    }

    #[track_caller]
    fn applied(&self, path: &str, query: &str, config: &Value, code: u16) -> Value {
        let reply = self.apply(path, query, config);
        assert_eq!(reply.code, code, "{}", reply.text());
        reply.json()
    }

    #[track_caller]
    fn written(&self, method: &str, path: &str, media_type: &str, body: &Value) -> Value {
        let reply = self.send(method, path, media_type, body);
        assert!((200..300).contains(&reply.code), "{}", reply.text());
        reply.json()
    }

    fn object(&self, path: &str) -> Value {
        self.server.get(path).json()
    }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn deployment(replicas: Option<i64>, containers: &Value) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}}});
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = replicas.into();
    }
    object
}

fn resource_version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

/// `manager operation subresource` and the fields of every manager.
fn managers(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten();
    entries
        .map(|entry| {
            assert_eq!(entry["fieldsType"], "FieldsV1");
            let words = ["manager", "operation", "subresource"];
            let words = words.map(|field| entry[field].as_str().unwrap_or(""));
            (
                words.join(" ").trim_end().to_owned(),
                entry["fieldsV1"].clone(),
            )
        })
        .collect()
}

#[track_caller]
fn check_managers(object: &Value, expected: &[(&str, Value)]) {
    let expected = expected.iter().map(|(m, f)| ((*m).to_owned(), f.clone()));
    assert_eq!(managers(object), expected.collect::<Vec<_>>());
}

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
    assert_eq!(entry["time"], created["metadata"]["creationTimestamp"]);
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
    let refused = fixture.apply(&path, "two", &config);
    assert_eq!(
        (refused.code, refused.json()),
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
    let refused = fixture.apply(&path, "two", &config).json();
    assert_eq!(
        refused["message"],
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
    let refused = fixture.apply(&format!("{path}/scale"), "scaler", &scale(5));
    assert_eq!(
        refused.json()["details"]["causes"][0]["field"],
        ".spec.replicas",
        "{}",
        refused.text()
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
    let end = Instant::now() + Duration::from_secs(20);
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
    let refused = fixture.apply(&path("v2"), "two", &changed).json();
    let fields: Vec<_> = refused["details"]["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| &c["field"])
        .collect();
    assert_eq!(
        fields,
        [".spec.atomic", ".spec.keyed[k=\"a\"].v"],
        "{refused}"
    );
    let dropped = fixture.applied(&path("v1"), "one", &object("v1", json!({})), 200);
    assert_eq!(
        dropped["spec"],
        json!({"keyed": [{"k": "b"}], "set": ["y"], "free": {"map": {"w": 1}}})
    );
    let twice = object("v1", json!({"keyed": [{"k": "c"}, {"k": "c"}]}));
    let refused = fixture.apply(&path("v1"), "one", &twice);
    assert!(
        refused.code >= 400 && refused.text().contains("duplicate"),
        "{}",
        refused.text()
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
        ("/metadata/resourceVersion", json!("1"), 404),
        ("/more", json!(1), 500),
    ] {
        let reply = fixture.apply(&path, "one", &edited(pointer, value));
        assert_eq!(reply.code, code, "{pointer}: {}", reply.text());
        assert_eq!(fixture.server.get(&path).code, 404);
    }
    let created = fixture.applied(&path, "one", &config, 201);
    for (pointer, value, code) in [
        ("/metadata/uid", json!("1"), 409),
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
    let event: Value = serde_json::from_str(chunk.lines().next().unwrap()).unwrap();
    assert_eq!(event["object"], created);
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
