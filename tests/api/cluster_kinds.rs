//! Kinds of flow control, storage and nodes: bootstrap objects, defaults, validation.

use serde_json::{Value, json};

use crate::test_server::ApiTestServer;

const FLOW_CONTROL: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

#[test]
fn flow_control_has_its_bootstrap_objects() {
    let server = ApiTestServer::shared();
    let names = |resource: &str| {
        let list = server.get(&format!("{FLOW_CONTROL}/{resource}")).json();
        let items = list["items"].as_array().unwrap().clone();
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect::<Vec<_>>()
    };
    let mut levels = names("prioritylevelconfigurations");
    // Of the test below.
    levels.retain(|name| name != "defaulted");
    assert_eq!(
        levels,
        [
            "catch-all",
            "exempt",
            "global-default",
            "leader-election",
            "node-high",
            "system",
            "workload-high",
            "workload-low",
        ]
    );
    let schemas = names("flowschemas");
    for name in [
        "catch-all",
        "exempt",
        "global-default",
        "probes",
        "service-accounts",
    ] {
        assert!(schemas.iter().any(|s| s == name), "{name}: {schemas:?}");
    }
    let path = format!("{FLOW_CONTROL}/flowschemas/catch-all");
    let mut schema = server.get(&path).json();
    assert_eq!(schema["metadata"]["generation"], 1);
    schema["spec"]["matchingPrecedence"] = 9000.into();
    let reply = server.request("PUT", &path).json(&schema).send();
    assert_eq!(reply.code, 422, "{}", reply.text());
    assert_eq!(reply.json()["details"]["causes"][0]["field"], "spec");
}

#[test]
fn cluster_kinds_have_their_defaults() {
    let server = ApiTestServer::shared();
    let table = [
        (
            FLOW_CONTROL,
            "prioritylevelconfigurations",
            json!({"kind": "PriorityLevelConfiguration", "metadata": {"name": "defaulted"},
                   "spec": {"type": "Limited", "limited": {"limitResponse": {
                       "type": "Queue", "queuing": {}}}}}),
            json!({"type": "Limited", "limited": {
                "nominalConcurrencyShares": 30, "lendablePercent": 0,
                "limitResponse": {"type": "Queue", "queuing": {
                    "queues": 64, "handSize": 8, "queueLengthLimit": 50}}}}),
        ),
        (
            "/apis/storage.k8s.io/v1",
            "csidrivers",
            json!({"kind": "CSIDriver", "metadata": {"name": "defaulted.csi"}, "spec": {}}),
            json!({"attachRequired": true, "podInfoOnMount": false, "storageCapacity": false,
                   "fsGroupPolicy": "ReadWriteOnceWithFSType", "requiresRepublish": false,
                   "volumeLifecycleModes": ["Persistent"], "seLinuxMount": false}),
        ),
        (
            "/apis/storage.k8s.io/v1",
            "csinodes",
            json!({"kind": "CSINode", "metadata": {"name": "n"},
                   "spec": {"drivers": [{"name": "d", "nodeID": "i"}]}}),
            json!({"drivers": [{"name": "d", "nodeID": "i"}]}),
        ),
        (
            "/apis/storage.k8s.io/v1",
            "volumeattachments",
            json!({"kind": "VolumeAttachment", "metadata": {"name": "a"}, "spec": {
                "attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
            json!({"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}),
        ),
    ];
    for (group_version, resource, mut object, spec) in table {
        object["apiVersion"] = group_version.trim_start_matches("/apis/").into();
        let reply = server.post(&format!("{group_version}/{resource}"), &object);
        assert_eq!(reply.code, 201, "{}", reply.text());
        assert_eq!(reply.json()["spec"], spec);
    }
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
                       "metadata": {"name": "c"}, "handler": "runc"});
    assert_eq!(server.post(classes, &class).code, 201);
    let mut stored = server.get(&format!("{classes}/c")).json();
    stored["handler"] = "kata".into();
    let reply = server
        .request("PUT", &format!("{classes}/c"))
        .json(&stored)
        .send();
    assert_eq!(reply.code, 422, "{}", reply.text());
    assert!(
        reply.text().contains("field is immutable"),
        "{}",
        reply.text()
    );
}

#[test]
fn storage_capacities_are_published_by_drivers() {
    let server = ApiTestServer::shared();
    server.create_namespace("capacities");
    let path = "/apis/storage.k8s.io/v1/namespaces/capacities/csistoragecapacities";
    let body = |class: &str, capacity: &str| {
        json!({"metadata": {"name": "c"}, "storageClassName": class, "capacity": capacity,
               "nodeTopology": {"matchLabels": {"zone": "a"}}})
    };
    for (class, capacity, field) in [("", "1Gi", "storageClassName"), ("fast", "-1", "capacity")] {
        let refused = server.post(path, &body(class, capacity));
        assert_eq!(refused.code, 422, "{}", refused.text());
        assert_eq!(refused.json()["details"]["causes"][0]["field"], field);
    }
    let created = server.post(path, &body("fast", "1Gi"));
    assert_eq!(created.code, 201, "{}", created.text());
    let one = format!("{path}/c");
    let update = |class: &str| server.request("PUT", &one).json(&body(class, "2Gi")).send();
    assert_eq!(update("fast").json()["capacity"], "2Gi");
    let refused = update("slow");
    assert_eq!(refused.code, 422, "{}", refused.text());
    let table = server
        .request("GET", path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .send()
        .json();
    assert_eq!(table["rows"][0]["cells"], json!(["c", "fast", "2Gi"]));
}
