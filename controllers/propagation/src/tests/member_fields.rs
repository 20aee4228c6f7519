//! Tests of fields that both the template and somebody in the member set.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use karmada_api::resources::WORKS;
use machinery::Gvr;
use serde_json::{Value, json};

use super::work_fixtures::{manifest, one_map, work};
use super::{CONFIG_MAPS, PropagationFixture, serve, wait_until};

static THINGS: Gvr = Gvr::from_static("example.io", "v1", "things");
static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");

fn map_with(data: Value) -> Value {
    let mut map = manifest("ConfigMap", "c");
    map["data"] = data;
    work(json!([map]))
}

impl PropagationFixture {
    /// A new generation of the Work with this data in its manifest.
    fn edit_data(&self, data: Value) {
        let mut newer = self.test_work().unwrap();
        let generation = newer["metadata"]["generation"].as_i64().unwrap();
        newer["metadata"]["generation"] = (generation + 1).into();
        newer["spec"]["workload"]["manifests"][0]["data"] = data;
        self.control_plane.seed(&WORKS, newer);
    }

    fn member_data(&self) -> Value {
        self.config_map().unwrap_or_default()["data"].clone()
    }

    fn update_count(&self) -> usize {
        let writes = self.members[0].writes();
        writes.iter().filter(|write| write.verb == "update").count()
    }
}

// proves: EXE-three-way, EXE-exact
#[tokio::test]
async fn an_edit_removes_what_the_template_used_to_set() {
    let plane = PropagationFixture::new();
    plane
        .control_plane
        .seed(&WORKS, map_with(json!({"a": "1", "b": "1"})));
    let reads = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reads);
    plane.members[0].on_call(move |call| {
        let is_read = call.verb == "get" && call.resource == Some(&CONFIG_MAPS);
        count.fetch_add(usize::from(is_read), Ordering::SeqCst);
        None
    });
    let plane = plane.started().await;
    plane.wait_until_work_applied().await;
    plane.edit_data(json!({"a": "2"}));
    wait_until("the edit", || plane.member_data() == json!({"a": "2"})).await;
    assert_eq!(
        reads.load(Ordering::SeqCst),
        0,
        "nobody else has changed it"
    );

    // Somebody in the member adds a key.
    let mut edited = plane.config_map().unwrap();
    edited["data"]["theirs"] = "x".into();
    edited["metadata"]["managedFields"] = json!([
        {"manager": "flotilla", "operation": "Update", "fieldsV1": {"f:data": {".": {}, "f:a": {}}}},
        {"manager": "injector", "operation": "Update", "fieldsV1": {"f:data": {"f:theirs": {}}}}]);
    plane.members[0].seed(&CONFIG_MAPS, edited);
    plane.edit_data(json!({"b": "3"}));
    let merged = json!({"b": "3", "theirs": "x"});
    wait_until("the merge", || plane.member_data() == merged).await;
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    plane.tasks.stop().await;
}

// proves: EXE-drift-change
#[tokio::test]
async fn a_repair_keeps_what_the_member_added() {
    let plane = PropagationFixture::new();
    plane
        .control_plane
        .seed(&WORKS, map_with(json!({"a": "1"})));
    let plane = plane.started().await;
    plane.wait_until_work_applied().await;
    let mut edited = plane.config_map().unwrap();
    edited["data"] = json!({"a": "wrong", "theirs": "x"});
    plane.members[0].seed(&CONFIG_MAPS, edited);
    let repaired = json!({"a": "1", "theirs": "x"});
    wait_until("the repair", || plane.member_data() == repaired).await;
    plane.tasks.stop().await;
}

