//! Tests from a binding to the objects in members.

use client::{Api, DeleteOptions, Error, ResourcePath};
use client_fake::FakeApi;
use karmada_api::resources::{BINDINGS, CLUSTER_OVERRIDES, CLUSTERS, OVERRIDES, POLICIES, WORKS};
use karmada_api::well_known_keys;
use machinery::{Gvr, Status};
use serde_json::json;

use super::{
    CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, PropagationFixture, applied_status, cluster, condition,
    deployment, policy, serve, wait_until,
};
use crate::start::start_agent;
use karmada_api::FeatureGates;

// proves: EXE-own-writes
#[tokio::test]
async fn a_template_reaches_its_clusters() {
    let plane = PropagationFixture::new().started().await;
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_applied("web").await;
    let binding = plane
        .control_plane
        .get_object(&BINDINGS, "n", "web-deployment")
        .unwrap();
    assert_eq!(
        binding["spec"]["clusters"],
        json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 4}]),
        "placed as it was made"
    );
    assert!(binding["metadata"]["annotations"][well_known_keys::APPLIED_PLACEMENT].is_string());
    for at in 0..2 {
        let object = plane.deployment_in_member(at, "web").unwrap();
        assert_eq!(
            object["metadata"]["labels"][well_known_keys::MANAGED],
            "true"
        );
        assert_eq!(
            object["metadata"]["labels"][well_known_keys::POLICY_ID],
            "policy-id"
        );
        assert_eq!(
            object["metadata"]["annotations"][well_known_keys::WORK_NAMESPACE],
            format!("karmada-es-m{}", at + 1)
        );
        assert_eq!(plane.members[at].writes().len(), 1, "one write per member");
    }
    let writes = plane.control_plane.writes();
    let count = |verb: &str, resource: &Gvr| {
        let of = writes
            .iter()
            .filter(|w| w.verb == verb && w.resource == *resource);
        of.count()
    };
    assert_eq!(count("patch", &DEPLOYMENTS), 1, "the claim");
    assert_eq!(count("create", &BINDINGS), 1);
    assert_eq!(count("create", &WORKS), 2);
    assert_eq!(count("patch", &WORKS), 2, "both conditions at once");
    assert_eq!(writes.len(), 6, "{writes:?}");
    plane.tasks.stop().await;
}

// proves: EXE-drift-change, EXE-drift-delete
#[tokio::test]
async fn changes_follow_and_drift_is_repaired() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    plane.edit(&DEPLOYMENTS, "web", |d| {
        d["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2".into();
        d["spec"]["replicas"] = 2.into();
    });
    let like = |at: usize, image: &str, replicas: i64| {
        plane.deployment_in_member(at, "web").is_some_and(|d| {
            d["spec"]["template"]["spec"]["containers"][0]["image"] == image
                && d["spec"]["replicas"] == replicas
        })
    };
    wait_until("the change", || {
        like(0, "nginx:2", 2) && like(1, "nginx:2", 2)
    })
    .await;
    plane.wait_until_applied("web").await;
    let updates = |api: &FakeApi| api.writes().iter().filter(|w| w.verb == "update").count();
    assert_eq!(
        updates(&plane.members[0]),
        1,
        "image and replicas in one step"
    );
    assert_eq!(
        updates(&plane.control_plane),
        3,
        "the binding and two works"
    );
    let mut drifted = plane.deployment_in_member(0, "web").unwrap();
    drifted["spec"]["replicas"] = 9.into();
    drifted["metadata"]["generation"] = 77.into();
    plane.members[0].seed(&DEPLOYMENTS, drifted);
    wait_until("the repair", || like(0, "nginx:2", 2)).await;
    plane.members[1].remove(&DEPLOYMENTS, "n", "web");
    wait_until("the object again", || like(1, "nginx:2", 2)).await;
    plane.tasks.stop().await;
}

