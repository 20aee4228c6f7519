//! The cases of kube-apiserver's integration tests of apply (`test/integration/apiserver/apply`)
//! that the other tests of this folder do not have.

use serde_json::{Value, json};

use super::{
    APPLY, ApplyFixture, JSON_PATCH, MERGE, check_managers, config_map, deployment, managers,
    resource_version,
};
use crate::api::access::wait_until_code;

const JSON: &str = "application/json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn containers(port_name: &str, protocol: Option<&str>) -> Value {
    let mut port = json!({"name": port_name, "containerPort": 80});
    if let Some(protocol) = protocol {
        port["protocol"] = protocol.into();
    }
    json!([{"name": "nginx", "image": "nginx:1", "ports": [port]}])
}

fn named_container(name: &str) -> Value {
    json!([{"name": name, "image": "nginx:1"}])
}

fn labels_of_managers(object: &Value) -> Vec<String> {
    managers(object).into_iter().map(|(m, _)| m).collect()
}

/// The uid says that the object exists already.
#[test]
fn an_apply_with_a_uid_creates_nothing() {
    let fixture = ApplyFixture::new("ssa-uid");
    let path = fixture.config_map();
    let mut config = config_map(&json!({"k": "v"}));
    config["metadata"]["uid"] = "88e00824-7f0e-11e8-94a1-c8d3ffb15800".into();
    let rejection = fixture.apply(&path, "one", &config);
    assert_eq!(rejection.code, 409, "{}", rejection.text());
    let text = "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid 88e00824-7f0e-11e8-94a1-c8d3ffb15800, and no existing object was found";
    assert_eq!(rejection.json()["message"], text);
    assert_eq!(fixture.server.get(&path).code, 404);
}

/// The `resourceVersion` of a configuration is a precondition.
#[test]
fn an_apply_with_an_old_version_conflicts() {
    let fixture = ApplyFixture::new("ssa-version");
    let path = fixture.config_map();
    let first = fixture.applied(&path, "one", &config_map(&json!({"k": "v"})), 201);
    fixture.written("PATCH", &path, MERGE, &json!({"data": {"l": "w"}}));
    let mut config = config_map(&json!({"k": "x"}));
    config["metadata"]["resourceVersion"] = resource_version(&first).into();
    let rejection = fixture.apply(&path, "one", &config);
    assert_eq!(rejection.code, 409, "{}", rejection.text());
    assert_eq!(rejection.json()["reason"], "Conflict");
    config["metadata"]["resourceVersion"] =
        fixture.object(&path)["metadata"]["resourceVersion"].clone();
    let applied = fixture.applied(&path, "one", &config, 200);
    assert_eq!(applied["data"], json!({"k": "x", "l": "w"}));
}

/// B6.8, B4.1: an apply, an update or a patch without a change, also one that only repeats
/// defaults or has empty maps, is no write and no event.
#[test]
fn writes_without_a_change_are_no_events() {
    let fixture = ApplyFixture::new("ssa-no-event");
    let path = fixture.deployment();
    let mut config = deployment(Some(1), &named_container("nginx"));
    config["metadata"]["annotations"] = json!({});
    config["spec"]["template"]["spec"]["nodeSelector"] = json!({});
    let created = fixture.applied(&path, "one", &config, 201);
    let version = resource_version(&created);
    let same = |object: &Value| assert_eq!(resource_version(object), version, "{object}");
    for _ in 0..3 {
        same(&fixture.applied(&path, "one", &config, 200));
    }
    let mut read = fixture.object(&path);
    same(&fixture.written("PUT", &path, JSON, &read));
    read["metadata"]["managedFields"][0]["time"] = "2001-01-01T00:00:00Z".into();
    same(&fixture.written("PUT", &path, JSON, &read));
    same(&fixture.written("PATCH", &path, MERGE, &json!({"spec": {"replicas": 1}})));
    same(&fixture.written("PATCH", &path, STRATEGIC, &json!({"spec": {"replicas": 1}})));

    let changed = fixture.written("PATCH", &path, MERGE, &json!({"spec": {"paused": true}}));
    let collection = path.trim_end_matches("/web");
    let watch = format!("{collection}?watch=true&resourceVersion={version}&timeoutSeconds=5");
    let events = fixture.server.get(&watch).text();
    let events: Vec<Value> = events
        .lines()
        .map(|line| machinery::json::from_str(line).unwrap())
        .collect();
    let versions: Vec<&str> = events
        .iter()
        .map(|event| resource_version(&event["object"]))
        .collect();
    assert_eq!(versions, [resource_version(&changed)]);
}

/// A manager that owns nothing has no entry, also after it gave up its last field.
#[test]
fn a_manager_without_fields_has_no_entry() {
    let fixture = ApplyFixture::new("ssa-empty");
    let path = fixture.config_map();
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let created = fixture.applied(&path, "one", &nothing, 201);
    check_managers(&created, &[]);
    fixture.applied(&path, "two", &config_map(&json!({"k": "v"})), 200);
    let object = fixture.applied(&path, "two", &nothing, 200);
    check_managers(&object, &[]);
    assert_eq!(object.get("data"), None);
}

