//! Plans the replica sets of a Deployment: one per template, scaled from old to new within
//! the bounds of the strategy.

use jiff::Timestamp;
use machinery::conditions::set_json_condition;
use machinery::time::rfc3339_seconds;
use serde_json::{Value, json};

use crate::pods::{ParentWorkload, short_hash};
use crate::workload_plan::{
    REPLICA_FAILURE, find_condition, generation, remove_condition, updated_status,
};

const HASH_LABEL: &str = "pod-template-hash";
/// The annotation by which `kubectl rollout` orders replica sets.
const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";

/// The actions for the replica sets of one Deployment.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct DeploymentPlan {
    /// The replica set of the current template, if it does not exist yet.
    pub(crate) create: Option<Value>,
    /// Replica sets to scale, with their new size.
    pub(crate) scale: Vec<(String, i64)>,
    /// Updates the revision of a replica set of an earlier template that is current again.
    pub(crate) revision_patch: Option<(String, Value)>,
    /// Updates the Deployment's own revision, from its second template on: `kubectl rollout
    /// undo` replaces annotations, and fails if there are none.
    pub(crate) deployment_patch: Option<Value>,
    /// Empty replica sets beyond the history limit.
    pub(crate) delete: Vec<String>,
    pub(crate) status: Option<Value>,
    /// No further change of the status is expected soon.
    pub(crate) stable: bool,
}

struct ReplicaSetCounts<'a> {
    name: &'a str,
    desired: i64,
    pods: i64,
    available: i64,
    revision: i64,
    /// Why its pods cannot be created or deleted.
    failure: Option<&'a Value>,
}

impl<'a> ReplicaSetCounts<'a> {
    fn from_value(set: &'a Value) -> Self {
        let number = |at: &Value| at.as_i64().unwrap_or(0);
        Self {
            name: set["metadata"]["name"].as_str().unwrap_or(""),
            desired: number(&set["spec"]["replicas"]),
            pods: number(&set["status"]["replicas"]),
            available: number(&set["status"]["availableReplicas"]),
            revision: set["metadata"]["annotations"][REVISION_ANNOTATION]
                .as_str()
                .and_then(|r| r.parse().ok())
                .unwrap_or(0),
            failure: find_condition(&set["status"], REPLICA_FAILURE),
        }
    }
}

/// A number, or a percentage of `total`, rounded up if `up`.
fn scaled_value(value: &Value, total: i64, up: bool) -> i64 {
    match value {
        Value::Number(n) => n.as_i64().unwrap_or(0),
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            (total * percent + if up { 99 } else { 0 }) / 100
        }
        _ => 0,
    }
}

