//! The Rust and YAML that documents show is part of a file that is compiled or tested.

use std::path::Path;

use crate::{collect_files, documents, root, source_paths};

/// The text without indentation and blank lines.
fn normalized(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// The blocks of a language in a document.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let (mut blocks, mut open) = (Vec::new(), None::<String>);
    for line in document.lines() {
        let fence = line.trim().strip_prefix("```");
        match (fence, &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(of), None) if of == language => open = Some(String::new()),
            (None, Some(block)) => block.push_str(&format!("{line}\n")),
            (Some(_), None) | (None, None) => {}
        }
    }
    blocks
}

/// The blocks of a language in these documents that no text contains.
fn missing_blocks(documents: &[impl AsRef<Path>], language: &str, texts: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for path in documents {
        let path = path.as_ref();
        let document = std::fs::read_to_string(path).unwrap();
        for block in blocks(&document, language) {
            let block_text = normalized(&block);
            if !texts.iter().any(|text| text.contains(&block_text)) {
                missing.push(format!("{}:\n{block}", path.display()));
            }
        }
    }
    missing
}

fn normalized_texts(paths: &[impl AsRef<Path>]) -> Vec<String> {
    let texts = paths.iter();
    texts
        .map(|path| normalized(&std::fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn rust_in_documents_is_compiled() {
    let sources = normalized_texts(&source_paths());
    let missing = missing_blocks(&documents::documents(), "rust", &sources);
    assert!(missing.is_empty(), "in no source file: {missing:#?}");
}

#[test]
fn examples_of_tests_are_tests() {
    let mut files = Vec::new();
    collect_files(&root().join("tests"), "yaml", &mut files);
    let missing = missing_blocks(
        &[root().join("tests/README.md")],
        "yaml",
        &normalized_texts(&files),
    );
    assert!(missing.is_empty(), "in no test: {missing:#?}");
}