/// A manager's entry moves to the version of its next apply.
#[test]
fn managers_of_another_version_are_converted() {
    let fixture = ApplyFixture::new("ssa-versions");
    let path = |version: &str| {
        format!("/apis/autoscaling/{version}/namespaces/ssa-versions/horizontalpodautoscalers/h")
    };
    let config = |version: &str, most: i64| {
        json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h"}, "spec": {"maxReplicas": most,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}})
    };
    fixture.applied(&path("v1"), "one", &config("v1", 5), 201);
    let object = fixture.applied(&path("v2"), "one", &config("v2", 6), 200);
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{object}");
    assert_eq!(entries[0]["apiVersion"], "autoscaling/v2");
    let rejection = fixture.apply(&path("v1"), "two", &config("v1", 7));
    let text = "Apply failed with 1 conflict: conflict with \"one\": .spec.maxReplicas";
    assert_eq!(rejection.json()["message"], text);
}

/// B6.7: every kind of write resets the managers with an empty list or an empty entry.
#[test]
fn every_kind_of_write_resets_managers() {
    let fixture = ApplyFixture::new("ssa-clear");
    let path = fixture.config_map();
    for reset in [json!([{}]), json!([])] {
        for (method, media_type) in [
            ("PATCH", MERGE),
            ("PATCH", STRATEGIC),
            ("PATCH", JSON_PATCH),
            ("PUT", JSON),
        ] {
            let config = config_map(&json!({"k": "v"}));
            let reply = fixture.apply(&path, "one&force=true", &config);
            assert!(reply.code < 300, "{}", reply.text());
            let body = match media_type {
                JSON_PATCH => {
                    json!([{"op": "replace", "path": "/metadata/managedFields", "value": reset}])
                }
                JSON => {
                    let mut object = fixture.object(&path);
                    object["metadata"]["managedFields"] = reset.clone();
                    object
                }
                _ => json!({"metadata": {"managedFields": reset}}),
            };
            let object = fixture.written(method, &path, media_type, &body);
            assert_eq!(
                object["metadata"].get("managedFields"),
                None,
                "{method} {media_type} {reset}"
            );
        }
    }
}

