//! Traits for subresources that the registry does not store: `clusters/proxy`,
//! `pods/log` and `pods/exec` connect elsewhere, others compute a value on read.
//!
//! The binary registers the implementations, so that this crate knows no kind by name.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use client::Shutdown;
use http::{Request, Response};
use hyper::body::Incoming;
use machinery::{Status, UserInfo};
use serde_json::Value;
use tokio::time::Instant;

use crate::body::Body;
use crate::requestinfo::Query;

/// An authorized request to a connecting subresource (kube-apiserver's
/// `rest.Connecter`).
pub struct Connection {
    pub user: Arc<UserInfo>,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    pub name: String,
    /// The path after the subresource, undecoded, with its leading slash and without
    /// the query.
    pub tail: String,
    /// Deadline of the response; `None` for long-running requests.
    pub deadline: Option<Instant>,
    /// Triggered when the server stops and long-running requests must end.
    pub closing: Shutdown,
    /// The request itself; the implementation may upgrade it.
    pub request: Request<Incoming>,
}

impl Connection {
    /// The first value of a query parameter.
    pub fn param(&self, name: &str) -> Option<String> {
        self.query().get(name).map(str::to_owned)
    }

    /// All values of a query parameter.
    pub fn params(&self, name: &str) -> Vec<String> {
        self.query().all(name).map(str::to_owned).collect()
    }

    /// A boolean query parameter: present, and neither `0` nor `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.query().flag(name)
    }

    fn query(&self) -> Query {
        Query::parse(self.request.uri().query())
    }
}

/// Serves the requests of one connecting subresource.
#[async_trait]
pub trait Connect: Send + Sync {
    async fn connect(&self, connection: Connection) -> Result<Response<Body>, Status>;
}

/// By group, resource and subresource.
pub type Connectors = HashMap<(String, String, String), Arc<dyn Connect>>;

/// Computes the value of a read-only subresource that is in the resource table but not
/// in the store.
#[async_trait]
pub trait Tell: Send + Sync {
    /// `namespace` is empty for cluster-scoped resources.
    async fn tell(&self, namespace: &str, name: &str) -> Result<Value, Status>;
}

/// By group, resource and subresource.
pub type Tellers = HashMap<(String, String, String), Arc<dyn Tell>>;
