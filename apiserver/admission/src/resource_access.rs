//! Declares how admission learns whether the writer of an object may use the objects that it names.

use async_trait::async_trait;
use machinery::{Gvr, Status, UserInfo};

/// The object of a request of a user; an empty name is that of any object, an empty namespace
/// stands for all.
#[derive(Clone, Copy, Debug)]
pub struct AccessedResource<'a> {
    pub resource: &'a Gvr,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Decides whether a user may do something to a resource. Fails when this cannot be decided.
#[async_trait]
pub trait ResourceAuthorizer: Send + Sync {
    async fn may(
        &self,
        user: &UserInfo,
        verb: &str,
        accessed: AccessedResource<'_>,
    ) -> Result<bool, Status>;
}
