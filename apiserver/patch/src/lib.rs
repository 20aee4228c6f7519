//! Patches: how a client's description of a change becomes a new object.
//!
//! document + patch (+ schema) ──► new document, or why not
//!
//! Invariants: pure; no I/O, no clock. A patch that fails leaves nothing behind.
//! Work and size are bounded before anything is applied: operations and copied
//! bytes of a JSON patch, and the depth of what may come out.
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
