//! Where the files of modules, and their tests, stand.

use crate::{root, source_paths};

#[test]
fn a_module_with_a_folder_is_its_mod_rs() {
    let mut wrong = Vec::new();
    for path in source_paths() {
        let folder = path.with_extension("");
        if folder.is_dir() {
            wrong.push(path.strip_prefix(root()).unwrap().display().to_string());
        }
    }
    assert!(
        wrong.is_empty(),
        "each is `mod.rs` in its folder: {wrong:#?}"
    );
}

/// The tests of a module are within it, in its `tests.rs` or in its folder `tests`.
#[test]
fn tests_of_a_module_stand_in_one_place() {
    let mut wrong = Vec::new();
    for path in source_paths() {
        let text = std::fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        let in_crate = path.contains("/src/");
        let has_path_attribute = text.lines().any(|line| line.starts_with("#[path"));
        if in_crate && (path.ends_with("_tests.rs") || has_path_attribute) {
            wrong.push(path);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
