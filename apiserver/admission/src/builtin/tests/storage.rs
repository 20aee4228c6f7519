//! Tests of classes, CSI drivers and volume attachments.

use serde_json::{Value, json};

use super::{check_reasons, with};

const STORAGE: &str = "storage.k8s.io/v1";

#[test]
fn storage_classes() {
    let kind = (STORAGE, "StorageClass");
    let base = json!({"provisioner": "example.com/P", "reclaimPolicy": "Delete"});
    let topologies = |terms: Value| json!({ "allowedTopologies": terms });
    let term = |key: &str, values: &[&str]| json!({"matchLabelExpressions": [{"key": key, "values": values}]});
    let first = "allowedTopologies[0].matchLabelExpressions";
    let parameters: serde_json::Map<String, Value> =
        (0..513).map(|i| (i.to_string(), json!(""))).collect();
    check_reasons(
        kind,
        &base,
        None,
        &[
            (json!({}), &[]),
            (json!({"provisioner": ""}), &["Required provisioner"]),
            (json!({"provisioner": "a b"}), &["Invalid provisioner"]),
            (json!({"parameters": {"": "x"}}), &["Invalid parameters"]),
            (json!({"parameters": parameters}), &["TooLong parameters"]),
            (
                json!({"parameters": {"a": "x".repeat(256 << 10)}}),
                &["TooLong parameters"],
            ),
            (
                json!({"reclaimPolicy": "Recycle", "volumeBindingMode": "Later"}),
                &[
                    "NotSupported reclaimPolicy",
                    "NotSupported volumeBindingMode",
                ],
            ),
            (
                topologies(json!([term("a", &["b"]), term("a", &["c"])])),
                &[],
            ),
            (
                topologies(json!([term("a b", &["b", "b"])])),
                &[
                    &format!("Duplicate {first}[0].values[1]"),
                    &format!("Invalid {first}[0].key"),
                ],
            ),
            (
                topologies(json!([term("a", &[])])),
                &[&format!("Required {first}[0].values")],
            ),
            (
                topologies(json!([term("a", &["b", "c"]), term("a", &["c", "b"])])),
                &["Duplicate allowedTopologies[1].matchLabelExpressions"],
            ),
            (
                topologies(
                    json!([{"matchLabelExpressions": [{"key": "a", "values": ["b"]}, {"key": "a", "values": ["c"]}]}]),
                ),
                &[&format!("Duplicate {first}[1].key")],
            ),
            (topologies(json!([{}])), &[&format!("Duplicate {first}")]),
        ],
    );
    check_reasons(
        kind,
        &base,
        Some(&base),
        &[
            (
                json!({"allowVolumeExpansion": true, "mountOptions": ["a"]}),
                &[],
            ),
            (json!({"parameters": {"a": "b"}}), &["Forbidden parameters"]),
            (json!({"provisioner": "q"}), &["Forbidden provisioner"]),
            (
                json!({"reclaimPolicy": "Retain"}),
                &["Forbidden reclaimPolicy"],
            ),
            (
                json!({"volumeBindingMode": "Immediate"}),
                &["Invalid volumeBindingMode"],
            ),
        ],
    );
}

#[test]
fn csi_drivers_and_nodes() {
    let tokens = |tokens: Value| json!({"spec": {"tokenRequests": tokens}});
    let kind = (STORAGE, "CSIDriver");
    let driver = json!({"metadata": {"name": "d".repeat(100)}, "spec": {"attachRequired": true}});
    let seconds = "Invalid spec.tokenRequests[0].expirationSeconds";
    check_reasons(
        kind,
        &driver,
        None,
        &[
            (
                json!({"spec": {"volumeLifecycleModes": ["Ephemeral"], "fsGroupPolicy": "File"}}),
                &[],
            ),
            (
                json!({"spec": {"volumeLifecycleModes": ["Never"], "fsGroupPolicy": "Some",
                    "nodeAllocatableUpdatePeriodSeconds": 9, "serviceAccountTokenInSecrets": true}}),
                &[
                    "NotSupported spec.volumeLifecycleModes",
                    "NotSupported spec.fsGroupPolicy",
                    "Invalid spec.nodeAllocatableUpdatePeriodSeconds",
                    "Invalid spec.serviceAccountTokenInSecrets",
                ],
            ),
            (
                tokens(
                    json!([{"audience": "", "expirationSeconds": 4_294_967_296_u64}, {"audience": "a"}]),
                ),
                &[],
            ),
            (
                tokens(json!([{"audience": "", "expirationSeconds": 4_294_967_297_u64}])),
                &[seconds],
            ),
            (
                tokens(json!([{"audience": "", "expirationSeconds": 599}])),
                &[seconds],
            ),
            (
                tokens(json!([{"audience": "a"}, {"audience": "a", "expirationSeconds": 1}])),
                &["Duplicate spec.tokenRequests[1].audience"],
            ),
        ],
    );
    check_reasons(
        kind,
        &driver,
        Some(&driver),
        &[
            (json!({"spec": {"podInfoOnMount": true}}), &[]),
            (
                json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}}),
                &[
                    "Invalid spec.attachedRequired",
                    "Invalid spec.volumeLifecycleModes",
                ],
            ),
        ],
    );
    let kind = (STORAGE, "CSINode");
    let node_driver = json!({"name": "d.e", "nodeID": "n", "topologyKeys": ["a/b"]});
    let drivers = |drivers: Value| json!({"spec": {"drivers": drivers}});
    let node = drivers(json!([node_driver]));
    check_reasons(
        kind,
        &node,
        None,
        &[
            (drivers(json!([])), &[]),
            (
                drivers(json!([{"name": "d", "nodeID": "n".repeat(256)}])),
                &[],
            ),
            (
                drivers(json!([{"name": "", "nodeID": "", "allocatable": {"count": -1}}])),
                &[
                    "Required spec.drivers[0].name",
                    "Required spec.drivers[0].nodeID",
                    "Invalid spec.drivers[0].allocatable.count",
                ],
            ),
            (
                drivers(json!([{"name": "d".repeat(64), "nodeID": "n".repeat(257)}])),
                &[
                    "TooLong spec.drivers[0].name",
                    "Invalid spec.drivers[0].nodeID",
                ],
            ),
            (
                drivers(json!([node_driver, node_driver])),
                &["Duplicate spec.drivers[1].name"],
            ),
            (
                drivers(json!([{"name": "d", "nodeID": "n", "topologyKeys": ["a", "a", "a b"]}])),
                &["Duplicate spec.drivers[0]", "Invalid spec.drivers[0]"],
            ),
        ],
    );
    check_reasons(
        kind,
        &node,
        Some(&node),
        &[
            (drivers(json!([])), &[]),
            (
                drivers(json!([with(
                    &node_driver,
                    &json!({"allocatable": {"count": 5}})
                )])),
                &[],
            ),
            (drivers(json!([{"name": "f", "nodeID": "n"}])), &[]),
            (
                drivers(json!([with(&node_driver, &json!({"nodeID": "m"}))])),
                &["Invalid spec.drivers"],
            ),
        ],
    );
}