// proves: EXE-no-write, WRK-no-write
#[tokio::test]
async fn a_restart_writes_nothing() {
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    for name in ["a", "b"] {
        plane.control_plane.seed(&DEPLOYMENTS, deployment(name));
    }
    plane.control_plane.seed(
        &NAMESPACES,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}, "spec": {}}),
    );
    plane.start().await;
    plane.wait_until_applied("a").await;
    plane.wait_until_applied("b").await;
    wait_until("the namespace", || {
        plane.members[1].get_object(&NAMESPACES, "", "n").is_some()
    })
    .await;
    let all_applied = || {
        let works = plane.control_plane.list_objects(&WORKS);
        works.len() == 6 && works.iter().all(|w| applied_status(w) == Some("True"))
    };
    wait_until("all works", all_applied).await;
    plane.tasks.stop().await;
    // The status that the status controllers would have written meanwhile.
    for name in ["a", "b"] {
        let mut template = plane
            .control_plane
            .get_object(&DEPLOYMENTS, "n", name)
            .unwrap();
        template["status"] = json!({"replicas": 8});
        plane.control_plane.seed(&DEPLOYMENTS, template);
        let mut object = plane.deployment_in_member(0, name).unwrap();
        object["status"] = json!({"replicas": 4});
        object["spec"]["paused"] = json!(false);
        plane.members[0].seed(&DEPLOYMENTS, object);
    }
    plane.control_plane.clear_writes();
    plane.members.iter().for_each(|m| m.clear_writes());
    plane.start().await;
    // A new Deployment shows that the others have been reconciled.
    plane.control_plane.seed(&DEPLOYMENTS, deployment("z"));
    plane.wait_until_applied("z").await;
    for api in [&plane.control_plane, &plane.members[0], &plane.members[1]] {
        let own = |name: &str| name.contains('z') || name.is_empty();
        let others: Vec<_> = api.writes().into_iter().filter(|w| !own(&w.name)).collect();
        assert!(others.is_empty(), "{others:?}");
    }
    assert_eq!(plane.members[0].writes().len(), 1);
    plane.tasks.stop().await;
}

// proves: BND-deleted, EXE-delete
#[tokio::test]
async fn a_deleted_template_is_deleted_everywhere() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    plane.control_plane.remove(&DEPLOYMENTS, "n", "web");
    // The work of the garbage collector.
    let at = ResourcePath::object(&BINDINGS, "n", "web-deployment");
    plane
        .control_plane
        .delete(at, &Default::default())
        .await
        .unwrap();
    wait_until("all gone", || {
        plane.control_plane.list_objects(&BINDINGS).is_empty()
            && plane.control_plane.list_objects(&WORKS).is_empty()
            && plane
                .members
                .iter()
                .all(|m| m.list_objects(&DEPLOYMENTS).is_empty())
    })
    .await;
    plane.tasks.stop().await;
}

// proves: EXE-suspend, WRK-suspend-cluster
#[tokio::test]
async fn a_suspended_work_has_a_condition_and_resumes() {
    let plane = PropagationFixture::new();
    let suspended = json!({"suspension": {"dispatchingOnClusters": {"clusterNames": ["m1"]}}});
    plane.control_plane.seed(&POLICIES, policy(suspended));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    wait_until("m2", || plane.deployment_in_member(1, "web").is_some()).await;
    wait_until("m1 says so", || {
        plane
            .work("m1", "web")
            .is_some_and(|w| condition(&w, "Dispatching")["reason"] == "SuspendDispatching")
    })
    .await;
    assert_eq!(plane.deployment_in_member(0, "web"), None);
    plane.edit(&POLICIES, "p", |p| {
        drop(p["spec"].as_object_mut().unwrap().remove("suspension"))
    });
    plane.wait_until_applied("web").await;
    assert!(plane.deployment_in_member(0, "web").is_some());
    plane.tasks.stop().await;
}

