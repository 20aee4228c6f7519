//! The parts that the controllers between templates and members share: what they are started with,
//! their error, and the clients and informers that several of them use. The model for the name is
//! Karmada's `pkg/controllers/context`.
//!
//! Entry points: [`PropagationContext`], [`TemplateInformers`],
//! [`WorkClient`].

mod binding_diff;
mod context;
mod error;
mod manifest_memory;
mod namespace_gate;
mod object_metadata;
mod switched_kinds;
mod template_filter;
mod template_informers;
mod type_configs;
mod work_client;
mod work_conditions;

pub use binding_diff::BindingDiff;
pub use context::PropagationContext;
pub use error::Error;
pub use manifest_memory::{ManifestMemoryBudget, estimate_encoded_tree_bytes, is_small_tree};
pub use namespace_gate::{NamespaceGates, gated_clusters, has_namespace_gate};
pub use object_metadata::{
    hash_without_status, is_changed_by_karmada, is_equal_except_status, set_metadata_entry,
};
pub use template_filter::{NamespaceFilter, SkippedResourceConfig, TemplateFilterOptions};
pub use template_informers::{TemplateInformers, TemplateKey, claiming_policy_ids};
pub use type_configs::{TypeConfigTarget, TypeConfigs};
pub use work_client::{DesiredWork, WorkClient, binding_key_of_work, complete_manifest};
pub use work_conditions::{
    APPLIED, AVAILABLE, WorkHealth, set_derived_conditions, time_until_degraded,
};