/// A controller of the member changes the field back after each write.
// proves: EXE-repair-backoff, EXE-repair-condition
#[tokio::test]
async fn a_repair_that_is_undone_again_and_again_is_delayed_and_reported() {
    let plane = PropagationFixture::with_events();
    let uid = plane
        .control_plane
        .seed(&WORKS, map_with(json!({"a": "1"})))
        .uid()
        .to_owned();
    let plane = plane.started().await;
    plane.wait_until_work_applied().await;
    let undo = || {
        let mut map = plane.config_map().unwrap();
        if map["data"]["a"] == "1" {
            map["data"]["a"] = "theirs".into();
            map["metadata"]["managedFields"] = json!([
                {"manager": "other", "operation": "Update", "fieldsV1": {"f:data": {"f:a": {}}}}]);
            plane.members[0].seed(&CONFIG_MAPS, map);
        }
        plane.work_condition("FieldConflict")["status"] == "True"
    };
    wait_until("the conflict", undo).await;
    let condition = plane.work_condition("FieldConflict");
    let text = "ConfigMap n/c: field .data.a is changed back by other";
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (&json!("RepairsUndone"), &json!(text))
    );
    assert_eq!(plane.work_condition("Applied")["status"], "True");
    assert!(plane.update_count() <= 3, "{}", plane.update_count());
    let events = [("Work", &*uid, text), ("ConfigMap", "uid-of-c", text)];
    plane.wait_for_events("FieldConflict", &events).await;
    // An edit does not wait.
    plane.edit_data(json!({"a": "2"}));
    wait_until("the edit", || plane.member_data() == json!({"a": "2"})).await;
    plane.tasks.stop().await;
}

/// The condition of a former process: nothing is written, and the repair waits.
// proves: EXE-repair-condition
#[tokio::test(start_paused = true)]
async fn a_restart_resumes_the_delay() {
    let plane = PropagationFixture::new();
    let mut contested = one_map();
    contested["status"] = json!({"conditions": [
        {"type": "Dispatching", "status": "True", "reason": "Dispatching", "message": "Work is being dispatched to member clusters."},
        {"type": "Applied", "status": "True", "observedGeneration": 1, "reason": "AppliedSuccessful", "message": "Manifest has been successfully applied"},
        {"type": "FieldConflict", "status": "True", "reason": "RepairsUndone", "message": "why"}]});
    plane.control_plane.seed(&WORKS, contested.clone());
    plane.members[0].seed(
        &CONFIG_MAPS,
        contested["spec"]["workload"]["manifests"][0].clone(),
    );
    let plane = plane.started().await;
    wait_until("the member's list", || {
        plane.has_informer("m1", &CONFIG_MAPS)
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(plane.members[0].writes().is_empty());
    assert_eq!(plane.test_work().unwrap()["status"], contested["status"]);
    plane.tasks.stop().await;
}

// proves: EXE-list-keys
#[tokio::test]
async fn lists_of_custom_resources_have_the_keys_of_their_definition() {
    let plane = PropagationFixture::new();
    serve(&plane.control_plane, &THINGS, "Thing", true);
    let parts = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"parts": parts}}}});
    plane.control_plane.seed(
        &DEFINITIONS,
        json!({"metadata": {"name": "things.example.io"},
            "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}),
    );
    let mut thing = manifest("Thing", "t");
    thing["apiVersion"] = "example.io/v1".into();
    thing["spec"] = json!({"parts": [{"name": "a", "size": 1}, {"name": "b", "size": 1}]});
    plane.control_plane.seed(&WORKS, work(json!([thing])));
    let plane = plane.started().await;
    plane.wait_until_work_applied().await;
    let member = &plane.members[0];
    let parts = || member.get_object(&THINGS, "n", "t").unwrap()["spec"]["parts"].clone();
    let edit = |parts: Value| {
        let mut edited = member.get_object(&THINGS, "n", "t").unwrap();
        edited["spec"]["parts"] = parts;
        edited["metadata"]["generation"] = 2.into();
        member.seed(&THINGS, edited);
    };
    edit(json!([{"name": "theirs"}, {"name": "b", "size": 1}, {"name": "a", "size": 9}]));
    let repaired = json!([{"name": "a", "size": 1}, {"name": "b", "size": 1}, {"name": "theirs"}]);
    wait_until("the repair", || parts()[0]["size"] == 1).await;
    assert_eq!(parts(), repaired);
    plane.tasks.stop().await;
}
