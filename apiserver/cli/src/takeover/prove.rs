//! The end of a takeover: proves that nothing in members was or will be written.
//!
//! Flotilla counts its own writes to push members. The agents of pull members write what their Works
//! say; while no Work has another generation than before, they have nothing to write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aggregation::{MovedResource, TakeoverPhase, TakeoverRecord};
use anyhow::Context;
use karmada_api::names::cluster_of_execution_space;
use karmada_api::resources::WORKS;
use serde_json::Value;

use super::backup::TakeoverBackup;
use super::changed_works::{changed_fields, join_fields};
use super::session::{TakeoverSession, print_step};
use super::snapshot::{ResourceSnapshot, Snapshot, object_names};
use super::summary::{TakeoverSummary, first_lines};

/// The group whose objects say what members have.
const WORK_GROUP: &str = "work.karmada.io";

/// Watches the Works and bindings for a time: none may get another spec, and nothing may be written
/// to a member. What was written is an error of the summary.
pub(super) async fn watch_works(
    session: &TakeoverSession,
    record: &mut TakeoverRecord,
    backup: &TakeoverBackup,
    watch: Duration,
    summary: &mut TakeoverSummary,
) -> anyhow::Result<()> {
    if watch.is_zero() {
        return Ok(());
    }
    let watched = backup.resources.iter().filter(|r| r.group == WORK_GROUP);
    let watched: Vec<MovedResource> = watched.cloned().collect();
    print_step(format!(
        "watching Works and bindings for {} s",
        watch.as_secs()
    ));
    tokio::time::sleep(watch).await;
    let now = Snapshot::read(&*session.host, &watched).await;
    let now = now.context("Works after the takeover")?;
    let pull = backup.snapshot.pull_clusters();
    let mut before = backup.snapshot.clone();
    before.replace(&backup.imported);
    let changes = changes_since(&before, &now, &pull);
    if changes.is_empty() && !pull.is_empty() {
        let members: Vec<&str> = pull.iter().map(String::as_str).collect();
        summary.notes.push(format!(
            "no Work of the pull members {} has changed: their agents have nothing to write",
            members.join(", ")
        ));
    }
    summary.errors.extend(first_lines(changes));
    let report = session.enter(record, TakeoverPhase::Serve).await?;
    if report.member_writes > 0 {
        summary.errors.push(format!(
            "Flotilla has written {} objects of members since the takeover; if no template was \
             changed meanwhile, members differed from their Works",
            report.member_writes
        ));
    }
    Ok(())
}

/// The Works and bindings that were written since, one line each. `pull`: the members with agents.
fn changes_since(before: &Snapshot, now: &Snapshot, pull: &BTreeSet<String>) -> Vec<String> {
    let mut lines = Vec::new();
    let empty = BTreeMap::new();
    for current in &now.resources {
        let earlier = before.of(&current.resource).map_or(&empty, |r| &r.objects);
        let keys: BTreeSet<&String> = earlier.keys().chain(current.objects.keys()).collect();
        for key in keys {
            let (before, now) = (earlier.get(key), current.objects.get(key));
            let Some(change) = describe_change(current, before, now) else {
                continue;
            };
            let gvr = current.resource.gvr();
            let object = now.or(before).map_or("", |object| object_names(object).0);
            let agent = cluster_of_execution_space(object).filter(|name| pull.contains(*name));
            let agent = agent.map(|name| format!("; the agent of {name} acts on it"));
            lines.push(format!("{gvr} {key} {change}{}", agent.unwrap_or_default()));
        }
    }
    lines
}

/// How an object was written since, and by whom; `None` if its spec was not. Statuses do not count.
fn describe_change(
    resource: &ResourceSnapshot,
    before: Option<&Value>,
    now: Option<&Value>,
) -> Option<String> {
    let (before, now) = match (before, now) {
        (Some(before), Some(now)) => (before, now),
        (Some(_), None) => return Some("was deleted since the takeover".to_owned()),
        (None, now) => {
            let writers = writers(&Value::Null, now?);
            return Some(format!("was created since the takeover by {writers}"));
        }
    };
    let meta = |object: &Value, field: &str| object["metadata"][field].clone();
    if meta(before, "uid") != meta(now, "uid") {
        return Some("was deleted and created anew since the takeover".to_owned());
    }
    if meta(before, "deletionTimestamp").is_null() && !meta(now, "deletionTimestamp").is_null() {
        return Some("is being deleted since the takeover".to_owned());
    }
    let is_work = resource.resource.resource == *WORKS.resource;
    let is_written = is_work && meta(before, "generation") != meta(now, "generation");
    if before["spec"] == now["spec"] && !is_written {
        return None;
    }
    let writers = writers(before, now);
    let fields = changed_fields(&before["spec"], &now["spec"]);
    let what = match fields.is_empty() {
        true => "nothing that members see".to_owned(),
        false => join_fields(&fields),
    };
    Some(format!(
        "was written since the takeover by {writers}: {what}"
    ))
}

