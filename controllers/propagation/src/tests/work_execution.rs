//! Tests from Works to the objects in members: conditions, events and retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client::Error;
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::well_known_keys;
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use super::work_fixtures::{EXECUTION_NAMESPACE, manifest, one_map, reject_calls, work};
use super::{
    CONFIG_MAPS, DEPLOYMENTS, EVENTS, PropagationFixture, SECRETS, cluster, deployment, wait_until,
};

// proves: EXE-partial, EXE-failure-event, EXE-event, EXE-retry, EXE-generation, EXE-propagated, EXE-propagated-reasons
#[tokio::test]
async fn a_failed_manifest_is_reported_with_the_others_and_retried() {
    let plane = PropagationFixture::with_events();
    let let_it = reject_calls(
        &plane,
        "create",
        &[(&SECRETS, "no secrets"), (&DEPLOYMENTS, "no room")],
    );
    let mut web = manifest("Deployment", "d");
    web["apiVersion"] = "apps/v1".into();
    web["spec"] = deployment("d")["spec"].clone();
    let all = json!([manifest("Secret", "s"), manifest("ConfigMap", "c"), web]);
    let mut third = work(all);
    third["metadata"]["generation"] = 3.into();
    let uid = plane.control_plane.seed(&WORKS, third).uid().to_owned();
    let plane = plane.started().await;
    wait_until("a verdict", || !plane.work_condition("Applied").is_null()).await;
    let current = plane.work_condition("Applied");
    let (s, d) = (
        "Internal error occurred: no secrets",
        "Internal error occurred: no room",
    );
    assert_eq!(
        (&current["status"], &current["reason"], &current["message"]),
        (
            &json!("False"),
            &json!("AppliedFailed"),
            &json!(format!("Failed to apply all manifests (1/3): [{s}, {d}]"))
        )
    );
    assert_eq!(
        current["observedGeneration"], 3,
        "the generation that it speaks of"
    );
    let propagated = plane.work_condition("Propagated");
    assert_eq!(
        (
            &propagated["status"],
            &propagated["reason"],
            &propagated["observedGeneration"]
        ),
        (&json!("False"), &json!("CreationFailed"), &json!(3))
    );
    assert_eq!(
        propagated["message"],
        format!("Secret n/s: CreationFailed: {s}; Deployment n/d: CreationFailed: {d}")
    );
    assert_eq!(plane.work_condition("Degraded")["status"], "True");
    assert!(plane.config_map().is_some(), "the others are applied");
    let failed =
        format!("Failed to sync work({EXECUTION_NAMESPACE}/w) to cluster(m1), err: [{s}, {d}]");
    let of = |name: &str, reason: &str| {
        format!("Failed to create or update resource(n/{name}) in member cluster(m1): {reason}")
    };
    plane
        .wait_for_events(
            "SyncFailed",
            &[
                ("Work", &uid, &failed),
                ("Secret", "uid-of-s", &of("s", s)),
                ("Deployment", "uid-of-d", &of("d", d)),
            ],
        )
        .await;
    let applied_c = "Successfully applied resource(n/c) to cluster m1";
    plane
        .wait_for_events("SyncSucceed", &[("ConfigMap", "uid-of-c", applied_c)])
        .await;
    let_it.store(true, Ordering::SeqCst);
    plane.wait_until_work_applied().await;
    let current = plane.work_condition("Applied");
    assert_eq!(
        (&current["reason"], &current["message"]),
        (
            &json!("AppliedSuccessful"),
            &json!("Manifest has been successfully applied")
        )
    );
    let propagated = plane.work_condition("Propagated");
    assert_eq!(propagated["reason"], "Propagated");
    assert_eq!(
        propagated["message"],
        "Secret n/s; ConfigMap n/c; Deployment n/d"
    );
    assert_eq!(plane.work_condition("Progressing")["status"], "True");
    let text = format!("Sync work({EXECUTION_NAMESPACE}/w) to cluster(m1) successful.");
    plane
        .wait_for_events("SyncSucceed", &[("Work", &uid, &text)])
        .await;
    assert_eq!(
        plane.members[0].writes().len(),
        3,
        "what was there was not written again"
    );
    plane.tasks.stop().await;
}

