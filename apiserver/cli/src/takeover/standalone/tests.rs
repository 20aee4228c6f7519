//! Tests of the move over a server in memory.

use std::sync::Arc;
use std::time::Duration;

use client::ApiResource;
use client_fake::FakeApi;
use karmada_api::FeatureGates;
use serde_json::{Value, json};

use super::*;
use crate::scheduler_flags::SchedulerFlagValues;

/// An object of a resource `group/version/plural`, with its identity.
fn object(kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"kind": kind, "metadata": {"name": name, "uid": format!("uid-{name}"),
        "creationTimestamp": "2020-01-02T03:04:05Z", "resourceVersion": "7"}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

/// A Karmada that serves a resource with these objects.
fn serve(karmada: &FakeApi, path: &str, kind: &str, objects: &[Value]) {
    let parts: Vec<&str> = path.split('/').collect();
    let [group, version, resource] = parts[..] else {
        panic!("{path}");
    };
    let root = match group {
        "" => format!("/api/{version}"),
        _ => format!("/apis/{group}/{version}"),
    };
    let body = json!({"metadata": {"resourceVersion": "9"}, "items": objects});
    karmada.set_raw_body(
        &format!("{root}/{resource}?limit=250"),
        body.to_string().into_bytes(),
    );
    karmada.add_resource(ApiResource {
        resource: Gvr::new(group.to_owned(), version.to_owned(), resource.to_owned()),
        kind: kind.to_owned(),
        namespaced: objects
            .iter()
            .any(|o| o["metadata"]["namespace"].is_string()),
        verbs: ["list", "create"].map(str::to_owned).to_vec(),
        subresources: Vec::new(),
        categories: Vec::new(),
        short_names: Vec::new(),
    });
}

fn definition(group: &str, plural: &str, kind: &str) -> Value {
    let names = json!({"plural": plural, "kind": kind, "singular": kind.to_lowercase(),
        "listKind": format!("{kind}List")});
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "r",
        "message": "m", "lastTransitionTime": "2020-01-02T03:04:05Z"})
    };
    let mut definition = object("CustomResourceDefinition", "", &format!("{plural}.{group}"));
    definition["spec"] = json!({"group": group, "scope": "Namespaced", "names": names,
        "conversion": {"strategy": "None"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]});
    definition["status"] = json!({"acceptedNames": names, "storedVersions": ["v1"],
        "conditions": [condition("NamesAccepted"), condition("Established")]});
    definition
}

/// A Karmada with a template, an instance of a definition, and what does not move.
fn karmada() -> Arc<FakeApi> {
    let karmada = FakeApi::new();
    serve(
        &karmada,
        "apiextensions.k8s.io/v1/customresourcedefinitions",
        "CustomResourceDefinition",
        &[
            definition("example.com", "widgets", "Widget"),
            definition("work.karmada.io", "works", "Work"),
        ],
    );
    let maps = [
        object("ConfigMap", "a", "web"),
        object("ConfigMap", "a", "kube-root-ca.crt"),
    ];
    serve(&karmada, "/v1/configmaps", "ConfigMap", &maps);
    serve(
        &karmada,
        "/v1/events",
        "Event",
        &[object("Event", "a", "e")],
    );
    serve(
        &karmada,
        "example.com/v1/widgets",
        "Widget",
        &[object("Widget", "a", "w")],
    );
    karmada
}

async fn read(karmada: &FakeApi, left: &[&str]) -> anyhow::Result<MovedContent> {
    let left: Vec<String> = left.iter().map(|l| (*l).to_owned()).collect();
    let options = ReadOptions {
        drops_unknown_fields: false,
        left: &left,
    };
    MovedContent::read(karmada, &options).await
}

// proves: TKS-definitions, TKS-left-out, TKS-identity
#[tokio::test]
async fn definitions_come_before_their_instances_and_what_servers_make_stays() {
    let karmada = karmada();
    let content = read(&karmada, &[]).await.unwrap();
    assert_eq!(content.errors, [""; 0]);
    let moved = content.snapshot.resources.iter();
    let moved: Vec<String> = moved
        .flat_map(|r| {
            r.objects
                .keys()
                .map(|key| format!("{} {key}", r.resource.resource))
        })
        .collect();
    let expected = [
        "customresourcedefinitions widgets.example.com",
        "configmaps a/web",
        "widgets a/w",
    ];
    assert_eq!(moved, expected);
    assert_eq!(content.differences().await.unwrap(), [""; 0]);
    let widgets = Gvr::new("example.com", "v1", "widgets");
    let stored = content.store.get(&widgets, "a", "w").await.unwrap();
    assert_eq!(stored["metadata"]["uid"], "uid-w");
    assert_eq!(karmada.writes(), []);
}

