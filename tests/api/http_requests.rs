//! Plain HTTP requests to servers of these tests.

use std::time::{Duration, Instant};

use harness::raw_http::{RawHttpRequest, RawHttpResponse};
use serde_json::Value;

use crate::api::test_server::ApiTestServer;

const TIMEOUT: Duration = Duration::from_secs(90);

impl ApiTestServer {
    /// A request of the administrator.
    pub(crate) fn request<'a>(&'a self, method: &'a str, path: &str) -> RawHttpRequest<'a> {
        RawHttpRequest::new(&self.address, &self.admin, method, path)
    }

    pub(crate) fn get(&self, path: &str) -> RawHttpResponse {
        self.request("GET", path).send()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> RawHttpResponse {
        self.request("POST", path).json(body).send()
    }

    /// Creates a namespace.
    pub(crate) fn create_namespace(&self, name: &str) {
        let body = serde_json::json!({"metadata": {"name": name}});
        let reply = self.post("/api/v1/namespaces", &body);
        assert_eq!(reply.code, 201, "{}", reply.text());
    }
}

/// Polls until there is a value, and returns it.
pub(crate) fn wait_until<T>(description: &str, poll: impl Fn() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(Instant::now() < end, "never: {description}");
        harness::sleep_blocking(Duration::from_millis(20));
    }
}
