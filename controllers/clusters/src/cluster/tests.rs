//! Tests of the cluster controller: what a new Cluster gets, and what its deletion waits
//! for.

use std::time::Duration;

use client::{Api, DeleteOptions, ResourcePath};
use client_fake::FakeApi;
use karmada_api::agents::{
    AGENT_SECRET_NAMESPACE, AgentRbacObject, agent_rbac, karmadactl_agent_rbac,
};
use karmada_api::resources::{BINDINGS, CLUSTERS, WORKS};
use machinery::agent_user::{AGENT_CLUSTER_UID, AGENT_PUBLIC_KEYS, agent_role_name};
use machinery::time::rfc3339_micros;
use serde_json::{Value, json};

use super::monitor::{LEASE_NAMESPACE, LEASES};
use crate::NAMESPACES;
use crate::fixture::{ClustersFixture, cluster, ready_condition, taint_keys};
use crate::join::objects::CLUSTER_ROLES;
use crate::register::{complete_generated_roles, create_agent_roles};

fn finalizers(of: &Value) -> &Value {
    &of["metadata"]["finalizers"]
}

async fn delete(fixture: &ClustersFixture, name: &str) {
    let at = ResourcePath::object(&CLUSTERS, "", name);
    fixture
        .host
        .delete(at, &DeleteOptions::default())
        .await
        .unwrap();
}

// proves: FIN-cluster, NAM-space, LAB-system
#[tokio::test(start_paused = true)]
async fn a_cluster_gets_its_space_and_taints() {
    let fixture = ClustersFixture::start();
    let mut own = cluster("m1", "Push");
    own["spec"]["taints"] = json!([{"key": "own", "effect": "NoExecute"}]);
    own["metadata"]["finalizers"] = json!(["foreign"]);
    fixture.host.seed(&CLUSTERS, own);
    let kept = fixture
        .wait_for_cluster("m1", |c| taint_keys(c).len() == 2)
        .await;
    assert_eq!(taint_keys(&kept), ["own", "not-ready"]);
    assert_eq!(
        finalizers(&kept),
        &json!(["foreign", "karmada.io/cluster-controller"])
    );
    assert!(kept["spec"]["taints"][1]["timeAdded"].is_string());
    let space = fixture.execution_space("m1").unwrap();
    assert_eq!(
        space["metadata"]["labels"],
        json!({"karmada.io/system": "true"})
    );
    // A deleted execution space is created again.
    fixture.host.remove(&NAMESPACES, "", "karmada-es-m1");
    fixture.wait_until_idle().await;
    assert!(fixture.execution_space("m1").is_some());
    fixture.tasks.stop().await;
}

#[tokio::test(start_paused = true)]
async fn removing_the_last_taint_removes_the_list() {
    let fixture = ClustersFixture::start();
    fixture.seed_push_cluster("m1");
    let ready = fixture
        .wait_for_cluster("m1", |c| {
            ready_condition(c).0 == "True" && taint_keys(c).is_empty()
        })
        .await;
    assert_eq!(ready["spec"]["taints"], Value::Null);
    fixture.tasks.stop().await;
}

// proves: FIN-cluster
#[tokio::test(start_paused = true)]
async fn a_deletion_waits_for_the_space_and_the_bindings() {
    let fixture = ClustersFixture::start();
    fixture.seed_push_cluster("m1");
    fixture
        .wait_for_cluster("m1", |c| ready_condition(c).0 == "True")
        .await;
    let mut space = fixture.execution_space("m1").unwrap();
    space["metadata"]["finalizers"] = json!(["test"]);
    fixture.host.seed(&NAMESPACES, space);
    let binding = |generation: i64, clusters: Value| {
        json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
               "metadata": {"name": "b", "namespace": "n", "generation": generation},
               "spec": {"resource": {}, "clusters": clusters, "requiredBy": [{"name": "x", "clusters": [{"name": "m1"}]}]}})
    };
    fixture.host.seed(
        &BINDINGS,
        binding(1, json!([{"name": "m1"}, {"name": "m2"}])),
    );
    fixture.wait_until_idle().await;

    delete(&fixture, "m1").await;
    fixture.wait_until_idle().await;
    assert!(fixture.execution_space("m1").unwrap()["metadata"]["deletionTimestamp"].is_string());
    fixture.host.remove(&NAMESPACES, "", "karmada-es-m1");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        fixture.cluster("m1").is_object(),
        "a binding still blocks the deletion"
    );
    fixture
        .host
        .seed(&BINDINGS, binding(2, json!([{"name": "m2"}])));
    fixture.wait_until_idle().await;
    assert!(fixture.cluster("m1").is_null());
    assert_eq!(fixture.execution_space("m1"), None);
    fixture.tasks.stop().await;
}