/// The managers whose entries are new or changed, without those of the status.
fn writers(before: &Value, now: &Value) -> String {
    let entries = |object: &Value| -> Vec<Value> {
        let entries = object["metadata"]["managedFields"].as_array();
        entries.cloned().unwrap_or_default()
    };
    let earlier = entries(before);
    let written = entries(now).into_iter();
    let written = written.filter(|e| e["subresource"] != "status" && !earlier.contains(e));
    let names: BTreeSet<String> = written
        .filter_map(|entry| entry["manager"].as_str().map(str::to_owned))
        .collect();
    match names.is_empty() {
        true => "an unknown manager".to_owned(),
        false => names.into_iter().collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::snapshot::test_snapshot;
    use super::*;

    fn work(cluster: &str, generation: u64, replicas: u64, manager: &str) -> Value {
        let entry = |manager: &str, subresource: &str| {
            json!({"manager": manager, "operation": "Update", "subresource": subresource,
                "time": format!("2026-01-01T00:00:0{generation}Z")})
        };
        json!({"metadata": {"name": "w", "namespace": format!("karmada-es-{cluster}"), "uid": "u",
                "generation": generation,
                "managedFields": [entry(manager, ""), entry("karmada-agent", "status")]},
            "spec": {"workload": {"manifests": [{"spec": {"replicas": replicas}}]}},
            "status": {"conditions": generation}})
    }

    // proves: TKO-pull
    #[test]
    fn a_work_that_was_written_is_named_with_its_manager_and_fields() {
        let pull = BTreeSet::from(["edge".to_owned()]);
        let before = work("edge", 1, 2, "karmada");
        let mut reported = before.clone();
        reported["status"] = json!({"conditions": 7});
        reported["metadata"]["managedFields"][1]["time"] = json!("2026-01-01T00:00:07Z");
        let mut deleting = before.clone();
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:07Z");
        let mut replaced = before.clone();
        replaced["metadata"]["uid"] = json!("v");
        let agent = "; the agent of edge acts on it";
        let name = "work.karmada.io/v1alpha1/works karmada-es-edge/w";
        for (now, expected) in [
            (vec![before.clone()], None),
            // Agents report what members have.
            (vec![reported], None),
            (
                vec![work("edge", 2, 3, "someone")],
                Some(
                    "was written since the takeover by someone: \
                     workload.manifests[0].spec.replicas",
                ),
            ),
            // Changed, and changed back.
            (
                vec![work("edge", 3, 2, "someone")],
                Some("was written since the takeover by someone: nothing that members see"),
            ),
            (vec![], Some("was deleted since the takeover")),
            (vec![deleting], Some("is being deleted since the takeover")),
            (
                vec![replaced],
                Some("was deleted and created anew since the takeover"),
            ),
        ] {
            let earlier = test_snapshot(WORK_GROUP, std::slice::from_ref(&before));
            let lines = changes_since(&earlier, &test_snapshot(WORK_GROUP, &now), &pull);
            let expected = expected.map(|text| format!("{name} {text}{agent}"));
            assert_eq!(lines, Vec::from_iter(expected), "{now:?}");
        }
        // Its import dropped a field.
        let imported = work("edge", 1, 3, "karmada");
        let mut earlier = test_snapshot(WORK_GROUP, std::slice::from_ref(&before));
        let now = test_snapshot(WORK_GROUP, &[imported]);
        let dropped = earlier.changed_in(&now);
        earlier.replace(&dropped);
        assert_eq!(changes_since(&earlier, &now, &pull), [""; 0]);
        let none = test_snapshot(WORK_GROUP, &[]);
        let now = test_snapshot(WORK_GROUP, &[work("push", 1, 2, "someone")]);
        assert_eq!(
            changes_since(&none, &now, &pull),
            [
                "work.karmada.io/v1alpha1/works karmada-es-push/w was created since the takeover by someone"
            ]
        );
    }
}
