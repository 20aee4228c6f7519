//! The actions that Remedies bring to a cluster. Pure.

use std::collections::BTreeSet;

use karmada_api::binding::Condition;
use karmada_api::remedy::{ClusterConditionRequirement, RemedySpec};

/// Whether a Remedy applies to the cluster with this name.
pub(super) fn targets_cluster(spec: &RemedySpec, cluster: &str) -> bool {
    let affinity = spec.cluster_affinity.as_ref();
    affinity.is_none_or(|affinity| affinity.cluster_names.iter().any(|name| name == cluster))
}

/// The actions of all Remedies that apply to the cluster and whose decision matches, sorted.
pub(super) fn actions_in_effect<'a>(
    remedies: impl Iterator<Item = &'a RemedySpec>,
    cluster: &str,
    conditions: &[Condition],
) -> Vec<String> {
    let actions: BTreeSet<&String> = remedies
        .filter(|spec| targets_cluster(spec, cluster) && decision_matches(spec, conditions))
        .flat_map(|spec| &spec.actions)
        .collect();
    actions.into_iter().cloned().collect()
}

/// Whether any of the matches holds. An absent list holds, an empty one does not.
fn decision_matches(spec: &RemedySpec, conditions: &[Condition]) -> bool {
    let Some(matches) = &spec.decision_matches else {
        return true;
    };
    let mut required = matches
        .iter()
        .filter_map(|m| m.cluster_condition_match.as_ref());
    required.any(|requirement| condition_matches(requirement, conditions))
}

/// An absent condition matches neither operator.
fn condition_matches(requirement: &ClusterConditionRequirement, conditions: &[Condition]) -> bool {
    let actual = conditions
        .iter()
        .find(|c| c.condition_type == requirement.condition_type);
    actual.is_some_and(|condition| {
        let equal = condition.status == requirement.condition_status;
        match requirement.operator.as_str() {
            "Equal" => equal,
            "NotEqual" => !equal,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn when(condition: &str, operator: &str, status: &str) -> Value {
        json!({"clusterConditionMatch":
            {"conditionType": condition, "operator": operator, "conditionStatus": status}})
    }

    // proves: RMD-clusters, RMD-always, RMD-any, RMD-operators, RMD-absent, RMD-union
    #[test]
    fn actions_follow_conditions_and_names() {
        let conditions: Vec<Condition> = serde_json::from_value(
            json!([{"type": "Ready", "status": "True"}, {"type": "Dns", "status": "False"}]),
        )
        .unwrap();
        let dns = |operator, status| json!([when("Dns", operator, status)]);
        let one = |spec: Value| json!([spec]);
        for (specs, expected) in [
            (one(json!({"actions": ["A"]})), vec!["A"]),
            (one(json!({})), vec![]),
            (one(json!({"actions": ["B", "A", "B"]})), vec!["A", "B"]),
            (
                one(json!({"actions": ["A"], "clusterAffinity": {"clusterNames": ["x", "m"]}})),
                vec!["A"],
            ),
            (
                one(json!({"actions": ["A"], "clusterAffinity": {"clusterNames": ["x"]}})),
                vec![],
            ),
            (
                one(json!({"actions": ["A"], "clusterAffinity": {}})),
                vec![],
            ),
            (
                one(json!({"actions": ["A"], "decisionMatches": []})),
                vec![],
            ),
            (
                one(json!({"actions": ["A"], "decisionMatches": [{}]})),
                vec![],
            ),
            (
                one(json!({"actions": ["A"], "decisionMatches": dns("Equal", "False")})),
                vec!["A"],
            ),
            (
                one(json!({"actions": ["A"], "decisionMatches": dns("Equal", "True")})),
                vec![],
            ),
            (
                one(json!({"actions": ["A"], "decisionMatches": dns("NotEqual", "True")})),
                vec!["A"],
            ),
            (
                one(json!({"actions": ["A"], "decisionMatches": dns("NotEqual", "False")})),
                vec![],
            ),
            (
                one(json!({"actions": ["A"], "decisionMatches": [when("No", "NotEqual", "True")]})),
                vec![],
            ),
            (
                one(json!({"actions": ["A"], "decisionMatches":
                    [when("No", "Equal", "True"), when("Ready", "Equal", "True")]})),
                vec!["A"],
            ),
            (
                json!([{"actions": ["C", "A"]}, {"actions": ["B"], "decisionMatches": dns("Equal", "False")},
                       {"actions": ["D"], "decisionMatches": dns("Equal", "Unknown")}]),
                vec!["A", "B", "C"],
            ),
        ] {
            let all: Vec<RemedySpec> = serde_json::from_value(specs.clone()).unwrap();
            assert_eq!(
                actions_in_effect(all.iter(), "m", &conditions),
                expected,
                "{specs}"
            );
        }
    }
}
