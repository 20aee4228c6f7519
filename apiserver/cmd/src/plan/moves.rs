//! The report of a plan: simulates the scheduling of the affected templates, one after
//! the other, and formats the result.

use std::time::Instant;

use openapi::karmada::{Binding, FeatureGates, TargetCluster};
use propagation::plan::{self, Claiming, Outlook};
use scheduler::core::Snapshot;
use scheduler::{Explanation, Rehearsal};
use serde::Serialize;

use super::gather::{Case, Facts};
use crate::columns::table;
use crate::scheduling::Scheduling;

/// The most clusters of a placement that are printed without `-o wide`.
const TOLD: usize = 6;

#[derive(Debug, Serialize)]
pub(crate) struct Plan {
    /// The number of templates that would get other clusters or replicas.
    pub(crate) moving: usize,
    pub(crate) templates: Vec<Prospect>,
    /// Selected kinds that the server does not serve.
    #[serde(rename = "unknownKinds", skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
}

/// A template with its present and its future placement.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Prospect {
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    name: String,
    moves: bool,
    claim: Claiming,
    now: Vec<TargetCluster>,
    then: Vec<TargetCluster>,
    /// The reason why it keeps its placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Explanation>,
}

pub(crate) fn plan(inputs: &Facts, scheduling: &Scheduling, gates: FeatureGates) -> Plan {
    let snapshot = Snapshot::new(inputs.clusters.iter().cloned()).under(scheduling.rules);
    let world = plan::World {
        policies: &inputs.policies,
        overrides: &inputs.overrides,
        bindings: &inputs.bindings,
        snapshot: &snapshot,
        scheduler: &scheduling.name,
        gates,
    };
    let change = |change: &'_ super::gather::Change| (change.before.clone(), change.after.clone());
    let owned: Vec<_> = inputs.changes.iter().map(change).collect();
    let changes: Vec<plan::Change<'_>> = owned
        .iter()
        .map(|(before, after)| plan::Change {
            before: before.as_ref(),
            after,
        })
        .collect();
    let mut before = Rehearsal::new(Instant::now());
    let templates = inputs.cases.iter().map(|affected| {
        let outcome = plan::foresee(
            &world,
            &changes,
            &plan::Case {
                kind: &affected.kind,
                template: &affected.template,
                wants: &affected.wants,
                binding: affected.binding.as_ref(),
            },
            &mut before,
        );
        Prospect::new(affected, outcome)
    });
    let templates: Vec<Prospect> = templates.collect();
    Plan {
        moving: templates.iter().filter(|t| t.moves).count(),
        templates,
        unknown: inputs.unknown.iter().cloned().collect(),
    }
}

impl Prospect {
    fn new(affected: &Case, outcome: Outlook) -> Self {
        let binding = affected
            .binding
            .as_ref()
            .and_then(|b| b.view::<Binding>().ok());
        let now = binding.map(|b| b.spec.clusters.clone()).unwrap_or_default();
        Self {
            kind: affected.kind.kind.clone(),
            namespace: affected.template.namespace().to_owned(),
            name: affected.template.name().to_owned(),
            moves: sorted(&now) != sorted(&outcome.clusters),
            claim: outcome.claiming,
            now,
            then: outcome.clusters,
            held: outcome.held,
            failure: outcome.failure,
            decision: outcome.explanation,
        }
    }

    fn cells(&self, wide: bool) -> Vec<String> {
        let template = match self.namespace.as_str() {
            "" => format!("{} {}", self.kind, self.name),
            namespace => format!("{} {namespace}/{}", self.kind, self.name),
        };
        let policy = self.claim.policy.as_ref();
        let then = if self.moves {
            clusters(&self.then, wide)
        } else {
            "stays".into()
        };
        let note = match (&self.held, &self.failure, policy) {
            (Some(held), _, _) => held.clone(),
            (None, Some(failure), _) => failure.clone(),
            (None, None, None) if !self.now.is_empty() => {
                format!("it stays where it is, without a policy: {}", self.claim.why)
            }
            (None, None, None) => self.claim.why.clone(),
            (None, None, Some(_)) if wide => self.claim.why.clone(),
            (None, None, Some(_)) => String::new(),
        };
        vec![
            template,
            policy.map(ToString::to_string).unwrap_or_default(),
            clusters(&self.now, wide),
            then,
            note,
        ]
    }
}

