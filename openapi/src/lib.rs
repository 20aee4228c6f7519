//! The API as data: its kinds, their fields and columns, and how objects are defaulted, validated
//! and published.
//!
//! `schemas/*.api` ──► [`KindCatalog`] (kinds + definitions) ──► [`Schema`] ──► default, prune, validate;
//! ──► [`publish`] (OpenAPI)
//!
//! Invariants: no I/O, no clock, no async runtime. The only parsed state is the static
//! catalog. Depth, number of errors and size of documents are bounded.
//!
//! Entry points: [`catalog()`], [`Schema`], [`SchemaCursor`], [`publish`].

mod api_approval;
mod catalog;
pub mod defaults;
mod definition_status;
mod jsonpath;
mod kind_definition;
mod model;
pub mod protobuf;
pub mod publish;
mod resource_names;
mod schema;
mod schema_file_parser;

pub use api_approval::{API_APPROVED_ANNOTATION, ApiApproval, is_protected_community_group};
pub use catalog::{KindCatalog, catalog, resource_of_kind};
pub use definition_status::{DefinitionSummary, desired_definition_status, is_established};
pub use jsonpath::JsonPath;
pub use kind_definition::definition_of_kind;
pub use model::{
    KindInfo, ListType, PatchMeta, PrinterColumn, RegexPattern, ScalePaths, SchemaComposition,
    SchemaDefinition, SchemaDefinitionArena, SchemaDefinitionId, SchemaField, SchemaNode,
    SchemaType, UntypedSchema, ValueValidation,
};
pub use resource_names::{NameConflict, ResourceNames, shadows_built_in};
pub use schema::{
    DefaultsTooLarge, EmbeddedResource, MAX_DEPTH, Schema, SchemaCursor, object_meta_error,
};
