//! Reads the replicas of a template in a cluster from the Work, and from what the member reports in
//! its status. A member is untrusted: what has another type than a counter is not read.

use karmada_api::TargetCluster;
use serde::Deserialize;
use serde_json::Value;

use crate::decision::ObservedReplicas;

/// The groups whose kinds count available replicas, and omit the counter if there are none.
const COUNTING_GROUPS: [&str; 2] = ["apps", "apps.kruise.io"];
/// The default of `spec.replicas`.
const DEFAULT_REPLICAS: u64 = 1;

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReplicatedWork {
    spec: ReplicatedWorkSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReplicatedWorkSpec {
    workload: ReplicatedWorkload,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReplicatedWorkload {
    manifests: Vec<ReplicatedManifest>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReplicatedManifest {
    spec: ReplicatedSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReplicatedSpec {
    replicas: Option<u64>,
}

/// The replicas that a cluster without a Work has.
pub(crate) fn desired_replicas(target: &TargetCluster) -> ObservedReplicas {
    ObservedReplicas {
        desired: u64::try_from(target.replicas).unwrap_or_default(),
        available: Some(0),
        ..ObservedReplicas::default()
    }
}

/// The replicas in the manifest of an encoded Work; `None` if it is not that of a workload.
pub(crate) fn replicas_of_manifest(work: &[u8]) -> Option<u64> {
    let work = machinery::json::from_slice::<ReplicatedWork>(work).ok()?;
    let manifest = work.spec.workload.manifests.first()?;
    Some(manifest.spec.replicas.unwrap_or(DEFAULT_REPLICAS))
}

/// Reads the counters of a status that a member reports about an object of a group.
pub(crate) fn read_counters(
    group: &str,
    status: Option<&Value>,
    is_healthy: bool,
    replicas: &mut ObservedReplicas,
) {
    let counter = |field: &str| status?.get(field)?.as_u64();
    let counts_available = COUNTING_GROUPS.contains(&group);
    replicas.available = match counter("availableReplicas") {
        None if counts_available => status.map(|_| 0),
        None => counter("readyReplicas"),
        available => available,
    };
    let (all, updated) = (counter("replicas"), counter("updatedReplicas"));
    replicas.updated = updated.unwrap_or(0);
    let generation = counter("generation");
    replicas.is_current = generation.is_some() && counter("observedGeneration") == generation;
    let has_counters = updated.is_some() && all.is_some();
    // An unhealthy workload tells by its counters alone whether the revision is in all replicas.
    replicas.are_updated = !status.is_some_and(has_old_replicas)
        && (is_healthy || replicas.is_current && has_counters);
}

/// Whether a workload that counts its updated replicas has others, too: it is as available as it
/// should be, but not by the revision.
pub(crate) fn has_old_replicas(status: &Value) -> bool {
    let counter = |field: &str| status.get(field).and_then(Value::as_i64);
    let updated = counter("updatedReplicas");
    updated.is_some_and(|updated| counter("replicas").is_some_and(|all| all != updated))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ROL-min-available-reported
    #[test]
    fn counters_are_read_as_far_as_they_are_counters() {
        let check = |group: &str,
                     status: Value,
                     is_healthy: bool,
                     expected: (Option<u64>, u64, bool, bool)| {
            let mut replicas = ObservedReplicas::default();
            let reported = Some(&status).filter(|status| !status.is_null());
            read_counters(group, reported, is_healthy, &mut replicas);
            let actual = (
                replicas.available,
                replicas.updated,
                replicas.is_current,
                replicas.are_updated,
            );
            assert_eq!(actual, expected, "{group} {status}");
        };
        let web = |more: Value| {
            let mut status = json!({"generation": 2, "observedGeneration": 2, "replicas": 3,
                "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3});
            let fields = status.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            status
        };
        check("apps", web(json!({})), true, (Some(3), 3, true, true));
        check(
            "apps",
            web(json!({"availableReplicas": 2})),
            false,
            (Some(2), 3, true, true),
        );
        check(
            "apps",
            web(json!({"updatedReplicas": 2})),
            true,
            (Some(3), 2, true, false),
        );
        // Its controller in the member has not observed the object: no counter is about it.
        check(
            "apps",
            web(json!({"observedGeneration": 1})),
            false,
            (Some(3), 3, false, false),
        );
        // Counters of zero are omitted.
        check(
            "apps",
            web(json!({"updatedReplicas": null, "availableReplicas": null})),
            false,
            (Some(0), 0, true, false),
        );
        check("apps", json!(null), false, (None, 0, false, false));
        check(
            "example.org",
            json!({"readyReplicas": 2}),
            true,
            (Some(2), 0, false, true),
        );
        check(
            "example.org",
            json!({"readyReplicas": 2}),
            false,
            (Some(2), 0, false, false),
        );
        check(
            "example.org",
            json!({"phase": "Running"}),
            true,
            (None, 0, false, true),
        );
        check(
            "example.org",
            json!({"readyReplicas": -2, "availableReplicas": "9"}),
            true,
            (None, 0, false, true),
        );
        check("apps", json!("many"), true, (Some(0), 0, false, true));
    }

    #[test]
    fn the_replicas_of_a_manifest_are_those_after_overrides() {
        for (manifest, expected) in [
            (json!({"spec": {"replicas": 7, "template": {}}}), Some(7)),
            (json!({"spec": {}}), Some(1)),
            (json!({"spec": {"replicas": "7"}}), None),
            (json!({"spec": "text"}), None),
        ] {
            let work =
                json!({"metadata": {"name": "w"}, "spec": {"workload": {"manifests": [manifest]}}});
            let bytes = work.to_string();
            assert_eq!(replicas_of_manifest(bytes.as_bytes()), expected, "{work}");
        }
    }
}
