//! The page of one workload: where it is and why, what overrides change, its rollout and its history.

use flotilla_cli::history::entries::{EntryText, read_history};
use flotilla_cli::history::last_move;
use flotilla_cli::rollout::decisions::AWAITING_APPROVAL;
use flotilla_cli::rollout::{cluster_details, job_details};
use flotilla_cli::why::inputs::{WhyInputs, collect_inputs};
use flotilla_cli::why::report::{
    ClusterRow, DecisionSummary, WhyReport, build_report, override_differences,
};
use flotilla_cli::why::text::{describe_rule, placement_reason};
use karmada_api::Rollout;
use karmada_api::history::TemplateHistory;
use karmada_api::resources::{BINDINGS, CLUSTER_BINDINGS};
use karmada_api::rollout::RolloutStatus;
use maud::{Markup, html};

use super::bars::percent_bar;
use super::events::{EventSubject, events_section};
use super::layout::{Navigation, PageParts};
use super::markup::{
    badge, cluster_path, empty_state, grouped, health_tone, notice, phase_tone, policy_path,
    replica_count, workload_path,
};
use crate::clipped_text::clipped;
use crate::console::Console;
use crate::inventory::ObjectKey;
use crate::member_pods::PodSelector;

/// Entries of a history that are shown.
const MAX_HISTORY_ENTRIES: usize = 50;
/// Clusters of a decision that are shown; `flotilla why` lists all.
const MAX_DECIDED_CLUSTERS: usize = 200;
/// Objects of a Work that are shown.
const MAX_OBJECTS: usize = 100;
const MAX_SCORE: i64 = 100;

/// The outcome of an action, by the word in the address.
const NOTES: [(&str, &str); 7] = [
    ("approved", "The stage is approved."),
    ("paused", "The rollout is paused."),
    ("resumed", "The rollout is resumed."),
    ("scaled", "The replicas are changed."),
    ("moved", "The policy is changed; what it places moves now."),
    ("moved-back", "It returns to its former clusters."),
    (
        "rolled-back",
        "The template has the content of the revision.",
    ),
];

pub(super) fn parts(title: String, note: &str) -> PageParts {
    let note = NOTES.iter().find(|(word, _)| *word == note);
    PageParts {
        title,
        navigation: Navigation::Workloads,
        head: html! {
            p .back { a href="/workloads" { "All workloads" } }
            @if let Some((_, text)) = note { (notice("good", "Done", text)) }
        },
    }
}

/// The inputs of a page of a workload, read with the user's rights.
pub(crate) struct WorkloadView {
    pub(crate) inputs: WhyInputs,
    pub(crate) report: WhyReport,
}

impl WorkloadView {
    pub(crate) async fn read(console: &Console, key: &ObjectKey) -> anyhow::Result<Self> {
        let bindings = match key.0.as_str() {
            "" => &CLUSTER_BINDINGS,
            _ => &BINDINGS,
        };
        let typed = format!("{}.{}", bindings.resource, bindings.group);
        let inputs = collect_inputs(&*console.api, &typed, &key.0, &key.1);
        let inputs = Box::pin(inputs).await?;
        let report = build_report(&inputs);
        Ok(Self { inputs, report })
    }

    pub(crate) fn rollout_status(&self) -> Option<RolloutStatus> {
        let rollout = self.inputs.rollout.as_ref()?.decode::<Rollout>().ok()?;
        rollout.status.clone()
    }

    pub(crate) fn is_paused(&self) -> bool {
        let rollout = self.inputs.rollout.as_ref();
        let rollout = rollout.and_then(|rollout| rollout.decode::<Rollout>().ok());
        rollout.is_some_and(|rollout| rollout.spec.paused)
    }

    /// The replicas of the template, if it has some that a user may set.
    pub(crate) fn replicas(&self) -> Option<i64> {
        let template = self.inputs.template.value().ok()?;
        template["spec"]["replicas"].as_i64()
    }

    /// How its pods are found in members, if it has some.
    pub(crate) fn pod_selector(&self) -> Option<PodSelector> {
        let template = &self.inputs.template;
        let kind = &self.inputs.api_resource.kind;
        let selector = PodSelector::of_template(kind, &template.value().ok()?);
        selector.filter(|_| !template.namespace().is_empty())
    }

    /// The kind in lower case and the name, as commands print them.
    pub(crate) fn text(&self) -> String {
        let template = &self.report.template;
        format!("{}/{}", template.kind.to_lowercase(), template.name)
    }
}

