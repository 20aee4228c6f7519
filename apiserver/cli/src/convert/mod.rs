//! The command `flotilla convert`, which turns manifests of another control plane into
//! templates, policies and clusters, without a server.
//!
//! files ──► [`kubefed::convert`] ──► [`Conversion`] ──► manifests, and what they cannot say

pub(crate) mod conversion;
pub(crate) mod kubefed;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, Subcommand};
use conversion::{Conversion, Severity};
use serde_json::Value;

use crate::printers::{OutputFormat, encode_output};
use crate::{manifest_files, output};

/// Convert manifests of another multi-cluster control plane. No server is contacted.
#[derive(Args)]
#[command(after_help = "Examples:\n  flotilla convert kubefed -f federated.yaml")]
pub struct ConvertArgs {
    #[command(subcommand)]
    source: ConvertSource,
}

#[derive(Subcommand)]
enum ConvertSource {
    Kubefed(KubefedArgs),
}

/// Convert KubeFed's federated objects, replica preferences and clusters.
///
/// A federated object becomes a template, a policy with its placement and an override policy.
/// The copies that members have are adopted: none is created anew. What has no equal is listed,
/// and nothing is printed then, unless --allow-loss is given. Pass everything at once:
/// placements of namespaces and type configurations decide about the objects beside them.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla convert kubefed -f federated.yaml\n  flotilla convert kubefed -f federated.yaml -f preferences.yaml --allow-loss -o json"
)]
struct KubefedArgs {
    /// A file with manifests in YAML or JSON; - is standard input; may be repeated.
    #[arg(short, long, value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,
    /// Print the manifests although they lack what has no equal.
    #[arg(long)]
    allow_loss: bool,
    /// The format of the manifests.
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: ManifestFormat,
}

/// The format of printed manifests.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum ManifestFormat {
    Json,
    Yaml,
}

/// Converts the manifests of the files, and prints the result. The exit code is 1 if something
/// has no equal and that is not allowed.
pub fn run(arguments: &ConvertArgs) -> anyhow::Result<ExitCode> {
    let ConvertSource::Kubefed(arguments) = &arguments.source;
    let mut documents = Vec::new();
    for file in &arguments.filename {
        documents.extend(manifest_files::read_documents(file)?);
    }
    ensure!(!documents.is_empty(), "the files have no objects");
    let conversion = kubefed::convert(documents)?;
    for finding in &conversion.findings {
        output::print_progress(finding.to_string());
    }
    let losses = conversion.count(Severity::Loss);
    if losses > 0 && !arguments.allow_loss {
        output::print_progress(format!(
            "error: {losses} fields have no equal; change them, or convert without them by --allow-loss"
        ));
        return Ok(ExitCode::FAILURE);
    }
    print_manifests(&conversion, arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn print_manifests(
    conversion: &Conversion,
    format: ManifestFormat,
) -> anyhow::Result<()> {
    match format {
        ManifestFormat::Json => {
            let list = serde_json::json!({
                "apiVersion": "v1",
                "kind": "List",
                "items": conversion.manifests().collect::<Vec<&Value>>(),
            });
            let text = encode_output(Some(OutputFormat::Json), &list)?;
            output::print_line(text.unwrap_or_default());
        }
        ManifestFormat::Yaml => {
            for manifest in conversion.manifests() {
                let text = encode_output(Some(OutputFormat::Yaml), manifest)?;
                output::print_line(format!("---\n{}", text.unwrap_or_default()));
            }
        }
    }
    Ok(())
}