// proves: TKS-refused
#[tokio::test]
async fn resources_that_flotilla_does_not_serve_are_named_unless_they_are_left() {
    let karmada = karmada();
    serve(
        &karmada,
        "other.example.com/v1/things",
        "Thing",
        &[object("Thing", "a", "t")],
    );
    serve(&karmada, "other.example.com/v1/nothings", "Nothing", &[]);
    let mut gadgets = definition("example.com", "gadgets", "Gadget");
    let versions = gadgets["spec"]["versions"].as_array_mut().unwrap();
    let mut older = versions[0].clone();
    older["name"] = "v1beta1".into();
    older["storage"] = false.into();
    versions[0]["served"] = false.into();
    versions.push(older);
    let path = "apiextensions.k8s.io/v1/customresourcedefinitions";
    serve(&karmada, path, "CustomResourceDefinition", &[gadgets]);
    let path = "example.com/v1beta1/gadgets";
    serve(&karmada, path, "Gadget", &[object("Gadget", "a", "g")]);
    karmada.set_raw_body("/apis/example.com/v1/widgets?limit=250", b"{}".to_vec());
    serve(
        &karmada,
        "apps/v1beta1/deployments",
        "Deployment",
        &[object("Deployment", "a", "d")],
    );
    let mut schema = object("FlowSchema", "", "exempt");
    schema["metadata"]["annotations"] = json!({"apf.kubernetes.io/autoupdate-spec": "true"});
    let path = "flowcontrol.apiserver.k8s.io/v1beta1/flowschemas";
    serve(&karmada, path, "FlowSchema", &[schema]);
    let errors = read(&karmada, &[]).await.unwrap().errors;
    assert_eq!(errors.len(), 3, "{errors:#?}");
    for (error, parts) in errors.iter().zip([
        [
            "1 deployments.apps",
            "stores version v1, and Karmada serves v1beta1 only",
        ],
        [
            "1 gadgets.example.com",
            "stores version v1, which it does not serve",
        ],
        [
            "1 things.other.example.com",
            "--leave things.other.example.com",
        ],
    ]) {
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let left = [
        "things.other.example.com",
        "deployments.apps",
        "gadgets.example.com",
    ];
    let content = read(&karmada, &left).await.unwrap();
    assert_eq!(content.errors, [""; 0]);
    assert_eq!(content.notes.len(), 3);
    let error = read(&karmada, &["thing.example.com"]).await.err().unwrap();
    assert!(
        error.to_string().contains("--leave thing.example.com"),
        "{error}"
    );
}

/// A binding of a template `apiVersion kind`, in the namespace of that.
fn binding(name: &str, of: &str, namespace: &str, template: &str) -> Value {
    let (api_version, kind) = of.split_once(' ').unwrap();
    let binding_kind = match namespace {
        "" => "ClusterResourceBinding",
        _ => "ResourceBinding",
    };
    let mut binding = object(binding_kind, namespace, name);
    binding["spec"] = json!({"resource": {"apiVersion": api_version, "kind": kind,
        "namespace": namespace, "name": template}});
    binding
}

// proves: TKS-left-templates
#[tokio::test]
async fn a_binding_whose_template_stays_behind_stops_the_move() {
    let karmada = karmada();
    let mut token = object("Secret", "a", "token");
    token["type"] = "kubernetes.io/service-account-token".into();
    serve(&karmada, "/v1/secrets", "Secret", &[token]);
    let mut role = object("ClusterRole", "", "edit");
    role["metadata"]["labels"] = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    let path = "rbac.authorization.k8s.io/v1/clusterroles";
    serve(&karmada, path, "ClusterRole", &[role]);
    let mut deleting = binding("gone", "v1 ConfigMap", "a", "gone");
    deleting["metadata"]["deletionTimestamp"] = "2020-01-02T03:04:05Z".into();
    deleting["metadata"]["finalizers"] = json!(["karmada.io/binding-controller"]);
    let bindings = [
        binding("web-configmap", "v1 ConfigMap", "a", "web"),
        binding("w-widget", "example.com/v1 Widget", "a", "w"),
        binding("ca-configmap", "v1 ConfigMap", "a", "kube-root-ca.crt"),
        binding("token-secret", "v1 Secret", "a", "token"),
        deleting,
    ];
    let path = "work.karmada.io/v1alpha2/resourcebindings";
    serve(&karmada, path, "ResourceBinding", &bindings);
    let role = "rbac.authorization.k8s.io/v1 ClusterRole";
    let bindings = [
        binding("edit-clusterrole", role, "", "edit"),
        binding(
            "works-definition",
            "apiextensions.k8s.io/v1 CustomResourceDefinition",
            "",
            "works.work.karmada.io",
        ),
    ];
    let path = "work.karmada.io/v1alpha2/clusterresourcebindings";
    serve(&karmada, path, "ClusterResourceBinding", &bindings);
    let always = [
        "ClusterResourceBinding edit-clusterrole: its template ClusterRole edit does not",
        "ClusterResourceBinding works-definition: its template CustomResourceDefinition works.",
        "ResourceBinding a/ca-configmap: its template ConfigMap a/kube-root-ca.crt does not",
        "ResourceBinding a/token-secret: its template Secret a/token does not",
    ];
    let widget = "ResourceBinding a/w-widget: its template Widget a/w does not move";
    for (left, expected) in [
        (vec![], always.to_vec()),
        (
            vec!["widgets.example.com"],
            [&always[..], &[widget]].concat(),
        ),
    ] {
        let errors = read(&karmada, &left).await.unwrap().errors;
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, start) in errors.iter().zip(expected) {
            assert!(error.starts_with(start), "{error}");
        }
    }
}

