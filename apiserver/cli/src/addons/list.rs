//! The command `flotilla addons list`.

use clap::Args;
use client::{ShutdownToken, TaskGroup};
use karmada_api::addons::{Addon, AddonStatus, UNKNOWN};

use super::config_map::AddonsConfigMap;
use super::server_flags::AddonsServerArgs;
use crate::output;
use crate::printers::{OutputFormat, encode_output, format_table};

const COLUMNS: [&str; 4] = ["ADDON NAME", "STATUS", "REASON", "MESSAGE"];

/// List the addons of a control plane, and whether they are enabled.
#[derive(Args)]
#[command(after_help = "Examples:\n  flotilla addons list\n  flotilla addons list -o yaml")]
pub(super) struct ListAddonsArgs {
    #[command(flatten)]
    server: AddonsServerArgs,
    /// Output format: json or yaml; a table by default.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
}

pub(super) async fn run(arguments: ListAddonsArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let read = async {
        let map = AddonsConfigMap::connect(&arguments.server, &tasks).await?;
        map.statuses().await
    };
    let statuses = read.await;
    tasks.stop().await;
    let statuses = statuses?.unwrap_or_else(unreported);
    let text = encode_output(arguments.output, &statuses)?;
    output::print_line(text.unwrap_or_else(|| table(&statuses)));
    Ok(())
}

/// The statuses if the server has written no report.
fn unreported() -> Vec<AddonStatus> {
    let status = |addon: Addon| AddonStatus {
        name: addon.name().to_owned(),
        status: UNKNOWN.to_owned(),
        reason: "NotReported".to_owned(),
        message: "the server has not reported it".to_owned(),
    };
    Addon::ALL.map(status).into()
}

fn table(statuses: &[AddonStatus]) -> String {
    let rows = statuses.iter().map(|status| {
        let AddonStatus {
            name,
            status,
            reason,
            message,
        } = status.clone();
        vec![name, status, reason, message]
    });
    format_table(&COLUMNS, &rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addons_without_a_report_are_unknown() {
        let text = table(&unreported());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), Addon::ALL.len() + 1);
        assert!(lines[0].starts_with("ADDON NAME  "), "{text}");
        let search = "karmada-search                   unknown   NotReported";
        assert!(lines.iter().any(|line| line.starts_with(search)), "{text}");
    }
}
