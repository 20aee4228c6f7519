//! Writes and applies of `scale` and `status` of built-in kinds (`scale_test.go`,
//! `status_test.go`, `reset_fields_test.go` of `test/integration/apiserver/apply`), and the
//! status of new objects.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::certificate_requests::certificate_request;
use serde_json::{Value, json};

use super::{ApplyFixture, MERGE, managers};

const NAMESPACE: &str = "ssa-kinds";

/// Path and configuration of an object with replicas and a Pod template.
fn workload(kind: &str, plural: &str) -> (String, Value) {
    let (base, version) = match kind {
        "ReplicationController" => ("api/v1", "v1"),
        _ => ("apis/apps/v1", "apps/v1"),
    };
    let selector = match kind {
        "ReplicationController" => json!({"app": "nginx"}),
        _ => json!({"matchLabels": {"app": "nginx"}}),
    };
    let config = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "test"},
        "spec": {"replicas": 1, "selector": selector,
            "template": {"metadata": {"labels": {"app": "nginx"}},
                "spec": {"containers": [{"name": "nginx", "image": "nginx:1"}]}}}});
    (
        format!("/{base}/namespaces/{NAMESPACE}/{plural}/test"),
        config,
    )
}

#[track_caller]
fn check_replicas(fixture: &ApplyFixture, path: &str, replicas: i64, owners: &[&str]) {
    let object = fixture.object(path);
    assert_eq!(object["spec"]["replicas"], replicas, "{object}");
    let mut actual: Vec<String> = managers(&object)
        .into_iter()
        .filter(|(_, fields)| !fields["f:spec"]["f:replicas"].is_null())
        .map(|(manager, _)| manager)
        .collect();
    actual.sort();
    assert_eq!(actual, owners, "{object}");
}

/// B6.3: the replicas change their owner through `scale`, whatever writes it.
#[test]
fn replicas_are_owned_through_scale() {
    let fixture = ApplyFixture::new(NAMESPACE);
    let scale = |replicas: i64| {
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "test", "namespace": NAMESPACE}, "spec": {"replicas": replicas}})
    };
    for (kind, plural) in [
        ("Deployment", "deployments"),
        ("StatefulSet", "statefulsets"),
        ("ReplicaSet", "replicasets"),
        ("ReplicationController", "replicationcontrollers"),
    ] {
        let (path, config) = workload(kind, plural);
        let at = format!("{path}/scale");
        fixture.applied(&path, "apply", &config, 201);
        check_replicas(&fixture, &path, 1, &["apply Apply"]);
        let status = json!({"status": {"replicas": 42}});
        fixture.written(
            "PATCH",
            &format!("{at}?fieldManager=scaler"),
            MERGE,
            &status,
        );
        check_replicas(&fixture, &path, 1, &["apply Apply"]);

        let patch = json!({"spec": {"replicas": 5}});
        fixture.written("PATCH", &format!("{at}?fieldManager=scaler"), MERGE, &patch);
        check_replicas(&fixture, &path, 5, &["scaler Update scale"]);
        assert_eq!(fixture.apply(&path, "apply", &config).code, 409);
        fixture.applied(&path, "apply&force=true", &config, 200);
        check_replicas(&fixture, &path, 1, &["apply Apply"]);

        let rejection = fixture.apply(&at, "applyscale", &scale(17));
        assert_eq!(rejection.code, 409, "{}", rejection.text());
        assert!(
            rejection.text().contains("conflict with \\\"apply\\\""),
            "{}",
            rejection.text()
        );
        fixture.applied(&at, "applyscale&force=true", &scale(17), 200);
        check_replicas(&fixture, &path, 17, &["applyscale Apply scale"]);
        let put = format!("{at}?fieldManager=replace");
        fixture.written("PUT", &put, "application/json", &scale(7));
        check_replicas(&fixture, &path, 7, &["replace Update scale"]);
        fixture.applied(&at, "sharing", &scale(7), 200);
        let shared = ["replace Update scale", "sharing Apply scale"];
        check_replicas(&fixture, &path, 7, &shared);
        fixture.written("PATCH", &format!("{at}?fieldManager=scaler"), MERGE, &patch);
        check_replicas(&fixture, &path, 5, &["scaler Update scale"]);
    }
}

