//! Subresources that lead elsewhere: `clusters/proxy`, `pods/log`, `pods/exec`.
//!
//! Declared here, handed in by the binary: this room knows no kind by name.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use http::{Request, Response};
use hyper::body::Incoming;
use machinery::{Status, UserInfo};

use crate::body::Body;

/// A request to pass on. It was authorised already.
pub struct Connection {
    pub user: Arc<UserInfo>,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    pub name: String,
    /// What follows the subresource in the path, as it came, with its slash;
    /// without the query.
    pub tail: String,
    /// The request itself; an upgrade can be taken from it.
    pub request: Request<Incoming>,
}

/// Answers the requests of one subresource.
#[async_trait]
pub trait Connect: Send + Sync {
    async fn connect(&self, connection: Connection) -> Result<Response<Body>, Status>;
}

/// By group, resource and subresource.
pub type Connectors = HashMap<(String, String, String), Arc<dyn Connect>>;
