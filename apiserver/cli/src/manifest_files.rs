//! Reads manifests from files, for the flag `-f` of commands.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;

const STANDARD_INPUT: &str = "-";
/// The bytes of a file that is read; values take several times as much memory.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Reads the YAML or JSON documents of a file; `-` is standard input. A list is replaced
/// by its items, and empty documents are skipped.
pub(crate) fn read_documents(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = read_text(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse_file(&text).with_context(|| file.display().to_string())
}

fn read_text(file: &Path) -> anyhow::Result<String> {
    match file == Path::new(STANDARD_INPUT) {
        true => read_bounded(std::io::stdin(), MAX_FILE_BYTES),
        false => read_bounded(File::open(file)?, MAX_FILE_BYTES),
    }
}

/// Reads a text that may have no end.
fn read_bounded(input: impl Read, max_bytes: u64) -> anyhow::Result<String> {
    let mut text = String::new();
    let length = input.take(max_bytes + 1).read_to_string(&mut text)?;
    ensure!(
        length as u64 <= max_bytes,
        "it has more than {} MiB: split it into several files",
        max_bytes >> 20
    );
    Ok(text)
}

/// Parses the documents of a file that the user has named, or what a tool made of it.
pub(crate) fn parse_file(text: &str) -> anyhow::Result<Vec<Value>> {
    Ok(flatten_lists(machinery::yaml::from_large_documents(text)?))
}

/// Parses the documents of a text that somebody else may have written.
pub(crate) fn parse_documents(text: &str) -> anyhow::Result<Vec<Value>> {
    Ok(flatten_lists(machinery::yaml::from_documents(text)?))
}

fn flatten_lists(all: Vec<Value>) -> Vec<Value> {
    let mut documents = Vec::new();
    for mut document in all {
        match document.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => documents.extend(items),
            _ if document.is_null() => {}
            _ => match document {
                Value::Array(items) => documents.extend(items),
                document => documents.push(document),
            },
        }
    }
    documents
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: CLI-manifest-files
    #[test]
    fn a_file_without_end_is_refused() {
        let error = read_bounded(std::io::repeat(b' '), 1 << 20).unwrap_err();
        assert!(error.to_string().contains("more than 1 MiB"), "{error}");
        assert_eq!(read_bounded(&b"a: b"[..], 4).unwrap(), "a: b");
    }

    // proves: CLI-manifest-files
    #[test]
    fn a_file_may_have_more_documents_than_a_text_of_somebody_else() {
        let text = "kind: ConfigMap\n---\n".repeat(1_025);
        assert!(parse_documents(&text).is_err());
        assert_eq!(parse_file(&text).unwrap().len(), 1_025);
    }
}
