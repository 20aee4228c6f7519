//! The commands `flotilla history`, which shows who moved a template and what was repaired in its
//! clusters, and `flotilla undo`, which takes its last move back.

pub mod entries;
mod moved_template;
mod undo;
mod undo_plan;

use clap::Args;
use client::{ShutdownToken, TaskGroup};
use karmada_api::history::{HistoryEntry, TemplateHistory};
use serde_json::json;

use crate::output;
use crate::printers::{OutputFormat, encode_output, format_table};
use entries::EntryText;
pub use moved_template::MovedTemplate;
use moved_template::TemplateArgs;
pub use undo::PlannedUndo;
pub use undo_plan::last_move;

/// Show who moved a template, and what was repaired in its clusters.
///
/// The newest comes first: moves with the clusters and replicas before and after, the steps of a
/// staged rollout, and repairs of what somebody in a member had changed. The first placement and
/// scaling in the same clusters are no moves.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla history deployment/web\n  flotilla history deployment/web -n default -o wide"
)]
pub struct HistoryArgs {
    #[command(flatten)]
    template: TemplateArgs,
    /// The output format.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
}

/// Move a template back to where it was before its last move.
///
/// If a changed policy moved it, the former placement is written into the policy; then the former
/// clusters and replicas are restored. This is refused if it would not hold: if the template was
/// scaled or moved since, if a cluster is gone, not ready or being evicted, if the policy places
/// other templates too, or if the placement is decided anew at every change. A GitOps tool that
/// owns the policy will write it again.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla undo deployment/shop --dry-run\n  flotilla undo deployment/shop"
)]
pub struct UndoArgs {
    #[command(flatten)]
    template: TemplateArgs,
    /// Print what would be restored, and send the requests as dry runs, which persist nothing.
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(arguments: HistoryArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let description = Box::pin(describe(&arguments, &tasks)).await;
    tasks.stop().await;
    match description? {
        HistoryDescription::Entries(text) => output::print_line(text),
        HistoryDescription::NotMoved(text) => output::print_progress(text),
    }
    Ok(())
}

/// The history of a template, as the command prints it.
pub(crate) enum HistoryDescription {
    Entries(String),
    /// A sentence that says so.
    NotMoved(String),
}

pub async fn undo(arguments: UndoArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let done = async {
        let template = MovedTemplate::read(&arguments.template, &tasks).await?;
        undo::undo(&template, arguments.dry_run).await
    };
    let done = Box::pin(done).await;
    tasks.stop().await;
    done
}

pub(crate) async fn describe(
    arguments: &HistoryArgs,
    tasks: &TaskGroup,
) -> anyhow::Result<HistoryDescription> {
    let template = MovedTemplate::read(&arguments.template, tasks).await?;
    let (history, value) = match &template.history {
        Some(object) => (
            (*object.decode::<TemplateHistory>()?).clone(),
            object.value()?,
        ),
        None => (TemplateHistory::default(), json!({"entries": []})),
    };
    if let Some(text) = encode_output(arguments.output, &value)? {
        return Ok(HistoryDescription::Entries(text));
    }
    if history.entries.is_empty() {
        let text = format!("{} has not moved", template.text);
        return Ok(HistoryDescription::NotMoved(text));
    }
    let is_wide = arguments.output == Some(OutputFormat::Wide);
    let table = history_table(&history.entries, is_wide);
    Ok(HistoryDescription::Entries(table))
}

fn history_table(entries: &[HistoryEntry], is_wide: bool) -> String {
    let mut titles = vec!["TIME", "ACTOR", "REASON", "FROM", "TO", "DETAILS"];
    if is_wide {
        titles.extend(["COUNT", "FIRST", "CAUSE", "MESSAGE"]);
    }
    let rows: Vec<Vec<String>> = entries.iter().map(|e| entry_row(e, is_wide)).collect();
    format_table(&titles, &rows).trim_end().to_owned()
}

fn entry_row(entry: &HistoryEntry, is_wide: bool) -> Vec<String> {
    let text = EntryText::new(entry, is_wide);
    let mut row = vec![
        entry.last_time.clone(),
        entry.actor.clone(),
        entry.reason.clone(),
        text.from,
        text.to,
        text.details,
    ];
    if is_wide {
        row.extend([
            entry.count.to_string(),
            entry.first_time.clone(),
            entry.cause.clone(),
            entry.message.clone(),
        ]);
    }
    row
}

#[cfg(test)]
mod tests {
    use karmada_api::history::{ClusterChange, HistoryEntryType};

    use super::*;

    // proves: HIS-command
    #[test]
    fn entries_are_rows() {
        let times = HistoryEntry {
            first_time: "t1".to_owned(),
            last_time: "t2".to_owned(),
            count: 2,
            ..HistoryEntry::default()
        };
        let moved = HistoryEntry {
            reason: "PolicyChanged".to_owned(),
            actor: "kubectl".to_owned(),
            cause: "PropagationPolicy n/web generation 2".to_owned(),
            changes: vec![
                ClusterChange {
                    cluster: "m1".to_owned(),
                    from: Some(2),
                    to: None,
                },
                ClusterChange {
                    cluster: "m2".to_owned(),
                    from: Some(1),
                    to: Some(3),
                },
            ],
            ..times.clone()
        };
        let step = HistoryEntry {
            entry_type: HistoryEntryType::Rollout,
            reason: "StageReached".to_owned(),
            stage: "canary".to_owned(),
            message: "0/2 clusters are done".to_owned(),
            from_revision: "r1".to_owned(),
            to_revision: "r1".to_owned(),
            ..times.clone()
        };
        let repair = HistoryEntry {
            entry_type: HistoryEntryType::Repair,
            reason: "DriftRepaired".to_owned(),
            cluster: "m1".to_owned(),
            fields: vec!["ConfigMap n/c .data.a".to_owned()],
            ..times
        };
        let table = history_table(&[moved, step, repair], false);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| {
                line.split("   ")
                    .map(str::trim)
                    .filter(|c| !c.is_empty())
                    .collect()
            })
            .collect();
        let cause = "PropagationPolicy n/web generation 2";
        assert_eq!(
            rows,
            [
                vec!["TIME", "ACTOR", "REASON", "FROM", "TO", "DETAILS"],
                vec![
                    "t2",
                    "kubectl",
                    "PolicyChanged",
                    "m1:2, m2:1",
                    "m2:3",
                    cause
                ],
                vec![
                    "t2",
                    "-",
                    "StageReached",
                    "-",
                    "r1",
                    "stage canary, 0/2 clusters are done"
                ],
                vec![
                    "t2",
                    "-",
                    "DriftRepaired",
                    "-",
                    "-",
                    "m1: ConfigMap n/c .data.a"
                ],
            ],
            "{table}"
        );
    }
}
