//! Formats a report as text: each of its lines is one, whatever the texts of members are. Pure.

use std::collections::BTreeMap;

use super::report::{ClusterRow, DecisionSummary, WhyReport};
use super::rollout::RolloutSummary;
use crate::printers::{format_table, single_line};

/// The report as text, without a line feed at its end.
pub(crate) fn format_report(report: &WhyReport, wide: bool) -> String {
    let of = &report.template;
    let mut lines = vec![match of.namespace.as_str() {
        "" => format!("{} {}", of.kind, of.name),
        namespace => format!("{} {namespace}/{}", of.kind, of.name),
    }];
    lines.push(match &report.claim.policy {
        Some(policy) => format!("Policy:     {policy}: {}", report.claim.why),
        None => format!("Policy:     none: {}", report.claim.why),
    });
    if wide {
        let others = report.claim.candidates.iter();
        lines.extend(others.map(|c| {
            format!(
                "            {}: priority {}, selects by {}",
                c.policy, c.priority, c.selects_by
            )
        }));
    }
    if let Some(clusters) = &report.namespace_gate {
        let clusters = match clusters.as_slice() {
            [] => "to no cluster".to_owned(),
            names => format!("only to {}", names.join(", ")),
        };
        lines.push(format!("Gate:       the namespace lets it go {clusters}"));
    }
    if let Some(effect) = report.deletion {
        lines.push(format!("Deletion:   {effect}"));
    }
    if let Some(binding) = &report.binding {
        lines.push(format!(
            "Binding:    {}, generation {}, scheduled: {}",
            binding.name, binding.generation, binding.scheduled
        ));
        if !binding.required_by.is_empty() {
            let by = binding.required_by.join(", ");
            lines.push(format!("            a dependency of {by}"));
        }
    }
    lines.extend(override_lines(&report.clusters));
    lines.extend(report.rollout.iter().map(RolloutSummary::line));
    if let Some(decision) = &report.decision {
        lines.extend(decision_lines(decision));
    }
    let mut lines: Vec<String> = lines.iter().map(|line| single_line(line)).collect();
    if !report.clusters.is_empty() {
        lines.push(String::new());
        lines.push(cluster_table(report, wide));
    }
    if let Some(n) = report
        .decision
        .as_ref()
        .map(|d| d.omitted_clusters)
        .filter(|n| *n > 0)
    {
        lines.push(format!("and {n} more clusters"));
    }
    if let Some(rollout) = report.rollout.as_ref().filter(|r| !r.clusters.is_empty()) {
        lines.push(String::new());
        lines.push(rollout.table());
    }
    lines.push(String::new());
    if report.pending.is_empty() {
        lines.push("Nothing is pending.".into());
    } else {
        lines.push("Pending:".into());
        lines.extend(
            report
                .pending
                .iter()
                .map(|what| format!("  {}", single_line(what))),
        );
    }
    lines.join("\n")
}

/// A line for each override policy, with the clusters whose manifest it changes.
fn override_lines(clusters: &[ClusterRow]) -> Vec<String> {
    let mut by_policy: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for cluster in clusters {
        for policy in &cluster.overrides {
            by_policy.entry(policy).or_default().push(&cluster.name);
        }
    }
    let lines = by_policy
        .iter()
        .enumerate()
        .map(|(index, (policy, clusters))| {
            let title = if index == 0 { "Overrides:" } else { "" };
            format!("{title:<12}{policy}: {}", clusters.join(", "))
        });
    lines.collect()
}

fn decision_lines(decision: &DecisionSummary) -> Vec<String> {
    let mut lines = vec![format!(
        "Decision:   of generation {}{}",
        decision.generation,
        if decision.recomputed {
            ", recomputed now (the original decision is not in memory)"
        } else {
            ""
        }
    )];
    let division = match &decision.replica_preference {
        Some(name) => format!("divided by ReplicaSchedulingPreference {name}"),
        None => format!(
            "strategy {}, rule {}",
            decision.strategy.as_deref().unwrap_or("none"),
            describe_rule(&decision.rule)
        ),
    };
    let mut how = format!(
        "            {division}; of {} clusters {} fit and {} {} chosen",
        decision.total_clusters,
        decision.feasible_clusters,
        decision.chosen_clusters,
        if decision.chosen_clusters == 1 {
            "is"
        } else {
            "are"
        },
    );
    if decision.fresh {
        how.push_str("; a reschedule was triggered");
    }
    lines.push(how);
    if !decision.failed_estimators.is_empty() {
        lines.push(format!(
            "            no accurate estimates were used: the scheduler estimators failed of {}",
            decision.failed_estimators.join(", ")
        ));
    }
    let failed = decision.failed_terms.iter();
    lines.extend(failed.map(|term| {
        format!(
            "            affinity {}: {}",
            term.affinity_name, term.failure
        )
    }));
    let term = decision.affinity_name.as_ref();
    let which = term.map_or(String::new(), |name| format!("affinity {name}: "));
    match &decision.failure {
        Some(failure) => lines.push(format!("            {which}failed: {failure}")),
        None if !which.is_empty() => lines.push(format!("            {which}in use")),
        None => {}
    }
    lines
}

