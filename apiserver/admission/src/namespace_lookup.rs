//! Reads the namespaces that selectors and expressions look at.

use async_trait::async_trait;
use machinery::{Object, Status};

/// Reads namespaces, of this server or of its host.
#[async_trait]
pub trait NamespaceLookup: Send + Sync {
    /// The namespace; `None` only when that server reports it missing now.
    async fn get_namespace(&self, name: &str) -> Result<Option<Object>, Status>;
}
