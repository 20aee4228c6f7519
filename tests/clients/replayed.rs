//! Replays the requests of Helm, Flux and Argo CD, which `requests.yaml` lists with their sources.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use harness::raw_http::{RawHttpRequest, RawHttpResponse, TestTlsClientConfig};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clients::StandaloneServer;

const REQUESTS: &str = include_str!("requests.yaml");
const TIMEOUT: Duration = Duration::from_secs(90);

/// A request of a client, and what the client needs of the reply.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedCall {
    /// The source that makes the call.
    by: String,
    /// Method, path and query.
    call: String,
    accept: Option<String>,
    #[serde(rename = "type")]
    content_type: Option<String>,
    body: Option<Value>,
    code: u16,
    reply: Value,
    #[serde(default)]
    keep: BTreeMap<String, String>,
}

struct CallReplay {
    server: StandaloneServer,
    admin: TestTlsClientConfig,
    /// Values of earlier replies.
    kept: BTreeMap<String, String>,
}

impl CallReplay {
    /// A server with a namespace that has what every namespace gets.
    fn start(namespace: &str) -> Self {
        let server = StandaloneServer::start();
        let pki = server.dir.path().join("data/pki");
        let read = |name: &str| std::fs::read_to_string(pki.join(name)).unwrap();
        let identity = (read("admin.crt"), read("admin.key"));
        let identity = Some((&*identity.0, &*identity.1));
        let replay = Self {
            admin: TestTlsClientConfig::new(&read("ca.crt"), identity),
            server,
            kept: BTreeMap::new(),
        };
        let body = json!({"metadata": {"name": namespace}});
        let created = replay.request("POST", "/api/v1/namespaces").json(&body);
        assert_eq!(created.send().code, 201);
        let root = format!("/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt");
        let end = Instant::now() + TIMEOUT;
        while replay.request("GET", &root).send().code != 200 {
            assert!(Instant::now() < end, "no {root}");
        }
        replay
    }

    fn request<'a>(&'a self, method: &'a str, path: &str) -> RawHttpRequest<'a> {
        RawHttpRequest::new(&self.server.address, &self.admin, method, path)
    }

    /// The text with the values of earlier replies.
    fn fill(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.kept {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        text
    }

    fn send(&self, call: &RecordedCall) -> RawHttpResponse {
        let (method, path) = call.call.split_once(' ').unwrap();
        let mut request = self.request(method, &self.fill(path));
        if let Some(accept) = &call.accept {
            request = request.header("Accept", accept);
        }
        if let (Some(kind), Some(body)) = (&call.content_type, &call.body) {
            request = request.body(kind, body.to_string());
        }
        request.send()
    }

    fn run(&mut self, call: &RecordedCall) {
        let reply = self.send(call);
        let context = format!("{}\n{}\n{}", call.by, call.call, reply.text());
        assert_eq!(reply.code, call.code, "{context}");
        let text = reply.text();
        // A watch has a line for each event.
        let first = text.lines().next().unwrap_or_default();
        let read = machinery::json::from_str(&text).or_else(|_| machinery::json::from_str(first));
        let read: Value = read.unwrap_or_else(|message| panic!("{message}: {context}"));
        let expected = self.fill(&call.reply.to_string());
        let expected = machinery::json::from_str(&expected).unwrap();
        if let Err(at) = contains(&read, &expected) {
            panic!("{at}: {context}");
        }
        for (name, pointer) in &call.keep {
            let value = read.pointer(pointer).and_then(Value::as_str);
            let value = value.unwrap_or_else(|| panic!("no {pointer}: {context}"));
            self.kept.insert(name.clone(), value.to_owned());
        }
    }
}

/// Whether `value` has what is expected; else the path where it has not.
fn contains(value: &Value, expected: &Value) -> Result<(), String> {
    let below = |at: String| move |rest: String| format!("/{at}{rest}");
    match (value, expected) {
        (Value::Object(fields), Value::Object(expected_part)) => {
            expected_part.iter().try_for_each(|(key, expected_part)| {
                let field = fields.get(key).unwrap_or(&Value::Null);
                contains(field, expected_part).map_err(below(key.clone()))
            })
        }
        (Value::Array(items), Value::Array(expected_part))
            if items.len() == expected_part.len() =>
        {
            let mut pairs = items.iter().zip(expected_part).enumerate();
            pairs.try_for_each(|(n, (item, expected_part))| {
                contains(item, expected_part).map_err(below(n.to_string()))
            })
        }
        (actual_part, Value::String(any)) if any == "*" && !actual_part.is_null() => Ok(()),
        (actual_part, expected_part) if actual_part == expected_part => Ok(()),
        (actual_part, expected_part) => Err(format!(": {actual_part} instead of {expected_part}")),
    }
}

fn replay(client: &str, namespace: &str) {
    let calls: BTreeMap<String, Vec<RecordedCall>> = serde_saphyr::from_str(REQUESTS).unwrap();
    let mut replay = CallReplay::start(namespace);
    for call in &calls[client] {
        replay.run(call);
    }
}

#[test]
fn the_requests_of_helm_are_answered_as_it_needs() {
    replay("Helm 4", "helm");
}

#[test]
fn the_requests_of_flux_are_answered_as_it_needs() {
    replay("Flux", "flux");
}

#[test]
fn the_requests_of_argo_cd_are_answered_as_it_needs() {
    replay("Argo CD", "argo");
}
