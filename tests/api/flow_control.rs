//! Priority and fairness: requests belong to a FlowSchema and a priority level, and a level without
//! seats refuses its requests while others are served.

use std::time::{Duration, Instant};

use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const CONFIG_TIMEOUT: Duration = Duration::from_secs(90);

fn uid(server: &ApiTestServer, resource: &str, name: &str) -> String {
    let reply = server.get(&format!("{GROUP}/{resource}/{name}"));
    assert_eq!(reply.code, 200, "{}", reply.text());
    reply.json()["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn flow_headers(reply: &RawHttpResponse) -> [String; 2] {
    ["flowschema", "prioritylevel"].map(|kind| reply.header(&format!("x-kubernetes-pf-{kind}-uid")))
}

fn get_as(server: &ApiTestServer, user: &str) -> RawHttpResponse {
    let request = server.request("GET", "/api/v1/namespaces/default/configmaps");
    request.header("Impersonate-User", user).send()
}

/// Repeats a request until its response has headers: a changed configuration acts soon after it is
/// stored.
fn wait_until_flow(expected: &[String; 2], send: impl Fn() -> RawHttpResponse) -> RawHttpResponse {
    let end = Instant::now() + CONFIG_TIMEOUT;
    loop {
        let reply = send();
        if flow_headers(&reply) == *expected {
            return reply;
        }
        assert!(Instant::now() < end, "{:?}", flow_headers(&reply));
        harness::sleep_blocking(Duration::from_millis(20));
    }
}

fn create(server: &ApiTestServer, resource: &str, spec: &Value) -> String {
    let body = json!({"metadata": {"name": "no-seats"}, "spec": spec});
    let reply = server.post(&format!("{GROUP}/{resource}"), &body);
    assert_eq!(reply.code, 201, "{}", reply.text());
    reply.json()["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[test]
fn responses_name_their_flow_schema_and_level() {
    let server = ApiTestServer::shared();
    let of = |schema: &str, level: &str| {
        [
            uid(&server, "flowschemas", schema),
            uid(&server, "prioritylevelconfigurations", level),
        ]
    };
    let admin = wait_until_flow(&of("exempt", "exempt"), || server.get("/version"));
    assert_eq!(admin.code, 200);
    let global = of("global-default", "global-default");
    let rejection = wait_until_flow(&global, || get_as(&server, "somebody"));
    assert_eq!(rejection.code, 403, "errors name them too");
    let metrics = server.get("/metrics").text();
    for line in [
        "apiserver_flowcontrol_dispatched_requests_total{flow_schema=\"exempt\",priority_level=\"exempt\"} ",
        "apiserver_flowcontrol_nominal_limit_seats{priority_level=\"global-default\"} ",
        "apiserver_flowcontrol_current_executing_seats{priority_level=\"exempt\"} ",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn a_level_without_seats_refuses_only_its_own_requests() {
    let server = ApiTestServer::start();
    let level = json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 0, "lendablePercent": 0,
        "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}});
    let level_uid = create(&server, "prioritylevelconfigurations", &level);
    let schema = json!({"priorityLevelConfiguration": {"name": "no-seats"}, "matchingPrecedence": 2,
        "distinguisherMethod": {"type": "ByUser"}, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "flood"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                               "clusterScope": true}]}]});
    let schema_uid = create(&server, "flowschemas", &schema);
    let rejection = wait_until_flow(&[schema_uid, level_uid], || get_as(&server, "flood"));
    assert_eq!(rejection.code, 429, "{}", rejection.text());
    assert_eq!(rejection.header("retry-after"), "1");
    assert_eq!(rejection.json()["reason"], "TooManyRequests");
    assert_eq!(get_as(&server, "other").code, 403);
    let metrics = server.get("/metrics").text();
    let rejected = "apiserver_flowcontrol_rejected_requests_total{flow_schema=\"no-seats\",priority_level=\"no-seats\",reason=\"concurrency-limit\"}";
    assert!(metrics.contains(rejected), "{metrics}");
    let path = format!("{GROUP}/flowschemas/no-seats");
    assert_eq!(server.request("DELETE", &path).send().code, 200);
    let end = Instant::now() + CONFIG_TIMEOUT;
    while get_as(&server, "flood").code == 429 {
        assert!(Instant::now() < end, "the deleted schema still acts");
        harness::sleep_blocking(Duration::from_millis(20));
    }
}

#[test]
fn without_priority_and_fairness_no_response_names_a_flow() {
    let server = ApiTestServer::start_with(&["--enable-priority-and-fairness=false"]);
    let reply = server.get("/version");
    assert_eq!(reply.code, 200);
    assert!(!reply.text().is_empty());
    let metrics = server.get("/metrics").text();
    assert!(!metrics.contains("apiserver_flowcontrol_"));
}

/// The condition of a FlowSchema, once it has the expected status.
fn wait_until_dangling(server: &ApiTestServer, name: &str, expected: &str) -> Value {
    let end = Instant::now() + CONFIG_TIMEOUT;
    loop {
        let schema = server.get(&format!("{GROUP}/flowschemas/{name}")).json();
        let condition = schema["status"]["conditions"][0].clone();
        if condition["status"] == expected {
            assert_eq!(condition["type"], "Dangling");
            assert!(condition["lastTransitionTime"].is_string());
            return condition;
        }
        assert!(Instant::now() < end, "{schema}");
        harness::sleep_blocking(Duration::from_millis(20));
    }
}

#[test]
fn a_schema_says_whether_its_level_exists() {
    let server = ApiTestServer::start();
    let condition = wait_until_dangling(&server, "catch-all", "False");
    assert_eq!(condition["reason"], "Found");
    let text = "This FlowSchema references the PriorityLevelConfiguration object named";
    let message = format!("{text} \"catch-all\" and it exists");
    assert_eq!(condition["message"], message);
    let schema = json!({"metadata": {"name": "lost"},
        "spec": {"priorityLevelConfiguration": {"name": "missing"}}});
    let reply = server.post(&format!("{GROUP}/flowschemas"), &schema);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let dangling = wait_until_dangling(&server, "lost", "True");
    assert_eq!(dangling["reason"], "NotFound");
    let message = format!("{text} \"missing\" but there is no such object");
    assert_eq!(dangling["message"], message);
    let level = json!({"metadata": {"name": "missing"}, "spec": {"type": "Limited",
        "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}});
    let levels = format!("{GROUP}/prioritylevelconfigurations");
    let reply = server.post(&levels, &level);
    assert_eq!(reply.code, 201, "{}", reply.text());
    wait_until_dangling(&server, "lost", "False");
    let deleted = server
        .request("DELETE", &format!("{levels}/missing"))
        .send();
    assert_eq!(deleted.code, 200, "{}", deleted.text());
    wait_until_dangling(&server, "lost", "True");
}