// proves: AGT-ended
#[tokio::test(start_paused = true)]
async fn the_registration_of_an_agent_ends_with_its_cluster() {
    let fixture = ClustersFixture::start();
    let has_roles = |name: &str| {
        let objects = agent_rbac(name, AGENT_SECRET_NAMESPACE);
        let mut left = objects.iter().map(|object| {
            let stored = fixture
                .host
                .get_object(object.resource, &object.namespace, &object.name);
            stored.is_some()
        });
        left.any(|exists| exists)
    };
    let role = |name: &str| {
        let role = agent_role_name(name);
        fixture.host.get_object(&CLUSTER_ROLES, "", &role)
    };
    for name in ["m1", "m2", "m3"] {
        for object in agent_rbac(name, AGENT_SECRET_NAMESPACE) {
            fixture.host.seed(object.resource, object.body);
        }
    }
    // One is deleted, the finalizer of another is removed, and the third is being registered.
    for name in ["m1", "m2"] {
        fixture.host.seed(&CLUSTERS, cluster(name, "Pull"));
        let with = fixture
            .wait_for_cluster(name, |c| finalizers(c).is_array())
            .await;
        fixture.wait_until_idle().await;
        let role = role(name).unwrap();
        let bound = &role["metadata"]["annotations"][AGENT_CLUSTER_UID];
        assert_eq!(*bound, with["metadata"]["uid"]);
    }
    delete(&fixture, "m1").await;
    fixture.host.remove(&CLUSTERS, "", "m2");
    fixture.host.seed(&CLUSTERS, cluster("m3", "Push"));
    fixture.host.remove(&CLUSTERS, "", "m3");
    tokio::time::sleep(Duration::from_secs(120)).await;
    fixture.wait_until_idle().await;
    assert!(fixture.cluster("m1").is_null());
    assert!(!has_roles("m1"));
    assert!(!has_roles("m2"));
    assert!(has_roles("m3"));
    fixture.tasks.stop().await;
}

