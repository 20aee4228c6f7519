//! The registry: the table of served resources, and the verbs of the API on them.
//!
//! http | [`LoopbackApi`] ──► [`Registry`] ──► admission ──► one transaction in the store
//!                                └──────────► watchcache ──► lists, watches
//!
//! Invariants: all writes take the same steps, whoever the caller is. A write is one
//! transaction on one key, built from one JSON tree and encoded once. Reads go through the
//! watch cache. An object that equals the stored one is not written. Authorization happens
//! in the callers. Only `strategy`, `conversion`, `selectable_fields` and the modules of
//! subresources know kinds by name.
//!
//! Entry points: [`Registry::new`], [`Registry::table`], [`LoopbackApi::new`].

mod allocation;
mod api_services;
mod bootstrap;
mod cache_metrics;
mod commit;
mod component_statuses;
mod computed_resources;
mod controller_writes;
mod conversion;
mod create;
mod custom_resources;
mod definition_names;
mod delete;
mod deletion_plan;
mod event_create;
mod eviction;
mod field_management;
mod import;
mod loopback;
mod metrics;
mod object_meta;
pub mod options;
mod read;
mod registry;
mod request;
mod requested_object;
mod resource_table;
mod role_escalation;
mod scale;
mod scale_managers;
mod scale_validation;
mod selectable_fields;
mod service_address_claims;
mod shown_managers;
mod status_patch;
mod strategy;
mod strict_errors;
mod subresource_create;
mod unused_claims;
mod update;
mod update_request;
mod webhooks;
mod write_base;
mod write_pipeline;

#[cfg(test)]
mod tests;

pub use component_statuses::StoreHealthProbe;
pub use computed_resources::{
    ComputedListRequest, ComputedObjects, ComputedResourceProvider, ComputedResourceProviders,
    RegistryReader,
};
pub use import::ImportOptions;
pub use loopback::LoopbackApi;
pub use read::{RegistryWatch, RegistryWatchEvent, RegistryWatchItem, select_by_kind};
pub use registry::{
    RawPathHandler, Registry, RegistryOptions, UnstoredCreateHandler, UnstoredCreateHandlers,
};
pub use request::{
    DeleteResponse, DeleteResult, FieldValidation, GetOptions, ObjectBody, ObjectListPage,
    RegistryWatchOptions, RegistryWriteOptions, RequestContext, WriteResult,
};
pub use resource_table::{
    ApiGroupInfo, DynamicApiGroup, DynamicResourceScope, GroupVersionInfo, ResourceInfo,
    ResourceTable, SubresourceInfo, decode_failure, version_priority,
};
pub use webhooks::{apply_policy_patch, apply_webhook_patch};
pub use write_pipeline::version_mismatch;
