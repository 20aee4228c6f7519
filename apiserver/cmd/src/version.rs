//! The command `flotilla version`, and the version of the binary.

use clap::Args;
use flotilla_cli::output;
use flotilla_http::VersionInfo;
use serde_json::json;

/// Print the version of this binary and of the Kubernetes API that it serves.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla version -o json")]
pub(crate) struct VersionArgs {
    /// One of 'json' or 'yaml'; text by default.
    #[arg(short, long, value_parser = ["json", "yaml"])]
    output: Option<String>,
}

/// The version of the Kubernetes API, with Flotilla's own version appended.
pub(crate) fn current() -> VersionInfo {
    VersionInfo::new("1", "36", env!("CARGO_PKG_VERSION"))
}

pub(crate) fn run(arguments: &VersionArgs) -> anyhow::Result<()> {
    let document = json!({"clientVersion": current().to_json()});
    output::print_line(match arguments.output.as_deref() {
        Some("json") => serde_json::to_string_pretty(&document)?,
        Some(_) => serde_saphyr::to_string(&document)?,
        None => format!("flotilla {}", current().git_version),
    });
    Ok(())
}
