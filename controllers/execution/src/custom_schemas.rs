//! Finds the schemas of custom resources in their definitions in the control plane. A schema is read
//! only when a comparison depends on it, and kept for a minute.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, ResourcePath};
use flotilla_runtime::RestMapping;
use machinery::{Gvk, Gvr, Object};
use openapi::Schema;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const MAX_AGE: Duration = Duration::from_secs(60);
/// Beyond this number, old schemas are dropped before another is kept.
const MAX_SCHEMAS: usize = 100;

/// The schema of a kind, if it has one, and when it was read.
struct CachedSchema {
    schema: Option<Schema>,
    read_at: Instant,
}

pub(crate) struct CustomSchemas {
    control_plane: Arc<dyn Api>,
    timeout: Duration,
    schemas: Mutex<HashMap<Gvk, CachedSchema>>,
}

impl CustomSchemas {
    pub(crate) fn new(control_plane: Arc<dyn Api>, timeout: Duration) -> Self {
        Self {
            control_plane,
            timeout,
            schemas: Mutex::default(),
        }
    }

    /// The schema of a kind; `None` if it has none, or if its definition cannot be read: agents may
    /// not.
    pub(crate) async fn get(&self, mapping: &RestMapping) -> Option<Schema> {
        let now = Instant::now();
        let is_fresh = |cached: &CachedSchema| now.duration_since(cached.read_at) < MAX_AGE;
        if let Some(cached) = self
            .schemas
            .lock()
            .get(&mapping.gvk)
            .filter(|c| is_fresh(c))
        {
            return cached.schema.clone();
        }
        let name = format!("{}.{}", mapping.gvr.resource, mapping.gvr.group);
        let definition = self
            .control_plane
            .get(ResourcePath::object(&DEFINITIONS, "", &name));
        let definition = tokio::time::timeout(self.timeout, definition).await;
        let schema = match definition {
            Ok(Ok(definition)) => schema_of_version(&definition, &mapping.gvk.version),
            Ok(Err(_)) | Err(_) => None,
        };
        let mut schemas = self.schemas.lock();
        if schemas.len() >= MAX_SCHEMAS {
            schemas.retain(|_, cached| is_fresh(cached));
        }
        let cached = CachedSchema {
            schema: schema.clone(),
            read_at: now,
        };
        schemas.insert(mapping.gvk.clone(), cached);
        schema
    }
}

fn schema_of_version(definition: &Object, version: &str) -> Option<Schema> {
    let definition = definition.value().ok()?;
    let versions = definition["spec"]["versions"].as_array()?;
    let version: &Value = versions.iter().find(|v| v["name"] == version)?;
    Schema::from_crd(&version["schema"]["openAPIV3Schema"]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_keys::ListKeys;
    use serde_json::json;

    #[test]
    fn the_schema_of_a_version_has_its_list_keys() {
        let parts = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}}}});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"parts": parts}}});
        let definition = json!({"metadata": {"name": "things.example.io"},
            "spec": {"versions": [{"name": "v1"}, {"name": "v2", "schema": schema}]}});
        let definition = Object::from_value(&definition).unwrap();
        let schema = schema_of_version(&definition, "v2").unwrap();
        let keys = ListKeys::of_schema(schema.root().field("parts"));
        assert_eq!(keys, ListKeys::Fields(vec![("name".to_owned(), None)]));
        assert!(schema_of_version(&definition, "v3").is_none());
    }
}
