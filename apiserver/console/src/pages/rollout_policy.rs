//! The page of a rollout policy: what it selects, its stages with their clusters, and its rollouts.

use client::ResourcePath;
use flotilla_cli::plan::manifest_of_kind;
use karmada_api::RolloutPolicy;
use karmada_api::rollout::{
    CLUSTER_ROLLOUT_POLICIES, ROLLOUT_POLICIES, RolloutGates, RolloutPolicySpec,
};
use maud::{Markup, html};

use super::layout::PageParts;
use super::markup::{badge, counted, empty_state, phase_tone};
use super::policy_parts::{
    cluster_chips, manifest_section, policy_frame, policy_heading, selected_clusters,
    selects_section,
};
use super::workload_list::{StagedWorkloads, staged_workloads, workload_table};
use crate::console::Console;
use crate::inventory::{ObjectKey, ROLLOUT_POLICY_PAGES, describe_affinity};

pub(super) fn parts(key: &ObjectKey) -> PageParts {
    policy_frame(key, ROLLOUT_POLICY_PAGES, "All rollout policies")
}

pub(super) async fn content(console: &Console, key: &ObjectKey) -> anyhow::Result<Markup> {
    let (namespace, name) = key;
    let (resource, kind) = match namespace.as_str() {
        "" => (&CLUSTER_ROLLOUT_POLICIES, "ClusterRolloutPolicy"),
        _ => (&ROLLOUT_POLICIES, "RolloutPolicy"),
    };
    let at = ResourcePath::object(resource, namespace, name);
    let policy = console.api.get(at).await?;
    let manifest = manifest_of_kind(&policy, &resource.api_version(), kind)?;
    let policy = policy.decode::<RolloutPolicy>()?;
    let spec = &policy.spec;
    Ok(html! {
        (policy_heading(kind, key))
        div .columns {
            (selects_section(&spec.resource_selectors, namespace))
            (settings_section(spec))
        }
        (stages_section(console, spec))
        (rollouts_section(console, key))
        (manifest_section(&manifest))
    })
}

fn settings_section(spec: &RolloutPolicySpec) -> Markup {
    let mut lines = Vec::new();
    if spec.paused {
        lines.push("All of its rollouts are paused".to_owned());
    }
    if !spec.progress_deadline.is_empty() {
        lines.push(format!("A cluster may take {}", spec.progress_deadline));
    }
    if let Some(budget) = &spec.failure_budget {
        lines.push(format!("{} clusters may fail", plain(budget)));
    }
    if !spec.on_failure.is_empty() {
        lines.push(format!("On failure: {}", spec.on_failure));
    }
    if let Some(replicas) = &spec.min_available {
        lines.push(format!(
            "{} of the replicas stay available",
            plain(replicas)
        ));
    }
    let windows = spec.windows.iter();
    lines.extend(windows.map(|window| {
        let zone = match window.time_zone.as_str() {
            "" => "UTC",
            zone => zone,
        };
        format!(
            "Clusters begin at {} ({zone}) for {}",
            window.schedule, window.duration
        )
    }));
    html! {
        section aria-labelledby="settings" {
            h2 #settings { "Settings" }
            ul .facts {
                @for line in &lines { li { (line) } }
                @if lines.is_empty() { li { "The defaults of rollouts hold" } }
            }
        }
    }
}

/// A number or a percentage, without the quotes of JSON.
fn plain(value: &serde_json::Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// A cluster belongs to the first stage that selects it.
fn stages_section(console: &Console, spec: &RolloutPolicySpec) -> Markup {
    let mut rest = selected_clusters(console, None);
    let stages = spec.stages.iter().map(|stage| {
        let selected = selected_clusters(console, stage.cluster_affinity.as_ref());
        let (own, others) = std::mem::take(&mut rest)
            .into_iter()
            .partition::<Vec<String>, _>(|name| selected.contains(name));
        rest = others;
        (stage, own)
    });
    let stages: Vec<_> = stages.collect();
    html! {
        section aria-labelledby="stages" {
            h2 #stages { "Stages" }
            ol .stages {
                @for (stage, clusters) in &stages {
                    li {
                        span .node {
                            span .name { (stage.name) } " "
                            span .muted {
                                (stage.cluster_affinity.as_ref().map_or_else(|| "the other clusters".to_owned(), describe_affinity))
                            }
                        }
                        @for gate in describe_gates(&stage.gates) { p .muted { (gate) } }
                        (cluster_chips(clusters))
                    }
                }
            }
            @if stages.is_empty() { (empty_state("No stages", &html! { "All clusters are in one stage." })) }
            @if !stages.is_empty() && !rest.is_empty() {
                p .muted { "In no stage: " }
                (cluster_chips(&rest))
            }
        }
    }
}

/// The gates of a stage, one line each.
fn describe_gates(gates: &RolloutGates) -> Vec<String> {
    let mut lines = Vec::new();
    if gates.approval {
        lines.push("It begins when somebody approves it".to_owned());
    }
    if !gates.healthy_for.is_empty() {
        lines.push(format!(
            "Its clusters have to be healthy for {}",
            gates.healthy_for
        ));
    }
    if gates.query.is_some() {
        lines.push("A query of Prometheus has to hold in its clusters".to_owned());
    }
    if gates.job.is_some() {
        lines.push("A Job has to succeed in its clusters".to_owned());
    }
    lines
}

fn rollouts_section(console: &Console, key: &ObjectKey) -> Markup {
    let StagedWorkloads { rows, states } = staged_workloads(console, key);
    let all: usize = states.values().sum();
    html! {
        section aria-labelledby="rollouts" {
            h2 #rollouts { "Rollouts" }
            @if all == 0 {
                (empty_state("None", &html! { "It stages the changes of no template yet." }))
            } @else {
                p .summary {
                    (counted(all, "rollout"))
                    @for (state, count) in &states {
                        span .count { (badge(phase_tone(state), state)) " " (count) }
                    }
                }
                (workload_table(&rows))
            }
        }
    }
}
