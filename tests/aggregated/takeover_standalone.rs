//! The move of a Karmada to a standalone Flotilla, with the command killed at each step, and the
//! way back.

use std::collections::BTreeMap;

use harness::api_server_client::{find_condition, wait_until};
use harness::daemon::TestDir;
use harness::objects::{
    BINDINGS, CLUSTERS, CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, NAMESPACES, POLICIES, SECRETS,
    WIDGETS, WORKS, config_map, deployment, widget, widget_definition,
};
use harness::{ApiServerClient, ServerProcess};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::karmada_records::become_karmada;
use crate::aggregated::real_clusters::{BINARY, join_cluster, path_string, run_flotilla};
use crate::aggregated::simulated_member::SimulatedMember;
use crate::aggregated::takeover::{MEMBER, NS, member_versions, propagate, run_with_kills};

/// Resources and a namespace of each in which every object moves.
const MOVED: [(&Gvr, &str); 9] = [
    (&NAMESPACES, ""),
    (&CLUSTERS, ""),
    (&POLICIES, ""),
    (&BINDINGS, ""),
    (&WORKS, ""),
    (&SECRETS, "karmada-cluster"),
    (&DEPLOYMENTS, NS),
    (&WIDGETS, NS),
    (&DEFINITIONS, ""),
];
/// Resources of the old kube-apiserver of the test that Flotilla has in another version.
const LEFT: [&str; 2] = [
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
];
/// The steps that the command prints.
const STEPS: usize = 7;

// proves: TKS-identity, TKS-no-member-write, TKS-controllers, TKS-resumed, TKS-back, TKS-frozen, TKS-left-out, TKS-refused
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn a_karmada_moves_to_a_standalone_flotilla() {
    let Some(mut plane) = AggregatedControlPlane::start().await else {
        return;
    };
    plane.wait_until_available().await;
    let member = SimulatedMember::start(MEMBER).await;
    let kubeconfig = plane.host.kubeconfig.clone();
    join_cluster(&plane.client, &kubeconfig, MEMBER, &member.kubeconfig()).await;
    plane.client.create_namespace(NS).await;
    propagate(&plane.client, &member, &config_map(NS, "kept", "1")).await;
    propagate(&plane.client, &member, &deployment(NS, "web", 2)).await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 2;
    let (karmada, web) = (&plane.client, "web");
    karmada
        .wait_until(&DEPLOYMENTS, NS, web, "ready", ready)
        .await;
    become_karmada(&mut plane).await;
    let karmada = &plane.client;
    create_widget(karmada).await;

    let dir = TestDir::new();
    let path = |name: &str| path_string(&dir.path().join(name));
    let takeover = |arguments: &[&str]| {
        let kubeconfig = path_string(&kubeconfig);
        let all = ["takeover", "--kubeconfig", &kubeconfig].into_iter();
        all.chain(arguments.iter().copied())
            .map(str::to_owned)
            .collect::<Vec<String>>()
    };
    let (file, backup, data) = (path("flotilla.backup"), path("karmada.json"), path("data"));
    let copies = copies(&member).await;
    let mut forward = takeover(&["--to-standalone", &file, "--backup", &backup]);
    for resource in LEFT {
        forward.extend(["--leave", resource].map(str::to_owned));
    }
    assert_eq!(run_with_kills(forward).await, STEPS);
    check_frozen(karmada, true).await;

    run_flotilla(&["restore", &file, "--data-dir", &data]).await;
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", &data];
    let (process, _) = ServerProcess::start(BINARY, &arguments, &dir.path().join("log"));
    let flotilla = ApiServerClient::connect("flotilla", &dir.path().join("data/kubeconfig"));
    check_moved(karmada, &flotilla).await;
    flotilla.wait_until_cluster_ready(MEMBER).await;
    propagate(&flotilla, &member, &config_map(NS, "new", "1")).await;
    check_moved(karmada, &flotilla).await;
    assert_eq!(member_copies_of(&member, &copies).await, copies);
    process.stop();

    let back = takeover(&["--back", "--backup", &backup]);
    let back: Vec<&str> = back.iter().map(String::as_str).collect();
    run_flotilla(&back).await;
    check_frozen(karmada, false).await;
}

type Versions = BTreeMap<String, String>;

