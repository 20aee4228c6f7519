//! The record of moves and repairs.

use karmada_api::history::TEMPLATE_HISTORIES;
use karmada_api::resources::BINDINGS;
use serde_json::{Value, json};

use super::{DEPLOYMENTS, PropagationFixture, condition, wait_until};

impl PropagationFixture {
    pub(super) fn history_entries(&self) -> Vec<Value> {
        let all = self
            .control_plane
            .get_object(&TEMPLATE_HISTORIES, "n", "web-deployment");
        let entries = all.and_then(|history| history["entries"].as_array().cloned());
        entries.unwrap_or_default()
    }
}

// proves: HIS-first, HIS-placement, HIS-restart
#[tokio::test(start_paused = true)]
async fn a_move_is_recorded_and_outlives_a_restart() {
    let mut plane = PropagationFixture::new()
        .with_web_deployment()
        .started()
        .await;
    plane.wait_until_applied("web").await;
    assert!(
        plane
            .control_plane
            .list_objects(&TEMPLATE_HISTORIES)
            .is_empty()
    );
    plane.edit(&BINDINGS, "web-deployment", |binding| {
        binding["spec"]["clusters"] = json!([{"name": "m1", "replicas": 4}]);
    });
    wait_until("the move is recorded", || {
        plane.history_entries().len() == 1
    })
    .await;
    let entries = plane.history_entries();
    let entry = &entries[0];
    assert_eq!(
        (
            &entry["type"],
            &entry["reason"],
            &entry["actor"],
            &entry["count"]
        ),
        (
            &json!("Placement"),
            &json!("UserChanged"),
            &json!("unknown"),
            &json!(1)
        )
    );
    assert_eq!(entry["changes"], json!([{"cluster": "m2", "from": 4}]));
    let history = plane
        .control_plane
        .get_object(&TEMPLATE_HISTORIES, "n", "web-deployment")
        .unwrap();
    let web = plane
        .control_plane
        .get_object(&DEPLOYMENTS, "n", "web")
        .unwrap();
    let owner = &history["metadata"]["ownerReferences"][0]["uid"];
    assert_eq!(*owner, web["metadata"]["uid"]);
    plane.tasks.stop().await;
    plane.control_plane.clear_writes();
    plane.start().await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let writes = plane.control_plane.writes();
    let mut of_history = writes.iter().filter(|w| w.resource == TEMPLATE_HISTORIES);
    assert!(of_history.next().is_none(), "{writes:?}");
    // The next move is the newest entry.
    plane.edit(&BINDINGS, "web-deployment", |binding| {
        binding["spec"]["clusters"] = json!([{"name": "m2", "replicas": 4}]);
    });
    wait_until("another move", || plane.history_entries().len() == 2).await;
    let changes = json!([{"cluster": "m1", "from": 4}, {"cluster": "m2", "to": 4}]);
    assert_eq!(plane.history_entries()[0]["changes"], changes);
    plane.tasks.stop().await;
}

// proves: HIS-repair, EXE-repair-reported
#[tokio::test]
async fn a_repair_names_who_changed_what_in_which_member() {
    let plane = PropagationFixture::with_events()
        .with_web_deployment()
        .started()
        .await;
    plane.wait_until_applied("web").await;
    let mut edited = plane.deployment_in_member(1, "web").unwrap();
    edited["spec"]["replicas"] = 9.into();
    edited["metadata"]["generation"] = 9.into();
    edited["metadata"]["managedFields"] = json!([
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    plane.members[1].seed(&DEPLOYMENTS, edited);
    wait_until("the repair is recorded", || {
        plane.history_entries().len() == 1
    })
    .await;
    let entry = &plane.history_entries()[0];
    assert_eq!(
        (&entry["type"], &entry["reason"], &entry["cluster"]),
        (&json!("Repair"), &json!("DriftRepaired"), &json!("m2"))
    );
    assert_eq!(
        (&entry["actor"], &entry["fields"]),
        (
            &json!("kubectl-edit"),
            &json!(["Deployment n/web .spec.replicas"])
        )
    );
    let work = plane.work("m2", "web").unwrap();
    let text = "Deployment n/web: .spec.replicas changed by kubectl-edit";
    assert_eq!(condition(&work, "DriftRepaired")["message"], text);
    let other = plane.work("m1", "web").unwrap();
    assert!(condition(&other, "DriftRepaired").is_null());
    let about_template = format!("{text} in cluster m2");
    wait_until("events", || {
        let messages = plane.event_messages("DriftRepaired");
        [text, &about_template]
            .iter()
            .all(|m| messages.iter().any(|t| t == m))
    })
    .await;
    let repaired = plane.deployment_in_member(1, "web").unwrap();
    assert_eq!(repaired["spec"]["replicas"], 4);
    plane.tasks.stop().await;
}