// proves: FIN-work-silent
#[tokio::test(start_paused = true)]
async fn a_silent_agent_becomes_unknown_and_its_works_lose_their_finalizers() {
    let fixture = ClustersFixture::start();
    fixture.host.seed(&CLUSTERS, cluster("p1", "Pull"));
    let lease = |at: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "p1", "namespace": LEASE_NAMESPACE}, "spec": {"renewTime": at}})
    };
    let mut silent_cluster = fixture
        .wait_for_cluster("p1", |c| finalizers(c).is_array())
        .await;
    silent_cluster["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
                                            "lastTransitionTime": "2026-01-01T00:00:00Z"},
                                           {"type": "AgentTunnel", "status": "True", "reason": "AgentTunnelOpen", "message": "",
                                            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    fixture.host.seed(&CLUSTERS, silent_cluster);
    for second in 0..6 {
        let now = jiff::Timestamp::from_second(1_767_225_600 + second * 15).unwrap();
        fixture.host.seed(&LEASES, lease(&rfc3339_micros(now)));
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert_eq!(ready_condition(&fixture.cluster("p1")).0, "True");
    }
    let unknown = fixture
        .wait_for_cluster("p1", |c| ready_condition(c).0 == "Unknown")
        .await;
    assert_eq!(ready_condition(&unknown).1, "ClusterStatusUnknown");
    let tunnel = &unknown["status"]["conditions"][1];
    assert_eq!(tunnel["status"], "Unknown", "{tunnel}");
    fixture
        .wait_for_cluster("p1", |c| taint_keys(c) == ["unreachable"])
        .await;

    let work = |name: &str| {
        json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
               "metadata": {"name": name, "namespace": "karmada-es-p1", "finalizers": ["karmada.io/execution-controller", "x"]}})
    };
    let left = |name: &str| {
        fixture
            .host
            .get_object(&WORKS, "karmada-es-p1", name)
            .unwrap()
    };
    fixture.host.seed(&WORKS, work("w"));
    let mut space = fixture.execution_space("p1").unwrap();
    space["metadata"]["finalizers"] = json!(["kubernetes"]);
    fixture.host.seed(&NAMESPACES, space);
    delete(&fixture, "p1").await;
    fixture.wait_until_idle().await;
    assert_eq!(finalizers(&left("w")), &json!(["x"]));
    // A Work created by a controller that has not seen the deletion yet.
    fixture.host.seed(&WORKS, work("late"));
    fixture.wait_until_idle().await;
    assert_eq!(finalizers(&left("late")), &json!(["x"]));
    fixture.host.remove(&NAMESPACES, "", "karmada-es-p1");
    fixture.wait_until_idle().await;
    assert!(fixture.cluster("p1").is_null());
    fixture.tasks.stop().await;
}

// proves: FIN-work-agent
#[tokio::test(start_paused = true)]
async fn the_execution_space_of_a_living_agent_waits_for_its_works() {
    let fixture = ClustersFixture::start();
    fixture.host.seed(&CLUSTERS, cluster("p1", "Pull"));
    let mut ready = fixture
        .wait_for_cluster("p1", |c| finalizers(c).is_array())
        .await;
    ready["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
                                            "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    fixture.host.seed(&CLUSTERS, ready);
    fixture.host.seed(
        &WORKS,
        json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": {"name": "w",
            "namespace": "karmada-es-p1", "finalizers": ["karmada.io/execution-controller"]}}),
    );
    delete(&fixture, "p1").await;
    fixture.wait_until_idle().await;
    let work = || fixture.host.get_object(&WORKS, "karmada-es-p1", "w");
    assert!(work().unwrap()["metadata"]["deletionTimestamp"].is_string());
    let space = fixture.execution_space("p1").unwrap();
    assert!(space["metadata"]["deletionTimestamp"].is_null());
    // The agent has finished.
    fixture.host.remove(&WORKS, "karmada-es-p1", "w");
    fixture.wait_until_idle().await;
    assert_eq!(fixture.execution_space("p1"), None);
    assert!(fixture.cluster("p1").is_null());
    fixture.tasks.stop().await;
}

