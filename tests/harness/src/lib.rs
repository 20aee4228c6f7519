//! What integration tests stand on: processes of the binary under test, and the
//! real components beside it.
//!
//! [`tools`] (where programs are) ──► a test's own processes, dead with their handle
//!
//! Only tests depend on this crate. Nothing here is installed, no port is fixed,
//! and nothing outlives the test that started it. What goes wrong here panics with
//! what was seen, as an assertion would.
//!
//! Entry points: [`tools::tools`], [`Process`].

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its machine fails it"
)]

pub mod process;
pub mod tools;

pub use process::Process;
pub use tools::tools;
