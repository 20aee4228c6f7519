//! The audit log: events of requests in a file and at a webhook.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::http_requests::wait_until;
use crate::api::test_server::ApiTestServer;

const EVENTS_TIMEOUT: Duration = Duration::from_secs(90);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- {level: Metadata, users: [''], omitStages: [RequestReceived]}
- {level: Metadata, resources: [{resources: [secrets]}], omitStages: [RequestReceived]}
- {level: Metadata, users: [ann], omitStages: [RequestReceived]}
- {level: RequestResponse, verbs: [create, patch, delete, list], resources: [{resources: [configmaps, serviceaccounts/token]}], omitStages: [RequestReceived]}
- {level: Request, verbs: [watch], resources: [{resources: [configmaps]}]}
";

/// A server that writes audit events to the returned file.
pub(crate) fn start_audited(more: &[&str], dir: &Path) -> (ApiTestServer, std::path::PathBuf) {
    let [policy, log] = ["policy.yaml", "audit.log"].map(|name| dir.join(name));
    std::fs::write(&policy, POLICY).unwrap();
    let [policy, path] = [&policy, &log].map(|path| path.to_str().unwrap());
    let flags = ["--audit-policy-file", policy, "--audit-log-path", path];
    let server = ApiTestServer::start_with(&[&flags, more].concat());
    (server, log)
}

/// The events about a request, once there are `count`.
fn wait_for_events(log: &Path, audit_id: &str, count: usize) -> Vec<Value> {
    let end = Instant::now() + EVENTS_TIMEOUT;
    loop {
        let text = std::fs::read_to_string(log).unwrap();
        let events = text.lines().filter(|line| line.contains(audit_id));
        let events: Vec<Value> = events
            .filter_map(|l| machinery::json::from_str(l).ok())
            .collect();
        if events.len() >= count {
            assert_eq!(events.len(), count, "{events:?}");
            return events;
        }
        assert!(Instant::now() < end, "{count} events of {audit_id}: {text}");
        harness::sleep_blocking(Duration::from_millis(20));
    }
}

pub(crate) fn only_event(log: &Path, audit_id: &str) -> Value {
    wait_for_events(log, audit_id, 1).remove(0)
}

#[test]
fn events_have_kubernetes_fields_and_the_bodies_of_their_level() {
    let dir = tempfile::tempdir().unwrap();
    let (server, log) = start_audited(&[], dir.path());
    let send = |method: &str, path: &str, id: &str, body: &Value| {
        let request = server.request(method, path).header("Audit-Id", id);
        let request = request.header("User-Agent", "tester/1");
        let reply = match method {
            "PATCH" => request.body("application/merge-patch+json", body.to_string()),
            "GET" => request,
            _ => request.json(body),
        };
        reply.send()
    };
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}});
    let reply = send("POST", MAPS, "id-create", &map);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let mut event = only_event(&log, "id-create");
    for time in ["requestReceivedTimestamp", "stageTimestamp"] {
        let text = event[time].take();
        assert_eq!(
            text.as_str().unwrap().len(),
            "2026-01-02T03:04:05.123456Z".len()
        );
        event.as_object_mut().unwrap().remove(time);
    }
    let uid = &event["responseObject"]["metadata"]["uid"];
    assert_eq!(*uid, reply.json()["metadata"]["uid"]);
    assert_eq!(event["responseObject"]["data"], json!({"a": "b"}));
    assert_eq!(
        event["responseObject"]["metadata"].get("managedFields"),
        None
    );
    event.as_object_mut().unwrap().remove("responseObject");
    let user = event["user"]["username"].take();
    assert_eq!(user, "kubernetes-admin", "{event}");
    event.as_object_mut().unwrap().remove("user");
    assert_eq!(
        event,
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse",
            "auditID": "id-create", "stage": "ResponseComplete", "requestURI": MAPS,
            "verb": "create", "sourceIPs": ["127.0.0.1"], "userAgent": "tester/1",
            "objectRef": {"resource": "configmaps", "namespace": "default", "name": "m", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 201},
            "requestObject": map,
            "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
        })
    );
    let patch = json!({"data": {"a": "c"}});
    assert_eq!(
        send("PATCH", &format!("{MAPS}/m"), "id-patch", &patch).code,
        200
    );
    let event = only_event(&log, "id-patch");
    assert_eq!(event["requestObject"], patch);
    assert_eq!(event["responseObject"]["data"], patch["data"]);
    assert_eq!(
        send("GET", &format!("{MAPS}?limit=5"), "id-list", &Value::Null).code,
        200
    );
    let event = only_event(&log, "id-list");
    assert_eq!(event["requestURI"], format!("{MAPS}?limit=5"));
    assert_eq!(event["responseObject"]["kind"], "ConfigMapList");
    let items = event["responseObject"]["items"].as_array().unwrap();
    assert!(items.iter().any(|item| item["metadata"]["name"] == "m"));
    assert_eq!(send("POST", MAPS, "id-conflict", &map).code, 409);
    let event = only_event(&log, "id-conflict");
    assert_eq!(event["responseStatus"]["reason"], "AlreadyExists");
    assert_eq!(event["responseObject"]["kind"], "Status");
    assert_eq!(
        send("DELETE", &format!("{MAPS}/m"), "id-delete", &json!({})).code,
        200
    );
    let event = only_event(&log, "id-delete");
    assert_eq!(event["responseStatus"]["status"], "Success");
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"p": "hidden-password"}});
    assert_eq!(send("POST", SECRETS, "id-secret", &secret).code, 201);
    let event = only_event(&log, "id-secret");
    assert_eq!(event["objectRef"]["name"], "s");
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    let exists = || (send("GET", account, "id-account", &Value::Null).code == 200).then_some(());
    wait_until("the default account", exists);
    let path = &format!("{account}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    let reply = send("POST", path, "id-token", &request);
    assert_eq!(reply.code, 201, "{}", reply.text());
    let event = only_event(&log, "id-token");
    assert_eq!(event["responseObject"]["status"]["token"], "REDACTED");
    // No rule has this path.
    assert_eq!(
        send("GET", "/version", "id-version", &Value::Null).code,
        200
    );
    assert_eq!(send("GET", SECRETS, "id-end", &Value::Null).code, 200);
    only_event(&log, "id-end");
    let text = std::fs::read_to_string(&log).unwrap();
    let token = reply.json()["status"]["token"].as_str().unwrap().to_owned();
    assert!(!text.contains("hidden-password") && !text.contains(&token));
    assert!(!text.contains("id-version"));
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("apiserver_audit_level_total{level=\"RequestResponse\"} "));
    assert!(
        metrics.contains("apiserver_audit_event_total "),
        "{metrics}"
    );
}

