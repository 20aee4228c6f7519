//! Tests of the rules of PersistentVolumes and their claims.

use serde_json::{Value, json};

use super::{check, check_update, with};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

#[test]
fn claims() {
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    check(
        "v1",
        "PersistentVolumeClaim",
        &claim,
        &[
            (json!({}), &[]),
            (
                json!({"spec": {"accessModes": ["Foo"]}}),
                &["spec.accessModes"],
            ),
            (
                json!({"spec": {"accessModes": null}}),
                &["spec.accessModes"],
            ),
            (
                json!({"spec": {"resources": null}}),
                &["spec.resources[storage]"],
            ),
            (
                json!({"spec": {"resources": {"requests": {"storage": "0"}}, "volumeMode": "Tape"}}),
                &["spec.resources[storage]", "spec.volumeMode"],
            ),
            (
                json!({"spec": {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}}),
                &["spec.accessModes"],
            ),
            (json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}), &[]),
            (
                json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}),
                &["spec.selector.matchExpressions[0].operator"],
            ),
            (
                json!({"spec": {"dataSource": {"kind": "VolumeSnapshot", "name": "s", "apiGroup": "snapshot.storage.k8s.io"},
                    "volumeAttributesClassName": "gold"}}),
                &[],
            ),
            (
                json!({"spec": {"dataSource": {"kind": "VolumeSnapshot", "name": ""}}}),
                &[],
            ),
            (
                json!({"spec": {"dataSource": {"kind": "VolumeSnapshot", "name": "", "apiGroup": "snapshot.storage.k8s.io"}}}),
                &["spec.dataSource.name"],
            ),
            (
                json!({"spec": {"dataSourceRef": {"kind": "Populator", "name": "p"}}}),
                &["spec.dataSourceRef"],
            ),
            (
                json!({"spec": {"dataSourceRef": {"kind": "Populator", "namespace": "n"}}}),
                &[],
            ),
            (
                json!({"spec": {"dataSourceRef": {"kind": "Populator", "name": "p", "apiGroup": "A_b"},
                    "volumeAttributesClassName": "A"}}),
                &[
                    "spec.dataSourceRef.apiGroup",
                    "spec.volumeAttributesClassName",
                ],
            ),
            (
                json!({"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
                    "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"}}}),
                &["spec"],
            ),
        ],
    );
}

#[test]
fn bound_claims_grow() {
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}},
        "volumeName": "v", "volumeMode": "Filesystem", "storageClassName": "a", "volumeAttributesClassName": "gold"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    let amount = |amount: &str| json!({"spec": {"resources": {"requests": {"storage": amount}}}});
    check_update(
        "v1",
        "PersistentVolumeClaim",
        &claim,
        &[
            (amount("3Gi"), &[]),
            (amount("1500Mi"), &[]),
            (amount("1Gi"), &["spec.resources.requests.storage"]),
            (json!({"spec": {"volumeName": "w"}}), &["spec"]),
            (json!({"spec": {"storageClassName": "b"}}), &["spec"]),
            (
                json!({"spec": {"volumeMode": "Block"}}),
                &["spec", "volumeMode"],
            ),
            (
                json!({"spec": {"volumeAttributesClassName": "silver"}}),
                &[],
            ),
            (
                json!({"spec": {"volumeAttributesClassName": ""}}),
                &["spec.volumeAttributesClassName"],
            ),
            (
                json!({"metadata": {"annotations": {CLASS_ANNOTATION: "b"}}}),
                &["metadata.annotations.volume.beta.kubernetes.io/storage-class"],
            ),
        ],
    );
    let pending = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
        "status": {"phase": "Pending"}});
    check_update(
        "v1",
        "PersistentVolumeClaim",
        &pending,
        &[
            (amount("3Gi"), &["spec"]),
            (json!({"spec": {"volumeName": "v"}}), &[]),
            (json!({"spec": {"storageClassName": "a"}}), &[]),
            (
                json!({"spec": {"volumeAttributesClassName": "gold"}}),
                &["spec"],
            ),
        ],
    );
}

#[test]
fn persistent_volumes() {
    let volume =
        json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
    let source = |s: Value| json!({"spec": s});
    let node = |key: &str| json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]}});
    check(
        "v1",
        "PersistentVolume",
        &volume,
        &[
            (source(json!({"nfs": {"server": "s", "path": "/p"}})), &[]),
            (
                source(json!({"local": {"path": "/a/../b"}, "nodeAffinity": node("a")})),
                &["spec.local.path"],
            ),
            (
                source(
                    json!({"csi": {"driver": "D", "volumeHandle": "h", "controllerExpandSecretRef": {"name": "s"}}}),
                ),
                &["spec.csi.controllerExpandSecretRef.namespace"],
            ),
            (
                source(json!({"csi": {"driver": "a_b"}})),
                &["spec.csi.driver", "spec.csi.volumeHandle"],
            ),
            (
                source(
                    json!({"iscsi": {"targetPortal": "p", "iqn": "x", "lun": 256, "chapAuthSession": true}}),
                ),
                &["spec.iscsi.iqn", "spec.iscsi.lun", "spec.iscsi.secretRef"],
            ),
            (
                source(json!({"gcePersistentDisk": {"pdName": "", "partition": 256}})),
                &[
                    "spec.persistentDisk.pdName",
                    "spec.persistentDisk.partition",
                ],
            ),
            (
                source(json!({"fc": {"targetWWNs": ["a"]}})),
                &["spec.fc.lun"],
            ),
            (
                source(json!({"cinder": {"volumeID": "v", "secretRef": {"name": "s"}}})),
                &["spec.cinder.secretRef.namespace"],
            ),
            (
                source(json!({"hostPath": {"path": "/a"}, "nodeAffinity": {}})),
                &["spec.nodeAffinity.required"],
            ),
            (
                source(json!({"hostPath": {"path": "/a"}, "volumeAttributesClassName": "a"})),
                &["spec.csi"],
            ),
        ],
    );
    let csi = with(
        &volume,
        &source(
            json!({"csi": {"driver": "d", "volumeHandle": "h"}, "volumeMode": "Block",
        "nodeAffinity": node("beta.kubernetes.io/os"), "volumeAttributesClassName": "a"}),
        ),
    );
    let secret = json!({"name": "s", "namespace": "n"});
    check_update(
        "v1",
        "PersistentVolume",
        &csi,
        &[
            (
                source(json!({"csi": {"controllerExpandSecretRef": secret}})),
                &[],
            ),
            (
                source(json!({"csi": {"nodeStageSecretRef": secret}})),
                &["spec.persistentvolumesource"],
            ),
            (
                source(json!({"nodeAffinity": node("kubernetes.io/os")})),
                &[],
            ),
            (
                source(json!({"nodeAffinity": node("x")})),
                &["nodeAffinity"],
            ),
            (source(json!({"volumeMode": "Filesystem"})), &["volumeMode"]),
            (
                source(json!({"volumeAttributesClassName": null})),
                &["spec.volumeAttributesClassName"],
            ),
        ],
    );
}

/// An update that leaves odd but accepted values as they are is no update of them.
#[test]
fn accepted_claims_can_be_labeled() {
    for spec in [
        json!({"volumeAttributesClassName": ""}),
        json!({"dataSource": {"kind": "Foo", "name": "c"}}),
    ] {
        let claim = json!({"metadata": {"name": "c"}, "spec": with(
            &json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
            &spec,
        )});
        check("v1", "PersistentVolumeClaim", &claim, &[(json!({}), &[])]);
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        check_update("v1", "PersistentVolumeClaim", &claim, &[(label, &[])]);
    }
}
