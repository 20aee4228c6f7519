//! Generates the OpenAPI documents of the served kinds: version 3 documents (one per group
//! version, and their index), one version 2 document, and its protobuf encoding.
//!
//! The output is deterministic.
//!
//! kind + schema ──► `schemas` (components) + `paths` (operations) ──► document

mod paths;
mod protobuf;
mod schemas;

use serde_json::{Map, Value, json};

use crate::model::KindInfo;
use crate::schema::Schema;

pub use protobuf::v2_protobuf;

/// A served kind and its schema; custom kinds are not in the catalog.
#[derive(Clone, Copy, Debug)]
pub struct PublishedResource<'a> {
    pub kind: &'a KindInfo,
    pub schema: &'a Schema,
}

/// The versions of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenApiVersion {
    V2,
    V3,
}

impl OpenApiVersion {
    fn reference(self, name: &str) -> Value {
        let at = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({ "$ref": format!("{at}{name}") })
    }
}

/// The index at `/openapi/v3`. Each group version is `api/v1` or `apis/<group>/<version>`,
/// with the hash of its document.
pub fn v3_index(groups: &[(String, String)]) -> Value {
    let paths: Map<String, Value> = groups
        .iter()
        .map(|(path, hash)| {
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path.clone(), json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// The version 3 document of the kinds of one group version.
pub fn v3_document(resources: &[PublishedResource<'_>]) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths::paths(resources, OpenApiVersion::V3),
        "components": { "schemas": schemas::schemas(resources, OpenApiVersion::V3) },
    })
}

/// The version 2 document of all kinds.
pub fn v2_document(resources: &[PublishedResource<'_>]) -> Value {
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths::paths(resources, OpenApiVersion::V2),
        "definitions": schemas::schemas(resources, OpenApiVersion::V2),
    })
}

fn info() -> Value {
    json!({ "title": "Kubernetes", "version": "v1" })
}

#[cfg(test)]
mod tests;