/// (maxSurge, maxUnavailable); never both zero, or the rollout could not proceed.
fn rolling_update_bounds(deployment: &Value, desired: i64) -> (i64, i64) {
    let strategy = &deployment["spec"]["strategy"];
    if strategy["type"] == "Recreate" {
        return (0, desired);
    }
    let surge = scaled_value(&strategy["rollingUpdate"]["maxSurge"], desired, true);
    let unavailable = scaled_value(&strategy["rollingUpdate"]["maxUnavailable"], desired, false);
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

/// Plans one Deployment, given the replica sets that belong to it.
pub(crate) fn plan_rollout(
    parent: &ParentWorkload<'_>,
    deployment: &Value,
    sets: &[Value],
    now: Timestamp,
) -> DeploymentPlan {
    let desired = deployment["spec"]["replicas"].as_i64().unwrap_or(1).max(0);
    let template = &deployment["spec"]["template"];
    let hash = short_hash(&template.to_string());
    let paused = deployment["spec"]["paused"] == true;
    let (surge, unavailable) = rolling_update_bounds(deployment, desired);
    let (new, old): (Vec<&Value>, Vec<&Value>) = sets
        .iter()
        .partition(|s| s["metadata"]["labels"][HASH_LABEL] == *hash);
    let new = new.first().map(|s| ReplicaSetCounts::from_value(s));
    let old: Vec<ReplicaSetCounts<'_>> =
        old.into_iter().map(ReplicaSetCounts::from_value).collect();
    let total: i64 = old.iter().chain(&new).map(|s| s.desired).sum();

    let newest = old.iter().map(|s| s.revision).max().unwrap_or(0);

    let mut rollout = DeploymentPlan::default();
    // Scale up the new replica set as far as the surge permits beside the old ones.
    let have = new.as_ref().map_or(0, |s| s.desired);
    let grown = if have >= desired {
        desired
    } else {
        desired.min(have + (desired + surge - total).max(0))
    };
    match &new {
        None if !paused => {
            let revision = newest + 1;
            rollout.create = Some(replica_set(parent, template, &hash, grown, revision));
        }
        Some(set) if set.desired != grown && !(paused && old.iter().any(|s| s.desired > 0)) => {
            rollout.scale.push((set.name.to_owned(), grown));
        }
        _ => {}
    }
    if !paused {
        scale_down_old(&old, &new, desired, unavailable, &mut rollout.scale);
    }
    let current = new.as_ref().map_or(0, |s| s.revision).max(newest + 1);
    plan_revision(deployment, new.as_ref(), current, &mut rollout);
    rollout.delete = surplus_replica_sets(deployment, &old);
    update_status(
        deployment,
        &old,
        new.as_ref(),
        &mut rollout,
        (desired, unavailable),
        now,
    );
    rollout
}

/// Plans the annotation with the current revision on the Deployment, unless it is paused, and on
/// its new replica set.
fn plan_revision(
    deployment: &Value,
    new: Option<&ReplicaSetCounts<'_>>,
    current: i64,
    rollout: &mut DeploymentPlan,
) {
    let text = current.to_string();
    let patch = json!({"metadata": {"annotations": {REVISION_ANNOTATION: text}}});
    if current > 1
        && deployment["metadata"]["annotations"][REVISION_ANNOTATION] != text
        && deployment["spec"]["paused"] != true
    {
        rollout.deployment_patch = Some(patch.clone());
    }
    if let Some(set) = new.filter(|s| s.revision < current) {
        rollout.revision_patch = Some((set.name.to_owned(), patch));
    }
}

/// The oldest empty replica sets beyond the revision history limit.
fn surplus_replica_sets(deployment: &Value, old: &[ReplicaSetCounts<'_>]) -> Vec<String> {
    let limit = deployment["spec"]["revisionHistoryLimit"].as_u64();
    let limit = limit.and_then(|l| usize::try_from(l).ok()).unwrap_or(10);
    let mut empty: Vec<&ReplicaSetCounts<'_>> = old
        .iter()
        .filter(|s| s.desired == 0 && s.pods == 0)
        .collect();
    empty.sort_by_key(|s| s.revision);
    let surplus = empty.len().saturating_sub(limit);
    let surplus = empty.into_iter().take(surplus);
    surplus.map(|s| s.name.to_owned()).collect()
}

/// Scales down old replica sets: unavailable pods at once, the others as far as enough
/// pods stay available.
fn scale_down_old(
    old: &[ReplicaSetCounts<'_>],
    new: &Option<ReplicaSetCounts<'_>>,
    desired: i64,
    unavailable: i64,
    scale: &mut Vec<(String, i64)>,
) {
    let available: i64 = old.iter().chain(new).map(|s| s.available).sum();
    let mut spare = (available - (desired - unavailable)).max(0);
    for set in old.iter().filter(|s| s.desired > 0) {
        let broken = (set.desired - set.available).max(0);
        let healthy = spare.min(set.desired - broken);
        spare -= healthy;
        if broken + healthy > 0 {
            scale.push((set.name.to_owned(), set.desired - broken - healthy));
        }
    }
}

fn replica_set(
    parent: &ParentWorkload<'_>,
    template: &Value,
    hash: &str,
    replicas: i64,
    revision: i64,
) -> Value {
    let mut template = template.clone();
    template["metadata"]["labels"][HASH_LABEL] = hash.into();
    let labels = template["metadata"]["labels"].clone();
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": format!("{}-{hash}", parent.object.name()), "namespace": parent.object.namespace(),
                     "labels": labels, "annotations": {REVISION_ANNOTATION: revision.to_string()}, "ownerReferences": parent.owner_references()},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    })
}

