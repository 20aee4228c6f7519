//! ResourceQuotas and LimitRanges of a standalone server.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::http_requests::wait_until;
use crate::api::test_server::ApiTestServer;

/// How long the usage of a quota may take to be recalculated.
const TIMEOUT: Duration = Duration::from_secs(90);

fn create(server: &ApiTestServer, namespace: &str, resource: &str, body: &Value) -> (u16, String) {
    let reply = server.post(&format!("/api/v1/namespaces/{namespace}/{resource}"), body);
    let message = reply.json()["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (reply.code, message)
}

async fn wait_until_used(server: &ApiTestServer, namespace: &str, expected: Value) {
    let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/q");
    let start = Instant::now();
    loop {
        let status = server.get(&path).json()["status"].clone();
        if status["used"] == expected {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn pod(name: &str, resources: Value) -> Value {
    json!({"metadata": {"name": name},
           "spec": {"containers": [{"name": "c", "image": "x:1", "resources": resources}]}})
}

#[tokio::test]
async fn quotas_limit_what_is_created() {
    let server = ApiTestServer::shared();
    server.create_namespace("quota");
    let hard = json!({"count/deployments.apps": "0", "secrets": "1", "pods": "2", "requests.cpu": "1",
                      "services.nodeports": "1"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    assert_eq!(create(&server, "quota", "resourcequotas", &quota).0, 201);
    let used = |secrets: &str, pods: &str, cpu: &str| {
        json!({"count/deployments.apps": "0", "secrets": secrets, "pods": pods, "requests.cpu": cpu,
               "services.nodeports": "0"})
    };
    wait_until_used(&server, "quota", used("0", "0", "0")).await;

    assert_eq!(create(&server, "quota", "secrets", &named("a")).0, 201);
    let rejection = create(&server, "quota", "secrets", &named("b"));
    let message = "secrets \"b\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1";
    assert_eq!(rejection, (403, message.to_owned()));
    // A write that fails after its charge is refunded.
    assert_eq!(
        create(
            &server,
            "quota",
            "pods",
            &pod("p", json!({"requests": {"cpu": "600m"}}))
        )
        .0,
        201
    );
    let again = pod("p", json!({"requests": {"cpu": "100m"}}));
    assert_eq!(create(&server, "quota", "pods", &again).0, 409);
    wait_until_used(&server, "quota", used("1", "1", "600m")).await;
    let rejection = create(
        &server,
        "quota",
        "pods",
        &pod("p2", json!({"requests": {"cpu": "500m"}})),
    );
    let message = "pods \"p2\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1";
    assert_eq!(rejection, (403, message.to_owned()));
    let rejection = create(&server, "quota", "pods", &pod("p2", json!({})));
    let message = "pods \"p2\" is forbidden: failed quota: q: must specify requests.cpu for: c";
    assert_eq!(rejection, (403, message.to_owned()));

    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]}});
    assert_eq!(create(&server, "quota", "services", &service).0, 201);
    let path = "/api/v1/namespaces/quota/services/s";
    let patch = json!({"spec": {"type": "NodePort"}}).to_string();
    let rejection = server
        .request("PATCH", path)
        .body("application/merge-patch+json", patch)
        .send();
    assert_eq!(rejection.code, 403, "{}", rejection.text());

    let deleted = server
        .request("DELETE", "/api/v1/namespaces/quota/secrets/a")
        .send();
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    wait_until_used(&server, "quota", used("0", "1", "600m")).await;
    let dry = "/api/v1/namespaces/quota/secrets?dryRun=All";
    assert_eq!(
        server.request("POST", dry).json(&named("c")).send().code,
        201
    );
    assert_eq!(create(&server, "quota", "secrets", &named("c")).0, 201);
}

#[test]
fn limit_ranges_set_defaults_and_limits() {
    let server = ApiTestServer::shared();
    server.create_namespace("limits");
    let limits = json!([
        {"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}},
    ]);
    let range = json!({"metadata": {"name": "l"}, "spec": {"limits": limits}});
    assert_eq!(create(&server, "limits", "limitranges", &range).0, 201);
    let pods = "/api/v1/namespaces/limits/pods";
    let trial = || {
        let path = format!("{pods}?dryRun=All");
        server.post(&path, &pod("p", json!({}))).json()
    };
    // The server reads LimitRanges from its cache, which has a new one soon.
    wait_until("the LimitRange applies", || {
        let resources = &trial()["spec"]["containers"][0]["resources"];
        (*resources != json!({})).then_some(())
    });
    let reply = server.post(pods, &pod("p", json!({})));
    assert_eq!(reply.code, 201, "{}", reply.text());
    let created = reply.json();
    assert_eq!(
        created["spec"]["containers"][0]["resources"],
        json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})
    );
    let note = "LimitRanger plugin set: cpu request for container c; cpu limit for container c";
    assert_eq!(
        created["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        note
    );
    assert_eq!(created["status"]["qosClass"], "Burstable");
    let rejection = create(
        &server,
        "limits",
        "pods",
        &pod("p2", json!({"limits": {"cpu": "3"}})),
    );
    let message = "pods \"p2\" is forbidden: maximum cpu usage per Container is 2, but limit is 3";
    assert_eq!(rejection, (403, message.to_owned()));
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}}}});
    let rejection = create(&server, "limits", "persistentvolumeclaims", &claim);
    let message = "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi";
    assert_eq!(rejection, (403, message.to_owned()));
}
