//! Tests of the takeover with a host, a control plane and a member in memory.

use std::sync::Arc;
use std::time::Duration;

use client::ApiResource;
use client_fake::FakeApi;
use clusters::JoinSpec;
use karmada_api::resources::CLUSTERS;
use karmada_api::well_known_keys::CONTROL_PLANE_ID;
use machinery::Gvr;
use serde_json::{Value, json};

use super::member_clusters::{KubefedCluster, check_unmanaged};
use super::{controller_lease, copies, host_objects, manifests, placed_templates};
use crate::convert::kubefed;

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
static FEDERATED_CONFIG_MAPS: Gvr =
    Gvr::from_static("types.kubefed.io", "v1beta1", "federatedconfigmaps");
static FEDERATED_NAMESPACES: Gvr =
    Gvr::from_static("types.kubefed.io", "v1beta1", "federatednamespaces");
static TYPE_CONFIGS: Gvr = Gvr::from_static("core.kubefed.io", "v1beta1", "federatedtypeconfigs");
static PROPAGATED_VERSIONS: Gvr =
    Gvr::from_static("core.kubefed.io", "v1alpha1", "propagatedversions");
const NAMESPACE: &str = "kube-federation-system";

fn resource(gvr: &Gvr, kind: &str) -> ApiResource {
    ApiResource {
        resource: gvr.clone(),
        kind: kind.to_owned(),
        namespaced: true,
        verbs: vec!["list".to_owned()],
        subresources: vec![],
        categories: vec![],
        short_names: vec![],
    }
}

/// A host with a federated ConfigMap and its namespace.
fn host() -> Arc<FakeApi> {
    let host = FakeApi::new();
    for (gvr, kind) in [
        (&FEDERATED_CONFIG_MAPS, "FederatedConfigMap"),
        (&FEDERATED_NAMESPACES, "FederatedNamespace"),
        (&TYPE_CONFIGS, "FederatedTypeConfig"),
        (&PROPAGATED_VERSIONS, "PropagatedVersion"),
    ] {
        host.add_resource(resource(gvr, kind));
    }
    host.seed(
        &TYPE_CONFIGS,
        json!({"apiVersion": "core.kubefed.io/v1beta1", "kind": "FederatedTypeConfig",
            "metadata": {"namespace": NAMESPACE, "name": "configmaps"},
            "spec": {"propagation": "Enabled", "targetType": {"version": "v1", "kind": "ConfigMap"},
                "federatedType": {"group": "types.kubefed.io", "version": "v1beta1", "kind": "FederatedConfigMap"}}}),
    );
    host.seed(
        &PROPAGATED_VERSIONS,
        json!({"apiVersion": "core.kubefed.io/v1alpha1", "kind": "PropagatedVersion",
            "metadata": {"namespace": "shop", "name": "configmap-settings"}}),
    );
    host.seed(
        &FEDERATED_NAMESPACES,
        json!({"apiVersion": "types.kubefed.io/v1beta1", "kind": "FederatedNamespace",
            "metadata": {"namespace": "shop", "name": "shop"},
            "spec": {"placement": {"clusterSelector": {}}}}),
    );
    host.seed(
        &FEDERATED_CONFIG_MAPS,
        json!({"apiVersion": "types.kubefed.io/v1beta1", "kind": "FederatedConfigMap",
            "metadata": {"namespace": "shop", "name": "settings",
                "finalizers": ["kubefed.io/sync-controller", "example.io/other"]},
            "spec": {"template": {"data": {"color": "blue"}},
                "placement": {"clusters": [{"name": "m1"}]}}}),
    );
    host
}

