//! Tests from Works to the objects in members: conditions, events, retries and deletion.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::{Api, At, DeleteOptions, Error};
use machinery::{Gvr, Status};
use openapi::karmada::labels;
use openapi::karmada::resources::{CLUSTERS, WORKS};
use serde_json::{Value, json};

use super::{
    CONFIG_MAPS, DEPLOYMENTS, EVENTS, Plane, SECRETS, applied, cluster, condition, deployment,
    serve, until,
};

const SPACE: &str = "karmada-es-m1";

fn manifest(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "n",
        "labels": {labels::MANAGED: "true"},
        "annotations": {labels::WORK_NAMESPACE: SPACE, labels::WORK_NAME: "w",
                        labels::TEMPLATE_UID: format!("uid-of-{name}")}}})
}

fn work(manifests: Value) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": SPACE, "generation": 1, "finalizers": [labels::WORK_FINALIZER]},
        "spec": {"workload": {"manifests": manifests}}})
}

fn one_map() -> Value {
    work(json!([manifest("ConfigMap", "c")]))
}

impl Plane {
    fn own_work(&self) -> Option<Value> {
        self.control.object(&WORKS, SPACE, "w")
    }

    fn says(&self, kind: &str) -> Value {
        condition(&self.own_work().unwrap_or_default(), kind).clone()
    }

    async fn until_applied(&self) {
        let done = || applied(&self.own_work().unwrap_or_default()) == Some("True");
        until("applied", done).await;
    }

    async fn until_gone(&self) {
        until("the work to go", || self.own_work().is_none()).await;
    }

    async fn delete_work(&self) {
        let options = DeleteOptions::default();
        let at = At::one(&WORKS, SPACE, "w");
        self.control.delete(at, &options).await.unwrap();
    }

    fn map(&self) -> Option<Value> {
        self.members[0].object(&CONFIG_MAPS, "n", "c")
    }

    /// Kind, uid and message of the events with a reason.
    fn told_of(&self, reason: &str) -> Vec<(String, String, String)> {
        let all = self.control.objects(&EVENTS).into_iter();
        let some = all.filter(|event| event["reason"] == reason);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        some.map(|event| {
            let about = &event["involvedObject"];
            (
                text(&about["kind"]),
                text(&about["uid"]),
                text(&event["message"]),
            )
        })
        .collect()
    }

    async fn until_told(&self, reason: &str, expected: &[(&str, &str, &str)]) {
        let what = format!("{reason}: {expected:?}");
        let is_recorded = || {
            let events = self.told_of(reason);
            let fits = |(kind, uid, message): &(&str, &str, &str)| {
                let mut all = events.iter();
                all.any(|t| t.0 == *kind && t.1 == *uid && t.2 == *message)
            };
            expected.iter().all(fits)
        };
        until(&what, is_recorded).await;
    }
}

/// Rejects calls of a verb on some resources of the first member until the flag is set.
fn refuse(plane: &Plane, verb: &'static str, why: &[(&'static Gvr, &str)]) -> Arc<AtomicBool> {
    let let_it = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&let_it);
    let why: HashMap<Gvr, String> = why
        .iter()
        .map(|(resource, why)| ((*resource).clone(), (*why).to_owned()))
        .collect();
    plane.members[0].on_call(move |call| {
        let why = why.get(call.resource?)?;
        let refused = call.verb == verb && !open.load(Ordering::SeqCst);
        refused.then(|| Error::from(Status::internal(why)))
    });
    let_it
}