#[test]
fn capacities_and_attachments() {
    let capacity = json!({"storageClassName": "c", "capacity": "1Gi"});
    let kind = (STORAGE, "CSIStorageCapacity");
    check_reasons(
        kind,
        &capacity,
        None,
        &[
            (json!({"maximumVolumeSize": "-1"}), &[]),
            (
                json!({"storageClassName": "", "capacity": "-1", "nodeTopology": {"matchLabels": {"a": "/"}}}),
                &[
                    "Invalid storageClassName",
                    "Invalid capacity",
                    "Invalid nodeTopology.matchLabels",
                ],
            ),
        ],
    );
    check_reasons(
        kind,
        &capacity,
        Some(&capacity),
        &[
            (json!({"capacity": "2Gi"}), &[]),
            (
                json!({"storageClassName": "d", "nodeTopology": {}}),
                &["Invalid nodeTopology", "Invalid storageClassName"],
            ),
        ],
    );
    let kind = (STORAGE, "VolumeAttachment");
    let spec = |fields: Value| json!({ "spec": fields });
    let attachment =
        spec(json!({"attacher": "d.e", "nodeName": "n", "source": {"persistentVolumeName": "v"}}));
    check_reasons(
        kind,
        &attachment,
        None,
        &[
            (json!({}), &[]),
            (spec(json!({"attacher": ""})), &["Required spec.attacher"]),
            (
                spec(
                    json!({"attacher": "a b", "nodeName": "", "source": {"persistentVolumeName": "a b"}}),
                ),
                &[
                    "Invalid spec.attacher",
                    "Invalid spec.source.persistentVolumeName",
                    "Invalid spec.nodeName",
                ],
            ),
            (spec(json!({"source": null})), &["Required spec.source"]),
            (
                spec(json!({"source": {"inlineVolumeSpec": {}}})),
                &["Forbidden spec.source"],
            ),
            (
                spec(json!({"source": {"persistentVolumeName": ""}})),
                &["Required spec.source.persistentVolumeName"],
            ),
        ],
    );
    check_reasons(
        kind,
        &attachment,
        Some(&attachment),
        &[
            (json!({"metadata": {"labels": {"a": "b"}}}), &[]),
            (spec(json!({"nodeName": "m"})), &["Invalid spec"]),
        ],
    );
}

#[test]
fn runtime_classes() {
    let kind = ("node.k8s.io/v1", "RuntimeClass");
    let base = json!({"handler": "runc"});
    let toleration = json!({"key": "a", "operator": "Exists"});
    check_reasons(
        kind,
        &base,
        None,
        &[
            (
                json!({"overhead": {"podFixed": {"cpu": "1"}},
                    "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [toleration]}}),
                &[],
            ),
            (json!({"handler": ""}), &["Invalid handler"]),
            (
                json!({"overhead": {"podFixed": {"apples": "1", "cpu": "-1"}}}),
                &[
                    "Invalid overhead.limits[apples]",
                    "Invalid overhead.limits[apples]",
                    "Invalid overhead.limits[cpu]",
                ],
            ),
            (
                json!({"scheduling": {"nodeSelector": {"a": "b c"}, "tolerations": [toleration, toleration]}}),
                &[
                    "Invalid scheduling.nodeSelector",
                    "Duplicate scheduling.tolerations[1]",
                ],
            ),
        ],
    );
    check_reasons(
        kind,
        &base,
        Some(&base),
        &[
            (json!({"scheduling": {}}), &[]),
            (json!({"handler": "other"}), &["Invalid handler"]),
        ],
    );
}
