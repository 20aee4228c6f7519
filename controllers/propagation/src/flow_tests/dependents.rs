//! Tests of the dependencies distributor.

use client::{Api, At, DeleteOptions};
use machinery::Gvr;
use openapi::karmada::resources::{BINDINGS, CLUSTERS, POLICIES, WORKS};
use openapi::karmada::{FeatureGates, Gate, labels, names};
use serde_json::{Value, json};

use super::{CONFIG_MAPS, DEPLOYMENTS, Plane, SECRETS, cluster, deployment, policy, serve, until};
use crate::Options;

static IMPORTS: Gvr = Gvr::constant("multicluster.x-k8s.io", "v1alpha1", "serviceimports");
static SLICES: Gvr = Gvr::constant("discovery.k8s.io", "v1", "endpointslices");
static SERVICES: Gvr = Gvr::constant("", "v1", "services");
static INGRESSES: Gvr = Gvr::constant("networking.k8s.io", "v1", "ingresses");

fn with_deps(spec: Value) -> Value {
    let mut made = policy(spec);
    made["spec"]["propagateDeps"] = true.into();
    made
}

/// A Deployment with ConfigMap volumes.
fn needing(name: &str, maps: &[&str]) -> Value {
    let mut made = deployment(name);
    made["spec"]["template"]["spec"]["volumes"] = volumes(maps);
    made
}

fn volumes(maps: &[&str]) -> Value {
    let volume = |map: &&str| json!({"name": map, "configMap": {"name": map}});
    maps.iter().map(volume).collect()
}

fn config_map(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": {"k": data}})
}

impl Plane {
    /// The data of a ConfigMap in both members.
    fn data(&self, name: &str) -> [Value; 2] {
        [0, 1].map(|at| {
            let map = self.members[at].object(&CONFIG_MAPS, "n", name);
            map.unwrap_or_default()["data"]["k"].clone()
        })
    }

    async fn until_data(&self, name: &str, expected: [Value; 2]) {
        let what = format!("{name}: {expected:?}");
        until(&what, || self.data(name) == expected).await;
    }

    fn attached(&self, name: &str) -> Value {
        self.binding(&format!("{name}-configmap"))
            .unwrap_or_default()
    }
}

fn both(data: &str) -> [Value; 2] {
    [json!(data), json!(data)]
}

// proves: FIN-dependencies, DEP-told, DEP-annotation, DEP-finalizer, DEP-attached, DEP-no-placement, DEP-required-clusters, DEP-comes-later, DEP-last-leaves
#[tokio::test]
async fn dependencies_are_propagated_updated_and_deleted_with_their_references() {
    let plane = Plane::telling_events();
    plane.control.seed(&POLICIES, with_deps(json!({})));
    plane.control.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane
        .control
        .seed(&DEPLOYMENTS, needing("web", &["a", "late"]));
    let plane = plane.started().await;
    plane.until_data("a", both("1")).await;

    let binding = plane.binding("web-deployment").unwrap();
    let metadata = &binding["metadata"];
    assert_eq!(
        metadata["annotations"][labels::DEPENDENCIES],
        r#"[{"apiVersion":"v1","kind":"ConfigMap","namespace":"n","name":"a"},{"apiVersion":"v1","kind":"ConfigMap","namespace":"n","name":"late"}]"#
    );
    assert_eq!(
        metadata["finalizers"],
        json!([labels::BINDING_FINALIZER, labels::DEPENDENCIES_FINALIZER])
    );
    let attached = plane.attached("a");
    let key = names::reference_key("n", "web-deployment");
    let label = format!("{}{key}", labels::DEPENDED_BY_PREFIX);
    assert!(attached["metadata"]["labels"][&label].is_string());
    assert_eq!(
        attached["spec"]["requiredBy"],
        json!([{"namespace": "n", "name": "web-deployment", "clusters": binding["spec"]["clusters"]}])
    );
    assert_eq!(attached["spec"].get("placement"), None);

    // A change of the object, and an object that is created later.
    plane.change(&CONFIG_MAPS, "a", |map| map["data"]["k"] = "2".into());
    plane.until_data("a", both("2")).await;
    plane.control.seed(&CONFIG_MAPS, config_map("late", "1"));
    plane.until_data("late", both("1")).await;

    // A changed placement, and another reference.
    plane.change(&POLICIES, "p", |p| {
        p["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m2"]);
    });
    // What the scheduler would do.
    let placed = || {
        let binding = plane.binding("web-deployment").unwrap();
        binding["spec"]["placement"]["clusterAffinity"]["clusterNames"] == json!(["m2"])
    };
    until("the placement", placed).await;
    plane.change(&BINDINGS, "web-deployment", |b| {
        b["spec"]["clusters"] = json!([{"name": "m2", "replicas": 4}]);
    });
    plane.until_data("a", [Value::Null, json!("2")]).await;
    plane.change(&DEPLOYMENTS, "web", |d| {
        d["spec"]["template"]["spec"]["volumes"] = volumes(&["late"]);
    });
    plane.until_data("a", [Value::Null, Value::Null]).await;
    plane.until_data("late", [Value::Null, json!("1")]).await;
    let left = plane.attached("a");
    assert_eq!(left["spec"].get("requiredBy"), None);
    assert_eq!(left["spec"].get("conflictResolution"), None);
    assert_eq!(left["metadata"]["labels"], Value::Null);

    until("the events", || {
        !plane.told("GetDependenciesSucceed").is_empty()
            && !plane
                .told("SyncScheduleResultToDependenciesSucceed")
                .is_empty()
    })
    .await;
    let events = plane.told("GetDependenciesSucceed");
    let text = "Get dependencies([{APIVersion:v1 Kind:ConfigMap Namespace:n Name:a LabelSelector:nil} \
        {APIVersion:v1 Kind:ConfigMap Namespace:n Name:late LabelSelector:nil}]) succeed.";
    assert!(events.iter().any(|t| t == text), "{events:?}");
    plane.tasks.stop().await;
}

