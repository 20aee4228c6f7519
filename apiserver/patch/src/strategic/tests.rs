//! Tests of patches that kubectl sends, with the patch metadata of a reduced Deployment.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Patch metadata for tests.
#[derive(Clone, Default)]
struct FakePatchMeta {
    fields: Vec<(&'static str, FakePatchMeta)>,
    item: Option<Box<FakePatchMeta>>,
    merges: bool,
    key: Option<&'static str>,
    replaces: bool,
}

impl PatchMetaLookup for FakePatchMeta {
    fn field(&self, name: &str) -> Option<Self> {
        let entry = self.fields.iter().find(|(n, _)| *n == name)?;
        Some(entry.1.clone())
    }
    fn item(&self) -> Option<Self> {
        self.item.as_deref().cloned()
    }
    fn is_merged_list(&self) -> bool {
        self.merges
    }
    fn merge_key(&self) -> Option<&str> {
        self.key
    }
    fn is_replaced_object(&self) -> bool {
        self.replaces
    }
}

fn object(fields: Vec<(&'static str, FakePatchMeta)>) -> FakePatchMeta {
    FakePatchMeta {
        fields,
        ..FakePatchMeta::default()
    }
}

fn keyed_list(key: &'static str, item: FakePatchMeta) -> FakePatchMeta {
    FakePatchMeta {
        item: Some(Box::new(item)),
        merges: true,
        key: Some(key),
        ..FakePatchMeta::default()
    }
}

fn deployment() -> FakePatchMeta {
    let scalars = FakePatchMeta {
        merges: true,
        ..FakePatchMeta::default()
    };
    let container = object(vec![
        (
            "ports",
            keyed_list("containerPort", FakePatchMeta::default()),
        ),
        ("env", keyed_list("name", FakePatchMeta::default())),
        ("args", FakePatchMeta::default()),
    ]);
    let pod = object(vec![
        ("containers", keyed_list("name", container)),
        ("volumes", keyed_list("name", FakePatchMeta::default())),
    ]);
    object(vec![
        ("metadata", object(vec![("finalizers", scalars)])),
        (
            "spec",
            object(vec![("template", object(vec![("spec", pod)]))]),
        ),
    ])
}

fn two_containers() -> Value {
    json!({"metadata": {"name": "d", "finalizers": ["a", "b"]}, "spec": {"replicas": 1, "template": {"spec": {"containers": [
        {"name": "web", "image": "nginx:1", "args": ["x", "y"], "ports": [{"containerPort": 80}, {"containerPort": 443, "name": "tls"}]},
        {"name": "side", "image": "envoy:1"},
    ]}}}})
}

fn in_pod(patch: Value) -> Value {
    json!({"spec": {"template": {"spec": patch}}})
}

/// Checks the pod spec after the patch, or the kind of error.
fn check_pod(patch: Value, expect: Result<Value, &str>) {
    let actual = apply_patch(
        &two_containers(),
        &in_pod(patch.clone()),
        Some(deployment()),
    );
    let actual = actual
        .map(|v| v["spec"]["template"]["spec"].clone())
        .map_err(|e| match e {
            Error::BadRequest(_) => "bad",
            Error::Unprocessable(_) => "unprocessable",
            Error::TooLarge(_) => "large",
        });
    assert_eq!(actual, expect, "{patch}");
}

fn web_container(ports: Value) -> Value {
    json!({"name": "web", "image": "nginx:1", "args": ["x", "y"], "ports": ports})
}

fn sidecar_container() -> Value {
    json!({"name": "side", "image": "envoy:1"})
}

fn both_ports() -> Value {
    json!([{"containerPort": 80}, {"containerPort": 443, "name": "tls"}])
}

#[test]
fn set_image_changes_one_container() {
    check_pod(
        json!({"containers": [{"name": "side", "image": "envoy:2"}]}),
        Ok(
            json!({"containers": [web_container(both_ports()), {"name": "side", "image": "envoy:2"}]}),
        ),
    );
    check_pod(
        json!({"$setElementOrder/containers": [{"name": "web"}, {"name": "side"}],
               "containers": [{"name": "side", "image": "envoy:2"}]}),
        Ok(
            json!({"containers": [web_container(both_ports()), {"name": "side", "image": "envoy:2"}]}),
        ),
    );
}

#[test]
fn apply_removes_one_port() {
    check_pod(
        json!({"$setElementOrder/containers": [{"name": "web"}, {"name": "side"}],
               "containers": [{"name": "web", "$setElementOrder/ports": [{"containerPort": 80}],
                               "ports": [{"$patch": "delete", "containerPort": 443}]}]}),
        Ok(
            json!({"containers": [web_container(json!([{"containerPort": 80}])), sidecar_container()]}),
        ),
    );
}

#[test]
fn items_are_added_deleted_and_reordered() {
    check_pod(
        json!({"containers": [{"name": "new", "image": "x"}]}),
        Ok(
            json!({"containers": [{"name": "new", "image": "x"}, web_container(both_ports()), sidecar_container()]}),
        ),
    );
    check_pod(
        json!({"$setElementOrder/containers": [{"name": "side"}, {"name": "new"}, {"name": "web"}],
               "containers": [{"name": "new", "image": "x", "tty": null}]}),
        Ok(
            json!({"containers": [sidecar_container(), {"name": "new", "image": "x"}, web_container(both_ports())]}),
        ),
    );
    check_pod(
        json!({"containers": [{"name": "web", "$patch": "delete"}]}),
        Ok(json!({"containers": [sidecar_container()]})),
    );
    check_pod(
        json!({"containers": [{"$patch": "replace"}, {"name": "only", "image": "x"}]}),
        Ok(json!({"containers": [{"name": "only", "image": "x"}]})),
    );
    check_pod(
        json!({"containers": [{"name": "web", "$patch": "replace", "image": "z"}]}),
        Ok(json!({"containers": []})),
    );
    check_pod(
        json!({"containers": [{"name": "side", "args": ["n"]}]}),
        Ok(
            json!({"containers": [web_container(both_ports()), {"name": "side", "image": "envoy:1", "args": ["n"]}]}),
        ),
    );
    check_pod(
        json!({"containers": [{"name": "web", "args": ["n"]}]}),
        Ok(
            json!({"containers": [{"name": "web", "image": "nginx:1", "args": ["n"], "ports": both_ports()}, sidecar_container()]}),
        ),
    );
}

#[test]
fn retain_keys_clears_the_union() {
    let mut doc = two_containers();
    doc["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let patch = in_pod(json!({"volumes": [
        {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}));
    let patched = apply_patch(&doc, &patch, Some(deployment())).unwrap();
    assert_eq!(
        patched["spec"]["template"]["spec"]["volumes"],
        json!([{"name": "v", "configMap": {"name": "c"}}])
    );
}

#[test]
fn scalars_objects_and_unknown_fields() {
    let table = [
        (
            json!({"metadata": {"finalizers": ["c", "a"]}}),
            "/metadata/finalizers",
            json!(["c", "a", "b"]),
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
            "/metadata/finalizers",
            json!(["b"]),
        ),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"],
                "$setElementOrder/finalizers": ["c", "b"], "finalizers": ["c"]}}),
            "/metadata/finalizers",
            json!(["c", "b"]),
        ),
        (
            json!({"metadata": {"labels": {"a": "1", "b": null}}}),
            "/metadata/labels",
            json!({"a": "1"}),
        ),
        (
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}}),
            "/spec/selector",
            json!({"matchLabels": {"a": "b"}}),
        ),
        (
            json!({"spec": {"template": {"$patch": "replace", "x": 1}}}),
            "/spec/template",
            json!({"x": 1}),
        ),
        (
            json!({"spec": {"template": {"$patch": "delete"}}}),
            "/spec/template",
            json!({}),
        ),
        (json!({"spec": {"other": [1]}}), "/spec/other", json!([1])),
    ];
    for (patch, path, expect) in table {
        let patched = apply_patch(&two_containers(), &patch, Some(deployment())).unwrap();
        assert_eq!(patched.pointer(path), Some(&expect), "{patch}");
    }
}

