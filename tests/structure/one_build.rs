//! `cargo run` and `cargo test --workspace` share what they build: every package has the same
//! features in both.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::root;

/// Each package and its version with the feature sets in which `cargo tree` shows it.
type PackageFeatures = BTreeMap<String, BTreeSet<String>>;

fn package_features(arguments: &[&str]) -> PackageFeatures {
    let out = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix=none", "--format={p}\t{f}"])
        .args(arguments)
        .current_dir(root())
        // With this setting of the caller's, no features would differ.
        .env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{errors}");
    let mut packages = PackageFeatures::new();
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        // A package that was shown before ends with ` (*)`.
        let line = line.strip_suffix(" (*)").unwrap_or(line);
        if let Some((package, features)) = line.split_once('\t') {
            let entry = packages.entry(package.to_owned()).or_default();
            entry.insert(features.to_owned());
        }
    }
    packages
}

/// The packages whose features differ. Those that only tests need are in no build of the binary.
fn differences(run: &PackageFeatures, test: &PackageFeatures) -> Vec<String> {
    run.iter()
        .filter(|(package, features)| test.get(*package) != Some(features))
        .map(|(package, features)| {
            let in_tests = test.get(package);
            format!("{package}: {features:?} to run, {in_tests:?} to test")
        })
        .collect()
}

/// A package with other features is compiled again, and so is all that is built on it.
#[test]
fn nothing_is_compiled_twice_to_run_and_to_test() {
    let run = package_features(&["--edges=normal,no-proc-macro"]);
    let test = package_features(&["--workspace", "--edges=normal,dev,no-proc-macro"]);
    let mut wrong = differences(&run, &test);
    // Macros and what build scripts need are built for the host, with features of their own.
    // `cargo tree` does not tell a package for the host from the same one in the binary, so
    // packages that are in both are left out here.
    let on_host = |mut packages: PackageFeatures| {
        packages.retain(|package, _| !test.contains_key(package));
        packages
    };
    let run_host = on_host(package_features(&["--edges=normal,build"]));
    let test_host = on_host(package_features(&[
        "--workspace",
        "--edges=normal,build,dev",
    ]));
    wrong.extend(differences(&run_host, &test_host));
    assert!(
        wrong.is_empty(),
        "add the features that tests need to the last dependencies of apiserver/cmd/Cargo.toml: {wrong:#?}"
    );
}