// proves: EXE-conflict-abort, EXE-conflict-overwrite, EXE-alone
#[tokio::test]
async fn a_failure_in_one_cluster_is_reported_and_does_not_delay_the_other() {
    let plane = PropagationFixture::new();
    plane.members[0].on_call(|call| {
        let is_rejected = call.verb == "create" && call.name.is_empty();
        is_rejected.then(|| Error::from(Status::internal("no room")))
    });
    let mut foreign = deployment("taken");
    foreign["spec"]["replicas"] = 1.into();
    plane.members[1].seed(&DEPLOYMENTS, foreign);
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    for name in ["web", "taken"] {
        plane.control_plane.seed(&DEPLOYMENTS, deployment(name));
    }
    let plane = plane.started().await;
    wait_until("m2 applied", || {
        plane
            .work("m2", "web")
            .is_some_and(|w| applied_status(&w) == Some("True"))
    })
    .await;
    let says = |cluster: &str, name: &str, text: &str| {
        plane.work(cluster, name).is_some_and(|w| {
            let applied = condition(&w, "Applied");
            applied["status"] == "False" && applied["message"].as_str().unwrap().contains(text)
        })
    };
    wait_until("m1 says why", || says("m1", "web", "no room")).await;
    wait_until("a foreign object", || {
        says("m2", "taken", "already exists in the cluster m2 and the work.karmada.io/conflict-resolution strategy value is empty")
    })
    .await;
    assert_eq!(
        plane.deployment_in_member(1, "taken").unwrap()["spec"]["replicas"],
        1
    );
    plane.edit(&DEPLOYMENTS, "taken", |d| {
        d["metadata"]["annotations"][well_known_keys::CONFLICT_RESOLUTION] = "overwrite".into();
    });
    wait_until("adopted", || {
        plane.deployment_in_member(1, "taken").unwrap()["spec"]["replicas"] == 4
    })
    .await;
    plane.tasks.stop().await;
}

// proves: MBR-bookkeeping, EXE-preserve
#[tokio::test]
async fn preserved_objects_lose_karmadas_labels_and_annotations() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(
        &POLICIES,
        policy(json!({"preserveResourcesOnDeletion": true})),
    );
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    plane.control_plane.remove(&DEPLOYMENTS, "n", "web");
    let at = ResourcePath::object(&BINDINGS, "n", "web-deployment");
    plane
        .control_plane
        .delete(at, &Default::default())
        .await
        .unwrap();
    wait_until("works gone", || {
        plane.control_plane.list_objects(&WORKS).is_empty()
    })
    .await;
    for at in 0..2 {
        let object = plane.deployment_in_member(at, "web").unwrap();
        let metadata = &object["metadata"];
        let left = (metadata["labels"].clone(), metadata["annotations"].clone());
        let expected = json!({well_known_keys::CONFLICT_RESOLUTION: "abort"});
        assert_eq!(
            left,
            (serde_json::Value::Null, expected),
            "as Karmada leaves it"
        );
        assert_eq!(object["spec"]["replicas"], 4);
    }
    plane.tasks.stop().await;
}

/// The template is deleted right after it was annotated, so that no Work has the annotation yet.
// proves: ORP-annotation, ORP-at-once
#[tokio::test]
async fn an_orphaned_template_leaves_its_objects() {
    for annotation in [well_known_keys::ORPHAN, well_known_keys::KUBEFED_ORPHAN] {
        let plane = PropagationFixture::new();
        plane.control_plane.seed(&POLICIES, policy(json!({})));
        plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
        plane.control_plane.seed(&DEPLOYMENTS, deployment("other"));
        let plane = plane.started().await;
        plane.wait_until_applied("web").await;
        plane.wait_until_applied("other").await;
        let template = plane.control_plane.get_object(&DEPLOYMENTS, "n", "web");
        let mut annotated = template.unwrap();
        annotated["metadata"]["annotations"][annotation] = "true".into();
        plane.control_plane.seed(&DEPLOYMENTS, annotated);
        plane.control_plane.remove(&DEPLOYMENTS, "n", "web");
        plane.control_plane.remove(&DEPLOYMENTS, "n", "other");
        wait_until("works gone", || {
            plane.control_plane.list_objects(&WORKS).is_empty()
        })
        .await;
        for at in 0..2 {
            let object = plane.deployment_in_member(at, "web").unwrap();
            assert_eq!(object["metadata"].get("labels"), None, "released");
            assert_eq!(plane.deployment_in_member(at, "other"), None);
        }
        plane.tasks.stop().await;
    }
}

