//! Rules of built-in kinds outside of the core group, through the served API: what a stored object
//! needs beside the rules themselves (defaults, generated fields, conversion of versions).

use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn apps(kinds: &str) -> String {
    format!("/apis/apps/v1/namespaces/default/{kinds}")
}

/// A workload with the fields of `change` in its spec.
fn workload(name: &str, restart: &str, change: Value) -> Value {
    let mut object = json!({"metadata": {"name": name}, "spec": {"template": {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": restart, "containers": [{"name": "c", "image": "x"}]}}}});
    for (field, value) in change.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

#[test]
fn what_kubernetes_accepts_in_these_groups_is_accepted() {
    let server = ApiTestServer::shared();
    let storage = |kinds: &str| format!("/apis/storage.k8s.io/v1/{kinds}");
    let verbs = json!(["get", "get"]);
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": "u"}}], "resourceRules": [
        {"verbs": verbs, "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}]});
    for (path, object) in [
        (
            apps("controllerrevisions"),
            json!({"metadata": {"name": "first"}, "data": {"a": 1}}),
        ),
        (
            JOBS.to_owned(),
            workload("counted", "Never", json!({"podFailurePolicy": {}})),
        ),
        (
            storage("csinodes"),
            json!({"metadata": {"name": "empty-node"}, "spec": {"drivers": null}}),
        ),
        (
            storage("csidrivers"),
            json!({"metadata": {"name": "twice.example.com"},
                   "spec": {"volumeLifecycleModes": ["Persistent", "Persistent"]}}),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets".to_owned(),
            json!({"metadata": {"name": "Budget_of:web"}, "spec": {"minAvailable": 1}}),
        ),
        (
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas".to_owned(),
            json!({"metadata": {"name": "twice"}, "spec": {"matchingPrecedence": 9000,
                "priorityLevelConfiguration": {"name": "global-default"}, "rules": [rule]}}),
        ),
    ] {
        let reply = server.post(&format!("{path}?dryRun=All"), &object);
        assert_eq!(reply.code, 201, "{path}: {}", reply.text());
    }
}

#[test]
fn what_kubernetes_refuses_in_these_groups_is_refused_with_its_words() {
    let server = ApiTestServer::shared();
    let labels = r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#;
    let selector = json!({"matchLabels": {"a": "b"}});
    let scaler = json!({"metadata": {"name": "none"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 0,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    let scalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    for (path, object, message) in [
        (
            apps("daemonsets"),
            workload("unselected", "Always", json!({})),
            format!(r#"DaemonSet.apps "unselected" is invalid: {labels}"#),
        ),
        (
            apps("deployments"),
            workload("unselected", "Always", json!({})),
            format!(
                r#"Deployment.apps "unselected" is invalid: [spec.selector: Required value, {labels}]"#
            ),
        ),
        (
            apps("deployments"),
            workload(
                "blue",
                "Always",
                json!({"selector": selector, "strategy": {"type": "Blue"}}),
            ),
            r#"Deployment.apps "blue" is invalid: spec.strategy: Unsupported value: {"type":"Blue"}: supported values: "Recreate", "RollingUpdate""#.to_owned(),
        ),
        (
            JOBS.to_owned(),
            workload("forever", "Always", json!({})),
            r#"Job.batch "forever" is invalid: spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#.to_owned(),
        ),
        (
            JOBS.to_owned(),
            workload("stopped", "Never", json!({"podFailurePolicy": {"rules": [{"action": ""}]}})),
            r#"Job.batch "stopped" is invalid: [spec.podFailurePolicy.rules[0].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"], spec.podFailurePolicy.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required]"#.to_owned(),
        ),
        (
            scalers.to_owned(),
            scaler,
            r#"HorizontalPodAutoscaler.autoscaling "none" is invalid: spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0"#.to_owned(),
        ),
    ] {
        let reply = server.post(&path, &object);
        assert_eq!(reply.code, 422, "{path}: {}", reply.text());
        assert_eq!(reply.json()["message"], message);
    }
}

#[test]
fn a_suspended_job_is_placed_and_sized_before_it_starts() {
    let server = ApiTestServer::shared();
    let name = "placed-before-start";
    let suspended = workload(name, "Never", json!({"suspend": true}));
    assert_eq!(server.post(JOBS, &suspended).code, 201);
    let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let sized = json!({"nodeSelector": {"zone": "a"},
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]});
    let image = json!({"containers": [{"name": "c", "image": "y"}]});
    let path = format!("{JOBS}/{name}");
    let patch = |body: &Value| {
        let request = server.request("PATCH", &path);
        let reply = request
            .body("application/strategic-merge-patch+json", body.to_string())
            .send();
        (
            reply.code,
            reply.json()["details"]["causes"][0]["field"].clone(),
        )
    };
    assert_eq!(patch(&template(sized)), (200, Value::Null));
    assert_eq!(patch(&template(image)), (422, json!("spec.template.spec")));
    let resumed = json!({"spec": {"suspend": false}});
    assert_eq!(patch(&resumed), (200, Value::Null));
    let moved = template(json!({"nodeSelector": {"zone": "b"}}));
    assert_eq!(patch(&moved), (422, json!("spec.template")));
}
