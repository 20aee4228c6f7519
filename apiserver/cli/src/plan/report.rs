//! The report of a plan: simulates the scheduling of the affected templates, one after
//! the other, and formats the result.

use std::collections::BTreeSet;
use std::time::Instant;

use karmada_api::{FeatureGates, PropagationPolicy, ResourceBinding, TargetCluster};
use scheduler::core::ClusterSnapshot;
use scheduler::{DecisionExplanation, SchedulingSimulation};
use serde::Serialize;
use simulation::{ClaimExplanation, TemplateSimulationResult};

use super::inputs::{AffectedTemplate, PlanInputs};
use super::template_report::TemplateChangeReport;
use crate::placement_text::{format_clusters, sort_by_name};
use crate::printers::format_table;
use crate::rollout::ListedRollouts;
use crate::scheduler_flags::SchedulerFlagValues;

#[derive(Debug, Default, Serialize)]
pub struct PlanReport {
    /// The number of templates that would get other clusters or replicas.
    pub moving: usize,
    pub templates: Vec<TemplatePlacementReport>,
    /// Selected kinds that the server does not serve.
    #[serde(rename = "unknownKinds", skip_serializing_if = "Vec::is_empty")]
    pub unserved_kinds: Vec<String>,
    /// The changed templates of the files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<TemplateChangeReport>,
    /// The clusters that changed policies name and that do not exist.
    #[serde(rename = "missingClusters", skip_serializing_if = "Vec::is_empty")]
    pub missing_clusters: Vec<String>,
    /// Whether the RolloutPolicies of the files stage no template.
    #[serde(rename = "stagesNothing", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stages_nothing: bool,
    /// Whether policies were planned.
    #[serde(skip)]
    has_policies: bool,
}

/// A template with its present and its future placement.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplatePlacementReport {
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    pub moves: bool,
    pub claim: ClaimExplanation,
    pub now: Vec<TargetCluster>,
    pub then: Vec<TargetCluster>,
    /// The reason why it keeps its placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The stages of its rollout that would lose their last cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionExplanation>,
}

pub(crate) fn plan_report(
    inputs: &PlanInputs,
    scheduling: &SchedulerFlagValues,
    gates: FeatureGates,
) -> PlanReport {
    let snapshot = ClusterSnapshot::new(inputs.clusters.iter().cloned())
        .with_settings(scheduling.scheduling_settings);
    let input = simulation::SimulationInput {
        policies: &inputs.policies,
        overrides: &inputs.overrides,
        bindings: &inputs.bindings,
        snapshot: &snapshot,
        scheduler: &scheduling.name,
        gates,
        starts_anew: inputs.starts_anew,
    };
    let change =
        |change: &'_ super::inputs::ChangedObject| (change.before.clone(), change.after.clone());
    let owned: Vec<_> = inputs.changes.iter().map(change).collect();
    let changes: Vec<simulation::PolicyChange<'_>> = owned
        .iter()
        .map(|(before, after)| simulation::PolicyChange {
            before: before.as_ref(),
            after,
        })
        .collect();
    let mut before = SchedulingSimulation::new(Instant::now());
    let templates = inputs.templates.iter().map(|affected| {
        let outcome = simulation::simulate(
            &input,
            &changes,
            &simulation::SimulatedTemplate {
                api_resource: &affected.api_resource,
                template: &affected.template,
                replicas: &affected.interpreted_replicas,
                binding: affected.binding.as_ref(),
                namespace_gate: affected.namespace_gate.as_deref(),
                disabled_by: affected.disabled_by.as_deref(),
            },
            &mut before,
        );
        TemplatePlacementReport::new(affected, outcome, &inputs.rollouts)
    });
    let templates: Vec<TemplatePlacementReport> = templates.collect();
    PlanReport {
        moving: templates.iter().filter(|t| t.moves).count(),
        templates,
        unserved_kinds: inputs.unserved_kinds.iter().cloned().collect(),
        missing_clusters: missing_clusters(inputs),
        has_policies: true,
        ..PlanReport::default()
    }
}

/// The clusters that the changed policies name and that do not exist.
fn missing_clusters(inputs: &PlanInputs) -> Vec<String> {
    let policies = inputs.changes.iter();
    let policies = policies.filter_map(|c| c.after.decode::<PropagationPolicy>().ok());
    let mut names = BTreeSet::new();
    for policy in policies {
        let placement = &policy.spec.placement;
        let terms = placement
            .cluster_affinities
            .iter()
            .map(|term| &term.affinity);
        let affinities = placement.cluster_affinity.iter().chain(terms);
        names.extend(affinities.flat_map(|a| a.cluster_names.iter().cloned()));
    }
    names.retain(|name| inputs.clusters.iter().all(|cluster| cluster.name() != name));
    names.into_iter().collect()
}