// proves: TKK-reads, TKK-finalizers
#[tokio::test]
async fn the_objects_of_the_host_are_read_and_released() {
    let host = host();
    let objects = host_objects::read(&*host, NAMESPACE).await.unwrap();
    let kinds: Vec<&str> = objects
        .documents
        .iter()
        .filter_map(|d| d["kind"].as_str())
        .collect();
    let expected = [
        "FederatedTypeConfig",
        "FederatedConfigMap",
        "FederatedNamespace",
    ];
    assert_eq!(kinds, expected);
    let conversion = kubefed::convert(objects.documents).unwrap();
    let placed = placed_templates(&conversion);
    let names: Vec<&str> = placed
        .iter()
        .filter_map(|m| m["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["shop", "settings"]);

    let removed = host_objects::remove_finalizers(&*host, &objects.federated).await;
    assert_eq!(removed.unwrap(), 1);
    let settings = host
        .get_object(&FEDERATED_CONFIG_MAPS, "shop", "settings")
        .unwrap();
    assert_eq!(
        settings["metadata"]["finalizers"],
        json!(["example.io/other"])
    );
    let removed = host_objects::remove_finalizers(&*host, &objects.federated).await;
    assert_eq!(removed.unwrap(), 0);
    let empty = host_objects::read(&*FakeApi::new(), NAMESPACE).await;
    let error = empty.err().unwrap().to_string();
    assert!(error.contains("has no objects of KubeFed"), "{error}");
}

// proves: TKK-lease
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_renewed_is_waited_for() {
    let wait = async |host: &FakeApi| {
        controller_lease::wait_until_released(host, NAMESPACE, Duration::from_secs(60)).await
    };
    let host = FakeApi::new();
    wait(&*host).await.unwrap();
    let lease = |renewed: u64| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": NAMESPACE, "name": "kubefed-controller-manager"},
            "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 15, "renewTime": renewed.to_string()}})
    };
    host.seed(&LEASES, lease(0));
    wait(&*host).await.unwrap();
    let renew = async {
        for renewed in 1.. {
            host.seed(&LEASES, lease(renewed));
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    tokio::select! {
        done = wait(&*host) => {
            let error = done.unwrap_err().to_string();
            assert!(error.contains("pod-1 holds its lock") && error.contains("--replicas=0"), "{error}");
        }
        () = renew => unreachable!(),
    }
    host.remove(&LEASES, NAMESPACE, "kubefed-controller-manager");
    let record = json!({"holderIdentity": "pod-2", "leaseDurationSeconds": 15, "renewTime": "t"});
    let lock = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": NAMESPACE, "name": "kubefed-controller-manager",
            "annotations": {"control-plane.alpha.kubernetes.io/leader": record.to_string()}}});
    host.seed(&CONFIG_MAPS, lock);
    let holders = controller_lease::read_holders(&*host, NAMESPACE)
        .await
        .unwrap();
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].holder, "pod-2");
}

fn config_map(color: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "shop", "name": "settings", "labels": {"app": "shop"}},
        "data": {"color": color}})
}

// proves: TKK-repeated
#[tokio::test]
async fn manifests_that_exist_are_left_alone() {
    let control = FakeApi::new();
    control.add_resource(resource(&CONFIG_MAPS, "ConfigMap"));
    let create = async |manifest: Value| manifests::create_all(&*control, &[manifest]).await;
    assert_eq!(create(config_map("blue")).await.unwrap(), 1);
    control.clear_writes();
    assert_eq!(create(config_map("blue")).await.unwrap(), 0);
    // The fake records writes that fail, too.
    assert!(control.writes().iter().all(|w| w.verb == "create"));
    let error = format!("{:#}", create(config_map("red")).await.unwrap_err());
    assert!(
        error.contains("ConfigMap shop/settings: it exists"),
        "{error}"
    );
    let mut labeled = config_map("blue");
    labeled["metadata"]["labels"]["tier"] = json!("web");
    assert_eq!(create(labeled).await.unwrap(), 0);
    let stored = control
        .get_object(&CONFIG_MAPS, "shop", "settings")
        .unwrap();
    assert_eq!(
        stored["metadata"]["labels"],
        json!({"app": "shop", "tier": "web"})
    );
    assert_eq!(stored["data"]["color"], "blue");
}