// proves: ORP-annotation
#[tokio::test]
async fn the_annotation_reaches_the_works_and_leaves_them() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    for (value, preserved) in [("true", true), ("false", false), ("yes", false)] {
        let template = plane.control_plane.get_object(&DEPLOYMENTS, "n", "web");
        let mut template = template.unwrap();
        template["metadata"]["annotations"][well_known_keys::ORPHAN] = value.into();
        plane.control_plane.seed(&DEPLOYMENTS, template);
        wait_until("the works", || {
            let work = plane.work("m1", "web").unwrap();
            let manifest = &work["spec"]["workload"]["manifests"][0];
            manifest["metadata"]["annotations"][well_known_keys::ORPHAN] == value
                && work["spec"]["preserveResourcesOnDeletion"] == preserved
        })
        .await;
    }
    plane.tasks.stop().await;
}

// proves: EXE-not-ready
#[tokio::test]
async fn works_of_an_unready_cluster_wait_until_it_is_ready() {
    let plane = PropagationFixture::new();
    let mut late = cluster("m1");
    late["status"]["conditions"][0]["status"] = "False".into();
    plane.control_plane.seed(&CLUSTERS, late);
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    wait_until("the work waits for m1", || {
        plane.work("m1", "web").is_some_and(|w| {
            condition(&w, "Dispatching")["status"] == "True" && condition(&w, "Applied").is_null()
        })
    })
    .await;
    assert_eq!(plane.deployment_in_member(0, "web"), None);
    plane.control_plane.seed(&CLUSTERS, cluster("m1"));
    plane.wait_until_applied("web").await;
    plane.tasks.stop().await;
}

// proves: EXE-agent
#[tokio::test]
async fn an_agent_executes_the_works_of_its_cluster_only() {
    let mut plane = PropagationFixture::new();
    for cluster in ["m1", "m2"] {
        plane.control_plane.seed(
            &WORKS,
            json!({"metadata": {"name": "w", "namespace": format!("karmada-es-{cluster}"), "finalizers": [well_known_keys::WORK_FINALIZER]},
                "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "c", "namespace": "n", "labels": {well_known_keys::MANAGED: "true"}}}]}}}),
        );
    }
    let context = plane.context(FeatureGates::default(), None);
    start_agent(&context, "m2").await.unwrap();
    let work = |space: &str| plane.control_plane.get_object(&WORKS, space, "w").unwrap();
    wait_until("m2", || {
        applied_status(&work("karmada-es-m2")) == Some("True")
    })
    .await;
    assert!(
        plane.members[1]
            .get_object(&CONFIG_MAPS, "n", "c")
            .is_some()
    );
    assert_eq!(applied_status(&work("karmada-es-m1")), None);
    assert!(plane.members[0].writes().is_empty());
    plane.tasks.stop().await;
}

/// Otherwise Works of a kind whose CustomResourceDefinition is deleted first would leave their
/// objects behind.
// proves: EXE-unserved
#[tokio::test]
async fn a_work_of_a_kind_that_is_no_longer_served_deletes_its_object() {
    let mut plane = PropagationFixture::new();
    let maps = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]});
    plane.control_plane.seed(&POLICIES, policy(maps));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}});
    plane.control_plane.seed(&CONFIG_MAPS, map);
    plane.start().await;
    let there = |plane: &PropagationFixture, at: usize| {
        plane.members[at]
            .get_object(&CONFIG_MAPS, "n", "c")
            .is_some()
    };
    wait_until("the copies", || there(&plane, 0) && there(&plane, 1)).await;
    plane.tasks.stop().await;
    plane.control_plane.remove_resource(&CONFIG_MAPS);
    serve(&plane.members[0], &CONFIG_MAPS, "ConfigMap", true);
    plane.start().await;
    let work = karmada_api::names::work_name("ConfigMap", "c", "n");
    for cluster in ["m1", "m2"] {
        let space = format!("karmada-es-{cluster}");
        let at = ResourcePath::object(&WORKS, &space, &work);
        let options = DeleteOptions::default();
        plane.control_plane.delete(at, &options).await.unwrap();
        let deleted = || {
            plane
                .control_plane
                .get_object(&WORKS, &space, &work)
                .is_none()
        };
        wait_until("the work to go", deleted).await;
    }
    assert!(!there(&plane, 0), "the member says what the kind is");
    assert!(there(&plane, 1), "it does not know the kind either");
    plane.tasks.stop().await;
}

