//! Operations on a JSON value with its type (`structured-merge-diff/typed`).

mod comparison;
mod field_set_of_value;
mod merge;
mod removal;
mod schema_change;
mod validation;

pub use comparison::{Comparison, compare};
pub use field_set_of_value::field_set_of;
pub use merge::merge;
pub use removal::{extract_items, extract_items_with_keys, remove_items};
pub(crate) use schema_change::{named_fields_as_members, reconcile_with_schema};
pub use validation::{DuplicateItems, ValidationErrors, validate};