/// B6.3, B6.8: `status` is not owned through the object, nor anything else through `status`.
#[test]
fn statuses_are_applied_and_reset() {
    let fixture = ApplyFixture::new("ssa-status");
    let condition = json!([{"type": "MyStatus", "status": "True"}]);
    let base = "namespaces/ssa-status";
    let table = [
        (
            format!("/apis/apps/v1/{base}/daemonsets/test"),
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {
                "selector": {"matchLabels": {"app": "nginx"}},
                "template": {"metadata": {"labels": {"app": "nginx"}},
                    "spec": {"containers": [{"name": "nginx", "image": "nginx:1"}]}}}}),
            json!({"observedGeneration": 5, "conditions": condition}),
        ),
        (
            format!("/apis/networking.k8s.io/v1/{base}/ingresses/test"),
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": {
                "defaultBackend": {"service": {"name": "service", "port": {"number": 5000}}}}}),
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
        ),
        (
            format!("/api/v1/{base}/persistentvolumeclaims/test"),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            json!({"phase": "Bound"}),
        ),
        (
            format!("/api/v1/{base}/services/test"),
            json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 10000}]}}),
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
        ),
        (
            format!("/apis/policy/v1/{base}/poddisruptionbudgets/test"),
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {
                "selector": {"matchLabels": {"anokkey": "anokvalue"}}}}),
            json!({"currentHealthy": 5, "disruptionsAllowed": 0, "desiredHealthy": 0, "expectedPods": 0}),
        ),
    ];
    for (path, mut config, status) in table {
        config["metadata"] = json!({"name": "test"});
        config["status"] = status.clone();
        let created = fixture.applied(&path, "object", &config, 201);
        let [(manager, fields)] = &managers(&created)[..] else {
            panic!("{created}")
        };
        assert_eq!(manager, "object Apply");
        assert!(fields.get("f:status").is_none(), "{created}");
        for (field, value) in status.as_object().unwrap().iter().filter(|(_, v)| **v != 0) {
            assert_ne!(&created["status"][field], value, "{created}");
        }
        let object = fixture.applied(&format!("{path}/status"), "status&force=true", &config, 200);
        for (field, value) in status.as_object().unwrap() {
            assert_eq!(&object["status"][field], value, "{object}");
        }
        let entries = managers(&object);
        let (_, fields) = entries
            .iter()
            .find(|(manager, _)| manager == "status Apply status")
            .unwrap();
        assert!(fields.get("f:status").is_some(), "{object}");
        assert!(fields.get("f:spec").is_none(), "{object}");
    }
}

/// B6.8: nobody owns through a subresource what it resets (`GetResetFields` of the strategies
/// of these kinds).
#[test]
fn subresources_own_nothing_that_they_reset() {
    let fixture = ApplyFixture::new("ssa-subresource-resets");
    let request = certificate_request("ssa-reset", "testers", &[]).request_pem;
    let labels = json!({"f:labels": {"f:l": {}}});
    let table = [
        (
            "/api/v1/namespaces/ssa-subresource-resets/pods/test",
            json!({"apiVersion": "v1", "kind": "Pod",
                "spec": {"containers": [{"name": "c", "image": "i"}]}}),
            "status",
            json!({"message": "m"}),
            json!({"f:metadata": labels, "f:status": {"f:message": {}}}),
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments/ssa-reset",
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "spec": {
                "attacher": "a.example.com", "nodeName": "n", "source": {"persistentVolumeName": "p"}}}),
            "status",
            json!({"attached": true}),
            json!({"f:status": {"f:attached": {}}}),
        ),
        (
            "/apis/certificates.k8s.io/v1/certificatesigningrequests/ssa-reset",
            json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "spec": {"signerName": "example.com/signer", "usages": ["client auth"],
                    "request": STANDARD.encode(request)}}),
            "approval",
            json!({"certificate": "YQ==", "conditions": [{"type": "Approved", "status": "True"}]}),
            json!({"f:metadata": {"f:labels": {"f:l": {}}, "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}},
                "f:status": {"f:conditions": {"k:{\"type\":\"Approved\"}":
                    {".": {}, "f:status": {}, "f:type": {}}}}}),
        ),
    ];
    for (path, mut config, subresource, status, expected) in table {
        let name = path.rsplit('/').next().unwrap();
        config["metadata"] = json!({"name": name});
        fixture.applied(path, "object", &config, 201);
        config["metadata"]["labels"] = json!({"l": "x"});
        config["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]);
        config["status"] = status;
        let at = format!("{path}/{subresource}");
        let object = fixture.applied(&at, "w&force=true&dryRun=All", &config, 200);
        let entry = format!("w Apply {subresource}");
        let entries = managers(&object);
        let (_, fields) = entries.iter().find(|(name, _)| *name == entry).unwrap();
        assert_eq!(*fields, expected, "{object}");
    }
}

/// B2: new objects have the fields of a status that its Go type never leaves out.
#[test]
fn new_objects_have_the_zero_fields_of_their_status() {
    let fixture = ApplyFixture::new("ssa-zero");
    let node_fields = json!({"architecture": "", "bootID": "", "containerRuntimeVersion": "",
        "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "v1", "machineID": "",
        "operatingSystem": "", "osImage": "", "systemUUID": ""});
    let table = [
        (
            "/api/v1/namespaces/ssa-zero/resourcequotas",
            "v1",
            "ResourceQuota",
            json!({"hard": {"pods": "1"}}),
            json!({}),
            json!({}),
        ),
        (
            "/api/v1/namespaces/ssa-zero/replicationcontrollers",
            "v1",
            "ReplicationController",
            json!({"selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}),
            json!({"replicas": 9}),
            json!({"replicas": 0}),
        ),
        (
            "/api/v1/nodes",
            "v1",
            "Node",
            json!({}),
            json!({"nodeInfo": {"kubeletVersion": "v1"}}),
            json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": node_fields}),
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            "storage.k8s.io/v1",
            "VolumeAttachment",
            json!({"attacher": "a.example.com", "nodeName": "n", "source": {"persistentVolumeName": "p"}}),
            json!({"attached": true}),
            json!({"attached": false}),
        ),
    ];
    for (path, version, kind, spec, sent, expected) in table {
        let body = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "ssa-zero"},
            "spec": spec, "status": sent});
        let request = fixture
            .server
            .request("POST", &format!("{path}?dryRun=All"))
            .json(&body);
        let created = request.send();
        assert_eq!(created.code, 201, "{}", created.text());
        assert_eq!(created.json()["status"], expected, "{kind}");
    }
}