// proves: OVR-cluster-first, BND-override-events
#[tokio::test]
async fn a_new_policy_that_selects_by_an_overridden_label_is_applied() {
    let plane = PropagationFixture::new();
    let overriding = |name: &str, namespace: &str, selector: serde_json::Value, path: &str| {
        let overriders =
            json!({"plaintext": [{"path": path, "operator": "add", "value": {"made": "yes"}}]});
        json!({"metadata": {"name": name, "namespace": namespace, "generation": 1},
            "spec": {"resourceSelectors": [selector], "overrideRules": [{"overriders": overriders}]}})
    };
    let all = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    let wide = overriding("labels", "", all, "/metadata/labels");
    plane.control_plane.seed(&CLUSTER_OVERRIDES, wide);
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    let plane = plane.started().await;
    plane.wait_until_applied("web").await;
    let labeled_deployments = json!({"apiVersion": "apps/v1", "kind": "Deployment", "labelSelector": {"matchLabels": {"made": "yes"}}});
    let local = overriding(
        "annotations",
        "n",
        labeled_deployments,
        "/metadata/annotations",
    );
    plane.control_plane.seed(&OVERRIDES, local);
    let annotated = |at: usize| {
        let there = plane.deployment_in_member(at, "web").unwrap();
        there["metadata"]["annotations"]["made"] == "yes"
    };
    wait_until("the annotation", || annotated(0) && annotated(1)).await;
    plane.tasks.stop().await;
}

// proves: DET-no-clusters
#[tokio::test]
async fn a_binding_without_clusters_omits_the_list() {
    let plane = PropagationFixture::new();
    let divided = json!({"placement": {"clusterAffinity": {"clusterNames": ["m1", "m2"]},
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"}}});
    plane.control_plane.seed(&POLICIES, policy(divided));
    let scaled_to = |replicas: i64| {
        let mut web = deployment("web");
        web["spec"]["replicas"] = replicas.into();
        let requests = json!({"requests": {"cpu": "1"}});
        web["spec"]["template"]["spec"]["containers"][0]["resources"] = requests;
        web
    };
    plane.control_plane.seed(&DEPLOYMENTS, scaled_to(0));
    let plane = plane.started().await;
    let clusters = || {
        plane
            .binding("web-deployment")
            .map(|b| b["spec"].get("clusters").cloned())
    };
    wait_until("the binding", || clusters().is_some()).await;
    assert_eq!(clusters(), Some(None), "absent, as Karmada leaves it out");
    // Scaled up, the scheduler places it; scaled down to zero, it has no clusters again.
    plane.control_plane.remove(&DEPLOYMENTS, "n", "web");
    let at = ResourcePath::object(&BINDINGS, "n", "web-deployment");
    plane
        .control_plane
        .delete(at, &Default::default())
        .await
        .unwrap();
    wait_until("its end", || plane.binding("web-deployment").is_none()).await;
    plane.control_plane.seed(&DEPLOYMENTS, scaled_to(4));
    wait_until("placed", || clusters().is_some_and(|c| c.is_some())).await;
    plane.edit(&DEPLOYMENTS, "web", |web| {
        web["spec"]["replicas"] = 0.into()
    });
    wait_until("nowhere", || clusters() == Some(None)).await;
    plane.tasks.stop().await;
}