// proves: EXE-race
#[tokio::test]
async fn an_update_conflict_is_retried_without_an_event() {
    let plane = PropagationFixture::with_events();
    let uid = plane.control_plane.seed(&WORKS, one_map()).uid().to_owned();
    let plane = plane.started().await;
    plane.wait_until_work_applied().await;
    let left = Arc::new(AtomicUsize::new(3));
    let races = Arc::clone(&left);
    plane.members[0].on_call(move |call| {
        let lost = call.verb == "update"
            && races
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok();
        lost.then(|| Error::from(Status::conflict(&CONFIG_MAPS, call.name, "changed")))
    });
    let mut newer = plane.test_work().unwrap();
    newer["metadata"]["generation"] = 2.into();
    newer["spec"]["workload"]["manifests"][0]["data"] = json!({"k": "v"});
    plane.control_plane.seed(&WORKS, newer);
    wait_until("the change", || {
        plane.config_map().unwrap()["data"]["k"] == "v"
    })
    .await;
    assert_eq!(left.load(Ordering::SeqCst), 0);
    let text = format!("Sync work({EXECUTION_NAMESPACE}/w) to cluster(m1) successful.");
    plane
        .wait_for_events("SyncSucceed", &[("Work", &uid, &text)])
        .await;
    assert_eq!(plane.recorded_events("SyncFailed"), []);
    plane.tasks.stop().await;
}

// proves: EXE-dispatching-event, EXE-suspend, EXE-propagated-waits
#[tokio::test]
async fn a_change_of_dispatching_records_an_event() {
    let plane = PropagationFixture::with_events();
    let mut suspended_work = one_map();
    suspended_work["spec"]["suspendDispatching"] = true.into();
    let uid = plane
        .control_plane
        .seed(&WORKS, suspended_work.clone())
        .uid()
        .to_owned();
    let plane = plane.started().await;
    let suspended = "Work dispatching is in a suspended state.";
    plane
        .wait_for_events("WorkDispatching", &[("Work", &uid, suspended)])
        .await;
    wait_until("the condition", || {
        let current = plane.work_condition("Dispatching");
        current["status"] == "False"
            && current["reason"] == "SuspendDispatching"
            && current["message"] == suspended
    })
    .await;
    assert!(plane.work_condition("Applied").is_null() && plane.members[0].writes().is_empty());
    let propagated = plane.work_condition("Propagated");
    assert_eq!(propagated["reason"], "DispatchingSuspended");
    let mut released = plane.test_work().unwrap();
    released["metadata"]["generation"] = 2.into();
    released["spec"]["suspendDispatching"] = false.into();
    plane.control_plane.seed(&WORKS, released);
    plane.wait_until_work_applied().await;
    let dispatching = "Work is being dispatched to member clusters.";
    plane
        .wait_for_events("WorkDispatching", &[("Work", &uid, dispatching)])
        .await;
    let current = plane.work_condition("Dispatching");
    assert_eq!(
        (&current["status"], &current["reason"], &current["message"]),
        (&json!("True"), &json!("Dispatching"), &json!(dispatching))
    );
    // A new generation alone records no event.
    let mut newer = plane.test_work().unwrap();
    newer["metadata"]["generation"] = 3.into();
    newer["spec"]["workload"]["manifests"][0]["data"] = json!({"k": "v"});
    plane.control_plane.seed(&WORKS, newer);
    wait_until("the change", || {
        plane.config_map().unwrap()["data"]["k"] == "v"
    })
    .await;
    plane.tasks.stop().await;
    let counts: u64 = plane
        .control_plane
        .list_objects(&EVENTS)
        .iter()
        .filter(|e| e["reason"] == "WorkDispatching")
        .map(|e| e["count"].as_u64().unwrap_or(1))
        .sum();
    assert_eq!(counts, 2);
}

// proves: EXE-elsewhere
#[tokio::test]
async fn works_outside_of_execution_namespaces_are_ignored() {
    let plane = PropagationFixture::new();
    let mut elsewhere = one_map();
    elsewhere["metadata"]["namespace"] = "n".into();
    plane.control_plane.seed(&WORKS, elsewhere);
    plane
        .control_plane
        .seed(&WORKS, work(json!([manifest("Secret", "s")])));
    let plane = plane.started().await;
    plane.wait_until_work_applied().await;
    assert_eq!(plane.config_map(), None);
    let other = plane.control_plane.get_object(&WORKS, "n", "w").unwrap();
    assert_eq!(other.get("status"), None);
    plane.tasks.stop().await;
}