#[test]
fn refused_and_impersonated_requests_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (server, log) = start_audited(&[], dir.path());
    let reply = server
        .request("GET", MAPS)
        .with_identity(&server.anonymous)
        .header("Audit-Id", "id-401")
        .header("Authorization", "Bearer not-a-token")
        .send();
    assert_eq!(reply.code, 401);
    let event = only_event(&log, "id-401");
    assert_eq!(event["stage"], "ResponseStarted");
    assert_eq!(event["user"], json!({"username": ""}));
    let status =
        json!({"metadata": {}, "code": 401, "message": "Authentication failed, attempted: bearer"});
    assert_eq!(event["responseStatus"], status);
    let reply = server
        .request("GET", SECRETS)
        .header("Audit-Id", "id-403")
        .header("Impersonate-User", "ann")
        .send();
    assert_eq!(reply.code, 403);
    let event = only_event(&log, "id-403");
    assert_eq!(event["user"]["username"], "kubernetes-admin");
    assert_eq!(event["impersonatedUser"]["username"], "ann");
    let constraint = &event["authenticationMetadata"]["impersonationConstraint"];
    assert_eq!(constraint, "impersonate:user-info");
    assert_eq!(
        event["annotations"]["authorization.k8s.io/decision"],
        "forbid"
    );
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
    assert_eq!(event["responseStatus"]["code"], 403);
    assert!(
        !std::fs::read_to_string(&log)
            .unwrap()
            .contains("not-a-token")
    );
}

#[test]
fn watches_have_an_event_at_their_start_and_at_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let (server, log) = start_audited(&[], dir.path());
    let watch = server.request("GET", &format!("{MAPS}?watch=1"));
    let stream = watch.header("Audit-Id", "id-watch").send_streaming();
    let stages = |count| {
        let events = wait_for_events(&log, "id-watch", count);
        events
            .iter()
            .map(|e| e["stage"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(stages(2), ["RequestReceived", "ResponseStarted"]);
    drop(stream);
    assert_eq!(stages(3)[2], "ResponseComplete");
}

/// Receives POST requests; refuses the first with 500.
fn start_webhook() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    let (sender, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        let mut code = "500 Internal Server Error";
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|n| n > 2) {
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let head = format!("HTTP/1.1 {code}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.get_mut().write_all(head.as_bytes()).unwrap();
            code = "200 OK";
            if sender
                .send(machinery::json::from_slice(&body).unwrap())
                .is_err()
            {
                return;
            }
        }
    });
    (url, bodies)
}

#[test]
fn a_webhook_receives_batches_again_after_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (url, bodies) = start_webhook();
    let config = dir.path().join("webhook.yaml");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{url}'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{}}}}]}}"
    );
    std::fs::write(&config, text).unwrap();
    let flags = [
        "--audit-webhook-config-file",
        config.to_str().unwrap(),
        "--audit-webhook-batch-max-wait=10ms",
        "--audit-webhook-initial-backoff=10ms",
    ];
    let (server, log) = start_audited(&flags, dir.path());
    let request = server.request("GET", SECRETS).header("Audit-Id", "id-sent");
    assert_eq!(request.send().code, 200);
    let logged = only_event(&log, "id-sent");
    let first = bodies.recv_timeout(EVENTS_TIMEOUT).unwrap();
    assert_eq!(first["kind"], "EventList");
    assert_eq!(bodies.recv_timeout(EVENTS_TIMEOUT).unwrap(), first);
    assert_eq!(first["items"], json!([logged]));
}
