//! Tables of the placements that a plan changes.

use flotilla_cli::drain::DrainReport;
use flotilla_cli::placement_text::format_clusters;
use flotilla_cli::plan::report::{PlanReport, TemplatePlacementReport};
use karmada_api::TargetCluster;
use maud::{Markup, html};

use crate::clipped_text::clipped;
use crate::pages::counted;

/// Templates of a plan that are shown.
const MAX_TEMPLATES: usize = 200;

/// The replicas of one template by cluster.
pub(super) fn replica_table(before: &[TargetCluster], after: &[TargetCluster]) -> Markup {
    let replicas = |targets: &[TargetCluster], name: &str| {
        let target = targets.iter().find(|target| target.name == name);
        target.map(|target| target.replicas)
    };
    let mut names: Vec<&str> = before.iter().map(|target| &*target.name).collect();
    names.extend(after.iter().map(|target| &*target.name));
    names.sort_unstable();
    names.dedup();
    let text = |replicas: Option<i64>| replicas.map_or("–".to_owned(), |n| n.to_string());
    html! {
        table .plan {
            caption .visually-hidden { "Replicas by cluster" }
            thead {
                tr {
                    th scope="col" { "Cluster" }
                    th scope="col" .number { "Now" }
                    th scope="col" .number { "Then" }
                }
            }
            tbody {
                @for name in names {
                    @let (now, then) = (replicas(before, name), replicas(after, name));
                    tr .chosen[now != then] {
                        th scope="row" .name { (name) }
                        td .number { (text(now)) }
                        td .number { (text(then)) }
                    }
                }
            }
        }
    }
}

/// The effect of changed policies on the templates that they select or have claimed; those that move
/// come first.
pub(super) fn policy_effect(report: &PlanReport) -> Markup {
    let mut templates: Vec<&TemplatePlacementReport> = report.templates.iter().collect();
    templates.sort_by_key(|template| !template.moves);
    html! {
        @if templates.is_empty() {
            p { "It selects no templates and has claimed none." }
        } @else {
            p {
                strong { (report.moving) } " of " (counted(templates.len(), "template")) " would move."
            }
            (template_table(&templates))
        }
        @if templates.len() > MAX_TEMPLATES {
            p .muted { (counted(templates.len() - MAX_TEMPLATES, "further template")) }
        }
    }
}

/// A template of a plan, as a row of a table.
struct PlannedRow<'a> {
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
    now: &'a [TargetCluster],
    /// `None`: it stays.
    then: Option<&'a [TargetCluster]>,
    note: String,
}

fn template_table(templates: &[&TemplatePlacementReport]) -> Markup {
    let rows = templates.iter().map(|template| PlannedRow {
        kind: &template.kind,
        namespace: &template.namespace,
        name: &template.name,
        now: &template.now,
        then: template.moves.then_some(&*template.then),
        note: template.note(),
    });
    planned_table(rows.take(MAX_TEMPLATES))
}

/// The templates of a cluster that is drained.
pub(super) fn drain_table(report: &DrainReport) -> Markup {
    let rows = report.templates.iter().map(|template| PlannedRow {
        kind: &template.kind,
        namespace: &template.namespace,
        name: &template.name,
        now: &template.now,
        then: template.stays.is_none().then_some(&*template.then),
        note: template.note(),
    });
    let further = report.templates.len().saturating_sub(MAX_TEMPLATES);
    html! {
        (planned_table(rows.take(MAX_TEMPLATES)))
        @if further > 0 { p .muted { (counted(further, "further template")) } }
    }
}

fn planned_table<'a>(rows: impl Iterator<Item = PlannedRow<'a>>) -> Markup {
    html! {
        div .scroll role="region" aria-label="Templates" tabindex="0" {
            table .listed {
                caption .visually-hidden { "Templates" }
                thead {
                    tr { @for title in ["Template", "Now", "Then", "Note"] { th scope="col" { (title) } } }
                }
                tbody {
                    @for row in rows {
                        tr .chosen[row.then.is_some()] {
                            th scope="row" {
                                span .name title=(row.name) { (row.name) }
                                span .muted.line {
                                    (row.kind)
                                    @if !row.namespace.is_empty() { " in " (row.namespace) }
                                }
                            }
                            td data-title="Now" { (format_clusters(row.now, false)) }
                            td data-title="Then" {
                                @match row.then {
                                    Some(then) => (format_clusters(then, false)),
                                    None => span .muted { "stays" },
                                }
                            }
                            td .reason data-title="Note" { (clipped(&row.note)) }
                        }
                    }
                }
            }
        }
    }
}
