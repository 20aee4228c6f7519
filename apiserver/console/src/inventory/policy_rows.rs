//! The rows of policies: what they select, and the clusters that they are about.

use flotilla_cli::plan::policy_kind;
use karmada_api::affinity::{ApiLabelSelector, ClusterAffinity};
use karmada_api::policy::ResourceSelector;
use karmada_api::resources::{CLUSTER_OVERRIDES, CLUSTER_POLICIES, OVERRIDES, POLICIES};
use karmada_api::rollout::{CLUSTER_ROLLOUT_POLICIES, ROLLOUT_POLICIES};
use karmada_api::{OverridePolicy, Placement, PropagationPolicy, RolloutPolicy};
use machinery::Object;

use super::projection::ObjectKey;
use super::resource_row::{ListedResource, ResourceRow, RowCell, abbreviated};

/// The names of clusters that a line has.
const MAX_NAMES: usize = 5;

/// The first segments of the paths of policies.
pub(crate) const POLICY_PAGES: &str = "policies";
pub(crate) const OVERRIDE_PAGES: &str = "overridepolicies";
pub(crate) const ROLLOUT_POLICY_PAGES: &str = "rolloutpolicies";

pub(crate) static POLICY_KINDS: [ListedResource; 2] = [
    ListedResource {
        resource: &CLUSTER_POLICIES,
        kind: "ClusterPropagationPolicy",
        pages: Some(POLICY_PAGES),
        project: |object, _| policy_row(object),
    },
    ListedResource {
        resource: &POLICIES,
        kind: "PropagationPolicy",
        pages: Some(POLICY_PAGES),
        project: |object, _| policy_row(object),
    },
];

pub(crate) static OVERRIDE_KINDS: [ListedResource; 2] = [
    ListedResource {
        resource: &CLUSTER_OVERRIDES,
        kind: "ClusterOverridePolicy",
        pages: Some(OVERRIDE_PAGES),
        project: |object, _| override_row(object, "ClusterOverridePolicy"),
    },
    ListedResource {
        resource: &OVERRIDES,
        kind: "OverridePolicy",
        pages: Some(OVERRIDE_PAGES),
        project: |object, _| override_row(object, "OverridePolicy"),
    },
];

pub(crate) static ROLLOUT_POLICY_KINDS: [ListedResource; 2] = [
    ListedResource {
        resource: &CLUSTER_ROLLOUT_POLICIES,
        kind: "ClusterRolloutPolicy",
        pages: Some(ROLLOUT_POLICY_PAGES),
        project: |object, _| rollout_row(object, "ClusterRolloutPolicy"),
    },
    ListedResource {
        resource: &ROLLOUT_POLICIES,
        kind: "RolloutPolicy",
        pages: Some(ROLLOUT_POLICY_PAGES),
        project: |object, _| rollout_row(object, "RolloutPolicy"),
    },
];

/// The kind and the name of a rollout policy, as statuses of rollouts name it.
pub(crate) fn rollout_policy_text((namespace, name): &ObjectKey) -> String {
    let kind = match namespace.as_str() {
        "" => "ClusterRolloutPolicy",
        _ => "RolloutPolicy",
    };
    format!("{kind}/{name}")
}

fn policy_row(object: &Object) -> Option<ResourceRow> {
    let spec = &object.decode::<PropagationPolicy>().ok()?.spec;
    let cells = vec![
        selector_cell(&spec.resource_selectors, object),
        abbreviated(describe_placement(&spec.placement)),
    ];
    Some(ResourceRow::new(
        object,
        policy_kind(object.namespace()),
        cells,
    ))
}

/// The values that overriders write are not shown: they may be of a Secret.
fn override_row(object: &Object, kind: &str) -> Option<ResourceRow> {
    let spec = &object.decode::<OverridePolicy>().ok()?.spec;
    let affinity_text = |affinity: &Option<ClusterAffinity>| match affinity {
        Some(affinity) => describe_affinity(affinity),
        None => "all clusters".to_owned(),
    };
    let rules = spec.override_rules.iter();
    let mut targets: Vec<String> = rules
        .map(|rule| affinity_text(&rule.target_cluster))
        .collect();
    if targets.is_empty() {
        targets.push(affinity_text(&spec.target_cluster));
    }
    let cells = vec![
        selector_cell(&spec.resource_selectors, object),
        abbreviated(targets),
    ];
    Some(ResourceRow::new(object, kind, cells))
}

fn rollout_row(object: &Object, kind: &str) -> Option<ResourceRow> {
    let spec = &object.decode::<RolloutPolicy>().ok()?.spec;
    let stages = spec.stages.iter().map(|stage| {
        let clusters = stage.cluster_affinity.as_ref().map(describe_affinity);
        let clusters = clusters.unwrap_or_else(|| "the other clusters".to_owned());
        format!("{}: {clusters}", stage.name)
    });
    let cells = vec![
        selector_cell(&spec.resource_selectors, object),
        abbreviated(stages.collect()),
    ];
    Some(ResourceRow::new(object, kind, cells))
}

fn selector_cell(selectors: &[ResourceSelector], policy: &Object) -> RowCell {
    let namespace = policy.namespace();
    let selectors = selectors.iter();
    let mut lines: Vec<String> = selectors
        .map(|selector| describe_selector(selector, namespace))
        .collect();
    if lines.is_empty() {
        lines.push("every object".to_owned());
    }
    abbreviated(lines)
}