// proves: EXE-push
#[tokio::test]
async fn works_of_clusters_in_pull_mode_are_left_to_their_agents() {
    let plane = PropagationFixture::new();
    let mut pulling = cluster("m1");
    pulling["spec"]["syncMode"] = "Pull".into();
    plane.control_plane.seed(&CLUSTERS, pulling);
    plane.control_plane.seed(&WORKS, one_map());
    let mut pushed = one_map();
    pushed["metadata"]["namespace"] = "karmada-es-m2".into();
    plane.control_plane.seed(&WORKS, pushed);
    let plane = plane.started().await;
    let there = || {
        plane.members[1]
            .get_object(&CONFIG_MAPS, "n", "c")
            .is_some()
    };
    wait_until("the pushed one", there).await;
    assert_eq!(plane.test_work().unwrap().get("status"), None);
    assert!(plane.members[0].writes().is_empty());
    plane.tasks.stop().await;
}

/// Rejections of a create that the API server issues before it compares the name.
fn early_rejections() -> [Status; 5] {
    let port = "Service \"c\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated";
    [
        Status::failure(422, "Invalid", port),
        Status::forbidden(&CONFIG_MAPS, "c", "exceeded quota: q"),
        Status::webhook_denied("guard.example.com", "no"),
        Status::internal("failed calling webhook \"guard.example.com\""),
        Status::failure(409, "Conflict", "try again"),
    ]
}

/// Lets the first member reject each create with this status.
fn reject_creates(plane: &PropagationFixture, with: &Status) {
    let with = with.clone();
    plane.members[0].on_call(move |call| {
        let is_rejected = call.verb == "create" && call.resource == Some(&CONFIG_MAPS);
        is_rejected.then(|| Error::from(with.clone()))
    });
}

fn work_with_conflict_resolution(how: &str) -> Value {
    let mut map = manifest("ConfigMap", "c");
    map["metadata"]["annotations"][well_known_keys::CONFLICT_RESOLUTION] = how.into();
    map["data"] = json!({"k": "ours"});
    work(json!([map]))
}

fn unmanaged_config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"k": "theirs"}})
}

// proves: EXE-refused-create, EXE-conflict-overwrite
#[tokio::test]
async fn an_existing_object_is_adopted_after_a_rejected_create() {
    for refusal in early_rejections() {
        let plane = PropagationFixture::new();
        reject_creates(&plane, &refusal);
        let uid = plane.members[0]
            .seed(&CONFIG_MAPS, unmanaged_config_map())
            .uid()
            .to_owned();
        plane
            .control_plane
            .seed(&WORKS, work_with_conflict_resolution("overwrite"));
        let plane = plane.started().await;
        wait_until("a verdict", || !plane.work_condition("Applied").is_null()).await;
        assert_eq!(
            plane.work_condition("Applied")["status"],
            "True",
            "{refusal:?}"
        );
        let adopted = plane.config_map().unwrap();
        assert_eq!(adopted["metadata"]["uid"], *uid);
        assert_eq!(
            adopted["metadata"]["labels"][well_known_keys::MANAGED],
            "true"
        );
        assert_eq!(adopted["data"]["k"], "ours");
        plane.tasks.stop().await;
    }
}

// proves: EXE-refused-create, EXE-conflict-abort
#[tokio::test]
async fn an_unmanaged_object_stays_after_a_rejected_create() {
    for refusal in early_rejections() {
        let plane = PropagationFixture::new();
        reject_creates(&plane, &refusal);
        plane.members[0].seed(&CONFIG_MAPS, unmanaged_config_map());
        plane
            .control_plane
            .seed(&WORKS, work_with_conflict_resolution("abort"));
        let plane = plane.started().await;
        wait_until("a verdict", || !plane.work_condition("Applied").is_null()).await;
        let text = "Failed to apply all manifests (0/1): resource(kind=ConfigMap, n/c) already exists in the cluster m1 and the work.karmada.io/conflict-resolution strategy value is empty, Karmada will not manage this resource";
        assert_eq!(
            plane.work_condition("Applied")["message"],
            text,
            "{refusal:?}"
        );
        assert_eq!(plane.config_map().unwrap()["data"]["k"], "theirs");
        plane.tasks.stop().await;
    }
}

