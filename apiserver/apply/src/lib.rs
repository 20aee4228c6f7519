//! Server-side apply: who manages which fields of an object, and what an applied
//! configuration changes (`structured-merge-diff` and `apimachinery/pkg/util/managedfields`).
//!
//! `metadata.managedFields` ──► [`ManagedFields`] ──► [`FieldManager`] `apply` or `update`
//! ──► new object and new `managedFields`, or [`Conflicts`].
//!
//! Invariants: no I/O; the time is an argument. Field sets and JSON trees live only inside
//! one write; at rest the entries are `FieldsV1` text within the object. Field sets are
//! bounded in depth and size.
//!
//! Entry points: [`FieldManager`], [`ManagedFields`], [`ScaleEntries`], [`FieldSet`].

mod conflict;
mod encoded_entries;
mod field_manager;
mod field_set;
mod field_type;
mod fields_v1;
mod json_order;
mod last_applied;
mod list_item;
mod managed_fields;
mod manager;
mod path_element;
mod policy_merge;
mod pruning;
mod reset_fields;
mod scale_entries;
#[cfg(test)]
mod tests;
mod typed;
mod updater;
mod version_conversion;

pub use conflict::Conflicts;
pub use field_manager::{AppliedObject, ApplyError, FieldManager};
pub use field_set::{FieldSet, FieldSetNode};
pub use field_type::FieldType;
pub use managed_fields::{MalformedManagedFields, ManagedFields};
pub use manager::{ManagedFieldSet, ManagerId, ManagerOperation, ManagerSets};
pub use path_element::{KeyField, Path, PathElement, path_text};
pub use policy_merge::merge_policy_configuration;
pub use reset_fields::ResetFields;
pub use scale_entries::ScaleEntries;
pub use typed::{
    Comparison, DuplicateItems, ValidationErrors, compare, extract_items, extract_items_with_keys,
    field_set_of, merge, remove_items, validate,
};
pub use updater::{Updater, UpdaterError};
pub use version_conversion::{VersionConversionError, VersionedConverter};
