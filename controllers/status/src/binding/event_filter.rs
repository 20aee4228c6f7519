//! Filters the informer events of the binding status controller.

use client::InformerEvent;
use karmada_api::{ResourceBinding, well_known_keys};
use machinery::Object;

use super::aggregate::has_fully_applied_condition;
use crate::partial_work::PartialWork;

/// The permanent ids of the bindings that an object is or belongs to.
pub(super) fn permanent_ids(object: &Object) -> Vec<String> {
    [
        well_known_keys::BINDING_ID,
        well_known_keys::CLUSTER_BINDING_ID,
    ]
    .iter()
    .filter_map(|label| object.meta().label(label))
    .filter(|id| !id.is_empty())
    .map(str::to_owned)
    .collect()
}

/// Whether a binding must be aggregated: it is seen for the first time and is scheduled or has an
/// aggregated status, or it is scheduled and its template has a new version or its clusters changed.
pub(super) fn needs_aggregation(old: Option<&Object>, new: &Object) -> bool {
    let same_spec = |old: &Object| old.meta().generation == new.meta().generation;
    if old.is_some_and(same_spec) {
        return false;
    }
    let Ok(now) = new.decode::<ResourceBinding>() else {
        return false;
    };
    let is_scheduled = now.status.last_scheduled_time.is_some();
    let Some(before) = old.and_then(|old| old.decode::<ResourceBinding>().ok()) else {
        return is_scheduled || !now.status.aggregated_status.is_empty();
    };
    if !is_scheduled {
        return false;
    }
    let version = |b: &ResourceBinding| b.spec.resource.resource_version.clone();
    version(&before) != version(&now)
        || has_fully_applied_condition(&now.status.conditions)
            && before.spec.existing_clusters() != now.spec.existing_clusters()
}

/// Whether a change of a Work concerns the aggregated status. Most writes of a Work change neither
/// what its member reports nor whether it is applied, and each aggregation reads all Works of the
/// binding.
pub(super) fn changes_aggregation(change: &InformerEvent<'_>) -> bool {
    let (old, new) = match (change.old, change.new) {
        (Some(old), Some(new)) => (old, new),
        // A new Work has nothing to report yet, unless it was made while there was no watch.
        (None, Some(new)) => {
            return change.in_initial_list
                || PartialWork::from_object(new).map_or(true, |work| work.has_status());
        }
        (_, None) => return true,
    };
    if old.meta().deleting != new.meta().deleting || permanent_ids(old) != permanent_ids(new) {
        return true;
    }
    match (PartialWork::from_object(old), PartialWork::from_object(new)) {
        (Ok(before), Ok(after)) => !before.is_aggregated_like(&after),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karmada_api::rollout::REVISION;
    use serde_json::{Value, json};

    // proves: STA-binding-due
    #[test]
    fn a_binding_is_due_when_its_template_or_its_clusters_change() {
        let binding = |generation: i64, version: &str, cluster: &str, status: Value| {
            let metadata = json!({"name": "b", "namespace": "n", "generation": generation});
            let spec =
                json!({"resource": {"resourceVersion": version}, "clusters": [{"name": cluster}]});
            let binding = json!({"metadata": metadata, "spec": spec, "status": status});
            Object::from_value(&binding).unwrap()
        };
        let placed = || json!({"lastScheduledTime": "2026-01-01T00:00:00Z"});
        let aggregated = || {
            let mut status = placed();
            status["conditions"] = json!([{"type": "FullyApplied", "status": "True"}]);
            status
        };
        // Of a binding that others require: no scheduler places it.
        let reported = || json!({"aggregatedStatus": [{"clusterName": "a", "applied": true}]});
        let first = binding(1, "1", "a", placed());
        let table = [
            (None, binding(1, "1", "a", json!({})), false),
            (None, binding(1, "1", "a", reported()), true),
            (None, first.clone(), true),
            (Some(&first), binding(1, "1", "a", aggregated()), false),
            (Some(&first), binding(2, "2", "a", json!({})), false),
            (Some(&first), binding(2, "2", "a", placed()), true),
            (Some(&first), binding(2, "1", "a", placed()), false),
            (Some(&first), binding(2, "1", "b", placed()), false),
            (Some(&first), binding(2, "1", "b", aggregated()), true),
        ];
        for (old, new, due) in table {
            assert_eq!(needs_aggregation(old, &new), due, "{old:?} {new:?}");
        }
    }

    // proves: STA-work-due
    #[test]
    fn a_binding_is_due_when_what_its_works_report_changes() {
        let work = json!({
            "metadata": {"name": "w", "namespace": "karmada-es-a", "resourceVersion": "1", "generation": 1,
                "labels": {well_known_keys::BINDING_ID: "id"}, "annotations": {REVISION: "2"}},
            "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "c", "namespace": "n"}, "data": {"a": "1"}}]}},
            "status": {
                "conditions": [{"type": "Applied", "status": "True", "message": "m", "observedGeneration": 1}],
                "manifestStatuses": [{"identifier": {"name": "c"}, "health": "Healthy", "revision": "1"}]}});
        let object = |value: &Value| Object::from_value(value).unwrap();
        let check = |path: &str, value: Value, expected: bool| {
            let mut changed = work.clone();
            *changed.pointer_mut(path).unwrap() = value;
            let (old, new) = (object(&work), object(&changed));
            let change = InformerEvent {
                old: Some(&old),
                new: Some(&new),
                in_initial_list: false,
            };
            assert_eq!(changes_aggregation(&change), expected, "{path}");
        };
        let manifest = |rest: &str| format!("/spec/workload/manifests/0/{rest}");
        check(&manifest("data/a"), "2".into(), false);
        check(&manifest("metadata/name"), "d".into(), true);
        check(&manifest("kind"), "Secret".into(), true);
        check("/metadata/generation", 2.into(), false);
        check("/metadata/labels", json!({}), true);
        let deleted = json!({"name": "w", "namespace": "karmada-es-a", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "labels": {well_known_keys::BINDING_ID: "id"}});
        check("/metadata", deleted, true);
        // The member has not reported about the former revision, and has about this one.
        check("/metadata/annotations", json!({REVISION: "3"}), false);
        check("/metadata/annotations", json!({REVISION: "1"}), true);
        check("/status/conditions/0/observedGeneration", 2.into(), false);
        check("/status/conditions/0/message", "n".into(), false);
        check("/status/conditions/0/status", "False".into(), true);
        check(
            "/status/manifestStatuses/0/health",
            "Unhealthy".into(),
            true,
        );
        check("/status/manifestStatuses/0/revision", "2".into(), true);
        check("/status/manifestStatuses", json!([]), true);
        let mut suspended = work.clone();
        suspended["status"] = json!({"conditions": [{"type": "Dispatching", "status": "False"}]});
        let mut unwritten = work.clone();
        unwritten["status"] = json!({});
        let (unwritten, suspended) = (object(&unwritten), object(&suspended));
        let only = object(&work);
        for (old, new, in_initial_list, expected) in [
            (None, Some(&unwritten), false, false),
            (None, Some(&unwritten), true, true),
            (None, Some(&only), false, true),
            (None, Some(&only), true, true),
            (Some(&only), None, false, true),
            (Some(&unwritten), Some(&suspended), false, true),
            (Some(&suspended), Some(&suspended), false, false),
        ] {
            let change = InformerEvent {
                old,
                new,
                in_initial_list,
            };
            assert_eq!(changes_aggregation(&change), expected);
        }
    }
}