pub(super) async fn content(console: &Console, key: &ObjectKey) -> anyhow::Result<Markup> {
    let view = WorkloadView::read(console, key).await?;
    let history = read_history(&*console.api, &key.0, &key.1).await;
    let has_moved = history.as_ref().is_ok_and(|history| {
        let history = history
            .as_ref()
            .and_then(|history| history.decode::<TemplateHistory>().ok());
        history.is_some_and(|history| last_move(&history).is_some())
    });
    let events = events_section(&*console.api, event_subjects(&view)).await;
    let template = &view.report.template;
    Ok(html! {
        div .heading.subject {
            h1 title=(template.name) { (template.name) }
            p .muted {
                (template.kind)
                @if !template.namespace.is_empty() { " in " (template.namespace) }
            }
        }
        (actions(&view, key, has_moved))
        (pending(&view.report))
        div .columns {
            (tree_section(&view, key))
            (rollout_section(&view))
        }
        (why_section(&view.report))
        (overrides_section(&view))
        section aria-labelledby="history" {
            h2 #history { "History" }
            @match history {
                Ok(history) => (history_table(history.as_ref())),
                Err(error) => (notice("warn", "The history cannot be read", &error.to_string())),
            }
        }
        (events)
    })
}

/// The objects of the control plane that stand for a workload.
fn event_subjects(view: &WorkloadView) -> Vec<EventSubject<'_>> {
    let inputs = &view.inputs;
    let mut subjects = vec![EventSubject {
        text: inputs.api_resource.kind.clone(),
        object: &inputs.template,
    }];
    subjects.extend(inputs.binding.iter().map(|(object, _)| EventSubject {
        text: "Binding".to_owned(),
        object,
    }));
    let works = inputs.works.iter();
    subjects.extend(works.map(|(cluster, (object, _))| EventSubject {
        text: format!("Work in {cluster}"),
        object,
    }));
    subjects
}

fn actions(view: &WorkloadView, key: &ObjectKey, has_moved: bool) -> Markup {
    let status = view.rollout_status();
    let waits = status
        .as_ref()
        .filter(|status| status.state == AWAITING_APPROVAL);
    html! {
        ul .actions aria-label="Actions" {
            @if let Some(status) = waits {
                li {
                    a .button.primary href=(workload_path(key, &["approve"], &[("stage", &status.stage)])) {
                        "Approve stage " (status.stage)
                    }
                }
            }
            @if status.is_some() {
                @if view.is_paused() {
                    li { a .button href=(workload_path(key, &["resume"], &[])) { "Resume the rollout" } }
                } @else {
                    li { a .button href=(workload_path(key, &["pause"], &[])) { "Pause the rollout" } }
                }
            }
            @if let Some(replicas) = view.replicas() {
                li {
                    a .button href=(workload_path(key, &["scale"], &[("replicas", &replicas.to_string())])) { "Scale" }
                }
            }
            @if view.report.claim.policy.is_some() {
                li { a .button href=(workload_path(key, &["move"], &[])) { "Move" } }
            }
            @if has_moved {
                li { a .button href=(workload_path(key, &["undo"], &[])) { "Undo the last move" } }
            }
            @if status.is_some() {
                li { a .button href=(workload_path(key, &["rollback"], &[])) { "Roll back" } }
            }
        }
    }
}

fn pending(report: &WhyReport) -> Markup {
    html! {
        @if !report.pending.is_empty() {
            div .notice.warn role="note" {
                strong { "Pending" }
                ul { @for step in &report.pending { li { (clipped(step)) } } }
            }
        }
    }
}

fn tree_section(view: &WorkloadView, key: &ObjectKey) -> Markup {
    let pods_of = view.pod_selector().map(|_| key);
    let report = &view.report;
    let template = &report.template;
    let targets: Vec<&ClusterRow> = report
        .clusters
        .iter()
        .filter(|row| row.work.is_some() || row.target)
        .collect();
    html! {
        section aria-labelledby="tree" {
            h2 #tree { "Where it is" }
            ul .tree {
                li {
                    span .node { span .kind { (template.kind) } " " span .name { (template.name) } }
                    @if let Some(binding) = &report.binding {
                        ul {
                            li {
                                span .node {
                                    span .kind { "Binding" } " " span .name { (binding.name) } " "
                                    @if binding.scheduled == "yes" {
                                        (badge("good", "Scheduled"))
                                    } @else {
                                        (badge("warn", "Not scheduled"))
                                    }
                                }
                                ul {
                                    @for row in &targets { (cluster_node(view, row, pods_of)) }
                                    @if targets.is_empty() { li { span .muted { "in no cluster" } } }
                                }
                            }
                        }
                    } @else {
                        p .muted { "It has no binding." }
                    }
                }
            }
        }
    }
}

