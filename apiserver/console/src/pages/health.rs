//! The page Health: what `flotilla doctor` says.

use flotilla_cli::doctor::report::{CheckResult, CheckStatus, DoctorReport};
use maud::{Markup, html};

use super::layout::{Navigation, PageParts};
use super::markup::{badge, counted};
use crate::clipped_text::clipped;
use crate::console::Console;

/// Results of one status that are shown.
const MAX_RESULTS: usize = 200;

pub(super) fn parts() -> PageParts {
    PageParts {
        title: "Health".to_owned(),
        navigation: Navigation::Health,
        head: html! {
            div .heading {
                h1 { "Health" }
                a .button href="/health" { "Check again" }
            }
        },
    }
}

pub(super) async fn content(console: &Console) -> Markup {
    let report = console.examiner.examine().await;
    html! {
        p .summary {
            (counted(report.errors, "error")) ", " (counted(report.warnings, "warning")) " at " (report.server)
        }
        @for (status, title) in [
            (CheckStatus::Error, "Errors"),
            (CheckStatus::Warning, "Warnings"),
            (CheckStatus::Unknown, "Not known"),
            (CheckStatus::Ok, "In order"),
        ] {
            (results(&report, status, title))
        }
    }
}

fn results(report: &DoctorReport, status: CheckStatus, title: &str) -> Markup {
    let results: Vec<&CheckResult> = report
        .checks
        .iter()
        .filter(|result| result.status == status)
        .collect();
    let tone = match status {
        CheckStatus::Ok => "good",
        CheckStatus::Unknown => "calm",
        CheckStatus::Warning => "warn",
        CheckStatus::Error => "bad",
    };
    html! {
        @if !results.is_empty() {
            section {
                h2 { (title) }
                ul .checks {
                    @for result in results.iter().take(MAX_RESULTS) {
                        li .check {
                            (badge(tone, result.status.text()))
                            div {
                                p .check-name { (result.check) }
                                p { (clipped(&result.message)) }
                                @if !result.remedy.is_empty() { p .remedy { (result.remedy) } }
                            }
                        }
                    }
                }
                @if results.len() > MAX_RESULTS { p .muted { (counted(results.len() - MAX_RESULTS, "further result")) } }
            }
        }
    }
}