/// Entries that cannot be read do not fail a write. Those of a subresource are no one's to set.
#[test]
fn malformed_managers_do_not_fail_writes() {
    let fixture = ApplyFixture::new("ssa-malformed");
    let malformed = json!([{"manager": "x", "operation": "Apply", "apiVersion": "v1",
        "time": "2019-07-08T09:31:18Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"k:{'a\"}": {}}}}]);
    let mut body = config_map(&json!({"k": "v"}));
    body["metadata"]["managedFields"] = malformed.clone();
    let path = fixture.config_map();
    let collection = path.trim_end_matches("/a");
    let post = format!("{collection}?fieldManager=creator");
    let created = fixture.written("POST", &post, JSON, &body);
    assert_eq!(labels_of_managers(&created), ["creator Update"]);
    body["data"]["k"] = "w".into();
    let put = format!("{path}?fieldManager=creator");
    let object = fixture.written("PUT", &put, JSON, &body);
    assert_eq!(labels_of_managers(&object), ["creator Update"]);
    let patch = json!({"metadata": {"managedFields": malformed}, "data": {"k": "x"}});
    let object = fixture.written("PATCH", &put, MERGE, &patch);
    assert_eq!(labels_of_managers(&object), ["creator Update"]);

    let path = fixture.deployment();
    let created = fixture.applied(
        &path,
        "one",
        &deployment(Some(1), &named_container("a")),
        201,
    );
    let patch = json!({"metadata": {"managedFields": [{}]}, "status": {"observedGeneration": 1}});
    let status = format!("{path}/status?fieldManager=controller");
    let object = fixture.written("PATCH", &status, MERGE, &patch);
    assert_eq!(
        object["metadata"]["managedFields"][0],
        created["metadata"]["managedFields"][0]
    );
    assert_eq!(
        labels_of_managers(&object),
        ["one Apply", "controller Update status"]
    );
}

/// B6.5: fields with one owner are unset or get their default; shared fields stay.
#[test]
fn fields_are_unset_unless_they_are_shared() {
    let fixture = ApplyFixture::new("ssa-unset");
    let path = fixture.deployment();
    let mut config = deployment(Some(3), &named_container("nginx"));
    config["spec"]["template"]["spec"]["hostname"] = "host".into();
    let omitted = deployment(None, &named_container("nginx"));
    let hostname = |object: &Value| object["spec"]["template"]["spec"].get("hostname").cloned();

    fixture.applied(&path, "one", &config, 201);
    fixture.applied(&path, "two", &config, 200);
    let shared = fixture.applied(&path, "one", &omitted, 200);
    assert_eq!(shared["spec"]["replicas"], 3);
    assert_eq!(hostname(&shared), Some(json!("host")));
    let unset = fixture.applied(&path, "two", &omitted, 200);
    assert_eq!(unset["spec"]["replicas"], 1);
    assert_eq!(hostname(&unset), None);
}

/// A field that a controller changes stays when the applier no longer has it; an item that the
/// applier alone has named goes, whatever a controller set in it.
#[test]
fn controllers_take_fields_over_but_no_items() {
    let fixture = ApplyFixture::new("ssa-transfer");
    let path = fixture.deployment();
    let mut object = fixture.applied(
        &path,
        "one",
        &deployment(Some(3), &named_container("nginx")),
        201,
    );
    object["spec"]["replicas"] = 4.into();
    object["spec"]["template"]["spec"]["containers"][0]["workingDir"] = "/home".into();
    let put = format!("{path}?fieldManager=controller");
    fixture.written("PUT", &put, JSON, &object);
    let object = fixture.applied(
        &path,
        "one",
        &deployment(None, &named_container("other")),
        200,
    );
    assert_eq!(object["spec"]["replicas"], 4);
    let containers = object["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap();
    let names: Vec<&Value> = containers.iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["other"]);
}

/// A key that is left out has its default.
#[test]
fn missing_keys_have_their_default() {
    let fixture = ApplyFixture::new("ssa-keys");
    let path = fixture.deployment();
    fixture.applied(
        &path,
        "one",
        &deployment(None, &containers("foo", None)),
        201,
    );
    let other = deployment(None, &containers("bar", Some("TCP")));
    let rejection = fixture.apply(&path, "two", &other);
    assert_eq!(rejection.code, 409, "{}", rejection.text());
    let causes = &rejection.json()["details"]["causes"];
    let field = ".spec.template.spec.containers[name=\"nginx\"].ports[containerPort=80,protocol=\"TCP\"].name";
    assert_eq!(causes[0]["field"], field);
    assert_eq!(causes.as_array().unwrap().len(), 1);
}

/// B6.12: an object that is too large only with its managers is stored without them, unless it
/// is applied.
#[test]
fn large_objects_lose_their_managers() {
    let fixture = ApplyFixture::new("ssa-large");
    let path = fixture.config_map();
    // Long keys with short values: the managers are as large as the object.
    let data: Value = (0..4_500)
        .map(|i| (format!("{i:0>200}"), json!("v")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let config = config_map(&data);
    let rejection = fixture.apply(&path, "one", &config);
    assert!(rejection.code >= 400, "{}", rejection.code);
    assert_eq!(fixture.server.get(&path).code, 404);
    let collection = path.trim_end_matches("/a");
    let created = fixture.written("POST", collection, JSON, &config);
    assert_eq!(created["metadata"].get("managedFields"), None);
    let changed = fixture.written("PATCH", &path, MERGE, &json!({"data": {"short": "v"}}));
    assert_eq!(changed["data"]["short"], "v");
    assert_eq!(changed["metadata"].get("managedFields"), None);
}

/// An apply that would create needs the right to create.
#[test]
fn an_apply_creates_only_for_those_who_may_create() {
    const USER: &str = "patcher";
    let fixture = ApplyFixture::new("ssa-rights");
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch", "get"]});
    fixture
        .server
        .grant(USER, "ssa-patch", Some("ssa-rights"), &rule);
    let path = fixture.config_map();
    wait_until_code(404, || fixture.server.request_as(USER, "GET", &path).send());
    let apply = || {
        let target = format!("{path}?fieldManager=one");
        let request = fixture.server.request_as(USER, "PATCH", &target);
        request
            .body(APPLY, config_map(&json!({"k": "v"})).to_string())
            .send()
    };
    let rejection = apply();
    assert_eq!(rejection.code, 403, "{}", rejection.text());
    let text = "configmaps \"a\" is forbidden: User \"patcher\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"ssa-rights\"";
    assert_eq!(rejection.json()["message"], text);
    fixture.applied(&path, "two", &config_map(&json!({"l": "w"})), 201);
    let applied = apply();
    assert_eq!(applied.code, 200, "{}", applied.text());
    assert_eq!(applied.json()["data"], json!({"k": "v", "l": "w"}));
}

/// Lists whose keys serve merges only may have an item twice, as many charts write `env`; an apply
/// may not send one twice.
#[test]
fn environment_variables_may_be_repeated_by_plain_writes() {
    let fixture = ApplyFixture::new("ssa-duplicates");
    let path = fixture.deployment();
    let containers = |env: Value| json!([{"name": "c", "image": "nginx", "env": env}]);
    let twice = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let object = deployment(Some(1), &containers(twice.clone()));
    let collection = path.trim_end_matches("/web");
    let env = |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    let created = fixture.written("POST", collection, JSON, &object);
    assert_eq!(env(&created), twice);
    let changed = fixture.written("PATCH", &path, MERGE, &json!({"spec": {"replicas": 2}}));
    assert_eq!(env(&changed), twice);
    let replaced = fixture.written("PUT", &path, JSON, &object);
    assert_eq!(env(&replaced), twice);
    let rejection = fixture.apply(&path, "one&force=true", &object);
    assert!(rejection.code >= 400, "{}", rejection.code);
    assert_eq!(env(&fixture.object(&path)), twice);
}