// proves: TKS-left-templates
#[tokio::test]
async fn a_dependent_whose_owner_stays_behind_stops_the_move() {
    let karmada = karmada();
    let owned = |name: &str, owners: &[(&str, &str)]| {
        let owners = owners.iter().map(|(of, uid)| {
            let (api_version, kind) = of.split_once(' ').unwrap();
            json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": uid})
        });
        let mut object = object("ConfigMap", "a", name);
        object["metadata"]["ownerReferences"] = owners.collect();
        object
    };
    let (widget, map) = ("example.com/v1 Widget", "v1 ConfigMap");
    let maps = [
        owned("of-map", &[(map, "uid-of-both")]),
        owned("of-none", &[(map, "uid-other")]),
        owned("of-both", &[(widget, "uid-w"), (map, "uid-of-map")]),
        owned("of-widget", &[(widget, "uid-w")]),
        // Nobody serves the kind.
        owned("of-unserved", &[("example.com/v1 Unserved", "uid-x")]),
    ];
    serve(&karmada, "/v1/configmaps", "ConfigMap", &maps);
    let none = "ConfigMap a/of-none: its owner ConfigMap o does not move";
    let widget = "ConfigMap a/of-widget: its owner Widget o does not move";
    for (left, expected) in [
        (vec![], vec![none]),
        (vec!["widgets.example.com"], vec![none, widget]),
    ] {
        let errors = read(&karmada, &left).await.unwrap().errors;
        assert_eq!(errors.len(), expected.len(), "{errors:#?}");
        for (error, start) in errors.iter().zip(expected) {
            assert!(error.starts_with(start), "{error}");
        }
    }
}

// proves: TKS-left-templates
#[tokio::test]
async fn what_flotilla_has_itself_cannot_be_left() {
    let karmada = karmada();
    for left in [
        "configmaps",
        "customresourcedefinitions.apiextensions.k8s.io",
    ] {
        let error = read(&karmada, &[left]).await.err().unwrap().to_string();
        assert!(error.starts_with(&format!("--leave {left}: ")), "{error}");
    }
}