// proves: EXE-partial, EXE-told-failed, EXE-told, EXE-retry, EXE-generation
#[tokio::test]
async fn a_failed_manifest_is_reported_with_the_others_and_retried() {
    let plane = Plane::telling_events();
    let let_it = refuse(
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
    let uid = plane.control.seed(&WORKS, third).uid().to_owned();
    let plane = plane.started().await;
    until("a verdict", || !plane.says("Applied").is_null()).await;
    let current = plane.says("Applied");
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
    assert!(plane.map().is_some(), "the others are applied");
    let failed = format!("Failed to sync work({SPACE}/w) to cluster(m1), err: [{s}, {d}]");
    let of = |name: &str, why: &str| {
        format!("Failed to create or update resource(n/{name}) in member cluster(m1): {why}")
    };
    plane
        .until_told(
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
        .until_told("SyncSucceed", &[("ConfigMap", "uid-of-c", applied_c)])
        .await;
    let_it.store(true, Ordering::SeqCst);
    plane.until_applied().await;
    let current = plane.says("Applied");
    assert_eq!(
        (&current["reason"], &current["message"]),
        (
            &json!("AppliedSuccessful"),
            &json!("Manifest has been successfully applied")
        )
    );
    let text = format!("Sync work({SPACE}/w) to cluster(m1) successful.");
    plane
        .until_told("SyncSucceed", &[("Work", &uid, &text)])
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
    let plane = Plane::telling_events();
    let uid = plane.control.seed(&WORKS, one_map()).uid().to_owned();
    let plane = plane.started().await;
    plane.until_applied().await;
    let left = Arc::new(AtomicUsize::new(3));
    let races = Arc::clone(&left);
    plane.members[0].on_call(move |call| {
        let lost = call.verb == "update"
            && races
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok();
        lost.then(|| Error::from(Status::conflict(&CONFIG_MAPS, call.name, "changed")))
    });
    let mut newer = plane.own_work().unwrap();
    newer["metadata"]["generation"] = 2.into();
    newer["spec"]["workload"]["manifests"][0]["data"] = json!({"k": "v"});
    plane.control.seed(&WORKS, newer);
    until("the change", || plane.map().unwrap()["data"]["k"] == "v").await;
    assert_eq!(left.load(Ordering::SeqCst), 0);
    let text = format!("Sync work({SPACE}/w) to cluster(m1) successful.");
    plane
        .until_told("SyncSucceed", &[("Work", &uid, &text)])
        .await;
    assert_eq!(plane.told_of("SyncFailed"), []);
    plane.tasks.stop().await;
}

// proves: EXE-dispatching-told, EXE-suspend
#[tokio::test]
async fn a_change_of_dispatching_records_an_event() {
    let plane = Plane::telling_events();
    let mut suspended_work = one_map();
    suspended_work["spec"]["suspendDispatching"] = true.into();
    let uid = plane
        .control
        .seed(&WORKS, suspended_work.clone())
        .uid()
        .to_owned();
    let plane = plane.started().await;
    let suspended = "Work dispatching is in a suspended state.";
    plane
        .until_told("WorkDispatching", &[("Work", &uid, suspended)])
        .await;
    until("the condition", || {
        let current = plane.says("Dispatching");
        current["status"] == "False"
            && current["reason"] == "SuspendDispatching"
            && current["message"] == suspended
    })
    .await;
    assert!(plane.says("Applied").is_null() && plane.members[0].writes().is_empty());
    let mut released = plane.own_work().unwrap();
    released["metadata"]["generation"] = 2.into();
    released["spec"]["suspendDispatching"] = false.into();
    plane.control.seed(&WORKS, released);
    plane.until_applied().await;
    let dispatching = "Work is being dispatched to member clusters.";
    plane
        .until_told("WorkDispatching", &[("Work", &uid, dispatching)])
        .await;
    let current = plane.says("Dispatching");
    assert_eq!(
        (&current["status"], &current["reason"], &current["message"]),
        (&json!("True"), &json!("Dispatching"), &json!(dispatching))
    );
    // A new generation alone records no event.
    let mut newer = plane.own_work().unwrap();
    newer["metadata"]["generation"] = 3.into();
    newer["spec"]["workload"]["manifests"][0]["data"] = json!({"k": "v"});
    plane.control.seed(&WORKS, newer);
    until("the change", || plane.map().unwrap()["data"]["k"] == "v").await;
    plane.tasks.stop().await;
    let counts: u64 = plane
        .control
        .objects(&EVENTS)
        .iter()
        .filter(|e| e["reason"] == "WorkDispatching")
        .map(|e| e["count"].as_u64().unwrap_or(1))
        .sum();
    assert_eq!(counts, 2);
}

// proves: EXE-elsewhere
#[tokio::test]
async fn works_outside_of_execution_namespaces_are_ignored() {
    let plane = Plane::new();
    let mut elsewhere = one_map();
    elsewhere["metadata"]["namespace"] = "n".into();
    plane.control.seed(&WORKS, elsewhere);
    plane
        .control
        .seed(&WORKS, work(json!([manifest("Secret", "s")])));
    let plane = plane.started().await;
    plane.until_applied().await;
    assert_eq!(plane.map(), None);
    let other = plane.control.object(&WORKS, "n", "w").unwrap();
    assert_eq!(other.get("status"), None);
    plane.tasks.stop().await;
}

// proves: EXE-push
#[tokio::test]
async fn works_of_clusters_in_pull_mode_are_left_to_their_agents() {
    let plane = Plane::new();
    let mut pulling = cluster("m1");
    pulling["spec"]["syncMode"] = "Pull".into();
    plane.control.seed(&CLUSTERS, pulling);
    plane.control.seed(&WORKS, one_map());
    let mut pushed = one_map();
    pushed["metadata"]["namespace"] = "karmada-es-m2".into();
    plane.control.seed(&WORKS, pushed);
    let plane = plane.started().await;
    let there = || plane.members[1].object(&CONFIG_MAPS, "n", "c").is_some();
    until("the pushed one", there).await;
    assert_eq!(plane.own_work().unwrap().get("status"), None);
    assert!(plane.members[0].writes().is_empty());
    plane.tasks.stop().await;
}

// proves: EXE-delete-own
#[tokio::test]
async fn deleting_a_work_deletes_managed_objects_only() {
    for (managed, stays) in [(true, false), (false, true)] {
        let plane = Plane::new();
        let mut there = manifest("ConfigMap", "c");
        if !managed {
            there["metadata"]["labels"] = json!({});
        }
        plane.members[0].seed(&CONFIG_MAPS, there);
        let mut going = one_map();
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        plane.control.seed(&WORKS, going);
        let plane = plane.started().await;
        plane.until_gone().await;
        assert_eq!(plane.map().is_some(), stays, "managed: {managed}");
        plane.tasks.stop().await;
    }
}

// proves: EXE-delete-missing
#[tokio::test]
async fn a_work_whose_object_is_missing_can_be_deleted() {
    for preserve in [false, true] {
        let plane = Plane::new();
        let mut going = one_map();
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        going["spec"]["preserveResourcesOnDeletion"] = preserve.into();
        plane.control.seed(&WORKS, going);
        let plane = plane.started().await;
        plane.until_gone().await;
        assert!(plane.members[0].writes().is_empty());
        plane.tasks.stop().await;
    }
}

// proves: EXE-delete-retry
#[tokio::test]
async fn a_work_stays_until_its_object_is_deleted() {
    let plane = Plane::new();
    plane.members[0].seed(&CONFIG_MAPS, manifest("ConfigMap", "c"));
    let let_it = refuse(&plane, "delete", &[(&CONFIG_MAPS, "not now")]);
    let mut going = one_map();
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    plane.control.seed(&WORKS, going);
    // A later Work shows that this one has been reconciled.
    let mut later = work(json!([manifest("Secret", "s")]));
    later["metadata"]["name"] = "later".into();
    plane.control.seed(&WORKS, later);
    let plane = plane.started().await;
    let secret = || plane.members[0].object(&SECRETS, "n", "s").is_some();
    until("the later one", secret).await;
    let finalizers = || plane.own_work().unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(), json!([labels::WORK_FINALIZER]));
    let_it.store(true, Ordering::SeqCst);
    plane.until_gone().await;
    assert_eq!(plane.map(), None);
    plane.tasks.stop().await;
}

// proves: EXE-delete-not-ready, EXE-delete-leaving, EXE-not-ready
#[tokio::test]
async fn works_of_an_unready_cluster_wait_until_it_is_deleted() {
    let plane = Plane::telling_events();
    let mut not_ready = cluster("m1");
    not_ready["status"]["conditions"][0]["status"] = "False".into();
    plane.control.seed(&CLUSTERS, not_ready.clone());
    plane.members[0].seed(&CONFIG_MAPS, manifest("ConfigMap", "c"));
    let mut going = one_map();
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    plane.control.seed(&WORKS, going);
    let mut staying = work(json!([manifest("Secret", "s")]));
    staying["metadata"]["name"] = "staying".into();
    plane.control.seed(&WORKS, staying);
    let plane = plane.started().await;
    let stays = || plane.control.object(&WORKS, SPACE, "staying").unwrap();
    until("the word of the other", || {
        condition(&stays(), "Dispatching")["status"] == "True"
    })
    .await;
    assert!(condition(&stays(), "Applied").is_null());
    assert!(plane.own_work().is_some());
    not_ready["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    not_ready["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
    plane.control.seed(&CLUSTERS, not_ready);
    plane.until_gone().await;
    assert!(plane.map().is_some(), "nobody could take it away");
    assert!(plane.members[0].writes().is_empty());
    plane.tasks.stop().await;
}

/// Otherwise a kind that was managed once would be watched in every member forever.
// proves: EXE-watch-ends
#[tokio::test(start_paused = true)]
async fn the_informer_of_a_kind_stops_after_its_last_work() {
    let plane = Plane::new();
    let mut second = one_map();
    second["metadata"]["name"] = "w2".into();
    second["spec"]["workload"]["manifests"][0]["metadata"]["name"] = "c2".into();
    second["spec"]["workload"]["manifests"][0]["metadata"]["annotations"][labels::WORK_NAME] =
        "w2".into();
    plane.control.seed(&WORKS, one_map());
    plane.control.seed(&WORKS, second);
    let plane = plane.started().await;
    plane.until_applied().await;
    let other = || plane.members[0].object(&CONFIG_MAPS, "n", "c2");
    until("the other", || other().is_some()).await;
    plane.delete_work().await;
    plane.until_gone().await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    // The informer is still needed: drift is detected.
    plane.members[0].remove(&CONFIG_MAPS, "n", "c2");
    until("the repair", || other().is_some()).await;
    let at = At::one(&WORKS, SPACE, "w2");
    let options = DeleteOptions::default();
    plane.control.delete(at, &options).await.unwrap();
    until("the other's end", || other().is_none()).await;
    assert!(plane.follows("m1", &CONFIG_MAPS), "not at once");
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert!(!plane.follows("m1", &CONFIG_MAPS));
    // The informer starts again with the next Work.
    plane.control.seed(&WORKS, one_map());
    until("the map again", || plane.map().is_some()).await;
    plane.members[0].remove(&CONFIG_MAPS, "n", "c");
    until("its repair", || plane.map().is_some()).await;
    assert!(plane.follows("m1", &CONFIG_MAPS));
    plane.tasks.stop().await;
}

/// The control plane may have stopped serving the kind before.
#[tokio::test(start_paused = true)]
async fn the_informer_of_an_unserved_kind_stops_too() {
    let plane = Plane::new();
    plane.control.seed(&WORKS, one_map());
    let plane = plane.started().await;
    plane.until_applied().await;
    plane.control.unserve(&CONFIG_MAPS);
    serve(&plane.members[0], &CONFIG_MAPS, "ConfigMap", true);
    plane.delete_work().await;
    plane.until_gone().await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert!(!plane.follows("m1", &CONFIG_MAPS));
    assert_eq!(plane.map(), None);
    plane.tasks.stop().await;
}

/// Rejections of a create that the API server issues before it compares the name.
fn early_refusals() -> [Status; 5] {
    let port = "Service \"c\" is invalid: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated";
    [
        Status::failure(422, "Invalid", port),
        Status::forbidden(&CONFIG_MAPS, "c", "exceeded quota: q"),
        Status::denied("guard.example.com", "no"),
        Status::internal("failed calling webhook \"guard.example.com\""),
        Status::failure(409, "Conflict", "try again"),
    ]
}

/// Lets the first member reject each create with this status.
fn refuse_creates(plane: &Plane, with: &Status) {
    let with = with.clone();
    plane.members[0].on_call(move |call| {
        let refused = call.verb == "create" && call.resource == Some(&CONFIG_MAPS);
        refused.then(|| Error::from(with.clone()))
    });
}

fn resolving(how: &str) -> Value {
    let mut map = manifest("ConfigMap", "c");
    map["metadata"]["annotations"][labels::CONFLICT_RESOLUTION] = how.into();
    map["data"] = json!({"k": "ours"});
    work(json!([map]))
}

fn theirs() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": {"k": "theirs"}})
}

// proves: EXE-refused-create, EXE-conflict-overwrite
#[tokio::test]
async fn an_existing_object_is_adopted_after_a_rejected_create() {
    for refusal in early_refusals() {
        let plane = Plane::new();
        refuse_creates(&plane, &refusal);
        let uid = plane.members[0]
            .seed(&CONFIG_MAPS, theirs())
            .uid()
            .to_owned();
        plane.control.seed(&WORKS, resolving("overwrite"));
        let plane = plane.started().await;
        until("a verdict", || !plane.says("Applied").is_null()).await;
        assert_eq!(plane.says("Applied")["status"], "True", "{refusal:?}");
        let adopted = plane.map().unwrap();
        assert_eq!(adopted["metadata"]["uid"], *uid);
        assert_eq!(adopted["metadata"]["labels"][labels::MANAGED], "true");
        assert_eq!(adopted["data"]["k"], "ours");
        plane.tasks.stop().await;
    }
}

// proves: EXE-refused-create, EXE-conflict-abort
#[tokio::test]
async fn an_unmanaged_object_stays_after_a_rejected_create() {
    for refusal in early_refusals() {
        let plane = Plane::new();
        refuse_creates(&plane, &refusal);
        plane.members[0].seed(&CONFIG_MAPS, theirs());
        plane.control.seed(&WORKS, resolving("abort"));
        let plane = plane.started().await;
        until("a verdict", || !plane.says("Applied").is_null()).await;
        let text = "Failed to apply all manifests (0/1): resource(kind=ConfigMap, n/c) already exists in the cluster m1 and the work.karmada.io/conflict-resolution strategy value is empty, Karmada will not manage this resource";
        assert_eq!(plane.says("Applied")["message"], text, "{refusal:?}");
        assert_eq!(plane.map().unwrap()["data"]["k"], "theirs");
        plane.tasks.stop().await;
    }
}

// proves: EXE-refused-create
#[tokio::test]
async fn a_rejected_create_of_a_missing_object_is_reported() {
    for refusal in early_refusals() {
        let plane = Plane::new();
        refuse_creates(&plane, &refusal);
        plane.control.seed(&WORKS, resolving("overwrite"));
        let plane = plane.started().await;
        until("a verdict", || !plane.says("Applied").is_null()).await;
        let current = plane.says("Applied");
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
    let plane = Plane::telling_events();
    let left = Arc::new(AtomicUsize::new(4));
    let races = Arc::clone(&left);
    plane.members[0].on_call(move |call| {
        let lost = call.verb == "create"
            && races
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok();
        let quotas = Gvr::constant("", "v1", "resourcequotas");
        lost.then(|| Error::from(Status::stale(&quotas, "q")))
    });
    plane.control.seed(&WORKS, one_map());
    let plane = plane.started().await;
    until("a verdict", || !plane.says("Applied").is_null()).await;
    assert_eq!(plane.says("Applied")["status"], "True");
    assert_eq!(left.load(Ordering::SeqCst), 0);
    assert_eq!(plane.told_of("SyncFailed"), []);
    plane.tasks.stop().await;
}

// proves: EXE-conflict-told, EXE-partial
#[tokio::test]
async fn a_lasting_conflict_fails_after_five_attempts_and_delays_no_other_manifest() {
    let plane = Plane::telling_events();
    plane.members[0].seed(&CONFIG_MAPS, manifest("ConfigMap", "c"));
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    plane.members[0].on_call(move |call| {
        let update = call.verb == "update" && call.resource == Some(&CONFIG_MAPS);
        update.then(|| {
            counted.fetch_add(1, Ordering::SeqCst);
            Error::from(Status::stale(&CONFIG_MAPS, "c"))
        })
    });
    let mut changed = manifest("ConfigMap", "c");
    changed["data"] = json!({"k": "v"});
    let first = work(json!([changed, manifest("Secret", "s")]));
    plane.control.seed(&WORKS, first);
    let until_first_verdict = Arc::clone(&tries);
    let plane = plane.started().await;
    until("a verdict", || !plane.says("Applied").is_null()).await;
    assert!(until_first_verdict.load(Ordering::SeqCst) >= 5);
    let current = plane.says("Applied");
    assert_eq!(
        (&current["status"], &current["reason"]),
        (&json!("False"), &json!("AppliedFailed"))
    );
    let text = current["message"].as_str().unwrap();
    let expected_prefix =
        "Failed to apply all manifests (1/2): Operation cannot be fulfilled on configmaps \"c\"";
    assert!(text.starts_with(expected_prefix), "{text}");
    assert!(
        plane.members[0].object(&SECRETS, "n", "s").is_some(),
        "the other manifest is applied"
    );
    until("the event", || {
        let events = plane.told_of("SyncFailed");
        events.iter().any(|(kind, ..)| kind == "ConfigMap")
    })
    .await;
    plane.tasks.stop().await;
}

/// The namespace may be created later; the other manifests do not wait for it.
// proves: EXE-partial
#[tokio::test]
async fn a_missing_namespace_delays_no_other_manifest() {
    let plane = Plane::new();
    let (tries, tries_before_the_other) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&tries_before_the_other);
    plane.members[0].on_call(move |call| {
        if call.verb == "create" && call.resource == Some(&SECRETS) {
            seen.store(tries.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        let missing = call.verb == "create" && call.resource == Some(&CONFIG_MAPS);
        missing.then(|| {
            tries.fetch_add(1, Ordering::SeqCst);
            Error::from(Status::not_found(&super::NAMESPACES, "n"))
        })
    });
    let all = json!([manifest("ConfigMap", "c"), manifest("Secret", "s")]);
    plane.control.seed(&WORKS, work(all));
    let plane = plane.started().await;
    until("the secret", || {
        plane.members[0].object(&SECRETS, "n", "s").is_some()
    })
    .await;
    assert_eq!(tries_before_the_other.load(Ordering::SeqCst), 1);
    plane.tasks.stop().await;
}
