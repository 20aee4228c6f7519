//! Plain HTTP requests to servers of these tests.

use serde_json::Value;

pub(crate) use harness::wire::{Ask, Identity, Reply, Stream};

use crate::plane::Plane;

impl Plane {
    /// A request of the administrator.
    pub(crate) fn ask<'a>(&'a self, method: &'a str, path: &str) -> Ask<'a> {
        Ask::new(&self.address, &self.admin, method, path)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path).reply()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path).json(body).reply()
    }

    /// Creates a namespace.
    pub(crate) fn namespace(&self, name: &str) {
        let body = serde_json::json!({"metadata": {"name": name}});
        let reply = self.post("/api/v1/namespaces", &body);
        assert_eq!(reply.code, 201, "{}", reply.text());
    }
}