fn sorted(targets: &[TargetCluster]) -> Vec<&TargetCluster> {
    let mut targets: Vec<&TargetCluster> = targets.iter().collect();
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

/// `member1:2, member2:3`; without numbers for objects without replicas.
fn clusters(targets: &[TargetCluster], wide: bool) -> String {
    if targets.is_empty() {
        return "nowhere".into();
    }
    let limit = if wide { targets.len() } else { TOLD };
    let all = sorted(targets);
    let name = |t: &&TargetCluster| match t.replicas {
        0 => t.name.clone(),
        n => format!("{}:{n}", t.name),
    };
    let mut text = all
        .iter()
        .take(limit)
        .map(name)
        .collect::<Vec<_>>()
        .join(", ");
    if all.len() > limit {
        text.push_str(&format!(", and {} more", all.len() - limit));
    }
    text
}

impl Plan {
    /// The report as text, without a line feed at its end.
    pub(crate) fn lines(&self, wide: bool) -> String {
        let mut lines = Vec::new();
        if self.templates.is_empty() {
            lines.push("These policies select no templates and have claimed none.".to_owned());
        } else {
            let rows: Vec<_> = self.templates.iter().map(|t| t.cells(wide)).collect();
            let titles = ["TEMPLATE", "POLICY", "NOW", "THEN", "NOTE"];
            lines.push(table(&titles, &rows));
            let all = self.templates.len();
            lines.push(format!("{} of {all} templates would move.", self.moving));
        }
        let unknown = self.unknown.iter();
        lines.extend(unknown.map(|kind| format!("The server does not serve {kind}.")));
        lines.join("\n")
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
    fn a_placement_is_abbreviated() {
        let many: Vec<(String, i64)> = (1..=8).map(|n| (format!("m{n}"), 1)).collect();
        let many: Vec<(&str, i64)> = many.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        for (targets, wide, text) in [
            (&[][..], false, "nowhere"),
            (&[("b", 2), ("a", 1)], false, "a:1, b:2"),
            (&[("a", 0)], false, "a"),
            (
                &many,
                false,
                "m1:1, m2:1, m3:1, m4:1, m5:1, m6:1, and 2 more",
            ),
            (
                &many,
                true,
                "m1:1, m2:1, m3:1, m4:1, m5:1, m6:1, m7:1, m8:1",
            ),
        ] {
            assert_eq!(clusters(&to(targets), wide), text);
        }
    }

    #[test]
    fn the_report_lists_what_moves_what_stays_and_why() {
        let prospect =
            |name: &str, now: &[(&str, i64)], then: &[(&str, i64)], held: Option<&str>| Prospect {
                kind: "Deployment".into(),
                namespace: "n".into(),
                name: name.into(),
                moves: now != then,
                claim: Claiming::default(),
                now: to(now),
                then: to(then),
                held: held.map(str::to_owned),
                failure: None,
                decision: None,
            };
        let plan = Plan {
            moving: 1,
            templates: vec![
                prospect("web", &[("a", 2)], &[("a", 1), ("b", 1)], None),
                prospect("db", &[("a", 1)], &[("a", 1)], Some("it is Lazy")),
            ],
            unknown: vec!["Widget of example.org/v1".into()],
        };
        let text = "\
TEMPLATE           POLICY   NOW   THEN       NOTE
Deployment n/web   -        a:2   a:1, b:1   it stays where it is, without a policy:
Deployment n/db    -        a:1   stays      it is Lazy
1 of 2 templates would move.
The server does not serve Widget of example.org/v1.";
        assert_eq!(plan.lines(false), text);
    }
}
