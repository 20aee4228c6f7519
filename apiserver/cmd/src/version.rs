//! The command `flotilla version`, and the version of the binary.

use std::sync::LazyLock;

use clap::Args;
use flotilla_cli::output;
use flotilla_http::VersionInfo;
use serde_json::json;

/// The release of Karmada whose API this binary serves.
const KARMADA_API: &str = "1.19";
/// The release of Kubernetes whose API this binary serves.
const KUBERNETES_API: (&str, &str) = ("1", "36");

/// Print the version of this binary, and of the APIs of Karmada and Kubernetes that it serves.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla version -o json")]
pub(crate) struct VersionArgs {
    /// One of 'json' or 'yaml'; text by default.
    #[arg(short, long, value_parser = ["json", "yaml"])]
    output: Option<String>,
}

/// The version of the Kubernetes API, with Flotilla's own version appended.
pub(crate) fn current() -> VersionInfo {
    let (major, minor) = KUBERNETES_API;
    let mut version = VersionInfo::new(major, minor, env!("CARGO_PKG_VERSION"));
    if let (Some(commit), Some(date)) = (
        option_env!("FLOTILLA_COMMIT"),
        option_env!("FLOTILLA_COMMIT_DATE"),
    ) {
        version.git_commit = commit.to_owned();
        version.build_date = date.to_owned();
    }
    version
}

/// Own version, commit and the levels of the APIs.
pub(crate) fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let (major, minor) = KUBERNETES_API;
        format!(
            "{} (commit {}, Karmada {KARMADA_API}, Kubernetes {major}.{minor})",
            env!("CARGO_PKG_VERSION"),
            current().git_commit
        )
    });
    &TEXT
}

pub(crate) fn run(arguments: &VersionArgs) -> anyhow::Result<()> {
    let document = json!({"clientVersion": current().to_json()});
    output::print_line(match arguments.output.as_deref() {
        Some("json") => serde_json::to_string_pretty(&document)?,
        Some(_) => serde_saphyr::to_string(&document)?,
        None => format!("flotilla {}", text()),
    });
    Ok(())
}