impl TemplatePlacementReport {
    fn new(
        affected: &AffectedTemplate,
        outcome: TemplateSimulationResult,
        rollouts: &ListedRollouts,
    ) -> Self {
        let warnings = affected.binding.as_ref().map(|binding| {
            let key = binding.meta().key();
            rollouts.lost_stages(&key, &outcome.clusters)
        });
        let binding = affected
            .binding
            .as_ref()
            .and_then(|b| b.decode::<ResourceBinding>().ok());
        let now = binding.map(|b| b.spec.clusters.clone()).unwrap_or_default();
        Self {
            kind: affected.api_resource.kind.clone(),
            namespace: affected.template.namespace().to_owned(),
            name: affected.template.name().to_owned(),
            moves: sort_by_name(&now) != sort_by_name(&outcome.clusters),
            claim: outcome.claim,
            now,
            then: outcome.clusters,
            held: outcome.blocked_by,
            failure: outcome.failure,
            warnings: warnings.unwrap_or_default(),
            decision: outcome.explanation,
        }
    }

    /// Why it does not go where its policy says, if so, and what its move does to its rollout.
    pub fn note(&self) -> String {
        let mut notes = vec![self.placement_note()];
        notes.extend(self.warnings.iter().cloned());
        notes.retain(|note| !note.is_empty());
        notes.join("; ")
    }

    fn placement_note(&self) -> String {
        match (&self.held, &self.failure, &self.claim.policy) {
            (Some(reason), _, _) => reason.clone(),
            (None, Some(failure), _) => failure.clone(),
            (None, None, None) if !self.now.is_empty() => {
                format!("it stays where it is, without a policy: {}", self.claim.why)
            }
            (None, None, None) => self.claim.why.clone(),
            (None, None, Some(_)) => String::new(),
        }
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let template = match self.namespace.as_str() {
            "" => format!("{} {}", self.kind, self.name),
            namespace => format!("{} {namespace}/{}", self.kind, self.name),
        };
        let policy = self.claim.policy.as_ref();
        let then = if self.moves {
            format_clusters(&self.then, wide)
        } else {
            "stays".into()
        };
        let note = match self.note() {
            note if note.is_empty() && wide => self.claim.why.clone(),
            note => note,
        };
        vec![
            template,
            policy.map(ToString::to_string).unwrap_or_default(),
            format_clusters(&self.now, wide),
            then,
            note,
        ]
    }
}

impl PlanReport {
    /// The templates that would move, with their clusters now and then.
    pub(crate) fn moving_templates(&self) -> impl Iterator<Item = String> {
        let moving = self.templates.iter().filter(|template| template.moves);
        moving.map(|template| {
            let cells = template.cells(false);
            format!("{} would move from {} to {}", cells[0], cells[2], cells[3])
        })
    }

    /// The report as text, without a line feed at its end.
    pub(crate) fn lines(&self, wide: bool) -> String {
        let mut lines = match self.has_policies {
            true => self.placement_lines(wide),
            false => Vec::new(),
        };
        let unserved_kinds = self.unserved_kinds.iter();
        lines.extend(unserved_kinds.map(|kind| format!("The server does not serve {kind}.")));
        if !self.missing_clusters.is_empty() {
            let names = self.missing_clusters.join(", ");
            lines.push(format!(
                "NOTE: policies name clusters that do not exist: {names}"
            ));
        }
        lines.extend(self.changes.iter().flat_map(TemplateChangeReport::lines));
        if self.stages_nothing {
            lines.push("These RolloutPolicies stage the changes of no template.".to_owned());
        }
        lines.join("\n")
    }

    fn placement_lines(&self, wide: bool) -> Vec<String> {
        if self.templates.is_empty() {
            return vec!["These policies select no templates and have claimed none.".to_owned()];
        }
        let rows: Vec<_> = self.templates.iter().map(|t| t.cells(wide)).collect();
        let titles = ["TEMPLATE", "POLICY", "NOW", "THEN", "NOTE"];
        let all = self.templates.len();
        vec![
            format_table(&titles, &rows),
            format!("{} of {all} templates would move.", self.moving),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(clusters: &[(&str, i64)]) -> Vec<TargetCluster> {
        let target = |(name, replicas): &(&str, i64)| TargetCluster {
            name: (*name).to_owned(),
            replicas: *replicas,
            ..TargetCluster::default()
        };
        clusters.iter().map(target).collect()
    }

    #[test]
    fn the_report_lists_what_moves_what_stays_and_why() {
        let prospect = |name: &str,
                        now: &[(&str, i64)],
                        then: &[(&str, i64)],
                        message: Option<&str>| TemplatePlacementReport {
            kind: "Deployment".into(),
            namespace: "n".into(),
            name: name.into(),
            moves: now != then,
            claim: ClaimExplanation::default(),
            now: to(now),
            then: to(then),
            held: message.map(str::to_owned),
            failure: None,
            warnings: Vec::new(),
            decision: None,
        };
        let plan = PlanReport {
            moving: 1,
            templates: vec![
                prospect("web", &[("a", 2)], &[("a", 1), ("b", 1)], None),
                prospect("db", &[("a", 1)], &[("a", 1)], Some("it is Lazy")),
            ],
            unserved_kinds: vec!["Widget of example.org/v1".into()],
            missing_clusters: vec!["z".into()],
            has_policies: true,
            ..PlanReport::default()
        };
        let text = "\
TEMPLATE           POLICY   NOW   THEN       NOTE
Deployment n/web   -        a:2   a:1, b:1   it stays where it is, without a policy:
Deployment n/db    -        a:1   stays      it is Lazy
1 of 2 templates would move.
The server does not serve Widget of example.org/v1.
NOTE: policies name clusters that do not exist: z";
        assert_eq!(plan.lines(false), text);
    }
}
