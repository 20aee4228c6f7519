//! The versions in which policies and webhooks may get the objects of a request.

use async_trait::async_trait;
use machinery::{Gvk, Gvr, Status};
use serde_json::Value;

/// Converts objects between the form in which they are written and the version at an index
/// of [`EquivalentVersions::kinds`].
#[async_trait]
pub trait VersionConverter: Send + Sync {
    async fn to_version(&self, version: usize, object: &Value) -> Result<Value, Status>;
    async fn to_requested_version(&self, version: usize, object: Value) -> Result<Value, Status>;

    /// Merges a configuration into an object of a version by the version's schema. The error
    /// says why it cannot be.
    fn merge_configuration(
        &self,
        version: usize,
        object: &Value,
        configuration: &Value,
    ) -> Result<Value, String>;
}

/// An object's kind in all served versions, the requested one first, and the
/// conversions between them and the form in which it is written.
pub struct EquivalentVersions<'a> {
    pub kinds: Vec<(Gvk, Gvr)>,
    pub converter: &'a dyn VersionConverter,
}

impl EquivalentVersions<'_> {
    /// Converts an object; null stays null.
    pub(crate) async fn convert(&self, version: usize, object: &Value) -> Result<Value, Status> {
        match object {
            Value::Null => Ok(Value::Null),
            object => self.converter.to_version(version, object).await,
        }
    }
}
