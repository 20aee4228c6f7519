//! Applies the patches of clients to objects: JSON patch, JSON merge patch and strategic
//! merge patch.
//!
//! Invariants: no I/O, no clock. A failed patch changes nothing. Bounded before anything is
//! applied: the operations and copied bytes of a JSON patch, and the depth of the result.
//!
//! Entry points: [`json`], [`merge`], [`strategic`].

mod element_order;
mod error;
mod json;
mod merge;
mod strategic;

pub use error::Error;
pub use json::apply_json_patch;
pub use merge::apply_merge_patch;
pub use strategic::apply_strategic_merge_patch;
