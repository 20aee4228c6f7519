//! Server-side apply and `managedFields`.

/// Configurations.
mod applying;

/// The cases of kube-apiserver's integration tests of apply.
mod kubernetes_cases;

/// `managedFields`.
mod ownership;

/// The `scale` and `status` subresources of built-in kinds.
mod subresources;

use std::sync::Arc;

use harness::raw_http::RawHttpResponse;
use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

/// Requests on the objects of one namespace of the shared server.
struct ApplyFixture {
    server: Arc<ApiTestServer>,
    namespace: &'static str,
}

impl ApplyFixture {
    fn new(namespace: &'static str) -> Self {
        let server = ApiTestServer::shared();
        server.create_namespace(namespace);
        Self { server, namespace }
    }

    fn config_map(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps/a", self.namespace)
    }

    fn deployment(&self) -> String {
        format!(
            "/apis/apps/v1/namespaces/{}/deployments/web",
            self.namespace
        )
    }

    fn send(&self, method: &str, path: &str, media_type: &str, body: &Value) -> RawHttpResponse {
        let request = self.server.request(method, path);
        request.body(media_type, body.to_string()).send()
    }

    /// Applies as `query`: the manager, and further parameters.
    fn apply(&self, path: &str, query: &str, config: &Value) -> RawHttpResponse {
        self.send(
            "PATCH",
            &format!("{path}?fieldManager={query}"),
            APPLY,
            config,
        )
    }

    #[track_caller]
    fn applied(&self, path: &str, query: &str, config: &Value, code: u16) -> Value {
        let reply = self.apply(path, query, config);
        assert_eq!(reply.code, code, "{}", reply.text());
        reply.json()
    }

    #[track_caller]
    fn written(&self, method: &str, path: &str, media_type: &str, body: &Value) -> Value {
        let reply = self.send(method, path, media_type, body);
        assert!((200..300).contains(&reply.code), "{}", reply.text());
        reply.json()
    }

    fn object(&self, path: &str) -> Value {
        self.server.get(path).json()
    }
}

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn deployment(replicas: Option<i64>, containers: &Value) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}}});
    if let Some(replicas) = replicas {
        object["spec"]["replicas"] = replicas.into();
    }
    object
}

fn resource_version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

/// `manager operation subresource` and the fields of every manager.
fn managers(object: &Value) -> Vec<(String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array();
    let entries = entries.into_iter().flatten();
    entries
        .map(|entry| {
            assert_eq!(entry["fieldsType"], "FieldsV1");
            let words = ["manager", "operation", "subresource"];
            let words = words.map(|field| entry[field].as_str().unwrap_or(""));
            (
                words.join(" ").trim_end().to_owned(),
                entry["fieldsV1"].clone(),
            )
        })
        .collect()
}

#[track_caller]
fn check_managers(object: &Value, expected: &[(&str, Value)]) {
    let expected = expected.iter().map(|(m, f)| ((*m).to_owned(), f.clone()));
    assert_eq!(managers(object), expected.collect::<Vec<_>>());
}