// proves: EXE-refused-create
#[tokio::test]
async fn a_rejected_create_of_a_missing_object_is_reported() {
    for refusal in early_rejections() {
        let plane = PropagationFixture::new();
        reject_creates(&plane, &refusal);
        plane
            .control_plane
            .seed(&WORKS, work_with_conflict_resolution("overwrite"));
        let plane = plane.started().await;
        wait_until("a verdict", || !plane.work_condition("Applied").is_null()).await;
        let current = plane.work_condition("Applied");
        let text = format!("Failed to apply all manifests (0/1): {}", refusal.message);
        assert_eq!(
            (&current["reason"], &current["message"]),
            (&json!("AppliedFailed"), &json!(text))
        );
        plane.tasks.stop().await;
    }
}

/// Quota admission answers with a conflict when several creates race.
// proves: EXE-race
#[tokio::test]
async fn a_create_conflict_is_retried_without_an_event() {
    let plane = PropagationFixture::with_events();
    let left = Arc::new(AtomicUsize::new(4));
    let races = Arc::clone(&left);
    plane.members[0].on_call(move |call| {
        let lost = call.verb == "create"
            && races
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok();
        let quotas = Gvr::from_static("", "v1", "resourcequotas");
        lost.then(|| Error::from(Status::stale_resource_version(&quotas, "q")))
    });
    plane.control_plane.seed(&WORKS, one_map());
    let plane = plane.started().await;
    wait_until("a verdict", || !plane.work_condition("Applied").is_null()).await;
    assert_eq!(plane.work_condition("Applied")["status"], "True");
    assert_eq!(left.load(Ordering::SeqCst), 0);
    assert_eq!(plane.recorded_events("SyncFailed"), []);
    plane.tasks.stop().await;
}

// proves: EXE-conflict-failure, EXE-partial
#[tokio::test]
async fn a_lasting_conflict_fails_after_five_attempts_and_delays_no_other_manifest() {
    let plane = PropagationFixture::with_events();
    plane.members[0].seed(&CONFIG_MAPS, manifest("ConfigMap", "c"));
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    plane.members[0].on_call(move |call| {
        let update = call.verb == "update" && call.resource == Some(&CONFIG_MAPS);
        update.then(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            Error::from(Status::stale_resource_version(&CONFIG_MAPS, "c"))
        })
    });
    let mut changed = manifest("ConfigMap", "c");
    changed["data"] = json!({"k": "v"});
    let first = work(json!([changed, manifest("Secret", "s")]));
    plane.control_plane.seed(&WORKS, first);
    let until_first_verdict = Arc::clone(&tries);
    let plane = plane.started().await;
    wait_until("a verdict", || !plane.work_condition("Applied").is_null()).await;
    assert!(until_first_verdict.load(Ordering::SeqCst) >= 5);
    let current = plane.work_condition("Applied");
    assert_eq!(
        (&current["status"], &current["reason"]),
        (&json!("False"), &json!("AppliedFailed"))
    );
    let text = current["message"].as_str().unwrap();
    let expected_prefix =
        "Failed to apply all manifests (1/2): Operation cannot be fulfilled on configmaps \"c\"";
    assert!(text.starts_with(expected_prefix), "{text}");
    assert!(
        plane.members[0].get_object(&SECRETS, "n", "s").is_some(),
        "the other manifest is applied"
    );
    wait_until("the event", || {
        let events = plane.recorded_events("SyncFailed");
        events.iter().any(|(kind, ..)| kind == "ConfigMap")
    })
    .await;
    plane.tasks.stop().await;
}

/// The namespace may be created later; the other manifests do not wait for it.
// proves: EXE-partial
#[tokio::test]
async fn a_missing_namespace_delays_no_other_manifest() {
    let plane = PropagationFixture::new();
    let (tries, tries_before_the_other) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let recorded_tries = Arc::clone(&tries_before_the_other);
    plane.members[0].on_call(move |call| {
        if call.verb == "create" && call.resource == Some(&SECRETS) {
            recorded_tries.store(tries.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        let missing = call.verb == "create" && call.resource == Some(&CONFIG_MAPS);
        missing.then(|| {
            tries.fetch_add(1, Ordering::SeqCst);
            Error::from(Status::not_found(&super::NAMESPACES, "n"))
        })
    });
    let all = json!([manifest("ConfigMap", "c"), manifest("Secret", "s")]);
    plane.control_plane.seed(&WORKS, work(all));
    let plane = plane.started().await;
    wait_until("the secret", || {
        plane.members[0].get_object(&SECRETS, "n", "s").is_some()
    })
    .await;
    assert_eq!(tries_before_the_other.load(Ordering::SeqCst), 1);
    plane.tasks.stop().await;
}
