//! Tables of the placements that a plan changes.

use flotilla_cli::placement_text::format_clusters;
use flotilla_cli::plan::report::{PlanReport, TemplatePlacementReport};
use karmada_api::TargetCluster;
use maud::{Markup, html};

use crate::clipped_text::clipped;
use crate::pages::counted;

/// Templates of a plan that are shown.
const MAX_TEMPLATES: usize = 200;

/// The replicas of one template by cluster.
pub(super) fn replica_table(placement: &TemplatePlacementReport) -> Markup {
    let replicas = |targets: &[TargetCluster], name: &str| {
        let target = targets.iter().find(|target| target.name == name);
        target.map(|target| target.replicas)
    };
    let mut names: Vec<&str> = placement.now.iter().map(|target| &*target.name).collect();
    names.extend(placement.then.iter().map(|target| &*target.name));
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
                    @let (now, then) = (replicas(&placement.now, name), replicas(&placement.then, name));
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

fn template_table(templates: &[&TemplatePlacementReport]) -> Markup {
    html! {
        div .scroll role="region" aria-label="Templates" tabindex="0" {
            table {
                caption .visually-hidden { "Templates" }
                thead {
                    tr { @for title in ["Template", "Now", "Then", "Note"] { th scope="col" { (title) } } }
                }
                tbody {
                    @for template in templates.iter().take(MAX_TEMPLATES) {
                        tr .chosen[template.moves] {
                            th scope="row" {
                                (template.name)
                                span .muted.line {
                                    (template.kind)
                                    @if !template.namespace.is_empty() { " in " (template.namespace) }
                                }
                            }
                            td { (format_clusters(&template.now, false)) }
                            td {
                                @if template.moves { (format_clusters(&template.then, false)) }
                                @else { span .muted { "stays" } }
                            }
                            td .reason { (clipped(&template.note())) }
                        }
                    }
                }
            }
        }
    }
}