/// `pods_of`: the key of the workload, if it has pods.
fn cluster_node(view: &WorkloadView, row: &ClusterRow, pods_of: Option<&ObjectKey>) -> Markup {
    let works = view.inputs.works.get(&row.name);
    html! {
        li {
            span .node {
                span .kind { "Cluster" } " "
                a .name title=(row.name) href=(cluster_path(&row.name, &[], &[])) { (row.name) }
                @if let Some(replicas) = row.replicas { " " span .muted { (replica_count(replicas)) } }
                @if row.member != "Ready" { " " (badge("bad", "Not ready")) }
                @if let Some(key) = pods_of {
                    " " a .pods href=(workload_path(key, &["pods", &row.name], &[])) {
                        "Pods" span .visually-hidden { " in " (row.name) }
                    }
                }
            }
            @if let Some(work) = &row.work {
                ul {
                    li {
                        span .node {
                            span .kind { "Work" } " " span .name title=(work.name) { (work.name) } " "
                            @match (work.deleting, &*work.applied) {
                                (true, _) => (badge("warn", "Leaving")),
                                (false, "True") => (badge("good", "Applied")),
                                (false, "") => (badge("warn", "Waiting")),
                                _ => (badge("bad", "Not applied")),
                            }
                        }
                        @if !work.message.is_empty() { p .remark { (clipped(&work.message)) } }
                        ul {
                            @for object in works.iter().flat_map(|(_, work)| &work.status.manifest_statuses).take(MAX_OBJECTS) {
                                li {
                                    span .node {
                                        span .kind { (object.identifier.kind) } " "
                                        span .name { (object.identifier.name) } " "
                                        (object_health(&object.health))
                                    }
                                }
                            }
                        }
                    }
                }
            } @else {
                p .remark { "its Work has not been created yet" }
            }
        }
    }
}

fn object_health(health: &str) -> Markup {
    match health_tone(health) {
        "calm" => badge("calm", "Unknown"),
        tone => badge(tone, health),
    }
}

