//! Tests of the encoded requests to estimators.

use std::sync::Arc;

use serde_json::json;

use super::*;

/// The fields of an encoded message: number and content, for bytes and messages the raw
/// content.
fn fields(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (tag, kind) = prost::encoding::decode_key(&mut bytes).unwrap();
        let content = if kind == prost::encoding::WireType::Varint {
            let number = prost::encoding::decode_varint(&mut bytes).unwrap();
            number.to_string().into_bytes()
        } else {
            let length = prost::encoding::decode_varint(&mut bytes).unwrap() as usize;
            let (content, rest) = bytes.split_at(length);
            bytes = rest;
            content.to_vec()
        };
        fields.push((tag, content));
    }
    fields
}

/// The texts and numbers at a path of field numbers.
fn values_at(bytes: &[u8], path: &[u32]) -> Vec<String> {
    let Some((first, rest)) = path.split_first() else {
        return vec![String::from_utf8(bytes.to_vec()).unwrap()];
    };
    let children = fields(bytes).into_iter().filter(|(tag, _)| tag == first);
    children
        .flat_map(|(_, content)| values_at(&content, rest))
        .collect()
}

fn requirements() -> Value {
    json!({
        "namespace": "n", "priorityClassName": "high",
        "resourceRequest": {"cpu": "500m", "memory": "1Gi"},
        "nodeClaim": {
            "nodeSelector": {"disk": "ssd"},
            "hardNodeAffinity": {"nodeSelectorTerms": [{
                "matchExpressions": [{"key": "zone", "operator": "In", "values": ["x", "y"]}],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]},
            "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 30}],
        },
    })
}

fn component() -> Component {
    Component {
        name: "job".into(),
        replicas: 3,
        replica_requirements: Some(requirements()),
    }
}

fn assumed() -> [Arc<AssumedWorkload>; 1] {
    [Arc::new(AssumedWorkload {
        namespace: "other".into(),
        components: vec![component()],
    })]
}

/// Asserts the encoded resource request and node claim.
fn has_requirements(bytes: &[u8], path: &[u32], amounts: u32) {
    let values = |more: &[u32]| values_at(bytes, &[path, more].concat());
    assert_eq!(values(&[amounts, 1]), ["cpu", "memory"]);
    // A quantity is a message of its own.
    assert_eq!(values(&[amounts, 2, 1]), ["500m", "1Gi"]);
    assert_eq!(values(&[1, 2, 1]), ["disk"]);
    assert_eq!(values(&[1, 2, 2]), ["ssd"]);
    assert_eq!(values(&[1, 4, 1, 1, 1]), ["zone"]);
    assert_eq!(values(&[1, 4, 1, 1, 2]), ["In"]);
    assert_eq!(values(&[1, 4, 1, 1, 3]), ["x", "y"]);
    assert_eq!(values(&[1, 4, 1, 2, 1]), ["metadata.name"]);
    for (field, expected) in [
        (1, "k"),
        (2, "Equal"),
        (3, "v"),
        (4, "NoExecute"),
        (5, "30"),
    ] {
        assert_eq!(values(&[1, 5, field]), [expected]);
    }
}

fn has_component(bytes: &[u8], path: &[u32]) {
    let values = |more: &[u32]| values_at(bytes, &[path, more].concat());
    assert_eq!(
        (values(&[1]), values(&[3])),
        (vec!["job".into()], vec!["3".into()])
    );
    assert_eq!(values(&[2, 3]), ["high"]);
    has_requirements(bytes, &[path, &[2]].concat(), 4);
}

// proves: EST-protocol
#[test]
fn requests_have_the_field_numbers_of_the_protocol() {
    let requirements = requirements();
    let request = replicas_request("m1", Some(&requirements), &assumed()).unwrap();
    let bytes = request.encode_to_vec();
    assert_eq!(values_at(&bytes, &[1]), ["m1"]);
    assert_eq!(values_at(&bytes, &[2, 3]), ["n"]);
    assert_eq!(values_at(&bytes, &[2, 4]), ["high"]);
    has_requirements(&bytes, &[2], 5);
    assert_eq!(values_at(&bytes, &[3, 1]), ["other"]);
    has_component(&bytes, &[3, 2]);

    let request = component_sets_request("m1", "n", &[component()], &assumed()).unwrap();
    let bytes = request.encode_to_vec();
    assert_eq!(
        (values_at(&bytes, &[1]), values_at(&bytes, &[3])),
        (vec!["m1".into()], vec!["n".into()])
    );
    has_component(&bytes, &[2]);
    assert_eq!(values_at(&bytes, &[4, 1]), ["other"]);
    has_component(&bytes, &[4, 2]);
}

#[test]
fn absent_requirements_are_not_sent() {
    let nobody: &[Arc<AssumedWorkload>] = &[];
    let sent = |requirements: Option<Value>| {
        let request = replicas_request("m1", requirements.as_ref(), nobody).unwrap();
        let fields = fields(&request.encode_to_vec());
        fields
            .into_iter()
            .map(|(tag, content)| (tag, content.len()))
            .collect::<Vec<_>>()
    };
    assert_eq!(sent(None), [(1, 2)]);
    assert_eq!(sent(Some(json!({}))), [(1, 2), (2, 0)]);
    let wrong = json!({"resourceRequest": {"cpu": "much"}});
    let error = replicas_request("m1", Some(&wrong), nobody).unwrap_err();
    assert!(error.starts_with("resourceRequest[cpu]: "), "{error}");
}

// proves: EST-protocol
#[test]
fn requests_for_unschedulable_replicas_have_the_field_numbers_of_the_protocol() {
    let request = UnschedulableReplicasRequest {
        cluster: "m1".into(),
        resource: Some(ObjectReferenceMessage {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "n".into(),
            name: "web".into(),
        }),
        unschedulable_threshold: 300,
    };
    let bytes = request.encode_to_vec();
    let values = |path: &[u32]| values_at(&bytes, path).join(" ");
    assert_eq!((values(&[1]), values(&[3])), ("m1".into(), "300".into()));
    let reference = [1, 2, 3, 4].map(|field| values(&[2, field]));
    assert_eq!(reference, ["apps/v1", "Deployment", "n", "web"]);
    let response = UnschedulableReplicasResponse {
        unschedulable_replicas: 2,
    };
    assert_eq!(values_at(&response.encode_to_vec(), &[1]), ["2"]);
}

// proves: EST-server
#[test]
fn decoded_requirements_are_those_that_were_encoded() {
    use crate::requirements_decoding::{
        decode_components, decode_replica_requirements, decode_workloads,
    };
    let requirements = requirements();
    let request = replicas_request("m1", Some(&requirements), &assumed()).unwrap();
    let decoded = decode_replica_requirements(&request.replica_requirements.unwrap()).unwrap();
    assert_eq!(decoded, requirements);
    let mut expected = component();
    if let Some(requirements) = &mut expected.replica_requirements {
        requirements.as_object_mut().unwrap().remove("namespace");
    }
    let request = component_sets_request("m1", "n", &[component()], &assumed()).unwrap();
    let workloads = decode_workloads(&request.assumed_workloads).unwrap();
    assert_eq!(workloads[0].namespace, "other");
    let components = decode_components(&request.components).unwrap();
    for components in [&components, &workloads[0].components] {
        assert_eq!(components[..], [expected.clone()]);
    }
}
