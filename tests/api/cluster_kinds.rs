//! Kinds of flow control, storage and nodes: bootstrap objects, defaults, validation.

use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

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
        let rejection = server.post(path, &body(class, capacity));
        assert_eq!(rejection.code, 422, "{}", rejection.text());
        assert_eq!(rejection.json()["details"]["causes"][0]["field"], field);
    }
    let created = server.post(path, &body("fast", "1Gi"));
    assert_eq!(created.code, 201, "{}", created.text());
    let one = format!("{path}/c");
    let update = |class: &str| {
        let mut new = server.get(&one).json();
        new["storageClassName"] = class.into();
        new["capacity"] = "2Gi".into();
        server.request("PUT", &one).json(&new).send()
    };
    let updated = update("fast");
    assert_eq!(updated.json()["capacity"], "2Gi", "{}", updated.text());
    let rejection = update("slow");
    assert_eq!(rejection.code, 422, "{}", rejection.text());
    let table = server
        .request("GET", path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .send()
        .json();
    assert_eq!(table["rows"][0]["cells"], json!(["c", "fast", "2Gi"]));
}

#[test]
fn api_services_list_the_local_group_versions() {
    let server = ApiTestServer::shared();
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    let list = server.get(path).json();
    assert_eq!(list["kind"], "APIServiceList");
    let items = list["items"].as_array().unwrap();
    let named = |name: &str| {
        let entry = items.iter().find(|item| item["metadata"]["name"] == name);
        entry.unwrap_or_else(|| panic!("{name}: {list}"))["spec"].clone()
    };
    assert_eq!(
        named("v1.apps"),
        json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15})
    );
    assert_eq!(named("v2.autoscaling")["versionPriority"], 30);
    assert_eq!(
        named("v1."),
        json!({"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1})
    );
    assert_eq!(named("v1alpha1.policy.karmada.io")["versionPriority"], 100);
    let one = server.get(&format!("{path}/v1.apps")).json();
    let condition = &one["status"]["conditions"][0];
    let text = (
        &condition["type"],
        &condition["status"],
        &condition["reason"],
    );
    assert_eq!(text, (&json!("Available"), &json!("True"), &json!("Local")));
    assert_eq!(server.get(&format!("{path}/v9.none")).code, 404);
    let selected = server
        .get(&format!("{path}?fieldSelector=metadata.name%3Dv1.apps"))
        .json();
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    let none = server.get(&format!("{path}?labelSelector=a%3Db")).json();
    assert_eq!(none["items"], json!([]));
    let table = server
        .request("GET", &format!("{path}/v1.apps"))
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .send()
        .json();
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["v1.apps", "Local", "True"])
    );
    assert_eq!(server.post(path, &one).code, 405);
}

#[test]
fn component_statuses_show_the_health_of_the_store() {
    let server = ApiTestServer::shared();
    let path = "/api/v1/componentstatuses";
    let reply = server.get(path);
    let warning = "299 - \"v1 ComponentStatus is deprecated in v1.19+\"";
    assert_eq!(reply.header("warning"), warning);
    let list = reply.json();
    assert_eq!(list["kind"], "ComponentStatusList");
    let conditions = json!([{"type": "Healthy", "status": "True", "message": "ok"}]);
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["items"][0]["metadata"]["name"], "etcd-0");
    assert_eq!(list["items"][0]["conditions"], conditions);
    let one = server.get(&format!("{path}/etcd-0")).json();
    assert_eq!(one["conditions"], conditions);
    assert_eq!(server.get(&format!("{path}/etcd-1")).code, 404);
    let none = server.get(&format!("{path}?labelSelector=a%3Db")).json();
    assert_eq!(none["items"], json!([]));
    let table = server
        .request("GET", path)
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .send()
        .json();
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["etcd-0", "Healthy", "ok", ""])
    );
    assert_eq!(server.post(path, &one).code, 405);
    let endpoints = server.get("/api/v1/namespaces/default/endpoints");
    let warning =
        "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
    assert_eq!(endpoints.header("warning"), warning);
}

#[test]
fn discovery_names_the_address_of_the_server() {
    let server = ApiTestServer::shared();
    let addresses = server.get("/api").json()["serverAddressByClientCIDRs"].clone();
    assert_eq!(
        addresses,
        json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": server.address}])
    );
    // As the aggregator of kube-apiserver answers.
    for path in ["/apis", "/apis/apps"] {
        let text = server.get(path).text();
        assert!(!text.contains("serverAddressByClientCIDRs"), "{text}");
    }
}