#[test]
fn ports_with_one_number_and_two_protocols_stay_distinct() {
    let shape = || {
        object(vec![(
            "ports",
            keyed_list("port", FakePatchMeta::default()),
        )])
    };
    let doc = json!({"ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]});
    let patched = apply_patch(&doc, &doc, Some(shape())).unwrap();
    assert_eq!(patched, doc);
    assert_eq!(apply_patch(&json!({}), &doc, Some(shape())).unwrap(), doc);
}

#[test]
fn malformed_patches_are_rejected() {
    check_pod(
        json!({"containers": [{"image": "x"}]}),
        Err("unprocessable"),
    );
    check_pod(json!({"containers": ["x"]}), Err("unprocessable"));
    check_pod(
        json!({"containers": [{"name": "web", "$patch": "shuffle"}]}),
        Err("unprocessable"),
    );
    check_pod(json!({"$patch": 1}), Err("unprocessable"));
    check_pod(
        json!({"$setElementOrder/containers": [{"name": "web"}], "containers": [{"name": "side"}]}),
        Err("bad"),
    );
    check_pod(json!({"$setElementOrder/containers": "x"}), Err("bad"));
    check_pod(
        json!({"$retainKeys": ["volumes"], "containers": []}),
        Err("bad"),
    );
    check_pod(json!({"$deleteFromPrimitiveList/x": 1}), Err("bad"));
    assert!(apply_patch(&json!({}), &json!([]), Some(deployment())).is_err());
}

fn containers() -> impl Strategy<Value = Value> {
    prop::collection::vec(
        ("[a-d]", "[xy]", prop::option::of("(delete|replace|merge)")),
        0..5,
    )
    .prop_map(|items| {
        let items = items.into_iter().map(|(name, image, directive)| {
            let mut item = json!({"name": name, "image": image});
            if let Some(directive) = directive {
                item["$patch"] = directive.into();
            }
            item
        });
        Value::from(items.collect::<Vec<_>>())
    })
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(patch in containers()) {
        let doc = two_containers();
        let patch = in_pod(json!({"containers": patch}));
        let distinct = |v: &Value| {
            let list = v["spec"]["template"]["spec"]["containers"].as_array().cloned();
            let names: Vec<String> = list.unwrap_or_default().iter().map(|c| c["name"].to_string()).collect();
            names.iter().collect::<HashSet<_>>().len() == names.len()
        };
        prop_assume!(distinct(&patch));
        let patched = apply_patch(&doc, &patch, Some(deployment())).unwrap();
        prop_assert!(!patched.to_string().contains("$patch"));
        prop_assert_eq!(apply_patch(&patched, &patch, Some(deployment())).unwrap(), patched);
    }

    #[test]
    fn arbitrary_trees_never_panic(
        doc in crate::merge::tests::json_tree(),
        patch in crate::merge::tests::json_tree(),
    ) {
        let shape = object(vec![("a", keyed_list("b", deployment())), ("b", deployment())]);
        let _ = apply_patch(&doc, &patch, Some(shape));
    }
}

#[test]
fn a_whole_object_may_be_replaced() {
    let selector = FakePatchMeta {
        replaces: true,
        ..FakePatchMeta::default()
    };
    let doc = json!({"selector": {"matchLabels": {"a": "b"}}});
    let patch = json!({"selector": {"matchLabels": {"c": "d"}}});
    let patched = apply_patch(&doc, &patch, Some(object(vec![("selector", selector)])));
    assert_eq!(patched.unwrap(), patch);
}

#[test]
fn the_catalog_has_the_merge_keys() {
    let kind = machinery::Gvk::from_static("apps", "v1", "Deployment");
    let catalog = openapi::catalog();
    let schema = catalog.schema(catalog.kind(&kind).unwrap());
    let patch = in_pod(json!({
        "$setElementOrder/containers": [{"name": "web"}, {"name": "side"}],
        "containers": [{"name": "web", "image": "nginx:2", "$setElementOrder/ports": [{"containerPort": 443}],
                        "ports": [{"$patch": "delete", "containerPort": 80}]}]}));
    let patched = apply_strategic_merge_patch(&two_containers(), &patch, &schema).unwrap();
    assert_eq!(
        patched["spec"]["template"]["spec"]["containers"],
        json!([{"name": "web", "image": "nginx:2", "args": ["x", "y"], "ports": [{"containerPort": 443, "name": "tls"}]}, sidecar_container()])
    );
}
