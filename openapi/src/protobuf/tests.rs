//! Tests with bodies recorded from kubectl, and with arbitrary bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::decode;
use super::message::ProtobufDecoder;
use crate::catalog::catalog;

fn recorded(name: &str) -> Vec<u8> {
    let file = include_str!("../../../tests/fixtures/protobuf/kubectl.txt");
    let line = file
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name);
    STANDARD.decode(line.unwrap().1).unwrap()
}

fn check(name: &str, expected: Value) {
    let (gvk, value) = decode(&recorded(name)).unwrap();
    assert_eq!(value, expected, "{name}");
    assert_eq!(value["kind"], *gvk.kind, "{name}");
}

#[test]
fn bodies_of_kubectl_are_decoded() {
    check(
        "deployment",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {
                "replicas": 2, "strategy": {},
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{
                        "name": "nginx", "image": "nginx", "resources": {},
                        "ports": [{"containerPort": 80}],
                    }]},
                },
            },
            "status": {},
        }),
    );
    check(
        "job",
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"},
            "spec": {"template": {"metadata": {}, "spec": {
                "restartPolicy": "Never",
                "containers": [{
                    "name": "once", "image": "busybox", "resources": {},
                    "command": ["sh", "-c", "exit 0"],
                }],
            }}},
            "status": {},
        }),
    );
    check(
        "rolebinding",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "readers"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"},
                {"kind": "ServiceAccount", "name": "bot", "namespace": "default"},
            ],
        }),
    );
}

#[test]
fn values_that_differ_between_json_and_protobuf() {
    // bytes are base64
    check(
        "secret",
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
            "data": {"token": "czNjcmV0"}}),
    );
    // quantities in a map
    check(
        "quota",
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
            "spec": {"hard": {"cpu": "1500m", "pods": "3"}}, "status": {}}),
    );
    // int-or-string
    check(
        "disruptionbudget",
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "p"},
            "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}},
            "status": {}}),
    );
    // a nested message that JSON has inline
    check(
        "ingress",
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"},
            "spec": {"rules": [{"host": "a.example", "http": {"paths": [{
                "path": "/x", "pathType": "Prefix",
                "backend": {"service": {"name": "web", "port": {"number": 80}}},
            }]}}]},
            "status": {"loadBalancer": {}}}),
    );
    // a required zero stays
    check(
        "accessreview",
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "metadata": {}, "status": {"allowed": false},
            "spec": {"resourceAttributes":
                {"namespace": "default", "resource": "pods", "verb": "list"}}}),
    );
    // a body of a kind that is not stored
    check(
        "token",
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": {}, "spec": {"expirationSeconds": 1200}, "status": {}}),
    );
}

#[test]
fn every_recorded_body_passes_its_schema() {
    for name in [
        "deployment",
        "job",
        "cronjob",
        "clusterrole",
        "rolebinding",
        "configmap",
        "secret",
        "service",
        "namespace",
        "quota",
        "disruptionbudget",
        "ingress",
        "priorityclass",
    ] {
        let (gvk, mut value) = decode(&recorded(name)).unwrap();
        let schema = catalog().schema(catalog().kind(&gvk).unwrap());
        schema.apply_defaults(&mut value).unwrap();
        crate::defaults::apply(&gvk, &mut value);
        assert_eq!(schema.prune(&mut value), [""; 0], "{name}");
        assert_eq!(schema.validate(&value), [], "{name}");
    }
}

#[test]
fn encoded_objects_decode_to_themselves() {
    for name in [
        "deployment",
        "job",
        "cronjob",
        "clusterrole",
        "rolebinding",
        "configmap",
        "secret",
        "service",
        "namespace",
        "quota",
        "disruptionbudget",
        "ingress",
        "priorityclass",
        "accessreview",
        "token",
    ] {
        let (gvk, value) = decode(&recorded(name)).unwrap();
        let encoded = super::encode_object(&gvk, &value).unwrap();
        assert_eq!(decode(&encoded).unwrap(), (gvk, value), "{name}");
    }
}

#[test]
fn values_of_every_type_survive_encoding() {
    let objects = [
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {
                "name": "e", "creationTimestamp": "2026-01-02T03:04:05Z",
                "managedFields": [{"manager": "m", "operation": "Update",
                    "fieldsV1": {"f:data": {".": {}}}}]},
            "involvedObject": {"kind": "Pod"}, "eventTime": "2026-01-02T03:04:05.000006Z",
            "source": {"component": "c"}, "count": 3}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "c"}, "status": {"acceptedNames": {"plural": "p", "kind": "K"}},
            "spec": {"group": "g", "names": {"plural": "p", "kind": "K"}, "scope": "Namespaced",
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                    "openAPIV3Schema": {"type": "object", "maximum": 1.5,
                        "additionalProperties": false, "default": {"a": [1, null]},
                        "properties": {"a": {"items": {"type": "string"}},
                                       "b": {"additionalProperties": {"type": "integer"}}},
                        "enum": [1, "x"]}}}]}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80, "targetPort": "http"},
                               {"port": 81, "targetPort": -1}]}, "status": {"loadBalancer": {}}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}],
                "volumes": [{"name": "v", "emptyDir": {}},
                            {"name": "w", "hostPath": {"path": "/x"}}],
                "activeDeadlineSeconds": 7},
            "status": {}}),
    ];
    for object in objects {
        let text = |field: &str| object[field].as_str().unwrap();
        let gvk = machinery::Gvk::from_api_version(text("apiVersion"), text("kind"));
        let encoded = super::encode_object(&gvk, &object).unwrap();
        assert_eq!(decode(&encoded).unwrap().1, object);
    }
}

