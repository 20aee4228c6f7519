//! The versions of OpenAPI and how each refers to a schema.

use serde_json::{Value, json};

/// The versions of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenApiVersion {
    V2,
    V3,
}

impl OpenApiVersion {
    pub(super) fn reference(self, name: &str) -> Value {
        let prefix = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({ "$ref": format!("{prefix}{name}") })
    }
}
