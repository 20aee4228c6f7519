//! Aggregates the status of a binding's Works: an item per cluster and the FullyApplied
//! condition. Pure.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use karmada_api::binding::{AggregatedStatusItem, Condition, ObjectReference};
use karmada_api::names::cluster_of_execution_space;
use karmada_api::work::{ManifestStatus, ResourceIdentifier};
use karmada_api::{Placement, ResourceBindingSpec};
use machinery::conditions::set_status_condition;
use machinery::{Gvk, Object, object};
use serde_json::Value;

use crate::partial_work::PartialWork;

const FULLY_APPLIED: &str = "FullyApplied";
/// The most bytes of the statuses that members report for one binding: what is above is left out, the
/// largest first, so that the binding can still be stored.
const MAX_REPORTED_BYTES: usize = 512 << 10;
const UNKNOWN_HEALTH: &str = "Unknown";
/// The most bytes of the message with which a member reports a failure.
const MAX_MESSAGE_BYTES: usize = 4 << 10;

/// A Work that cannot be aggregated.
#[derive(Debug)]
pub(crate) enum WorkAggregationError {
    Malformed(object::MalformedObject),
    /// The Work has no manifest of the template, for instance because an override changed
    /// its name.
    NoManifest,
}

impl std::fmt::Display for WorkAggregationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(e) => write!(f, "{e}"),
            Self::NoManifest => f.write_str("no such manifest exist"),
        }
    }
}

/// The reports of all Works of a binding.
#[derive(Debug)]
pub(crate) struct Aggregation {
    /// One item per cluster of the binding whose Work is not being deleted, ordered by cluster.
    pub(crate) items: Vec<AggregatedStatusItem>,
    /// By cluster, the revisions of a staged template about which members have reported.
    pub(crate) revisions: BTreeMap<String, String>,
}

/// Aggregates the Works of a binding. Works in other clusters, which somebody else has given the
/// binding's label, do not count.
pub(crate) fn aggregate(
    works: &[Object],
    spec: &ResourceBindingSpec,
) -> Result<Aggregation, WorkAggregationError> {
    let template = &spec.resource;
    let clusters = spec.existing_clusters();
    let (mut items, mut revisions) = (BTreeMap::new(), BTreeMap::new());
    let mut incomplete = BTreeSet::new();
    for work in works.iter().filter(|w| !w.meta().deleting) {
        let cluster = cluster_of_execution_space(work.namespace()).unwrap_or_default();
        if !clusters.contains(cluster) {
            continue;
        }
        let facts = PartialWork::from_object(work).map_err(WorkAggregationError::Malformed)?;
        let Some(ordinal) = manifest_ordinal(&facts, template) else {
            incomplete.insert(cluster);
            continue;
        };
        if let Entry::Vacant(entry) = items.entry(cluster) {
            if let Some(revision) = facts.reported_revision() {
                revisions.insert(cluster.to_owned(), revision.to_owned());
            }
            entry.insert(aggregated_item(cluster, facts, ordinal, template));
        }
    }
    if incomplete
        .iter()
        .any(|cluster| !items.contains_key(cluster))
    {
        return Err(WorkAggregationError::NoManifest);
    }
    let mut items: Vec<_> = items.into_values().collect();
    limit_reported_bytes(&mut items, MAX_REPORTED_BYTES);
    Ok(Aggregation { items, revisions })
}

/// Leaves out the largest statuses until the rest has at most `budget` bytes.
fn limit_reported_bytes(items: &mut [AggregatedStatusItem], budget: usize) {
    let size =
        |item: &AggregatedStatusItem| item.status.as_ref().map_or(0, |s| s.to_string().len());
    let mut sizes: Vec<_> = items.iter().map(size).enumerate().collect();
    let mut sum: usize = sizes.iter().map(|(_, size)| size).sum();
    sizes.sort_unstable_by_key(|&(_, size)| std::cmp::Reverse(size));
    for (i, size) in sizes {
        if sum <= budget {
            return;
        }
        sum -= size;
        items[i].status = None;
        items[i].health = UNKNOWN_HEALTH.into();
        items[i].applied_message =
            format!("the reported status has {size} bytes, which is too large");
    }
}

