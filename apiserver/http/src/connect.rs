//! Subresources that lead elsewhere: `clusters/proxy`, `pods/log`, `pods/exec`; and
//! those that tell what is not stored.
//!
//! Declared here, handed in by the binary: this room knows no kind by name.

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

/// A request to pass on. It was authorised already.
pub struct Connection {
    pub user: Arc<UserInfo>,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    pub name: String,
    /// What follows the subresource in the path, as it came, with its slash;
    /// without the query.
    pub tail: String,
    /// When the reply has to be over; `None`: it may last.
    pub deadline: Option<Instant>,
    /// Triggered when what lasts is to end, as the server stops.
    pub closing: Shutdown,
    /// The request itself; an upgrade can be taken from it.
    pub request: Request<Incoming>,
}

impl Connection {
    /// The first value of a parameter.
    pub fn param(&self, name: &str) -> Option<String> {
        self.query().get(name).map(str::to_owned)
    }

    /// All values of a parameter.
    pub fn params(&self, name: &str) -> Vec<String> {
        self.query().all(name).map(str::to_owned).collect()
    }

    /// A boolean parameter: there, and neither `0` nor `false`.
    pub fn flag(&self, name: &str) -> bool {
        self.query().flag(name)
    }

    fn query(&self) -> Query {
        Query::parse(self.request.uri().query())
    }
}

/// Answers the requests of one subresource.
#[async_trait]
pub trait Connect: Send + Sync {
    async fn connect(&self, connection: Connection) -> Result<Response<Body>, Status>;
}

/// By group, resource and subresource.
pub type Connectors = HashMap<(String, String, String), Arc<dyn Connect>>;

/// Tells of an object what is not stored with it: a subresource that is only read,
/// and that the resource table knows.
#[async_trait]
pub trait Tell: Send + Sync {
    /// `namespace` is empty for cluster-scoped resources.
    async fn tell(&self, namespace: &str, name: &str) -> Result<Value, Status>;
}

/// By group, resource and subresource.
pub type Tellers = HashMap<(String, String, String), Arc<dyn Tell>>;
