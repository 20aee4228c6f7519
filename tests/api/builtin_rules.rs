//! Rules and warnings of built-in kinds through the served API: the complete answers.

use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const SCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

fn cron_job(name: &str, spec: Value) -> Value {
    let mut job = json!({"metadata": {"name": name}, "spec": {
        "schedule": "0 1 * * *",
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x"}]}}}},
    }});
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    job
}

#[test]
fn objects_that_kubernetes_refuses_are_refused() {
    let server = ApiTestServer::shared();
    let no_zone = cron_job("no-zone", json!({"timeZone": ""}));
    let no_version = json!({"metadata": {"name": "no-version"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "web"}}});
    let octal = json!({"metadata": {"name": "octal"},
        "spec": {"ports": [{"port": 80}], "externalIPs": ["010.1.1.1"]}});
    let tainted = json!({"metadata": {"name": "tainted"}, "spec": {"taints": [
        {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}]}});
    for (path, body, message) in [
        (
            CRON_JOBS,
            no_zone,
            r#"CronJob.batch "no-zone" is invalid: spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string"#,
        ),
        (
            SCALERS,
            no_version,
            r#"HorizontalPodAutoscaler.autoscaling "no-version" is invalid: spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group"#,
        ),
        (
            SERVICES,
            octal,
            r#"Service "octal" is invalid: spec.externalIPs[0]: Invalid value: "010.1.1.1": must not have leading 0s"#,
        ),
        (
            "/api/v1/nodes",
            tainted,
            r#"Node "tainted" is invalid: metadata.taints[1]: Duplicate value: {"Effect":"NoSchedule","Key":"a","TimeAdded":null,"Value":""}: taints must be unique by key and effect pair"#,
        ),
    ] {
        let reply = server.post(path, &body);
        assert_eq!(reply.code, 422, "{}", reply.text());
        assert_eq!(reply.json()["message"], message);
    }
}

#[test]
fn schedules_and_quantities_that_kubernetes_accepts_are_accepted() {
    let server = ApiTestServer::shared();
    let every = cron_job("every", json!({"schedule": "@every 1h30m"}));
    let reply = server.post(CRON_JOBS, &every);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let resources = json!({"requests": {"cpu": " 1 "}});
    let spaces = json!({"metadata": {"name": "spaces"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]}});
    let reply = server.post(PODS, &spaces);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let stored = &reply.json()["spec"]["containers"][0]["resources"]["requests"]["cpu"];
    assert_eq!(*stored, "1");
}

#[test]
fn deprecated_and_duplicate_fields_are_warned_of() {
    let server = ApiTestServer::shared();
    let pod = json!({
        "metadata": {"name": "warned", "annotations": {"seccomp.security.alpha.kubernetes.io/pod": "runtime/default"}},
        "spec": {
            "nodeSelector": {"beta.kubernetes.io/os": "linux"},
            "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a"]}, {"ip": "1.2.3.4", "hostnames": ["b"]}],
            "volumes": [{"name": "g", "gitRepo": {"repository": "x"}}],
            "containers": [{
                "name": "c",
                "image": "x",
                "ports": [{"containerPort": 80, "name": "p"}, {"containerPort": 80, "name": "q"}],
                "env": [{"name": "A", "value": "b"}, {"name": "A", "value": "c"}],
                "resources": {"limits": {"memory": "100m"}},
            }],
        },
    });
    let reply = server.post(PODS, &pod);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let is_warning = |(name, _): &&(String, String)| name == "warning";
    let warnings: Vec<&str> = reply
        .headers
        .iter()
        .filter(is_warning)
        .map(|(_, w)| w.as_str())
        .collect();
    let expected = [
        "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14",
        "spec.volumes[0].gitRepo: deprecated in v1.11",
        "spec.hostAliases[1].ip: duplicate ip",
        "metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+",
        "spec.containers[0].resources.limits[memory]: fractional byte value",
        "spec.containers[0].resources.requests[memory]: fractional byte value",
        "spec.containers[0].env[1]: hides previous definition of",
        "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]",
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.contains(expected), "{warning}");
    }
}

#[test]
fn a_strategic_merge_patch_may_name_another_kind_and_a_merge_patch_may_not() {
    let server = ApiTestServer::shared();
    let deployment = json!({"metadata": {"name": "scaled"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "x"}]}},
    }});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(server.post(path, &deployment).code, 201);
    let patch = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3}});
    for (subresource, kind, code) in [
        ("/scale", "strategic-merge", 200),
        ("/scale", "merge", 422),
        ("", "strategic-merge", 200),
        ("", "merge", 200),
    ] {
        let path = format!("{path}/scaled{subresource}");
        let request = server.request("PATCH", &path);
        let content_type = format!("application/{kind}-patch+json");
        let reply = request.body(&content_type, patch.to_string()).send();
        assert_eq!(reply.code, code, "{kind} {path}: {}", reply.text());
    }
}