// proves: FIN-dependencies, DEP-shared, DEP-conflict-resolution, DEP-preserve, DEP-conflict-told, DEP-switched-off, DEP-deleted, DEP-last-leaves
#[tokio::test]
async fn a_shared_dependency_merges_the_preferences_of_its_bindings() {
    let plane = Plane::telling_events().started().await;
    let select = |name: &str, spec: Value| {
        let mut made = with_deps(spec);
        made["metadata"]["name"] = name.into();
        made["metadata"]["labels"][labels::POLICY_ID] = name.into();
        made["spec"]["resourceSelectors"][0]["name"] = name.into();
        made
    };
    let one = json!({"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}});
    let two = json!({"placement": {"clusterAffinity": {"clusterNames": ["m2"]}},
        "conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true});
    plane.control.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane.control.seed(&POLICIES, select("one", one));
    plane.control.seed(&DEPLOYMENTS, needing("one", &["a"]));
    plane.until_data("a", [json!("1"), Value::Null]).await;
    assert_eq!(plane.attached("a")["spec"]["conflictResolution"], "Abort");
    plane.control.seed(&POLICIES, select("two", two));
    plane.control.seed(&DEPLOYMENTS, needing("two", &["a"]));
    plane.until_data("a", both("1")).await;
    let shared = plane.attached("a");
    assert_eq!(shared["spec"]["conflictResolution"], "Overwrite");
    assert_eq!(shared["spec"]["preserveResourcesOnDeletion"], true);
    assert_eq!(shared["spec"]["requiredBy"].as_array().unwrap().len(), 2);
    let text = "Dependency policy conflict detected: ConflictResolution conflicted (Overwrite vs Abort); \
        PreserveResourcesOnDeletion conflicted (true vs false).";
    until("the warning", || {
        plane
            .told("DependencyPolicyConflict")
            .iter()
            .any(|t| t == text)
    })
    .await;

    // The second no longer propagates dependencies.
    plane.change(&POLICIES, "two", |p| {
        p["spec"]["propagateDeps"] = false.into()
    });
    let alone = || {
        let spec = plane.attached("a")["spec"].clone();
        spec["requiredBy"]
            .as_array()
            .is_some_and(|r| r.len() == 1 && r[0]["name"] == "one-deployment")
            && spec["conflictResolution"] == "Abort"
            && spec["preserveResourcesOnDeletion"] == false
    };
    until("one alone", alone).await;
    let finalizers = || plane.binding("two-deployment").unwrap()["metadata"]["finalizers"].clone();
    until("finalizer removed", || {
        finalizers() == json!([labels::BINDING_FINALIZER])
    })
    .await;

    // The first is deleted.
    plane.control.remove(&DEPLOYMENTS, "n", "one");
    let at = At::one(&BINDINGS, "n", "one-deployment");
    let _ = plane.control.delete(at, &DeleteOptions::default()).await;
    until("its binding's end", || {
        plane.binding("one-deployment").is_none()
    })
    .await;
    until("detached", || {
        plane.attached("a")["spec"].get("requiredBy").is_none()
    })
    .await;
    let works = || plane.control.objects(&WORKS);
    until("no works", || {
        works()
            .iter()
            .all(|w| w["metadata"]["annotations"][labels::BINDING_NAME] != "a-configmap")
    })
    .await;
    plane.tasks.stop().await;
}

// proves: DEP-own-policy, DEP-annotation
#[tokio::test]
async fn a_policy_of_a_dependency_adds_its_clusters() {
    let plane = Plane::new().started().await;
    let mut of_map = policy(
        json!({"placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]}),
    );
    of_map["metadata"]["name"] = "maps".into();
    of_map["metadata"]["labels"][labels::POLICY_ID] = "maps".into();
    plane.control.seed(&POLICIES, of_map);
    plane.control.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane.until_data("a", [json!("1"), Value::Null]).await;
    plane.control.seed(
        &POLICIES,
        with_deps(json!({"placement": {"clusterAffinity": {"clusterNames": ["m2"]}}, "conflictResolution": "Overwrite"})),
    );
    plane.control.seed(&DEPLOYMENTS, needing("web", &["a"]));
    plane.until_data("a", both("1")).await;
    let spec = plane.attached("a")["spec"].clone();
    assert_eq!(spec["conflictResolution"], "Abort", "its own policy's");
    assert_eq!(spec["clusters"], json!([{"name": "m1"}]));
    plane.change(&DEPLOYMENTS, "web", |d| {
        d["spec"]["template"]["spec"]["volumes"] = json!([]);
    });
    plane.until_data("a", [json!("1"), Value::Null]).await;
    assert_eq!(
        plane.binding("web-deployment").unwrap()["metadata"]["annotations"][labels::DEPENDENCIES],
        "null"
    );
    plane.tasks.stop().await;
}

#[tokio::test]
async fn kinds_that_are_no_templates_are_watched_when_a_template_refers_to_them() {
    let mut plane = Plane::new();
    let mut web = deployment("web");
    web["spec"]["template"]["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
    plane.control.seed(&DEPLOYMENTS, web);
    plane.control.seed(&POLICIES, with_deps(json!({})));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", "namespace": "n"}, "data": {"k": "MQ=="}});
    let options = Options {
        skipped_apis: vec!["v1/Secret".into()],
        ..Options::default()
    };
    plane.start_with(options, None).await;
    plane.applied("web").await;
    let has = |data: &str| {
        let there = |m: &std::sync::Arc<client::fake::FakeApi>| {
            m.object(&SECRETS, "n", "pull")
                .is_some_and(|s| s["data"]["k"] == data)
        };
        plane.members.iter().all(there)
    };
    plane.control.seed(&SECRETS, secret);
    until("the secret", || has("MQ==")).await;
    plane.change(&SECRETS, "pull", |s| s["data"]["k"] = "Mg==".into());
    until("its change", || has("Mg==")).await;
    plane.tasks.stop().await;
}

// proves: DEP-gate
#[tokio::test]
async fn a_restart_and_a_disabled_feature_write_nothing() {
    let mut plane = Plane::new();
    plane.control.seed(&POLICIES, with_deps(json!({})));
    plane.control.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane.control.seed(&DEPLOYMENTS, needing("web", &["a"]));
    plane.start().await;
    plane.until_data("a", both("1")).await;
    plane.applied("web").await;
    let settled = || {
        let works = plane.control.objects(&WORKS);
        works
            .iter()
            .filter(|w| w["metadata"]["annotations"][labels::BINDING_NAME] == "a-configmap")
            .filter(|w| super::applied(w) == Some("True"))
            .count()
            == 2
    };
    until("all applied", settled).await;
    plane.tasks.stop().await;
    let mut same = plane.control.object(&CONFIG_MAPS, "n", "a").unwrap();
    same["status"] = json!({"seen": true});
    plane.control.seed(&CONFIG_MAPS, same);
    plane.control.clear_writes();
    plane.members.iter().for_each(|m| m.clear_writes());
    plane.start().await;
    plane.control.seed(&CONFIG_MAPS, config_map("b", "1"));
    plane.control.seed(&DEPLOYMENTS, needing("other", &["b"]));
    plane.until_data("b", both("1")).await;
    let ours = |name: &str| name.contains("other") || name.starts_with('b') || name.is_empty();
    let writes = plane.control.writes();
    let rest: Vec<_> = writes.iter().filter(|w| !ours(&w.name)).collect();
    assert!(rest.is_empty(), "{rest:?}");
    plane.tasks.stop().await;

    let options = Options {
        gates: FeatureGates::default().with(Gate::PropagateDeps, false),
        ..Options::default()
    };
    plane.start_with(options, None).await;
    plane.control.seed(&CONFIG_MAPS, config_map("c", "1"));
    plane.control.seed(&DEPLOYMENTS, needing("third", &["c"]));
    plane.applied("third").await;
    assert_eq!(plane.attached("c"), Value::Null);
    plane.tasks.stop().await;
}

fn slice(name: &str, service: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "n", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": []})
}

// proves: DEP-selector, DEP-comes-later
#[tokio::test]
async fn label_selected_dependencies_are_propagated_while_they_match() {
    let plane = Plane::new();
    for (resource, kind) in [
        (&IMPORTS, "ServiceImport"),
        (&SLICES, "EndpointSlice"),
        (&SERVICES, "Service"),
    ] {
        serve(&plane.control, resource, kind, true);
    }
    for name in ["m1", "m2"] {
        let mut serving = cluster(name);
        let kinds = json!([{"kind": "ServiceImport", "name": "serviceimports"}]);
        let enabled = json!({"groupVersion": "multicluster.x-k8s.io/v1alpha1", "resources": kinds});
        let all = serving["status"]["apiEnablements"].as_array_mut().unwrap();
        all.push(enabled);
        plane.control.seed(&CLUSTERS, serving);
    }
    let selector =
        json!([{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport"}]);
    plane
        .control
        .seed(&POLICIES, with_deps(json!({"resourceSelectors": selector})));
    let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": "shop", "namespace": "n"}});
    plane.control.seed(&IMPORTS, import);
    let service = names::derived_service("shop");
    plane.control.seed(&SLICES, slice("a", &service));
    plane.control.seed(&SLICES, slice("b", "other"));
    let plane = plane.started().await;
    let there = |name: &str| {
        let all = plane.members.iter();
        all.map(|m| m.object(&SLICES, "n", name).is_some())
            .collect::<Vec<_>>()
    };
    until("the first", || there("a") == [true, true]).await;
    assert_eq!(there("b"), [false, false]);
    let binding = plane.binding("shop-serviceimport").unwrap();
    let recorded = binding["metadata"]["annotations"][labels::DEPENDENCIES].as_str();
    let recorded: Value = serde_json::from_str(recorded.unwrap()).unwrap();
    assert_eq!(
        recorded[1],
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "namespace": "n",
            "labelSelector": {"matchLabels": {"kubernetes.io/service-name": service}}})
    );
    // One object gets the label, the other loses it.
    for (name, service) in [("b", &*service), ("a", "other")] {
        let label = |slice: &mut Value| {
            slice["metadata"]["labels"]["kubernetes.io/service-name"] = service.into();
        };
        plane.change(&SLICES, name, label);
    }
    until("the exchange", || {
        there("a") == [false, false] && there("b") == [true, true]
    })
    .await;
    let left = plane.binding("a-endpointslice").unwrap();
    assert_eq!(left["spec"].get("requiredBy"), None);
    plane.tasks.stop().await;
}

// proves: DEP-told-failed
#[tokio::test]
async fn invalid_dependencies_record_an_event_on_the_template() {
    let plane = Plane::telling_events();
    serve(&plane.control, &INGRESSES, "Ingress", true);
    let selector = json!([{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}]);
    let made = with_deps(json!({"resourceSelectors": selector}));
    plane.control.seed(&POLICIES, made);
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "n"}, "spec": {"tls": [{"hosts": ["a.b"]}]}});
    plane.control.seed(&INGRESSES, ingress);
    let plane = plane.started().await;
    until("the binding", || plane.binding("web-ingress").is_some()).await;
    plane.change(&BINDINGS, "web-ingress", |b| {
        b["spec"]["clusters"] = json!([{"name": "m1"}]);
    });
    let text = "dependencies[0]: Invalid value: v1 of kind Secret: dependency can not leave name and labelSelector all empty";
    until("the failure", || {
        plane
            .told("GetDependenciesFailed")
            .iter()
            .any(|t| t == text)
    })
    .await;
    assert!(plane.told("GetDependenciesSucceed").is_empty());
    plane.tasks.stop().await;
}

// proves: DEP-told-failed, DEP-foreign
#[tokio::test]
async fn a_binding_of_an_earlier_object_is_reported_and_waited_for() {
    let plane = Plane::telling_events();
    let earlier = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "a-configmap", "namespace": "n", "generation": 1, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "earlier", "controller": true}]},
        "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "a"}}});
    plane.control.seed(&BINDINGS, earlier);
    plane.control.seed(&POLICIES, with_deps(json!({})));
    plane.control.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane.control.seed(&DEPLOYMENTS, needing("web", &["a"]));
    let plane = plane.started().await;
    let text = "failed to update resourceBinding(n/a-configmap) due to different owner reference UID, \
        will try again later after binding is garbage collected";
    until("the failure", || {
        let events = plane.told("SyncScheduleResultToDependenciesFailed");
        events.iter().any(|t| t == text)
    })
    .await;
    plane.control.remove(&BINDINGS, "n", "a-configmap");
    plane.until_data("a", both("1")).await;
    plane.tasks.stop().await;
}