// proves: AGT-departure
#[tokio::test(start_paused = true)]
async fn the_rights_of_an_agent_end_though_it_keeps_its_cluster() {
    let fixture = ClustersFixture::start();
    let role_of = |name: &str| {
        let role = agent_role_name(name);
        fixture.host.get_object(&CLUSTER_ROLES, "", &role)
    };
    // One agent does not finish its Work, the Works of the other are gone.
    for name in ["p1", "p2"] {
        for object in agent_rbac(name, AGENT_SECRET_NAMESPACE) {
            fixture.host.seed(object.resource, object.body);
        }
        fixture.host.seed(&CLUSTERS, cluster(name, "Pull"));
        let mut ready = fixture
            .wait_for_cluster(name, |c| finalizers(c).is_array())
            .await;
        ready["status"] = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        fixture.host.seed(&CLUSTERS, ready);
        let mut space = fixture.execution_space(name).unwrap();
        space["metadata"]["finalizers"] = json!(["test"]);
        fixture.host.seed(&NAMESPACES, space);
    }
    let kept = ["karmada.io/execution-controller", "x"];
    fixture.host.seed(
        &WORKS,
        json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata":
            {"name": "w", "namespace": "karmada-es-p1", "finalizers": kept}}),
    );
    delete(&fixture, "p1").await;
    delete(&fixture, "p2").await;
    fixture.wait_until_idle().await;
    assert!(fixture.cluster("p2").is_object());
    assert_eq!(role_of("p2"), None);
    let renewal = |second: i64| {
        let now = jiff::Timestamp::from_second(1_767_225_600 + second).unwrap();
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata":
            {"name": "p1", "namespace": LEASE_NAMESPACE}, "spec": {"renewTime": rfc3339_micros(now)}})
    };
    let begun = fixture.started_at.elapsed().as_secs();
    for second in (begun..begun + 14 * 60).step_by(20) {
        fixture.host.seed(&LEASES, renewal(second.cast_signed()));
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(ready_condition(&fixture.cluster("p1")).0, "True");
    assert!(role_of("p1").is_some());
    for second in (begun + 14 * 60..begun + 16 * 60).step_by(20) {
        fixture.host.seed(&LEASES, renewal(second.cast_signed()));
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(ready_condition(&fixture.cluster("p1")).0, "True");
    assert_eq!(role_of("p1"), None);
    let work = fixture.host.get_object(&WORKS, "karmada-es-p1", "w");
    assert_eq!(finalizers(&work.unwrap()), &json!(["x"]));
    assert!(fixture.cluster("p1").is_object());
    fixture.tasks.stop().await;
}

// proves: AGT-former
#[tokio::test]
async fn a_registration_admits_its_own_certificate_from_the_beginning() {
    let host = FakeApi::new();
    create_agent_roles(&*host, "m1", AGENT_SECRET_NAMESPACE, "SHA256=own")
        .await
        .unwrap();
    let role = host.get_object(&CLUSTER_ROLES, "", &agent_role_name("m1"));
    let annotations = role.unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations, json!({AGENT_PUBLIC_KEYS: "SHA256=own"}));
}

// proves: AGT-generator
#[tokio::test]
async fn a_registration_completes_generated_roles() {
    let host = FakeApi::new();
    let generated = |mut object: AgentRbacObject| {
        object.body["rules"] = json!([]);
        object.body["metadata"]["annotations"] = json!({AGENT_PUBLIC_KEYS: ""});
        host.seed(object.resource, object.body);
    };
    let objects = || agent_rbac("m1", AGENT_SECRET_NAMESPACE).into_iter();
    let mut roles = objects().filter(|object| !object.body["rules"].is_null());
    generated(roles.next().unwrap());
    generated(roles.next().unwrap());
    let by_hand = roles.next().unwrap();
    let mut body = by_hand.body;
    body["rules"] = json!([]);
    host.seed(by_hand.resource, body);
    complete_generated_roles(&*host, "m1", AGENT_SECRET_NAMESPACE)
        .await
        .unwrap();
    let mut stored = objects()
        .filter_map(|object| host.get_object(object.resource, &object.namespace, &object.name));
    let [cluster_role, secrets, works] = [(); 3].map(|()| stored.next().unwrap());
    let expected = karmadactl_agent_rbac("m1", AGENT_SECRET_NAMESPACE);
    assert_eq!(cluster_role["rules"], expected[0].body["rules"]);
    assert_eq!(
        cluster_role["metadata"]["annotations"],
        json!({AGENT_PUBLIC_KEYS: ""})
    );
    assert_eq!(secrets["rules"], expected[2].body["rules"]);
    assert!(secrets["metadata"]["annotations"][AGENT_PUBLIC_KEYS].is_null());
    assert_eq!(works["rules"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_never_reported_becomes_unknown() {
    let fixture = ClustersFixture::start();
    fixture.host.seed(&CLUSTERS, cluster("p1", "Pull"));
    let unknown = fixture
        .wait_for_cluster("p1", |c| ready_condition(c).0 == "Unknown")
        .await;
    assert_eq!(ready_condition(&unknown).1, "ClusterStatusNeverUpdated");
    assert!(fixture.started_at.elapsed() > Duration::from_secs(60));
    assert!(fixture.started_at.elapsed() < Duration::from_secs(70));
    fixture.tasks.stop().await;
}
