//! The documents name files and folders that exist, and comments cite items of
//! `apiserver/CONTRACT.md` that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::{collect_files, root, source_paths};

/// Folders at the top of the repository; a path that begins with one is a path of ours.
const TOP_FOLDERS: [&str; 7] = [
    ".cargo/",
    ".ci/",
    "apiserver/",
    "controllers/",
    "manifests/",
    "openapi/",
    "tests/",
];

/// Files with these extensions are ours wherever they are named.
const EXTENSIONS: [&str; 5] = [".rs", ".md", ".api", ".txt", ".toml"];

/// Every document of the repository.
pub(crate) fn documents() -> Vec<PathBuf> {
    let mut files = vec![root().join("README.md")];
    for dir in ["apiserver", "controllers", "manifests", "openapi", "tests"] {
        collect_files(&root().join(dir), "md", &mut files);
    }
    files
}

/// The text without its blocks of code.
fn prose(text: &str) -> String {
    let mut inside_block = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        inside_block ^= is_fence;
        !inside_block && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether a span of code is a path of this repository. One with a placeholder is not.
fn is_repository_path(span: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let has_extension = EXTENSIONS.iter().any(|e| span.ends_with(e) && span != *e);
    let is_inside = TOP_FOLDERS.iter().any(|folder| span.starts_with(folder));
    span.chars().all(is_name) && (has_extension || is_inside)
}

/// The paths that a document names: in spans of code, relative to the repository or to
/// the document, and in links, relative to the document.
fn missing_paths(document: &Path) -> Vec<String> {
    let text = prose(&std::fs::read_to_string(document).unwrap());
    let folder = document.parent().unwrap();
    let spans = text.split('`').skip(1).step_by(2);
    let missing_spans = spans
        .filter(|span| is_repository_path(span))
        .filter(|span| !root().join(span).exists() && !folder.join(span).exists());
    let links = text.split("](").skip(1);
    let missing_links = links
        .filter_map(|rest| rest.split([')', '#']).next())
        .filter(|link| !link.is_empty() && !link.contains("://"))
        .filter(|link| !folder.join(link).exists());
    let missing = missing_spans.chain(missing_links);
    missing
        .map(|path| format!("{}: {path}", document.display()))
        .collect()
}

/// The tests in the last column of the table of the threat model.
fn tests_of_threat_model(document: &str) -> Vec<&str> {
    let section = document.split("## Threat model").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let rows = rows.filter_map(|row| row.rsplit('|').nth(1)).skip(1);
    rows.flat_map(|tests| tests.split('`').skip(1).step_by(2))
        .filter(|test| !test.contains('/'))
        .collect()
}

#[test]
fn the_tests_of_the_threat_model_exist() {
    let document = std::fs::read_to_string(root().join("manifests/README.md")).unwrap();
    let tests = tests_of_threat_model(&document);
    assert!(tests.len() > 10, "{tests:?}");
    let sources: Vec<String> = source_paths()
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let is_missing = |test: &&&str| {
        let definition = format!("fn {test}(");
        !sources.iter().any(|source| source.contains(&definition))
    };
    let missing: Vec<_> = tests.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no such test: {missing:?}");
}

#[test]
fn documents_name_paths_that_exist() {
    let missing: Vec<String> = documents()
        .iter()
        .flat_map(|document| missing_paths(document))
        .collect();
    assert!(missing.is_empty(), "no such path: {missing:#?}");
}

#[test]
fn a_span_is_a_path_if_it_names_a_file_of_ours() {
    for path in ["tests/tools/get", "main.rs", "apiserver/cmd/", "Cargo.toml"] {
        assert!(is_repository_path(path), "{path}");
    }
    for other in [
        "pkg/x.go",
        "tests/<area>/main.rs",
        "cargo test",
        "a/b",
        ".rs",
    ] {
        assert!(!is_repository_path(other), "{other}");
    }
}

/// Whether a word is the number of an item of the contract, such as B2.8.
fn is_contract_item(word: &str) -> bool {
    let Some((section, item)) = word.split_once('.') else {
        return false;
    };
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let numbered = section.strip_prefix(|c: char| ('A'..='G').contains(&c));
    numbered.is_some_and(digits) && digits(item)
}

/// The items that a text names.
fn contract_items(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let words = words.map(|word| word.trim_end_matches('.'));
    words
        .filter(|word| is_contract_item(word))
        .map(str::to_owned)
        .collect()
}

#[test]
fn cited_items_of_the_contract_exist() {
    let contract = std::fs::read_to_string(root().join("apiserver/CONTRACT.md")).unwrap();
    let defined: BTreeSet<String> = contract_items(&contract);
    let mut missing = Vec::new();
    for path in source_paths() {
        let text = std::fs::read_to_string(&path).unwrap();
        let comments = text.lines().filter(|line| line.trim().starts_with("//"));
        let cited = comments.flat_map(contract_items);
        let unknown = cited.filter(|item| !defined.contains(item));
        missing.extend(unknown.map(|item| format!("{}: {item}", path.display())));
    }
    assert!(
        missing.is_empty(),
        "not in apiserver/CONTRACT.md: {missing:?}"
    );
}