/// A rule with its meaning.
pub fn describe_rule(name: &str) -> String {
    let meaning = match name {
        "Object" => "every chosen cluster gets the object",
        "ComponentSet" => "its components are placed as a whole",
        "Duplicated" => "every chosen cluster gets all replicas",
        "StaticWeight" => "by the weights of the policy",
        "Keep" => "the current replicas are the desired ones",
        "ScaleUp" => "current replicas stay, and new ones are divided by available replicas",
        "ScaleDown" => "by current replicas",
        "Fresh" => "by available replicas, without regard to current ones",
        _ => return name.to_owned(),
    };
    format!("{name} ({meaning})")
}

fn cluster_table(report: &WhyReport, wide: bool) -> String {
    let mut titles = vec![
        "CLUSTER",
        "MEMBER",
        "FITS",
        "SCORE",
        "AVAILABLE",
        "REPLICAS",
        "WORK",
        "HEALTH",
    ];
    if wide {
        titles.extend([
            "GENERATION",
            "REASON",
            "CURRENT",
            "WEIGHT",
            "ESTIMATE",
            "WORK-NAME",
        ]);
    }
    titles.push("WHY");
    let rows: Vec<Vec<String>> = report.clusters.iter().map(|row| cells(row, wide)).collect();
    format_table(&titles, &rows)
}

fn number(n: Option<i64>) -> String {
    n.map(|n| n.to_string()).unwrap_or_default()
}

fn cells(row: &ClusterRow, wide: bool) -> Vec<String> {
    let decided = row.decided.as_ref();
    let fits = decided.map_or("", |d| if d.refused.is_empty() { "yes" } else { "no" });
    let unbounded = decided.is_some_and(|d| d.estimate.as_deref() == Some("Unbounded"));
    let available = decided
        .and_then(|d| d.available_replicas)
        .filter(|_| !unbounded);
    let work = row.work.as_ref();
    let state = match work.map(|w| w.applied.as_str()) {
        None => "",
        Some(_) if work.is_some_and(|w| w.deleting) => "Deleting",
        Some("True") => "Applied",
        Some("") => "Waiting",
        Some(_) => "NotApplied",
    };
    let ready = row.member.split(':').next().unwrap_or_default();
    let mut cells = vec![
        row.name.clone(),
        ready.to_owned(),
        fits.to_owned(),
        number(decided.and_then(|d| d.score)),
        number(available),
        number(row.replicas),
        state.to_owned(),
        work.map(|w| w.health.clone()).unwrap_or_default(),
    ];
    if wide {
        cells.extend([
            work.map(|w| w.generation.clone()).unwrap_or_default(),
            row.reason.clone(),
            number(decided.and_then(|d| d.current_replicas)),
            number(decided.and_then(|d| d.weight)),
            decided.and_then(|d| d.estimate.clone()).unwrap_or_default(),
            work.map(|w| format!("{}/{}", w.namespace, w.name))
                .unwrap_or_default(),
        ]);
    }
    cells.push(placement_reason(row));
    cells
}

/// Why a cluster has the template, or has it not.
pub fn placement_reason(row: &ClusterRow) -> String {
    let Some(decided) = &row.decided else {
        return if row.target {
            "not part of this decision".into()
        } else {
            "no longer a target".into()
        };
    };
    if !decided.refused.is_empty() {
        let reasons = decided
            .refused
            .iter()
            .map(|v| format!("{}: {}", v.plugin, v.reason));
        return reasons.collect::<Vec<_>>().join("; ");
    }
    match (decided.chosen, decided.replicas, decided.weight) {
        (false, _, _) => "fits, and is not chosen".into(),
        (true, None, _) => "chosen, and gets no replicas".into(),
        (true, Some(_), Some(weight)) => format!("chosen, weight {weight}"),
        (true, Some(_), None) => "chosen".into(),
    }
}