fn rollout_section(view: &WorkloadView) -> Markup {
    let Some(status) = view.rollout_status() else {
        return html! {
            section aria-labelledby="rollout" {
                h2 #rollout { "Rollout" }
                (empty_state("Changes are not staged", &html! {
                    "They go to all clusters at once, since no RolloutPolicy selects it."
                }))
            }
        };
    };
    html! {
        section aria-labelledby="rollout" {
            h2 #rollout { "Rollout" }
            p {
                (badge(phase_tone(&status.state), &status.state)) " "
                span .muted { (status.progress) " clusters done with " code { (status.target_revision) } }
            }
            @if !status.message.is_empty() { p .muted { (status.message) } }
            ol .stages {
                @for stage in status.stages.iter().filter(|stage| !stage.clusters.is_empty()) {
                    li {
                        span .node {
                            span .name { (stage.name) } " "
                            (badge(phase_tone(stage.phase.as_str()), stage.phase.as_str()))
                        }
                        ul {
                            @for cluster in &stage.clusters {
                                li {
                                    span .node {
                                        span .name title=(cluster.name) { (cluster.name) } " "
                                        (badge(phase_tone(cluster.phase.as_str()), cluster.phase.as_str()))
                                    }
                                    @let details = cluster_details(cluster, &status.target_revision);
                                    @if !details.is_empty() { p .muted { (details) } }
                                }
                            }
                            @if let Some(job) = &stage.job {
                                li {
                                    span .node {
                                        span .kind { "Job" } " "
                                        (badge(phase_tone(job.state.as_str()), job.state.as_str()))
                                    }
                                    p .muted { (job_details(job)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn why_section(report: &WhyReport) -> Markup {
    html! {
        section aria-labelledby="why" {
            h2 #why { "Why it is there" }
            p {
                @match &report.claim.policy {
                    Some(policy) => {
                    a href=(policy_path(&(policy.namespace.clone(), policy.name.clone()), &[], &[])) { (policy.to_string()) }
                    ": " (report.claim.why) "."
                }
                    None => { (report.claim.why) "." }
                }
            }
            @match &report.decision {
                Some(decision) => {
                    (decision_text(decision))
                    (funnel(decision))
                    (decision_table(report))
                }
                None => p .muted { "The scheduler has not decided yet, or its decision cannot be read." },
            }
        }
    }
}

fn decision_text(decision: &DecisionSummary) -> Markup {
    html! {
        p .muted {
            @match &decision.replica_preference {
                Some(preference) => { "Divided by ReplicaSchedulingPreference " (preference) }
                None => { "Rule " (describe_rule(&decision.rule)) }
            }
            @if let Some(strategy) = &decision.strategy { ", strategy " (strategy) }
            @if decision.recomputed { "; recomputed now" }
            "."
        }
        @if let Some(failure) = &decision.failure { (notice("bad", "It could not be placed", failure)) }
    }
}

/// How many clusters are left after each step.
fn funnel(decision: &DecisionSummary) -> Markup {
    let all = decision.total_clusters;
    let percent = |part: usize| u8::try_from(part.saturating_mul(100) / all.max(1)).unwrap_or(100);
    let steps = [
        ("Clusters", all),
        ("Fit", decision.feasible_clusters),
        ("Chosen", decision.chosen_clusters),
    ];
    html! {
        ol .funnel aria-label="Steps of the decision" {
            @for (name, count) in steps {
                li {
                    span .name { (name) }
                    span .amount { (count) }
                    (percent_bar(percent(count), "calm", &format!("{name}: {count} of {all}")))
                }
            }
        }
    }
}

fn decision_table(report: &WhyReport) -> Markup {
    let rows = report.clusters.iter().filter(|row| row.decided.is_some());
    html! {
        div .scroll role="region" aria-label="Decision by cluster" tabindex="0" {
            table {
                caption .visually-hidden { "Decision by cluster" }
                thead {
                    tr {
                        th scope="col" { "Cluster" }
                        th scope="col" { "Filter" }
                        th scope="col" { "Score" }
                        th scope="col" .number { "Available" }
                        th scope="col" .number { "Replicas" }
                        th scope="col" { "Why" }
                    }
                }
                tbody { @for row in rows.take(MAX_DECIDED_CLUSTERS) { (decision_row(row)) } }
            }
        }
        @if report.clusters.len() > MAX_DECIDED_CLUSTERS {
            p .muted { "Only the first " (MAX_DECIDED_CLUSTERS) " clusters are shown; " code { "flotilla why" } " lists all." }
        }
    }
}

fn decision_row(row: &ClusterRow) -> Markup {
    let decided = row.decided.as_ref();
    let fits = decided.is_some_and(|decided| decided.refused.is_empty());
    let chosen = decided.is_some_and(|decided| decided.chosen);
    let score = decided.and_then(|decided| decided.score);
    let unbounded = decided.is_some_and(|d| d.estimate.as_deref() == Some("Unbounded"));
    let available = decided.and_then(|decided| decided.available_replicas);
    html! {
        tr .chosen[chosen] {
            th scope="row" .name title=(row.name) { (row.name) }
            td { @if fits { (badge("good", "Fits")) } @else { (badge("calm", "Filtered")) } }
            td .score {
                @if let Some(score) = score {
                    @let percent = u8::try_from(score.clamp(0, MAX_SCORE)).unwrap_or(0);
                    span .amount { (score) }
                    (percent_bar(percent, "calm", &format!("score {score}")))
                }
            }
            td .number {
                @match (unbounded, available) {
                    (true, _) => "any",
                    (false, Some(available)) => (grouped(available)),
                    (false, None) => "",
                }
            }
            td .number { @if let Some(replicas) = row.replicas { (grouped(replicas)) } }
            td .reason { (placement_reason(row)) }
        }
    }
}

fn overrides_section(view: &WorkloadView) -> Markup {
    let overridden = view.report.clusters.iter();
    let overridden =
        overridden.filter(|row| !row.overrides.is_empty() || row.override_failure.is_some());
    let overridden: Vec<&ClusterRow> = overridden.collect();
    let is_secret = view.report.template.kind == "Secret";
    html! {
        @if !overridden.is_empty() {
            section aria-labelledby="overrides" {
                h2 #overrides { "What overrides change" }
                @for row in overridden {
                    h3 { (row.name) }
                    @if !row.overrides.is_empty() { p .muted { "By " (row.overrides.join(", ")) } }
                    @if let Some(failure) = &row.override_failure {
                        (notice("bad", "They cannot be applied", failure))
                    }
                    @if is_secret {
                        p .muted { "The values of Secrets are not shown." }
                    } @else {
                        ul .differences {
                            @for difference in override_differences(&view.inputs, &row.name) {
                                li { code { (difference.to_string()) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn history_table(history: Option<&machinery::Object>) -> Markup {
    let history = history.and_then(|history| history.decode::<TemplateHistory>().ok());
    let entries = history.as_ref().map(|history| history.entries.as_slice());
    let entries = entries.unwrap_or_default();
    if entries.is_empty() {
        return empty_state(
            "It has not moved",
            &html! {
                "Moves, steps of rollouts and repairs in clusters are recorded here."
            },
        );
    }
    html! {
        div .scroll role="region" aria-label="History" tabindex="0" {
            table {
                caption .visually-hidden { "History" }
                thead {
                    tr { @for title in ["Time", "Actor", "Reason", "From", "To", "Details"] { th scope="col" { (title) } } }
                }
                tbody {
                    @for entry in entries.iter().take(MAX_HISTORY_ENTRIES) {
                        @let text = EntryText::new(entry, false);
                        tr {
                            td .time { (entry.last_time) }
                            td { (entry.actor) }
                            td { (entry.reason) }
                            td { (text.from) }
                            td { (text.to) }
                            td .reason { (text.details) }
                        }
                    }
                }
            }
        }
    }
}