#[test]
fn values_of_another_type_are_not_encoded() {
    let gvk = machinery::Gvk::from_static("", "v1", "ConfigMap");
    let error = super::encode_object(&gvk, &json!({"data": {"a": 1}})).unwrap_err();
    assert_eq!(error, "data: 1 does not have the type of the field");
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 0x7f {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
    out
}

/// A message of (number, bytes) fields.
fn message(fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, bytes) in fields {
        out.extend(varint(number << 3 | 2));
        out.extend(varint(bytes.len()));
        out.extend_from_slice(bytes);
    }
    out
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = message(&[(1, api_version.as_bytes()), (2, kind.as_bytes())]);
    [b"k8s\0".as_slice(), &message(&[(1, &meta), (2, raw)])].concat()
}

#[test]
fn zeros_of_pointers_are_kept() {
    // DeleteOptions.gracePeriodSeconds is a pointer, in any group.
    let zero = body("apps/v1", "DeleteOptions", &[1 << 3, 0]);
    assert_eq!(
        decode(&zero).unwrap().1,
        json!({"apiVersion": "apps/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
    );
    // Scale.spec.replicas is not a pointer.
    let scale = body("autoscaling/v1", "Scale", &message(&[(2, &[1 << 3, 0])]));
    assert_eq!(
        decode(&scale).unwrap().1,
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {}})
    );
}

#[test]
fn volumes_probes_and_times() {
    let volume = message(&[(1, b"v"), (2, &message(&[(1, &message(&[(1, b"/x")]))]))]);
    let spec = message(&[(1, &volume)]);
    let timestamp = [vec![1 << 3], varint(1_767_323_040)].concat();
    let meta = message(&[(1, b"p"), (8, &timestamp)]);
    let pod = body("v1", "Pod", &message(&[(1, &meta), (2, &spec)]));
    assert_eq!(
        decode(&pod).unwrap().1,
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "creationTimestamp": "2026-01-02T03:04:00Z"},
            "spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}})
    );
}

#[test]
fn schemas_of_custom_resources() {
    // items: one schema; additionalProperties: a boolean; default: JSON
    let text = message(&[(5, b"string")]);
    let items = message(&[(24, &message(&[(1, &text)]))]);
    let open = message(&[(30, &[1 << 3, 1])]);
    let preset = message(&[(8, &message(&[(1, b"[1]")]))]);
    let entry = |key: &[u8], value: &[u8]| message(&[(1, key), (2, value)]);
    let properties = message(&[(29, &entry(b"a", &items))]);
    let properties = [properties, message(&[(29, &entry(b"b", &open))])].concat();
    let properties = [properties, message(&[(29, &entry(b"c", &preset))])].concat();
    let version = message(&[(1, b"v1"), (4, &message(&[(1, &properties)]))]);
    let spec = message(&[(7, &version)]);
    let crd = body(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &message(&[(2, &spec)]),
    );
    assert_eq!(
        decode(&crd).unwrap().1["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        json!({"properties": {
            "a": {"items": {"type": "string"}},
            "b": {"additionalProperties": true},
            "c": {"default": [1]},
        }})
    );
}

#[test]
fn malformed_bodies_are_rejected() {
    let nest = |depth: usize| (0..depth).fold(Vec::new(), |inner, _| message(&[(25, &inner)]));
    let deep = |depth| {
        let mut value = Map::new();
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let definition = catalog().definition(name).unwrap();
        ProtobufDecoder::new(catalog().definitions()).decode_message(
            definition,
            &nest(depth),
            &mut value,
        )
    };
    assert!(deep(60).is_ok());
    assert!(deep(70).unwrap_err().contains("nested deeper"));
    for (bytes, error) in [
        (b"{}".to_vec(), "magic number"),
        (
            body("example.io/v1", "Thing", b""),
            "no protobuf form of kind \"Thing\"",
        ),
        (
            body("v1", "Pod", &[0x0a, 0x05, 0x01]),
            "ends inside a field",
        ),
        (body("v1", "Pod", &[0x0f]), "unknown wire type 7"),
        (body("v1", "Pod", &[0x02, 0x00]), "number 0"),
        (
            body("v1", "Pod", &message(&[(1, &message(&[(1, b"\xff")]))])),
            "UTF-8",
        ),
    ] {
        let actual = decode(&bytes).unwrap_err();
        assert!(actual.contains(error), "{actual}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_rejected_or_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        for name in ["deployment", "ingress", "rolebinding"] {
            let mut body = recorded(name);
            let index = bytes.first().copied().map_or(0, usize::from) % body.len();
            body.splice(index.., bytes.iter().copied());
            let _ = decode(&body);
        }
    }

    #[test]
    fn one_flipped_byte_is_rejected_or_decoded(index in 0usize..200, to in any::<u8>()) {
        for name in ["deployment", "quota", "disruptionbudget", "token"] {
            let mut body = recorded(name);
            let index = index % body.len();
            body[index] = to;
            let _ = decode(&body);
        }
    }
}

#[test]
fn a_duration_is_encoded_as_nanoseconds() {
    let gvk = machinery::Gvk::from_static("metrics.k8s.io", "v1beta1", "NodeMetrics");
    let metrics = json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics",
        "metadata": {}, "window": "15s", "usage": {"cpu": "1"}});
    let bytes = super::encode_object(&gvk, &metrics).unwrap();
    // Field 3 holds a message with the varint 15,000,000,000 in field 1.
    let window = [0x1a, 6, 8, 0x80, 0xac, 0xc7, 0xf0, 0x37];
    assert!(
        bytes.windows(window.len()).any(|part| part == window),
        "{bytes:x?}"
    );
}