/// The versions of the copies in the member and of their namespace.
async fn copies(member: &SimulatedMember) -> Versions {
    let mut versions = member_versions(member).await;
    let namespace = member.server.get(&NAMESPACES, "", NS).await.unwrap();
    let version = namespace["metadata"]["resourceVersion"].to_string();
    versions.insert("namespace".to_owned(), version);
    versions
}

/// The versions of the copies that were there before.
async fn member_copies_of(member: &SimulatedMember, before: &Versions) -> Versions {
    let mut versions = copies(member).await;
    versions.retain(|key, _| before.contains_key(key));
    versions
}

/// An instance of a definition, which a template owns.
async fn create_widget(karmada: &ApiServerClient) {
    let definition = karmada.create(widget_definition()).await;
    let name = definition["metadata"]["name"].as_str().unwrap();
    let established = |d: &Value| find_condition(d, "Established")["status"] == "True";
    karmada
        .wait_until(&DEFINITIONS, "", name, "established", established)
        .await;
    let owner = karmada.get(&CONFIG_MAPS, NS, "kept").await.unwrap();
    let mut object = widget(NS, "w", 1);
    object["metadata"]["finalizers"] = json!(["example.org/kept"]);
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "name": "kept", "uid": owner["metadata"]["uid"]}]);
    wait_until("widgets are served", async || {
        karmada.try_create(object.clone()).await.is_ok()
    })
    .await;
}

/// Writes to what moves are refused, and those of leases are not.
async fn check_frozen(karmada: &ApiServerClient, is_frozen: bool) {
    let name = format!("frozen-{is_frozen}");
    let created = karmada.try_create(config_map(NS, &name, "1")).await;
    match is_frozen {
        true => {
            let error = created.unwrap_err().to_string();
            assert!(error.contains("writes-are-frozen"), "{error}");
        }
        false => drop(created.unwrap()),
    }
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": NS, "name": name}});
    karmada.create(lease).await;
}

/// Everything of Karmada is in Flotilla as it was, but for its version and what controllers report.
async fn check_moved(karmada: &ApiServerClient, flotilla: &ApiServerClient) {
    for (resource, namespace) in MOVED {
        let objects = karmada.list(resource, namespace).await;
        // Karmada's own definitions are built in. The Work of those who may impersonate follows the
        // administrators of the server.
        let is_moved = |o: &&Value| {
            let name = o["metadata"]["name"].as_str().unwrap();
            let is_built_in = *resource == DEFINITIONS
                && [".karmada.io", ".multicluster.x-k8s.io"]
                    .iter()
                    .any(|group| name.ends_with(group));
            !is_built_in && !name.starts_with("karmada-impersonator-")
        };
        let objects: Vec<&Value> = objects.iter().filter(is_moved).collect();
        assert!(!objects.is_empty(), "{resource}");
        for object in objects {
            let meta = &object["metadata"];
            let names = ["namespace", "name"].map(|f| meta[f].as_str().unwrap_or_default());
            let moved = flotilla.get(resource, names[0], names[1]).await;
            let moved = moved.unwrap_or_else(|| panic!("{resource} {names:?} is missing"));
            for field in ["uid", "creationTimestamp", "ownerReferences"] {
                let values = [&moved, object].map(|o| &o["metadata"][field]);
                assert_eq!(values[0], values[1], "{resource} {names:?} {field}");
            }
            // Controllers taint Clusters and label namespaces.
            if ![&CLUSTERS, &NAMESPACES].contains(&resource) {
                assert_eq!(
                    comparable(resource, &moved),
                    comparable(resource, object),
                    "{resource}"
                );
            }
        }
    }
    assert!(
        flotilla
            .get(&DEFINITIONS, "", "works.work.karmada.io")
            .await
            .is_none()
    );
}

/// An object without its status, and what controllers change when the versions of templates are
/// others.
fn comparable(resource: &Gvr, object: &Value) -> Value {
    let mut object = object.clone();
    let fields = object.as_object_mut().unwrap();
    for field in ["apiVersion", "kind", "status"] {
        fields.remove(field);
    }
    let meta = fields["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "managedFields"] {
        meta.remove(field);
    }
    if *resource == BINDINGS {
        object["spec"]["resource"]["resourceVersion"].take();
    }
    if [&BINDINGS, &WORKS].contains(&resource) {
        object["metadata"]["generation"].take();
    }
    remove_nulls(&mut object);
    object
}

/// A field that is null is as one that is absent.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}