// proves: TKS-definitions
#[tokio::test]
async fn definitions_that_the_new_server_brings_itself_keep_their_identity() {
    let karmada = karmada();
    let group = "multicluster.x-k8s.io";
    let mut exports = definition(group, "serviceexports", "ServiceExport");
    exports["spec"]["versions"][0]["name"] = "v1alpha1".into();
    exports["status"]["storedVersions"] = json!(["v1alpha1"]);
    let path = "apiextensions.k8s.io/v1/customresourcedefinitions";
    serve(
        &karmada,
        path,
        "CustomResourceDefinition",
        &[exports, definition("example.com", "widgets", "Widget")],
    );
    let mut export = object("ServiceExport", "a", "s");
    export["metadata"]["uid"] = "uid-s".into();
    let path = "multicluster.x-k8s.io/v1alpha1/serviceexports";
    serve(&karmada, path, "ServiceExport", &[export]);
    let content = read(&karmada, &[]).await.unwrap();
    assert_eq!(content.errors, [""; 0]);
    assert_eq!(content.differences().await.unwrap(), [""; 0]);
    let definitions = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let name = "serviceexports.multicluster.x-k8s.io";
    let stored = content.store.get(&definitions, "", name).await.unwrap();
    assert_eq!(stored["metadata"]["uid"], format!("uid-{name}"));
}

// proves: TKS-refused
#[tokio::test]
async fn objects_that_flotilla_refuses_are_named() {
    let karmada = karmada();
    let mut deployment = object("Deployment", "a", "d");
    deployment["spec"] = json!({"unknown": 1});
    serve(&karmada, "apps/v1/deployments", "Deployment", &[deployment]);
    let errors = read(&karmada, &[]).await.unwrap().errors;
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert!(errors[0].contains("deployments \"a/d\": "), "{errors:?}");
    assert!(errors[0].contains("spec.unknown"), "{errors:?}");
}

// proves: TKS-back
#[test]
fn a_later_run_knows_the_replicas_that_an_earlier_one_took() {
    let deployment = |name: &str, replicas: i64| ScaledDeployment {
        namespace: "k".into(),
        name: name.into(),
        replicas,
    };
    for (current, earlier, expected) in [
        (vec![deployment("a", 2)], vec![], vec![deployment("a", 2)]),
        (
            vec![deployment("a", 0)],
            vec![deployment("a", 2)],
            vec![deployment("a", 2)],
        ),
        (
            vec![deployment("a", 3)],
            vec![deployment("a", 2)],
            vec![deployment("a", 3)],
        ),
        (vec![], vec![deployment("a", 2)], vec![deployment("a", 2)]),
    ] {
        assert_eq!(with_earlier_replicas(current, &earlier), expected);
    }
}

// proves: TKS-in-place
#[tokio::test]
async fn a_karmada_that_was_taken_over_in_place_is_not_moved() {
    let karmada = karmada();
    let session = TakeoverSession {
        host: karmada.clone(),
        namespace: "f".into(),
        timeout: Duration::ZERO,
        run: "1".into(),
    };
    let components = KarmadaComponents::new(&session, "k", &[], None, &tasks()).unwrap();
    let options = TakeOverOptions {
        allow_changes: false,
        watch: Duration::ZERO,
        scheduling: SchedulerFlagValues::default(),
        gates: FeatureGates::default(),
    };
    let standalone = StandaloneMove {
        session: &session,
        components: &components,
        options: &options,
        left: &[],
    };
    standalone.check_not_taken_over().await.unwrap();
    let mut record = session.claim(|_| Ok(())).await.unwrap();
    session
        .stand_still(&mut record, TakeoverPhase::Serve)
        .await
        .unwrap();
    let error = standalone.check_not_taken_over().await.unwrap_err();
    assert!(error.to_string().contains("give it back first"), "{error}");
}

// proves: TKS-refused
#[test]
fn files_that_would_replace_each_other_or_have_no_directory_are_refused() {
    let dir = std::env::temp_dir().join("flotilla-standalone");
    std::fs::create_dir_all(&dir).unwrap();
    let path = |name: &str| dir.join(name);
    check_files(&path("backup"), &path("file")).unwrap();
    for (backup, file, part) in [
        ("one", "./one", "name the same file"),
        ("backup", "missing/file", "the directory of"),
        ("missing/backup", "file", "the directory of"),
        ("backup", ".", "is a directory"),
    ] {
        let error = check_files(&path(backup), &path(file)).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(part), "{backup} {file}: {error}");
    }
}

fn tasks() -> client::TaskGroup {
    client::TaskGroup::new(client::ShutdownToken::new())
}
