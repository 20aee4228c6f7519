//! Sets how the linker lays out the release binary.
#![expect(clippy::print_stdout, reason = "cargo reads instructions from it")]

use std::env::var;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name, value: &str| var(name).is_ok_and(|v| v == value);
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") {
        // What runs once at the start, or only when something has failed, is kept apart. Between
        // other functions it would have the pages around it read, and kept in memory, by all.
        println!("cargo:rustc-link-arg-bins=-Wl,-z,keep-text-section-prefix");
    }
}
