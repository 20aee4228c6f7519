//! Rejected CustomResourceDefinitions, by the field paths of the errors.

use serde_json::{Value, json};

use super::{check, check_update, errors, with};

const API: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";

fn crd() -> Value {
    json!({
        "metadata": {"name": "foos.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"},
            "versions": [version("v1", true, schema())],
        },
        "status": {"storedVersions": ["v1"]},
    })
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "s": {"type": "string", "default": "a", "maxLength": 3},
        "l": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]},
              "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
        "p": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}})
}

fn version(name: &str, storage: bool, schema: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

/// A definition with one version, with `change` merged into its schema at
/// `spec.properties`.
fn fields(change: &Value) -> Value {
    let change = json!({"properties": {"spec": {"properties": change}}});
    json!({"spec": {"versions": [version("v1", true, with(&schema(), &change))]}})
}

#[test]
fn definitions_are_validated() {
    let of_version = |v: Value| json!({"spec": {"versions": [v]}});
    let table: &[(Value, &[&str])] = &[
        (json!({}), &[]),
        (
            json!({"metadata": {"name": "bars.ex.io"}}),
            &["metadata.name"],
        ),
        (
            json!({"metadata": {"name": "foos.io"}, "spec": {"group": "io"}}),
            &["spec.group"],
        ),
        (json!({"spec": {"scope": "Foo"}}), &["spec.scope"]),
        (
            json!({"spec": {"names": {"kind": "Foo_", "listKind": "Foo_"}}}),
            &[
                "spec.names.kind",
                "spec.names.listKind",
                "spec.names.listKind",
            ],
        ),
        (
            json!({"spec": {"names": {"shortNames": ["f", "F"]}}}),
            &["spec.names.shortNames[1]"],
        ),
        (
            with(
                &of_version(version("V1", true, schema())),
                &json!({"status": {"storedVersions": ["V1"]}}),
            ),
            &["spec.versions[0].name", "spec.version"],
        ),
        (
            of_version(version("v1", false, schema())),
            &["spec.versions"],
        ),
        (
            json!({"status": {"storedVersions": []}}),
            &["status.storedVersions"],
        ),
        (
            json!({"status": {"storedVersions": ["v2"]}}),
            &["status.storedVersions", "status.storedVersions[0]"],
        ),
        (
            json!({"spec": {"versions": [version("v1", true, schema()), version("v1", true, schema())]}}),
            &["spec.versions", "spec.versions"],
        ),
        (
            of_version(json!({"name": "v1", "served": true, "storage": true})),
            &["spec.versions[0].schema.openAPIV3Schema"],
        ),
        (
            json!({"spec": {"conversion": {"strategy": "Other"}}}),
            &["spec.conversion.strategy"],
        ),
        (
            json!({"spec": {"conversion": {"strategy": "Webhook"}}}),
            &[
                "spec.conversion.webhookClientConfig",
                "spec.conversion.conversionReviewVersions",
            ],
        ),
        (
            json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": "http://a/x?y=z"}, "conversionReviewVersions": ["v9", "v9", "V1"]}}}}),
            &[
                "spec.conversion.webhookClientConfig.url",
                "spec.conversion.webhookClientConfig.url",
                "spec.conversion.conversionReviewVersions[1]",
                "spec.conversion.conversionReviewVersions[2]",
                "spec.conversion.conversionReviewVersions",
            ],
        ),
        (
            json!({"spec": {"conversion": {"strategy": "None", "webhook": {
                "clientConfig": {"url": "https://a"}, "conversionReviewVersions": ["v1"]}}}}),
            &[
                "spec.conversion.webhookClientConfig",
                "spec.conversion.conversionReviewVersions",
            ],
        ),
        (
            json!({"spec": {"preserveUnknownFields": true}}),
            &["spec.preserveUnknownFields"],
        ),
        (
            of_version(with(
                &version("v1", true, schema()),
                &json!({"subresources": {"scale": {
            "specReplicasPath": ".status.x", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".spec.a[0]"}}}),
            )),
            &["spec.subresources.scale.specReplicasPath"],
        ),
        (
            of_version(with(
                &version("v1", true, schema()),
                &json!({"additionalPrinterColumns": [
            {"name": "A", "type": "text", "jsonPath": "spec"}]}),
            )),
            &[
                "spec.additionalPrinterColumns[0].type",
                "spec.additionalPrinterColumns[0].JSONPath",
            ],
        ),
    ];
    check(API, KIND, &crd(), table);
}

#[test]
fn schemas_are_structural() {
    let path =
        |rest: &str| format!("spec.validation.openAPIV3Schema.properties[spec].properties{rest}");
    let table = [
        (json!({"s": {"type": null}}), vec![path("[s].type")]),
        (json!({"s": {"type": "text"}}), vec![path("[s].type")]),
        (json!({"s": {"default": 5}}), vec![path("[s].default")]),
        (json!({"s": {"default": "long"}}), vec![path("[s].default")]),
        (
            json!({"s": {"uniqueItems": true}}),
            vec![path("[s].uniqueItems")],
        ),
        (json!({"s": {"$ref": "#/x"}}), vec![path("[s].$ref")]),
        (
            json!({"l": {"items": null, "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": null}}),
            vec![path("[l].items")],
        ),
        (
            json!({"l": {"x-kubernetes-list-map-keys": null}}),
            vec![path("[l].x-kubernetes-list-map-keys")],
        ),
        (
            json!({"l": {"items": {"type": null}}}),
            vec![path("[l].items.type"), path("[l].items.type")],
        ),
        (
            json!({"l": {"items": {"required": null}}}),
            vec![path("[l].items.properties[k].default")],
        ),
        (
            json!({"any": {"x-kubernetes-preserve-unknown-fields": false}}),
            vec![path("[any].x-kubernetes-preserve-unknown-fields")],
        ),
        (
            json!({"any": {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}}),
            vec![path("[any].additionalProperties")],
        ),
        (json!({"p": {"type": "string"}}), vec![]),
        (
            json!({"any": {"x-kubernetes-map-type": "odd"}}),
            vec![path("[any].x-kubernetes-map-type")],
        ),
        (
            json!({"s": {"anyOf": [{"default": "x"}]}}),
            vec![path("[s].anyOf[0].default")],
        ),
    ];
    for (change, expect) in table {
        let expect: Vec<&str> = expect.iter().map(String::as_str).collect();
        check(API, KIND, &crd(), &[(fields(&change), &expect)]);
    }
    let root = |schema: Value| json!({"spec": {"versions": [version("v1", true, schema)]}});
    check(
        API,
        KIND,
        &crd(),
        &[
            (root(json!({})), &["spec.validation.openAPIV3Schema.type"]),
            (
                root(json!({"type": "object", "allOf": [{"properties": {"x": {"minLength": 1}}}]})),
                &["spec.validation.openAPIV3Schema.properties[x]"],
            ),
            (
                root(json!({"type": "array", "items": {"type": "string"}})),
                &["spec.validation.openAPIV3Schema.type"],
            ),
            (
                root(
                    json!({"type": "object", "properties": {"metadata": {"type": "object",
            "properties": {"labels": {"type": "object"}}}}}),
                ),
                &["spec.validation.openAPIV3Schema.properties[metadata]"],
            ),
        ],
    );
    let two_versions = json!({"spec": {"versions": [version("v1", true, schema()), version("v2", false, json!({}))]}});
    check(
        API,
        KIND,
        &crd(),
        &[(
            two_versions,
            &["spec.versions[1].schema.openAPIV3Schema.type"],
        )],
    );
}

#[test]
fn served_definitions_are_immutable() {
    let old = with(
        &crd(),
        &json!({"status": {"storedVersions": ["v1"],
        "conditions": [{"type": "Established", "status": "True"}]}}),
    );
    check_update(
        API,
        KIND,
        &old,
        &[
            (json!({}), &[]),
            (json!({"spec": {"scope": "Cluster"}}), &["spec.scope"]),
            (
                json!({"spec": {"names": {"kind": "Goo"}}}),
                &["spec.names.kind"],
            ),
            (
                json!({"spec": {"versions": [version("v2", true, schema())]},
                       "status": {"storedVersions": ["v1", "v2"]}}),
                &["status.storedVersions[0]"],
            ),
        ],
    );
}

#[test]
fn regular_expressions_of_a_definition_are_bounded() {
    let errors_of = |versions: Vec<Value>| {
        let definition = with(&crd(), &json!({"spec": {"versions": versions}}));
        let errors = errors(API, KIND, &definition, None);
        let texts = errors.iter().map(|e| (e.field.clone(), e.message.clone()));
        texts.collect::<Vec<_>>()
    };
    let with_fields = |name: &str, storage: bool, fields: Value| {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": fields}}});
        version(name, storage, schema)
    };
    let large = |i: usize| format!("a{{900}}b{{900}}c{{{}}}", i + 1);
    let patterns = |count: usize| -> Value {
        let field = |i| {
            (
                format!("f{i:03}"),
                json!({"type": "string", "pattern": large(i)}),
            )
        };
        (0..count).map(field).collect()
    };
    assert_eq!(errors_of(vec![with_fields("v1", true, patterns(20))]), []);
    // The versions of a definition share the bound.
    let versions = vec![
        with_fields("v1", true, patterns(20)),
        with_fields("v2", false, patterns(300)),
    ];
    let rejections = errors_of(versions);
    let (field, detail) = &rejections[0];
    assert!(
        field.starts_with("spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[f")
    );
    assert!(field.ends_with("].pattern"), "{field}");
    assert!(
        detail.contains("the regular expressions of the object take more than"),
        "{detail}"
    );
    let huge = json!({"f": {"type": "string", "pattern": "(a{1000}){1000}"}});
    let (field, detail) = &errors_of(vec![with_fields("v1", true, huge)])[0];
    assert!(field.ends_with("properties[f].pattern"), "{field}");
    assert!(
        detail.contains("the regular expression takes more than"),
        "{detail}"
    );
    let rules: Vec<Value> = (0..300)
        .map(|i| json!({"rule": format!("self.matches('{}')", large(i))}))
        .collect();
    let rules =
        json!({"f": {"type": "string", "maxLength": 10, "x-kubernetes-validations": rules}});
    let rejections = errors_of(vec![with_fields("v1", true, rules)]);
    let (field, detail) = &rejections[0];
    assert!(
        field.contains("properties[f].x-kubernetes-validations["),
        "{field}"
    );
    assert!(
        detail.contains("the regular expressions of the object take more than"),
        "{detail}"
    );
}