// proves: TKK-adopts
#[tokio::test(start_paused = true)]
async fn copies_keep_their_uid_and_lose_the_label() {
    let member = FakeApi::new();
    member.add_resource(resource(&CONFIG_MAPS, "ConfigMap"));
    let copy = |name: &str, uid: &str, labels: Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "shop", "name": name, "uid": uid, "labels": labels}})
    };
    let kubefed = json!({"kubefed.io/managed": "true"});
    member.seed(&CONFIG_MAPS, copy("settings", "u", kubefed.clone()));
    member.seed(&CONFIG_MAPS, copy("other", "o", kubefed.clone()));
    let clusters = [KubefedCluster {
        name: "m1".to_owned(),
        api: member.clone(),
        spec: JoinSpec::default(),
        labels: Value::Null,
    }];
    let template = config_map("blue");
    let list = async || copies::list(&clusters, &[&template]).await.unwrap();
    let wait = async |mut listed: Vec<copies::MemberCopy>| {
        let waited = copies::wait_until_adopted(&clusters, &mut listed, Duration::from_secs(5));
        waited.await.map(|()| listed)
    };
    assert_eq!(list().await.len(), 1);
    let error = wait(list().await).await.err().unwrap().to_string();
    assert!(
        error.contains("1 copies are not adopted, such as ConfigMap shop/settings in cluster m1"),
        "{error}"
    );

    let listed = list().await;
    let managed = json!({"kubefed.io/managed": "true", "karmada.io/managed": "true"});
    member.seed(&CONFIG_MAPS, copy("settings", "u2", managed.clone()));
    let error = wait(listed).await.err().unwrap().to_string();
    assert!(error.contains("was created anew"), "{error}");

    let adopted = wait(list().await).await.unwrap();
    copies::remove_labels(&clusters, &adopted).await.unwrap();
    let labels = |name: &str| {
        let object = member.get_object(&CONFIG_MAPS, "shop", name).unwrap();
        object["metadata"]["labels"].clone()
    };
    assert_eq!(labels("settings"), json!({"karmada.io/managed": "true"}));
    assert_eq!(labels("other"), kubefed);
}

// proves: TKK-joins
#[tokio::test]
async fn a_cluster_of_another_endpoint_is_not_taken_for_the_same() {
    let (control, member) = (FakeApi::new(), FakeApi::new());
    let system = |uid: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": uid}});
    let namespaces = Gvr::from_static("", "v1", "namespaces");
    member.seed(&namespaces, system("id-1"));
    let seed = |endpoint: &str| {
        control.seed(
            &CLUSTERS,
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "m1"},
                "spec": {"syncMode": "Push", "id": "id-1", "apiEndpoint": endpoint}}),
        );
    };
    let cluster = KubefedCluster {
        name: "m1".to_owned(),
        api: member.clone(),
        spec: JoinSpec {
            name: "m1".to_owned(),
            endpoint: "https://m1:6443".to_owned(),
            ..JoinSpec::default()
        },
        labels: json!({"zone": "eu"}),
    };
    seed("https://other:6443");
    let error = cluster.join(&*control).await.unwrap_err().to_string();
    assert!(error.contains("KubeFed's is https://m1:6443"), "{error}");
    seed("https://m1:6443/");
    cluster.join(&*control).await.unwrap();
    let joined = control.get_object(&CLUSTERS, "", "m1").unwrap();
    assert_eq!(joined["metadata"]["labels"]["zone"], "eu");
}

// proves: TKK-managed
#[tokio::test]
async fn a_cluster_of_another_control_plane_is_refused() {
    static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
    static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
    let (control, member) = (FakeApi::new(), FakeApi::new());
    control.seed(
        &NAMESPACES,
        json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "kube-system", "uid": "own"}}),
    );
    let clusters = ["m1", "m2"].map(|name| KubefedCluster {
        name: name.to_owned(),
        api: member.clone(),
        spec: JoinSpec::default(),
        labels: Value::Null,
    });
    let seed_role = |id: &str| {
        member.seed(
            &CLUSTER_ROLES,
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                "metadata": {"name": "karmada-controller-manager:karmada-theirs",
                    "labels": {"karmada.io/system": "true"},
                    "annotations": {CONTROL_PLANE_ID: id}}}),
        );
    };
    seed_role("own");
    check_unmanaged(&*control, &clusters).await.unwrap();
    seed_role("other");
    let error = check_unmanaged(&*control, &clusters).await.unwrap_err();
    let error = error.to_string();
    for name in ["m1", "m2"] {
        let expected = format!(
            "cluster {name}: [ERROR AlreadyManaged]: the control plane other has joined the member as \"theirs\""
        );
        assert!(error.contains(&expected), "{error}");
    }
    assert_eq!((control.writes(), member.writes()), (vec![], vec![]));
}