fn manifest_ordinal(facts: &PartialWork, template: &ObjectReference) -> Option<i64> {
    let mut all = (0..).zip(facts.manifests());
    let entry = all.find(|(_, m)| {
        m.api_version == template.api_version
            && m.kind == template.kind
            && m.metadata.namespace == template.namespace
            && m.metadata.name == template.name
    });
    entry.map(|(ordinal, _)| ordinal)
}

fn aggregated_item(
    cluster: &str,
    facts: PartialWork,
    ordinal: i64,
    template: &ObjectReference,
) -> AggregatedStatusItem {
    let unknown = AggregatedStatusItem {
        cluster_name: cluster.to_owned(),
        health: UNKNOWN_HEALTH.into(),
        ..AggregatedStatusItem::default()
    };
    if let Err(reason) = facts.applied_result() {
        return AggregatedStatusItem {
            applied_message: truncated(reason, MAX_MESSAGE_BYTES),
            ..unknown
        };
    }
    let kind = Gvk::from_api_version(&template.api_version, &template.kind);
    let is_ours = |s: &ManifestStatus| is_template(&s.identifier, ordinal, &kind, template);
    match facts.status.manifest_statuses.into_iter().find(is_ours) {
        Some(manifest_status) => AggregatedStatusItem {
            applied: true,
            status: manifest_status.status,
            health: match manifest_status.health.as_str() {
                "Healthy" | "Unhealthy" => manifest_status.health,
                _ => UNKNOWN_HEALTH.into(),
            },
            ..unknown
        },
        None => AggregatedStatusItem {
            applied: true,
            ..unknown
        },
    }
}

/// The beginning of a text, in whole characters.
fn truncated(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

fn is_template(
    identifier: &ResourceIdentifier,
    ordinal: i64,
    kind: &Gvk,
    template: &ObjectReference,
) -> bool {
    identifier.ordinal == ordinal
        && *identifier.group == *kind.group
        && *identifier.version == *kind.version
        && *identifier.kind == *kind.kind
        && identifier.namespace == template.namespace
        && identifier.name == template.name
}

/// Whether two statuses are equal. Servers drop nulls, or write them for absent fields.
pub(crate) fn is_same_status(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            // No field is compared twice: members nest them as deep as they like.
            a.iter()
                .all(|(key, a)| is_same_status(a, b.get(key).unwrap_or(&Value::Null)))
                && b.iter().all(|(key, b)| b.is_null() || a.contains_key(key))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same_status(a, b))
        }
        (a, b) => a == b,
    }
}

/// Whether the status of a binding was aggregated before.
pub(crate) fn has_fully_applied_condition(conditions: &[Condition]) -> bool {
    conditions.iter().any(|c| c.condition_type == FULLY_APPLIED)
}

fn is_fully_applied(spec: &ResourceBindingSpec, items: &[AggregatedStatusItem]) -> bool {
    let expected = spec.existing_clusters();
    if expected.is_empty() {
        // All of no Works are applied, if none are wanted.
        let placement = spec.placement.as_ref();
        return items.is_empty() && placement.is_some_and(Placement::is_nowhere);
    }
    let applied = |i: &AggregatedStatusItem| i.applied && expected.contains(&*i.cluster_name);
    expected.len() == items.len() && items.iter().all(applied)
}

/// Whether the status is about to change: some objects are not applied or not healthy yet.
/// Failures do not count, nor does the moment at which all become applied.
pub(crate) fn is_progressing(
    spec: &ResourceBindingSpec,
    old: &[Condition],
    items: &[AggregatedStatusItem],
) -> bool {
    if items.iter().any(|i| !i.applied_message.is_empty()) {
        return false;
    }
    if !is_fully_applied(spec, items) {
        return true;
    }
    let was_applied = |c: &Condition| c.condition_type == FULLY_APPLIED && c.status == "True";
    old.iter().any(was_applied) && items.iter().any(|i| i.health != "Healthy")
}

