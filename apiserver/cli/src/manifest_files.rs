//! Reads manifests from files, for the flag `-f` of commands.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;

const STANDARD_INPUT: &str = "-";

/// Reads the YAML or JSON documents of a file; `-` is standard input. A list is replaced
/// by its items, and empty documents are skipped.
pub(crate) fn read_documents(file: &Path) -> anyhow::Result<Vec<Value>> {
    let text = read_text(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse_documents(&text).with_context(|| file.display().to_string())
}

fn read_text(file: &Path) -> std::io::Result<String> {
    if file == Path::new(STANDARD_INPUT) {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
}

pub(crate) fn parse_documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let all = machinery::yaml::from_documents(text)?;
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
    Ok(documents)
}
