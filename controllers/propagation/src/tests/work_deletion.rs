//! Tests of the deletion of Works: of their objects in members, and of the informers that no
//! Work needs any more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use client::{Api, DeleteOptions, ResourcePath};
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::well_known_keys;
use serde_json::json;

use super::work_fixtures::{EXECUTION_NAMESPACE, manifest, one_map, reject_calls, work};
use super::{CONFIG_MAPS, PropagationFixture, SECRETS, cluster, condition, serve, wait_until};

// proves: EXE-delete-own
#[tokio::test]
async fn deleting_a_work_deletes_managed_objects_only() {
    for (managed, stays) in [(true, false), (false, true)] {
        let plane = PropagationFixture::new();
        let mut there = manifest("ConfigMap", "c");
        if !managed {
            there["metadata"]["labels"] = json!({});
        }
        plane.members[0].seed(&CONFIG_MAPS, there);
        let mut going = one_map();
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        plane.control_plane.seed(&WORKS, going);
        let plane = plane.started().await;
        plane.wait_until_work_deleted().await;
        assert_eq!(plane.config_map().is_some(), stays, "managed: {managed}");
        plane.tasks.stop().await;
    }
}

/// The member is the cluster of the control plane: its object is the template.
// proves: HST-template
#[tokio::test]
async fn a_template_in_a_member_is_neither_changed_nor_deleted() {
    let plane = PropagationFixture::new();
    let mut template = manifest("ConfigMap", "c");
    template["metadata"]["uid"] = "uid-of-c".into();
    plane.members[0].seed(&CONFIG_MAPS, template);
    let mut changed = one_map();
    let copy = &mut changed["spec"]["workload"]["manifests"][0];
    copy["data"] = json!({"k": "v"});
    copy["metadata"]["annotations"][well_known_keys::CONFLICT_RESOLUTION] = "overwrite".into();
    plane.control_plane.seed(&WORKS, changed);
    let plane = plane.started().await;
    let is_reported = || plane.work_condition("Propagated")["reason"] == "AlreadyExists";
    wait_until("the reason", is_reported).await;
    let message = plane.work_condition("Propagated")["message"].clone();
    let text = message.as_str().unwrap();
    assert!(text.contains("is the template itself"), "{text}");
    plane.delete_work().await;
    plane.wait_until_work_deleted().await;
    assert!(plane.members[0].writes().is_empty());
    plane.tasks.stop().await;
}

// proves: EXE-delete-missing
#[tokio::test]
async fn a_work_whose_object_is_missing_can_be_deleted() {
    for preserve in [false, true] {
        let plane = PropagationFixture::new();
        let mut going = one_map();
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        going["spec"]["preserveResourcesOnDeletion"] = preserve.into();
        plane.control_plane.seed(&WORKS, going);
        let plane = plane.started().await;
        plane.wait_until_work_deleted().await;
        assert!(plane.members[0].writes().is_empty());
        plane.tasks.stop().await;
    }
}

// proves: EXE-delete-retry
#[tokio::test]
async fn a_work_stays_until_its_object_is_deleted() {
    let plane = PropagationFixture::new();
    plane.members[0].seed(&CONFIG_MAPS, manifest("ConfigMap", "c"));
    let let_it = reject_calls(&plane, "delete", &[(&CONFIG_MAPS, "not now")]);
    let mut going = one_map();
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    plane.control_plane.seed(&WORKS, going);
    // A later Work shows that this one has been reconciled.
    let mut later = work(json!([manifest("Secret", "s")]));
    later["metadata"]["name"] = "later".into();
    plane.control_plane.seed(&WORKS, later);
    let plane = plane.started().await;
    let secret = || plane.members[0].get_object(&SECRETS, "n", "s").is_some();
    wait_until("the later one", secret).await;
    let finalizers = || plane.test_work().unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers(), json!([well_known_keys::WORK_FINALIZER]));
    let_it.store(true, Ordering::SeqCst);
    plane.wait_until_work_deleted().await;
    assert_eq!(plane.config_map(), None);
    plane.tasks.stop().await;
}

