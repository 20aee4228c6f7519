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

use crate::model::Kind;
use crate::schema::Schema;

pub use protobuf::v2_protobuf;

/// A served kind and its schema; custom kinds are not in the catalog.
#[derive(Clone, Copy, Debug)]
pub struct Resource<'a> {
    pub kind: &'a Kind,
    pub schema: &'a Schema,
}

/// The versions of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    V2,
    V3,
}

impl Form {
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
pub fn v3_group(resources: &[Resource<'_>]) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths::paths(resources, Form::V3),
        "components": { "schemas": schemas::schemas(resources, Form::V3) },
    })
}

/// The version 2 document of all kinds.
pub fn v2(resources: &[Resource<'_>]) -> Value {
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths::paths(resources, Form::V2),
        "definitions": schemas::schemas(resources, Form::V2),
    })
}

fn info() -> Value {
    json!({ "title": "Kubernetes", "version": "v1" })
}

#[cfg(test)]
mod tests;
