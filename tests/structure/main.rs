//! Holds the tree to its own rules: which crate may depend on which, how things are
//! named, how long a file may be, that every behavior has a test, and that documents name files
//! that exist.
//!
//! Every rule reads the tree itself; none of them lists an exception, but the number of import
//! circles that are left.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its machine fails it"
)]

/// Every behavior of the list has a test, and every test names a listed behavior.
mod behaviors;

/// What documents show in Rust and YAML is compiled and tested.
mod code_blocks;

/// The paths that documents name, and the items of the contract that comments cite.
mod documents;

/// Files of a crate do not import each other, but for the circles that are left.
mod circles;

/// Every item of the contract has a proof, or is a known gap.
mod contract;

/// The order of the crates, their names, and the features of what they share.
mod crates;

/// One set of features to run and to test.
mod one_build;

/// Where the files of modules, and their tests, stand.
mod modules;

/// Names of types, functions, locals, modules and files, and the header of every file.
mod names;

/// A test that was not run must not look like one that passed.
mod skipped_tests;

/// The facts about a source file that the rules need.
mod source;

use std::path::{Path, PathBuf};

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Appends every file below `dir` that has this extension; build output is left out.
fn collect_files(dir: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|n| n != "target") {
                collect_files(&path, extension, files);
            }
        } else if path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
}

/// Every Rust source file of the workspace, sorted.
fn source_paths() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in ["apiserver", "controllers", "openapi", "tests"] {
        collect_files(&root().join(dir), "rs", &mut files);
    }
    files.sort();
    files
}