// proves: EXE-delete-not-ready, EXE-delete-leaving, EXE-not-ready
#[tokio::test]
async fn works_of_an_unready_cluster_wait_until_it_is_deleted() {
    let plane = PropagationFixture::with_events();
    let mut not_ready = cluster("m1");
    not_ready["status"]["conditions"][0]["status"] = "False".into();
    plane.control_plane.seed(&CLUSTERS, not_ready.clone());
    plane.members[0].seed(&CONFIG_MAPS, manifest("ConfigMap", "c"));
    let mut going = one_map();
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    plane.control_plane.seed(&WORKS, going);
    let mut staying = work(json!([manifest("Secret", "s")]));
    staying["metadata"]["name"] = "staying".into();
    plane.control_plane.seed(&WORKS, staying);
    let plane = plane.started().await;
    let stays = || {
        plane
            .control_plane
            .get_object(&WORKS, EXECUTION_NAMESPACE, "staying")
            .unwrap()
    };
    wait_until("the word of the other", || {
        condition(&stays(), "Dispatching")["status"] == "True"
    })
    .await;
    assert!(condition(&stays(), "Applied").is_null());
    assert!(plane.test_work().is_some());
    not_ready["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    not_ready["metadata"]["finalizers"] = json!(["karmada.io/cluster-controller"]);
    plane.control_plane.seed(&CLUSTERS, not_ready);
    plane.wait_until_work_deleted().await;
    assert!(plane.config_map().is_some(), "nobody could take it away");
    assert!(plane.members[0].writes().is_empty());
    plane.tasks.stop().await;
}

/// Otherwise a kind that was managed once would be watched in every member forever.
// proves: EXE-watch-ends
#[tokio::test(start_paused = true)]
async fn the_informer_of_a_kind_stops_after_its_last_work() {
    let plane = PropagationFixture::new();
    let mut second = one_map();
    second["metadata"]["name"] = "w2".into();
    second["spec"]["workload"]["manifests"][0]["metadata"]["name"] = "c2".into();
    second["spec"]["workload"]["manifests"][0]["metadata"]["annotations"]
        [well_known_keys::WORK_NAME] = "w2".into();
    plane.control_plane.seed(&WORKS, one_map());
    plane.control_plane.seed(&WORKS, second);
    let plane = plane.started().await;
    plane.wait_until_work_applied().await;
    let other = || plane.members[0].get_object(&CONFIG_MAPS, "n", "c2");
    wait_until("the other", || other().is_some()).await;
    plane.delete_work().await;
    plane.wait_until_work_deleted().await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    // The informer is still needed: drift is detected.
    plane.members[0].remove(&CONFIG_MAPS, "n", "c2");
    wait_until("the repair", || other().is_some()).await;
    let at = ResourcePath::object(&WORKS, EXECUTION_NAMESPACE, "w2");
    let options = DeleteOptions::default();
    plane.control_plane.delete(at, &options).await.unwrap();
    wait_until("the other's end", || other().is_none()).await;
    assert!(plane.has_informer("m1", &CONFIG_MAPS), "not at once");
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert!(!plane.has_informer("m1", &CONFIG_MAPS));
    // The informer starts again with the next Work.
    plane.control_plane.seed(&WORKS, one_map());
    wait_until("the map again", || plane.config_map().is_some()).await;
    plane.members[0].remove(&CONFIG_MAPS, "n", "c");
    wait_until("its repair", || plane.config_map().is_some()).await;
    assert!(plane.has_informer("m1", &CONFIG_MAPS));
    plane.tasks.stop().await;
}

/// The control plane may have stopped serving the kind before.
#[tokio::test(start_paused = true)]
async fn the_informer_of_an_unserved_kind_stops_too() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&WORKS, one_map());
    let plane = plane.started().await;
    plane.wait_until_work_applied().await;
    plane.control_plane.remove_resource(&CONFIG_MAPS);
    serve(&plane.members[0], &CONFIG_MAPS, "ConfigMap", true);
    plane.delete_work().await;
    plane.wait_until_work_deleted().await;
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert!(!plane.has_informer("m1", &CONFIG_MAPS));
    assert_eq!(plane.config_map(), None);
    plane.tasks.stop().await;
}