/// The objects that a selector of a policy selects, such as `Deployment web` or `every ConfigMap`. The
/// namespace of the policy is not repeated.
pub(crate) fn describe_selector(selector: &ResourceSelector, policy_namespace: &str) -> String {
    let kind = &selector.kind;
    let objects = match (&*selector.name, &selector.label_selector) {
        ("", None) => format!("every {kind}"),
        ("", Some(labels)) => format!("{kind} with {}", label_text(labels)),
        (name, _) => format!("{kind} {name}"),
    };
    match &*selector.namespace {
        "" => objects,
        namespace if namespace == policy_namespace => objects,
        namespace => format!("{objects} in {namespace}"),
    }
}

fn label_text(selector: &ApiLabelSelector) -> String {
    let labels = selector.match_labels.iter();
    let labels = labels.map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter();
    let expressions = expressions.map(|requirement| {
        let values = requirement.values.join(", ");
        let (key, operator) = (&requirement.key, &requirement.operator);
        match values.is_empty() {
            true => format!("{key} {operator}"),
            false => format!("{key} {operator} ({values})"),
        }
    });
    let texts: Vec<String> = labels.chain(expressions).collect();
    match texts.is_empty() {
        true => "any labels".to_owned(),
        false => texts.join(", "),
    }
}

/// The clusters of a placement, and how replicas are divided among them.
pub(crate) fn describe_placement(placement: &Placement) -> Vec<String> {
    let mut lines: Vec<String> = match placement.cluster_affinities.as_slice() {
        [] => {
            let affinity = placement.cluster_affinity.as_ref();
            vec![affinity.map_or_else(|| "all clusters".to_owned(), describe_affinity)]
        }
        terms => {
            let terms = terms.iter().enumerate();
            let line = |(at, text)| match at {
                0 => text,
                _ => format!("else {text}"),
            };
            terms
                .map(|(at, term)| line((at, describe_affinity(&term.affinity))))
                .collect()
        }
    };
    lines.push(division(placement).to_owned());
    lines
}

/// The clusters of an affinity, in words.
pub(crate) fn describe_affinity(affinity: &ClusterAffinity) -> String {
    if affinity.is_nowhere() {
        return "nowhere".to_owned();
    }
    let mut texts = Vec::new();
    if !affinity.cluster_names.is_empty() {
        texts.push(names_text(&affinity.cluster_names));
    }
    if let Some(labels) = &affinity.label_selector {
        texts.push(format!("clusters with {}", label_text(labels)));
    }
    if let Some(fields) = &affinity.field_selector {
        let selector = ApiLabelSelector {
            match_expressions: fields.match_expressions.clone(),
            ..ApiLabelSelector::default()
        };
        texts.push(format!("clusters with {}", label_text(&selector)));
    }
    if texts.is_empty() {
        texts.push("all clusters".to_owned());
    }
    let mut text = texts.join(", ");
    if !affinity.exclude.is_empty() {
        text.push_str(&format!(" except {}", names_text(&affinity.exclude)));
    }
    text
}

fn names_text(names: &[String]) -> String {
    let mut text = names[..names.len().min(MAX_NAMES)].join(", ");
    if names.len() > MAX_NAMES {
        text.push_str(&format!(" and {} more", names.len() - MAX_NAMES));
    }
    text
}

fn division(placement: &Placement) -> &'static str {
    let Some(strategy) = &placement.replica_scheduling else {
        return "all replicas in each";
    };
    if strategy.replica_scheduling_type != "Divided" {
        return "all replicas in each";
    }
    let is_dynamic =
        |weights: &karmada_api::placement::ClusterPreferences| !weights.dynamic_weight.is_empty();
    match (
        &*strategy.replica_division_preference,
        &strategy.weight_preference,
    ) {
        ("Aggregated", _) => "replicas in as few as possible",
        (_, Some(weights)) if is_dynamic(weights) => "replicas by free capacity",
        (_, Some(_)) => "replicas by weights",
        (_, None) => "replicas in equal parts",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: CON-policies
    #[test]
    fn selectors_and_placements_are_short_sentences() {
        for (selector, text) in [
            (
                json!({"kind": "Deployment", "name": "web"}),
                "Deployment web",
            ),
            (json!({"kind": "ConfigMap"}), "every ConfigMap"),
            (
                json!({"kind": "Secret", "namespace": "shop", "labelSelector": {"matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}]}}),
                "Secret with a=b, c In (d, e) in shop",
            ),
        ] {
            let selector = serde_json::from_value(selector).unwrap();
            assert_eq!(describe_selector(&selector, "other"), text);
            assert!(!describe_selector(&selector, "shop").contains(" in shop"));
        }
        let six = json!(["a", "b", "c", "d", "e", "f"]);
        for (placement, lines) in [
            (json!({}), vec!["all clusters", "all replicas in each"]),
            (
                json!({"clusterAffinity": {"clusterNames": six, "exclude": ["g"]},
                    "replicaScheduling": {"replicaSchedulingType": "Divided"}}),
                vec![
                    "a, b, c, d, e and 1 more except g",
                    "replicas in equal parts",
                ],
            ),
            (
                json!({"clusterAffinities": [{"affinityName": "x", "clusterNames": ["a"]},
                    {"affinityName": "y", "labelSelector": {"matchLabels": {"r": "s"}}}],
                    "replicaScheduling": {"replicaSchedulingType": "Divided",
                        "replicaDivisionPreference": "Weighted",
                        "weightPreference": {"dynamicWeight": "AvailableReplicas"}}}),
                vec!["a", "else clusters with r=s", "replicas by free capacity"],
            ),
        ] {
            let placement = serde_json::from_value(placement).unwrap();
            assert_eq!(describe_placement(&placement), lines);
        }
    }
}
