//! Applies the patches of clients to objects: JSON patch, JSON merge patch and strategic
//! merge patch.
//!
//! Invariants: no I/O, no clock. A failed patch changes nothing. Bounded before anything is
//! applied: the operations and copied bytes of a JSON patch, and the depth of the result.
//!
//! Entry points: [`json`], [`merge`], [`strategic`].

mod error;
mod json;
mod merge;
mod order;
mod strategic;

pub use error::Error;
pub use json::json;
pub use merge::merge;
pub use strategic::strategic;
