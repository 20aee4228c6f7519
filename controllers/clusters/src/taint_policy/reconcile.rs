//! The taints that ClusterTaintPolicies give to a cluster. Pure.

use karmada_api::ClusterAttributes;
use karmada_api::binding::Condition;
use karmada_api::cluster::Taint;
use karmada_api::taint_policy::{ClusterTaintPolicySpec, MatchCondition};
use machinery::Object;

/// Whether a policy targets a cluster.
pub(super) fn targets_cluster(
    spec: &ClusterTaintPolicySpec,
    cluster: &ClusterAttributes<'_>,
) -> bool {
    let targets = spec.target_clusters.as_ref();
    targets.is_none_or(|targets| targets.matcher().matches(cluster))
}

/// Sorts policies in the order in which they apply: the oldest first.
pub(super) fn sort_by_age(policies: &mut [Object]) {
    policies.sort_by_cached_key(|policy| (policy.creation_timestamp(), policy.name().to_owned()));
}

/// The taints after all policies that target the cluster. Each policy first adds, then
/// removes. An existing taint keeps its value and time.
pub(super) fn desired_taints<'a>(
    current: &[Taint],
    conditions: &[Condition],
    policies: impl Iterator<Item = &'a ClusterTaintPolicySpec>,
    now: &str,
) -> Vec<Taint> {
    let mut taints = current.to_vec();
    for policy in policies {
        if conditions_match(&policy.add_on_conditions, conditions) {
            for taint in &policy.taints {
                let is_same = |t: &Taint| t.key == taint.key && t.effect == taint.effect;
                if !taints.iter().any(is_same) {
                    taints.push(Taint {
                        key: taint.key.clone(),
                        value: taint.value.clone(),
                        effect: taint.effect.clone(),
                        time_added: Some(now.to_owned()),
                    });
                }
            }
        }
        if conditions_match(&policy.remove_on_conditions, conditions) {
            let named = |t: &Taint| {
                let mut all = policy.taints.iter();
                all.any(|p| p.key == t.key && p.effect == t.effect)
            };
            taints.retain(|t| !named(t));
        }
    }
    taints
}

/// Whether all requirements are met; false if there are none. An absent condition meets
/// no requirement.
fn conditions_match(required: &[MatchCondition], conditions: &[Condition]) -> bool {
    !required.is_empty()
        && required.iter().all(|r| {
            let condition = conditions
                .iter()
                .find(|c| c.condition_type == r.condition_type);
            let listed = |c: &Condition| r.status_values.contains(&c.status);
            condition.is_some_and(|c| match r.operator.as_str() {
                "In" => listed(c),
                "NotIn" => !listed(c),
                _ => false,
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(spec: Value) -> ClusterTaintPolicySpec {
        serde_json::from_value(spec).unwrap()
    }

    fn when(kind: &str, operator: &str, values: &[&str]) -> Value {
        json!({"conditionType": kind, "operator": operator, "statusValues": values})
    }

    // proves: TNT-conditions, TNT-all-conditions
    #[test]
    fn all_requirements_must_be_met() {
        let conditions: Vec<Condition> = serde_json::from_value(
            json!([{"type": "Ready", "status": "False"}, {"type": "Net", "status": "True"}]),
        )
        .unwrap();
        for (required, expected) in [
            (json!([]), false),
            (json!([when("Ready", "In", &["False", "Unknown"])]), true),
            (json!([when("Ready", "In", &["True"])]), false),
            (json!([when("Ready", "NotIn", &["True"])]), true),
            (json!([when("Ready", "NotIn", &["False"])]), false),
            (json!([when("Absent", "NotIn", &["True"])]), false),
            (json!([when("Ready", "Is", &["False"])]), false),
            (
                json!([
                    when("Ready", "In", &["False"]),
                    when("Net", "In", &["True"])
                ]),
                true,
            ),
            (
                json!([
                    when("Ready", "In", &["False"]),
                    when("Net", "In", &["False"])
                ]),
                false,
            ),
        ] {
            let all: Vec<MatchCondition> = serde_json::from_value(required.clone()).unwrap();
            assert_eq!(conditions_match(&all, &conditions), expected, "{required}");
        }
    }

    // proves: TNT-adds, TNT-removes, TNT-keeps, TNT-effect, TNT-order
    #[test]
    fn taints_come_and_go_with_conditions() {
        let taint =
            |key: &str, value: &str| json!({"key": key, "effect": "NoSchedule", "value": value});
        let there = |key: &str, value: &str, at: &str| json!({"key": key, "effect": "NoSchedule", "value": value, "timeAdded": at});
        let down = || json!([when("Ready", "In", &["False"])]);
        let up = || json!([when("Ready", "In", &["True"])]);
        let check = |current: Value, ready: &str, policies: &[&Value], expected: Value| {
            let current: Vec<Taint> = serde_json::from_value(current).unwrap();
            let conditions = serde_json::from_value::<Vec<Condition>>(
                json!([{"type": "Ready", "status": ready}]),
            )
            .unwrap();
            let policies: Vec<_> = policies.iter().map(|p| policy((*p).clone())).collect();
            let actual = desired_taints(&current, &conditions, policies.iter(), "now");
            let expected: Vec<Taint> = serde_json::from_value(expected).unwrap();
            assert_eq!(actual, expected);
        };
        let both = json!({"addOnConditions": down(), "removeOnConditions": up(), "taints": [taint("a", "x"), taint("b", "")]});
        let all = json!([there("a", "x", "now"), there("b", "", "now")]);
        check(json!([]), "False", &[&both], all);
        check(json!([]), "Unknown", &[&both], json!([]));
        let old = json!([there("own", "", "t"), there("a", "old", "t")]);
        let kept = json!([
            there("own", "", "t"),
            there("a", "old", "t"),
            there("b", "", "now")
        ]);
        check(old.clone(), "False", &[&both], kept);
        check(old, "True", &[&both], json!([there("own", "", "t")]));
        // A taint with another effect is another taint.
        let other = json!([{"key": "a", "effect": "NoExecute"}]);
        let removes = json!({"removeOnConditions": down(), "taints": [taint("a", "")]});
        check(other.clone(), "False", &[&removes], other);
        // Later policies see the result of earlier ones.
        let adds = json!({"addOnConditions": down(), "taints": [taint("a", "")]});
        check(json!([]), "False", &[&adds, &removes], json!([]));
        let kept = json!([there("a", "", "now")]);
        check(json!([]), "False", &[&removes, &adds], kept);
        let undoes = json!({"addOnConditions": down(), "removeOnConditions": down(), "taints": [taint("a", "")]});
        check(json!([]), "False", &[&undoes], json!([]));
    }

    // proves: TNT-order
    #[test]
    fn the_oldest_policy_comes_first() {
        let policy_created = |name: &str, at: &str| {
            let policy = json!({"metadata": {"name": name, "creationTimestamp": at}});
            Object::from_value(&policy).unwrap()
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let mut all = [
            policy_created("c", late),
            policy_created("b", early),
            policy_created("a", late),
        ];
        sort_by_age(&mut all);
        assert_eq!(all.each_ref().map(Object::name), ["b", "a", "c"]);
    }
}
