//! Loads the EncryptionConfiguration of `--encryption-provider-config`: which resources are
//! encrypted in the store, and with which keys.
//!
//! file ──► [`config`] (validation) ──► [`transformers`] (by storage prefix) ──► storage

mod config;
mod scope;
#[cfg(test)]
mod tests;
mod transformers;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use serde_json::Value;
use storage::encryption::ResourceTransformers;

pub use scope::EncryptableResources;

/// Reads and validates the file. No error repeats a key.
pub fn load(file: &Path, scope: EncryptableResources) -> anyhow::Result<ResourceTransformers> {
    let flag = || format!("--encryption-provider-config {}", file.display());
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", flag()))?;
    warn_when_readable_by_others(file);
    parse(&text, scope).map_err(|reason| anyhow!("{}: {reason}", flag()))
}

fn parse(text: &str, scope: EncryptableResources) -> Result<ResourceTransformers, String> {
    let document: Value = serde_saphyr::from_str(text).map_err(|e| {
        // The parser's error may quote a line of the file, and with it a key.
        let location = e
            .location()
            .map(|l| format!(" at line {} column {}", l.line(), l.column()));
        format!("not YAML or JSON{}", location.unwrap_or_default())
    })?;
    let entries = config::parse(&document).map_err(|errors| config::join_errors(&errors))?;
    transformers::resource_transformers(entries, scope)
        .map_err(|errors| config::join_errors(&errors))
}

fn warn_when_readable_by_others(file: &Path) {
    let mode = std::fs::metadata(file).map_or(0, |m| m.permissions().mode() & 0o777);
    if mode & 0o077 != 0 {
        tracing::warn!(
            "{} has encryption keys, and its mode {mode:04o} gives access to other users; use 0600",
            file.display()
        );
    }
}