/// All conditions, with FullyApplied updated; `None` if nothing changes. `now` is in RFC
/// 3339; a condition that keeps its status keeps its transition time.
pub(crate) fn update_conditions(
    spec: &ResourceBindingSpec,
    old: &[Condition],
    items: &[AggregatedStatusItem],
    now: &str,
) -> Option<Vec<Condition>> {
    let (status, reason, message) = if is_fully_applied(spec, items) {
        (
            "True",
            "FullyAppliedSuccess",
            "All works have been successfully applied",
        )
    } else {
        (
            "False",
            "FullyAppliedFailed",
            "Failed to apply all works, see status.aggregatedStatus for details",
        )
    };
    let before = old.iter().find(|c| c.condition_type == FULLY_APPLIED);
    let condition = Condition {
        condition_type: FULLY_APPLIED.into(),
        status: status.into(),
        observed_generation: before.map_or(0, |before| before.observed_generation),
        last_transition_time: now.to_owned(),
        reason: reason.into(),
        message: message.into(),
    };
    let mut all = old.to_vec();
    set_status_condition(&mut all, condition).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karmada_api::ClusterAffinity;
    use serde_json::json;

    fn template() -> ObjectReference {
        ObjectReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "n".into(),
            name: "web".into(),
            ..ObjectReference::default()
        }
    }

    fn work(namespace: &str, status: Value) -> Value {
        json!({"metadata": {"name": "w", "namespace": namespace}, "status": status,
            "spec": {"workload": {"manifests": [
                {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}},
                {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "n"}}]}}})
    }

    fn applied(status: &str) -> Value {
        json!([{"type": "Applied", "status": status, "message": "because"}])
    }

    fn check(works: &[Value], items: Value) {
        let works: Vec<_> = works
            .iter()
            .map(|w| Object::from_value(w).unwrap())
            .collect();
        assert_eq!(json!(aggregate(&works, &placed()).unwrap().items), items);
    }

    /// A binding of the template in the clusters `a` to `e`.
    fn placed() -> ResourceBindingSpec {
        let clusters = ["a", "b", "c", "d", "e"].map(|name| json!({"name": name}));
        let mut spec: ResourceBindingSpec =
            serde_json::from_value(json!({"clusters": clusters})).unwrap();
        spec.resource = template();
        spec
    }

    // proves: STA-aggregate, STA-unapplied, STA-unreported, STA-terminating
    #[test]
    fn every_work_gives_an_item() {
        let reported = |ordinal: i64| {
            json!({"conditions": applied("True"), "manifestStatuses": [{"health": "Healthy", "status": {"replicas": 1},
                "identifier": {"ordinal": ordinal, "group": "apps", "version": "v1", "kind": "Deployment",
                               "resource": "", "namespace": "n", "name": "web"}}]})
        };
        let mut dying = work("karmada-es-d", reported(1));
        dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        check(
            &[
                work("karmada-es-c", reported(1)),
                work("karmada-es-b", json!({"conditions": applied("False")})),
                work("karmada-es-a", json!({})),
                dying,
                work("karmada-es-e", reported(0)),
            ],
            json!([
                {"clusterName": "a", "health": "Unknown"},
                {"clusterName": "b", "health": "Unknown", "appliedMessage": "because"},
                {"clusterName": "c", "health": "Healthy", "applied": true, "status": {"replicas": 1}},
                {"clusterName": "e", "health": "Unknown", "applied": true},
            ]),
        );
        check(&[], json!([]));
    }

    #[test]
    fn nulls_equal_absent_fields() {
        for (a, b, same) in [
            (json!({"a": 1, "n": null}), json!({"a": 1}), true),
            (json!({"a": 1}), json!({"a": 1, "n": {"m": null}}), false),
            (
                json!({"o": {"l": [{"n": null}]}}),
                json!({"o": {"l": [{}]}}),
                true,
            ),
            (json!({"l": [1]}), json!({"l": [1, null]}), false),
            (json!({"a": 1}), json!({"a": 2}), false),
        ] {
            assert_eq!(is_same_status(&a, &b), same, "{a} {b}");
            assert_eq!(is_same_status(&b, &a), same, "{b} {a}");
        }
    }

    #[test]
    fn nested_statuses_are_compared_in_one_pass() {
        let nested = (0..500).fold(json!(1), |status, _| json!({"deep": status}));
        assert!(is_same_status(&nested, &nested.clone()));
    }

    // proves: STA-renamed
    #[test]
    fn a_work_without_the_template_is_a_failure() {
        let mut renamed = work("karmada-es-a", json!({}));
        renamed["spec"]["workload"]["manifests"][1]["metadata"]["name"] = "other".into();
        let renamed = Object::from_value(&renamed).unwrap();
        let failure = aggregate(&[renamed], &placed()).unwrap_err();
        assert_eq!(failure.to_string(), "no such manifest exist");
    }

    // proves: STA-untrusted
    #[test]
    fn a_member_reports_for_itself_within_limits() {
        let report = |status: Value, health: &str| {
            json!({"conditions": applied("True"), "manifestStatuses": [{"health": health, "status": status,
                "identifier": {"ordinal": 1, "group": "apps", "version": "v1", "kind": "Deployment",
                               "resource": "", "namespace": "n", "name": "web"}}]})
        };
        // Works in clusters that the binding does not name, and outside of execution namespaces.
        let mut stray = work("karmada-es-z", json!({}));
        stray["spec"]["workload"]["manifests"] = json!([]);
        let mut second = work("karmada-es-a", json!({}));
        second["spec"]["workload"]["manifests"] = json!([]);
        check(
            &[
                work("karmada-es-x", report(json!({"replicas": 9}), "Healthy")),
                work("default", report(json!({"replicas": 9}), "Healthy")),
                stray,
                second,
                work("karmada-es-a", report(json!({"replicas": 1}), "Splendid")),
                work("karmada-es-a", report(json!({"replicas": 2}), "Healthy")),
            ],
            json!([{"clusterName": "a", "health": "Unknown", "applied": true, "status": {"replicas": 1}}]),
        );
        let large = json!({"text": "x".repeat(MAX_REPORTED_BYTES)});
        let failed = json!([{"type": "Applied", "status": "False", "message": "é".repeat(MAX_MESSAGE_BYTES)}]);
        let works = [
            work("karmada-es-a", report(json!({"replicas": 1}), "Healthy")),
            work("karmada-es-b", report(large, "Healthy")),
            work("karmada-es-c", json!({"conditions": failed})),
        ];
        let works = works.map(|w| Object::from_value(&w).unwrap());
        let items = aggregate(&works, &placed()).unwrap().items;
        assert_eq!(items[0].status, Some(json!({"replicas": 1})));
        assert_eq!(
            (items[1].status.clone(), &*items[1].health),
            (None, "Unknown")
        );
        assert!(items[1].applied_message.contains("too large"));
        assert_eq!(items[2].applied_message.len(), MAX_MESSAGE_BYTES);
    }

    // proves: STA-fully-applied, STA-nowhere
    #[test]
    fn all_expected_clusters_make_it_fully_applied() {
        let nowhere = json!({"placement": {"clusterAffinity": ClusterAffinity::nowhere()}});
        let table = [
            (json!({}), vec![], false),
            (nowhere.clone(), vec![], true),
            (nowhere, vec![("a", true)], false),
            (
                json!({"clusters": [{"name": "a"}]}),
                vec![("a", true)],
                true,
            ),
            (
                json!({"clusters": [{"name": "a"}]}),
                vec![("a", false)],
                false,
            ),
            (
                json!({"clusters": [{"name": "a"}]}),
                vec![("b", true)],
                false,
            ),
            (
                json!({"clusters": [{"name": "a"}, {"name": "b"}]}),
                vec![("a", true)],
                false,
            ),
            (
                json!({"clusters": [{"name": "a"}], "requiredBy": [{"name": "r", "clusters": [{"name": "b"}, {"name": "a"}]}]}),
                vec![("a", true), ("b", true)],
                true,
            ),
            (
                json!({"clusters": [{"name": "a"}], "gracefulEvictionTasks": [
                    {"fromCluster": "b", "purgeMode": "Gracefully"}, {"fromCluster": "c", "purgeMode": "Directly"}]}),
                vec![("a", true), ("b", true)],
                true,
            ),
        ];
        for (spec, items, full) in table {
            let parsed: ResourceBindingSpec = serde_json::from_value(spec.clone()).unwrap();
            let items: Vec<_> = items
                .into_iter()
                .map(|(cluster, applied)| AggregatedStatusItem {
                    cluster_name: cluster.into(),
                    applied,
                    ..AggregatedStatusItem::default()
                })
                .collect();
            assert_eq!(is_fully_applied(&parsed, &items), full, "{spec}");
        }
    }

    #[test]
    fn copies_settle_until_they_are_applied_and_then_until_they_are_healthy() {
        let spec = serde_json::from_value(json!({"clusters": [{"name": "a"}, {"name": "b"}]}));
        let spec: ResourceBindingSpec = spec.unwrap();
        let item = |cluster: &str, applied, health: &str, message: &str| AggregatedStatusItem {
            cluster_name: cluster.into(),
            applied,
            health: health.into(),
            applied_message: message.into(),
            ..AggregatedStatusItem::default()
        };
        let (healthy, starting) = (item("a", true, "Healthy", ""), item("b", true, "", ""));
        let table = [
            (vec![healthy.clone()], false, true),
            (vec![healthy.clone(), item("b", false, "", "")], true, true),
            (
                vec![healthy.clone(), item("b", false, "", "no")],
                true,
                false,
            ),
            (vec![healthy.clone(), starting.clone()], false, false),
            (vec![healthy.clone(), starting], true, true),
            (vec![healthy, item("b", true, "Healthy", "")], true, false),
        ];
        for (items, reported, settling) in table {
            let old = Condition {
                condition_type: FULLY_APPLIED.into(),
                status: if reported { "True" } else { "False" }.into(),
                ..Condition::default()
            };
            assert_eq!(is_progressing(&spec, &[old], &items), settling, "{items:?}");
        }
    }

    // proves: STA-fully-applied-words
    #[test]
    fn the_condition_stands_among_others_and_keeps_its_time() {
        let spec = ResourceBindingSpec::default();
        let scheduled = Condition {
            condition_type: "Scheduled".into(),
            ..Condition::default()
        };
        let first = update_conditions(&spec, &[scheduled], &[], "t1").unwrap();
        assert_eq!(
            (first.len(), &*first[1].status, &*first[1].reason),
            (2, "False", "FullyAppliedFailed")
        );
        assert_eq!(update_conditions(&spec, &first, &[], "t2"), None);
        let mut worded = first.clone();
        worded[1].message = "old words".into();
        let mended = update_conditions(&spec, &worded, &[], "t2").unwrap();
        assert_eq!(mended, first);
        let one: ResourceBindingSpec =
            serde_json::from_value(json!({"clusters": [{"name": "a"}]})).unwrap();
        let item = AggregatedStatusItem {
            cluster_name: "a".into(),
            applied: true,
            ..AggregatedStatusItem::default()
        };
        let full = update_conditions(&one, &first, &[item], "t2").unwrap();
        let fields = |at: &Condition| [&at.status, &at.reason, &at.message].map(String::clone);
        assert_eq!(
            fields(&full[1]),
            [
                "True",
                "FullyAppliedSuccess",
                "All works have been successfully applied"
            ]
        );
        assert_eq!(
            fields(&first[1]),
            [
                "False",
                "FullyAppliedFailed",
                "Failed to apply all works, see status.aggregatedStatus for details"
            ]
        );
        let mut other = first;
        other[1].status = "True".into();
        let turned = update_conditions(&spec, &other, &[], "t2").unwrap();
        assert_eq!(turned[1].last_transition_time, "t2");
    }
}
