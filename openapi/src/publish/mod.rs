//! Generates the OpenAPI documents of the served kinds: version 3 documents (one per group
//! version, and their index), one version 2 document, and its protobuf encoding.
//!
//! The output is deterministic.
//!
//! kind + schema ──► `schemas` (components) + `paths` (operations) ──► document

mod inline;
mod openapi_version;
mod paths;
mod protobuf;
mod published_resource;
mod schemas;

use serde_json::{Map, Value, json};

use openapi_version::OpenApiVersion;

pub use inline::inline_schema;
pub use protobuf::v2_protobuf;
pub use published_resource::PublishedResource;

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