fn update_status(
    deployment: &Value,
    old: &[ReplicaSetCounts<'_>],
    new: Option<&ReplicaSetCounts<'_>>,
    rollout: &mut DeploymentPlan,
    (desired, unavailable): (i64, i64),
    now: Timestamp,
) {
    let sum = |of: fn(&ReplicaSetCounts<'_>) -> i64| old.iter().chain(new).map(of).sum::<i64>();
    let created = rollout
        .create
        .as_ref()
        .map_or(0, |s| s["spec"]["replicas"].as_i64().unwrap_or(0));
    let available = sum(|s| s.available);
    let pods = sum(|s| s.pods) + created;
    let updated = new.map_or(created, |s| s.pods);
    let counters = [
        ("replicas", pods),
        ("updatedReplicas", updated),
        ("readyReplicas", available),
        ("availableReplicas", available),
        (
            "unavailableReplicas",
            (desired.max(pods) - available).max(0),
        ),
        ("observedGeneration", generation(deployment)),
    ];
    let before = &deployment["status"];
    let mut status = updated_status(before, &[], &counters).unwrap_or_else(|| before.clone());
    let complete = updated == desired && pods == desired && available == desired;
    let name = rollout
        .create
        .as_ref()
        .map(|s| s["metadata"]["name"].as_str());
    let name = name.flatten().or(new.map(|s| s.name)).unwrap_or("");
    // A rollout that was complete stays complete while it only changes its size.
    let done =
        complete || pods == updated && progressing_reason(before) == NEW_REPLICA_SET_AVAILABLE;
    let available = available_condition(available >= desired - unavailable);
    let progressing = progressing_condition(done, name);
    let conditions = &mut status["conditions"];
    set_deployment_condition(conditions, "Available", available, now);
    set_deployment_condition(conditions, "Progressing", progressing, now);
    let failure = new.into_iter().chain(old).find_map(|set| set.failure);
    match failure {
        Some(failure) => _ = set_json_condition(conditions, failure_condition(failure)),
        None => remove_condition(&mut status, REPLICA_FAILURE),
    }
    rollout.stable = complete && rollout.scale.is_empty();
    rollout.status = (status != *before).then_some(status);
}

/// The status, reason and message of the condition Available.
fn available_condition(enough: bool) -> (&'static str, &'static str, String) {
    if enough {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.".to_owned(),
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.".to_owned(),
        )
    }
}

/// The status, reason and message of the condition Progressing, for the newest replica set.
fn progressing_condition(done: bool, set: &str) -> (&'static str, &'static str, String) {
    if done {
        (
            "True",
            NEW_REPLICA_SET_AVAILABLE,
            format!("ReplicaSet {set:?} has successfully progressed."),
        )
    } else {
        (
            "True",
            "ReplicaSetUpdated",
            format!("ReplicaSet {set:?} is progressing."),
        )
    }
}

/// The condition of a Deployment whose replica set has this one.
fn failure_condition(failure: &Value) -> Value {
    let mut condition = failure.clone();
    condition["lastUpdateTime"] = failure["lastTransitionTime"].clone();
    condition
}

/// The status of a Deployment whose replica set could not be created; `None` if it does not change.
pub(crate) fn creation_failure_status(
    deployment: &Value,
    message: &str,
    now: Timestamp,
) -> Option<Value> {
    let before = &deployment["status"];
    let mut status = before.clone();
    let progressing = ("False", REPLICA_SET_CREATE_ERROR, message.to_owned());
    set_deployment_condition(&mut status["conditions"], "Progressing", progressing, now);
    (status != *before).then_some(status)
}

/// The reason of the event and of the condition when a replica set could not be created.
pub(crate) const REPLICA_SET_CREATE_ERROR: &str = "ReplicaSetCreateError";
const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";

fn progressing_reason(status: &Value) -> &str {
    let all = status["conditions"].as_array();
    let condition = all.and_then(|all| all.iter().find(|c| c["type"] == "Progressing"));
    condition.and_then(|c| c["reason"].as_str()).unwrap_or("")
}

/// Sets a condition; one with the same status and reason keeps its message and times.
fn set_deployment_condition(
    all: &mut Value,
    kind: &str,
    (status, reason, message): (&str, &str, String),
    now: Timestamp,
) {
    let unchanged = |c: &Value| c["type"] == kind && c["status"] == status && c["reason"] == reason;
    if all.as_array().is_some_and(|all| all.iter().any(unchanged)) {
        return;
    }
    let time = rfc3339_seconds(now);
    let condition = json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastUpdateTime": time, "lastTransitionTime": time});
    set_json_condition(all, condition);
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::Object;

    fn deployment(replicas: i64, strategy: Value) -> Value {
        json!({"metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 1, "annotations": {REVISION_ANNOTATION: "2"}},
               "spec": {"replicas": replicas, "strategy": strategy, "template": {"metadata": {"labels": {"app": "d"}}, "spec": {}}}})
    }

    fn rolling(surge: &str, unavailable: &str) -> Value {
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
    }

    fn set(deployment: &Value, current: bool, desired: i64, available: i64) -> Value {
        let hash = if current {
            short_hash(&deployment["spec"]["template"].to_string())
        } else {
            "old".into()
        };
        let (name, revision) = if current { ("new", "2") } else { ("old", "1") };
        json!({"metadata": {"name": name, "labels": {HASH_LABEL: hash}, "annotations": {REVISION_ANNOTATION: revision}},
               "spec": {"replicas": desired}, "status": {"replicas": desired, "availableReplicas": available}})
    }

    fn plan_rollout_for(deployment: &Value, sets: &[Value]) -> DeploymentPlan {
        let object = Object::from_value(deployment).unwrap();
        let parent = ParentWorkload {
            api_version: "apps/v1",
            kind: "Deployment",
            object: &object,
        };
        plan_rollout(&parent, deployment, sets, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_first_replica_set_has_the_full_size() {
        let d = deployment(3, rolling("25%", "25%"));
        let rollout = plan_rollout_for(&d, &[]);
        let replica_set = rollout.create.unwrap();
        assert_eq!(replica_set["spec"]["replicas"], 3);
        assert_eq!(
            replica_set["spec"]["selector"]["matchLabels"],
            replica_set["spec"]["template"]["metadata"]["labels"]
        );
        assert_eq!(rollout.status.unwrap()["unavailableReplicas"], 3);
    }

    #[test]
    fn a_rollout_stays_within_its_bounds() {
        let d = deployment(4, rolling("25%", "25%"));
        // At most one replica in surplus, at most one unavailable.
        let start = plan_rollout_for(&d, &[set(&d, false, 4, 4)]);
        assert_eq!(start.create.unwrap()["spec"]["replicas"], 1);
        assert_eq!(start.scale, [("old".to_owned(), 3)]);
        let on = plan_rollout_for(&d, &[set(&d, false, 3, 3), set(&d, true, 1, 1)]);
        assert_eq!(on.scale, [("new".to_owned(), 2), ("old".to_owned(), 2)]);
        let end = plan_rollout_for(&d, &[set(&d, false, 0, 0), set(&d, true, 4, 4)]);
        assert_eq!(end.scale, []);
        assert_eq!(
            end.status.unwrap()["conditions"][1]["reason"],
            "NewReplicaSetAvailable"
        );
    }

    #[test]
    fn the_failure_of_a_replica_set_is_that_of_its_deployment() {
        let mut d = deployment(2, rolling("25%", "25%"));
        let mut failing = set(&d, true, 2, 1);
        failing["status"]["conditions"] = json!([{"type": "ReplicaFailure", "status": "True",
            "reason": "FailedCreate", "message": "m", "lastTransitionTime": "t"}]);
        let status = plan_rollout_for(&d, &[failing]).status.unwrap();
        let condition = find_condition(&status, "ReplicaFailure").unwrap();
        assert_eq!(condition["reason"], "FailedCreate");
        assert_eq!(condition["lastUpdateTime"], "t");
        d["status"] = status;
        let status = plan_rollout_for(&d, &[set(&d, true, 2, 2)]).status.unwrap();
        assert_eq!(find_condition(&status, "ReplicaFailure"), None);
        let failed = creation_failure_status(&d, "m", Timestamp::UNIX_EPOCH).unwrap();
        let progressing = find_condition(&failed, "Progressing").unwrap();
        assert_eq!(progressing["reason"], REPLICA_SET_CREATE_ERROR);
    }

    #[test]
    fn recreate_removes_first() {
        let d = deployment(2, json!({"type": "Recreate"}));
        let start = plan_rollout_for(&d, &[set(&d, false, 2, 2)]);
        assert_eq!(
            (
                start.create.unwrap()["spec"]["replicas"].as_i64(),
                start.scale
            ),
            (Some(0), vec![("old".to_owned(), 0)])
        );
    }

    #[test]
    fn an_unchanged_status_is_not_written() {
        let mut d = deployment(2, rolling("25%", "25%"));
        let sets = [set(&d, true, 2, 2)];
        d["status"] = plan_rollout_for(&d, &sets).status.unwrap();
        let nothing = DeploymentPlan {
            stable: true,
            ..DeploymentPlan::default()
        };
        assert_eq!(plan_rollout_for(&d, &sets), nothing);
    }

    #[test]
    fn a_rollback_has_the_newest_revision() {
        let d = deployment(1, rolling("25%", "25%"));
        let mut back = set(&d, true, 1, 1);
        back["metadata"]["annotations"][REVISION_ANNOTATION] = "0".into();
        let (name, patch) = plan_rollout_for(&d, &[set(&d, false, 0, 0), back])
            .revision_patch
            .unwrap();
        assert_eq!(
            (
                &*name,
                &patch["metadata"]["annotations"][REVISION_ANNOTATION]
            ),
            ("new", &json!("2"))
        );
    }

    #[test]
    fn history_is_limited() {
        let mut d = deployment(1, rolling("25%", "25%"));
        d["spec"]["revisionHistoryLimit"] = 0.into();
        let rollout = plan_rollout_for(&d, &[set(&d, false, 0, 0), set(&d, true, 1, 1)]);
        assert_eq!(rollout.delete, ["old"]);
        let busy = plan_rollout_for(&d, &[set(&d, false, 1, 1), set(&d, true, 1, 1)]);
        assert!(busy.delete.is_empty());
    }

    #[test]
    fn scaling_down_is_immediate() {
        let d = deployment(1, rolling("25%", "25%"));
        assert_eq!(
            plan_rollout_for(&d, &[set(&d, true, 3, 3)]).scale,
            [("new".to_owned(), 1)]
        );
    }
}
