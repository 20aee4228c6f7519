//! Tests of the dependencies distributor.

use client::{Api, DeleteOptions, ResourcePath};
use karmada_api::resources::{BINDINGS, CLUSTERS, POLICIES, WORKS};
use karmada_api::{FeatureGates, KarmadaFeature, names, well_known_keys};
use machinery::Gvr;
use serde_json::{Value, json};

use super::{
    CONFIG_MAPS, DEPLOYMENTS, PropagationFixture, SECRETS, cluster, deployment, policy, serve,
    wait_until,
};

static IMPORTS: Gvr = Gvr::from_static("multicluster.x-k8s.io", "v1alpha1", "serviceimports");
static SLICES: Gvr = Gvr::from_static("discovery.k8s.io", "v1", "endpointslices");
static SERVICES: Gvr = Gvr::from_static("", "v1", "services");
static INGRESSES: Gvr = Gvr::from_static("networking.k8s.io", "v1", "ingresses");

fn policy_with_dependencies(spec: Value) -> Value {
    let mut object = policy(spec);
    object["spec"]["propagateDeps"] = true.into();
    object
}

/// A Deployment with ConfigMap volumes.
fn deployment_with_volumes(name: &str, maps: &[&str]) -> Value {
    let mut object = deployment(name);
    object["spec"]["template"]["spec"]["volumes"] = volumes(maps);
    object
}

fn volumes(maps: &[&str]) -> Value {
    let volume = |map: &&str| json!({"name": map, "configMap": {"name": map}});
    maps.iter().map(volume).collect()
}

fn config_map(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}, "data": {"k": data}})
}

impl PropagationFixture {
    /// The data of a ConfigMap in both members.
    fn config_map_data(&self, name: &str) -> [Value; 2] {
        [0, 1].map(|at| {
            let map = self.members[at].get_object(&CONFIG_MAPS, "n", name);
            map.unwrap_or_default()["data"]["k"].clone()
        })
    }

    async fn wait_for_data(&self, name: &str, expected: [Value; 2]) {
        let what = format!("{name}: {expected:?}");
        wait_until(&what, || self.config_map_data(name) == expected).await;
    }

    fn attached_binding(&self, name: &str) -> Value {
        self.binding(&format!("{name}-configmap"))
            .unwrap_or_default()
    }
}

fn in_both_members(data: &str) -> [Value; 2] {
    [json!(data), json!(data)]
}

// proves: FIN-dependencies, DEP-event, DEP-annotation, DEP-finalizer, DEP-attached, DEP-no-placement, DEP-required-clusters, DEP-comes-later, DEP-last-leaves
#[tokio::test]
async fn dependencies_are_propagated_updated_and_deleted_with_their_references() {
    let plane = PropagationFixture::with_events();
    plane
        .control_plane
        .seed(&POLICIES, policy_with_dependencies(json!({})));
    plane.control_plane.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane
        .control_plane
        .seed(&DEPLOYMENTS, deployment_with_volumes("web", &["a", "late"]));
    let plane = plane.started().await;
    plane.wait_for_data("a", in_both_members("1")).await;

    let binding = plane.binding("web-deployment").unwrap();
    let metadata = &binding["metadata"];
    assert_eq!(
        metadata["annotations"][well_known_keys::DEPENDENCIES],
        r#"[{"apiVersion":"v1","kind":"ConfigMap","namespace":"n","name":"a"},{"apiVersion":"v1","kind":"ConfigMap","namespace":"n","name":"late"}]"#
    );
    assert_eq!(
        metadata["finalizers"],
        json!([
            well_known_keys::BINDING_FINALIZER,
            well_known_keys::DEPENDENCIES_FINALIZER
        ])
    );
    let attached = plane.attached_binding("a");
    let key = names::binding_reference_key("n", "web-deployment");
    let label = format!("{}{key}", well_known_keys::DEPENDED_BY_PREFIX);
    assert!(attached["metadata"]["labels"][&label].is_string());
    assert_eq!(
        attached["spec"]["requiredBy"],
        json!([{"namespace": "n", "name": "web-deployment", "clusters": binding["spec"]["clusters"]}])
    );
    assert_eq!(attached["spec"].get("placement"), None);

    // A change of the object, and an object that is created later.
    plane.edit(&CONFIG_MAPS, "a", |map| map["data"]["k"] = "2".into());
    plane.wait_for_data("a", in_both_members("2")).await;
    plane
        .control_plane
        .seed(&CONFIG_MAPS, config_map("late", "1"));
    plane.wait_for_data("late", in_both_members("1")).await;

    // A changed placement, and another reference.
    plane.edit(&POLICIES, "p", |p| {
        p["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["m2"]);
    });
    // The work of the scheduler.
    let placed = || {
        let binding = plane.binding("web-deployment").unwrap();
        binding["spec"]["placement"]["clusterAffinity"]["clusterNames"] == json!(["m2"])
    };
    wait_until("the placement", placed).await;
    plane.edit(&BINDINGS, "web-deployment", |b| {
        b["spec"]["clusters"] = json!([{"name": "m2", "replicas": 4}]);
    });
    plane.wait_for_data("a", [Value::Null, json!("2")]).await;
    plane.edit(&DEPLOYMENTS, "web", |d| {
        d["spec"]["template"]["spec"]["volumes"] = volumes(&["late"]);
    });
    plane.wait_for_data("a", [Value::Null, Value::Null]).await;
    plane.wait_for_data("late", [Value::Null, json!("1")]).await;
    let left = plane.attached_binding("a");
    assert_eq!(left["spec"].get("requiredBy"), None);
    assert_eq!(left["spec"].get("conflictResolution"), None);
    assert_eq!(left["metadata"]["labels"], Value::Null);

    wait_until("the events", || {
        !plane.event_messages("GetDependenciesSucceed").is_empty()
            && !plane
                .event_messages("SyncScheduleResultToDependenciesSucceed")
                .is_empty()
    })
    .await;
    let events = plane.event_messages("GetDependenciesSucceed");
    let text = "Get dependencies([{APIVersion:v1 Kind:ConfigMap Namespace:n Name:a LabelSelector:nil} \
        {APIVersion:v1 Kind:ConfigMap Namespace:n Name:late LabelSelector:nil}]) succeed.";
    assert!(events.iter().any(|t| t == text), "{events:?}");
    plane.tasks.stop().await;
}

// proves: FIN-dependencies, DEP-shared, DEP-conflict-resolution, DEP-preserve, DEP-conflict-warning, DEP-switched-off, DEP-deleted, DEP-last-leaves
#[tokio::test]
async fn a_shared_dependency_merges_the_preferences_of_its_bindings() {
    let plane = PropagationFixture::with_events().started().await;
    let select = |name: &str, spec: Value| {
        let mut object = policy_with_dependencies(spec);
        object["metadata"]["name"] = name.into();
        object["metadata"]["labels"][well_known_keys::POLICY_ID] = name.into();
        object["spec"]["resourceSelectors"][0]["name"] = name.into();
        object
    };
    let one = json!({"placement": {"clusterAffinity": {"clusterNames": ["m1"]}}});
    let two = json!({"placement": {"clusterAffinity": {"clusterNames": ["m2"]}},
        "conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true});
    plane.control_plane.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane.control_plane.seed(&POLICIES, select("one", one));
    plane
        .control_plane
        .seed(&DEPLOYMENTS, deployment_with_volumes("one", &["a"]));
    plane.wait_for_data("a", [json!("1"), Value::Null]).await;
    assert_eq!(
        plane.attached_binding("a")["spec"]["conflictResolution"],
        "Abort"
    );
    plane.control_plane.seed(&POLICIES, select("two", two));
    plane
        .control_plane
        .seed(&DEPLOYMENTS, deployment_with_volumes("two", &["a"]));
    plane.wait_for_data("a", in_both_members("1")).await;
    let shared = plane.attached_binding("a");
    assert_eq!(shared["spec"]["conflictResolution"], "Overwrite");
    assert_eq!(shared["spec"]["preserveResourcesOnDeletion"], true);
    assert_eq!(shared["spec"]["requiredBy"].as_array().unwrap().len(), 2);
    let text = "Dependency policy conflict detected: ConflictResolution conflicted (Overwrite vs Abort); \
        PreserveResourcesOnDeletion conflicted (true vs false).";
    wait_until("the warning", || {
        plane
            .event_messages("DependencyPolicyConflict")
            .iter()
            .any(|t| t == text)
    })
    .await;

    // The second no longer propagates dependencies.
    plane.edit(&POLICIES, "two", |p| {
        p["spec"]["propagateDeps"] = false.into()
    });
    let alone = || {
        let spec = plane.attached_binding("a")["spec"].clone();
        spec["requiredBy"]
            .as_array()
            .is_some_and(|r| r.len() == 1 && r[0]["name"] == "one-deployment")
            && spec["conflictResolution"] == "Abort"
            && spec["preserveResourcesOnDeletion"] == false
    };
    wait_until("one alone", alone).await;
    let finalizers = || plane.binding("two-deployment").unwrap()["metadata"]["finalizers"].clone();
    wait_until("finalizer removed", || {
        finalizers() == json!([well_known_keys::BINDING_FINALIZER])
    })
    .await;

    // The first is deleted.
    plane.control_plane.remove(&DEPLOYMENTS, "n", "one");
    let at = ResourcePath::object(&BINDINGS, "n", "one-deployment");
    let _ = plane
        .control_plane
        .delete(at, &DeleteOptions::default())
        .await;
    wait_until("its binding's end", || {
        plane.binding("one-deployment").is_none()
    })
    .await;
    wait_until("detached", || {
        plane.attached_binding("a")["spec"]
            .get("requiredBy")
            .is_none()
    })
    .await;
    let works = || plane.control_plane.list_objects(&WORKS);
    wait_until("no works", || {
        works()
            .iter()
            .all(|w| w["metadata"]["annotations"][well_known_keys::BINDING_NAME] != "a-configmap")
    })
    .await;
    plane.tasks.stop().await;
}

// proves: DEP-own-policy, DEP-annotation
#[tokio::test]
async fn a_policy_of_a_dependency_adds_its_clusters() {
    let plane = PropagationFixture::new().started().await;
    let mut of_map = policy(
        json!({"placement": {"clusterAffinity": {"clusterNames": ["m1"]}},
        "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]}),
    );
    of_map["metadata"]["name"] = "maps".into();
    of_map["metadata"]["labels"][well_known_keys::POLICY_ID] = "maps".into();
    plane.control_plane.seed(&POLICIES, of_map);
    plane.control_plane.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane.wait_for_data("a", [json!("1"), Value::Null]).await;
    plane.control_plane.seed(
        &POLICIES,
        policy_with_dependencies(json!({"placement": {"clusterAffinity": {"clusterNames": ["m2"]}}, "conflictResolution": "Overwrite"})),
    );
    plane
        .control_plane
        .seed(&DEPLOYMENTS, deployment_with_volumes("web", &["a"]));
    plane.wait_for_data("a", in_both_members("1")).await;
    let spec = plane.attached_binding("a")["spec"].clone();
    assert_eq!(spec["conflictResolution"], "Abort", "its own policy's");
    assert_eq!(spec["clusters"], json!([{"name": "m1"}]));
    plane.edit(&DEPLOYMENTS, "web", |d| {
        d["spec"]["template"]["spec"]["volumes"] = json!([]);
    });
    plane.wait_for_data("a", [json!("1"), Value::Null]).await;
    assert_eq!(
        plane.binding("web-deployment").unwrap()["metadata"]["annotations"]
            [well_known_keys::DEPENDENCIES],
        "null"
    );
    plane.tasks.stop().await;
}

#[tokio::test]
async fn kinds_that_are_no_templates_are_watched_when_a_template_refers_to_them() {
    let mut plane = PropagationFixture::new();
    let mut web = deployment("web");
    web["spec"]["template"]["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
    plane.control_plane.seed(&DEPLOYMENTS, web);
    plane
        .control_plane
        .seed(&POLICIES, policy_with_dependencies(json!({})));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull", "namespace": "n"}, "data": {"k": "MQ=="}});
    plane
        .start_with(FeatureGates::default(), |options| {
            options.templates.skipped_apis = vec!["v1/Secret".into()];
        })
        .await;
    plane.wait_until_applied("web").await;
    let has = |data: &str| {
        let there = |m: &std::sync::Arc<client_fake::FakeApi>| {
            m.get_object(&SECRETS, "n", "pull")
                .is_some_and(|s| s["data"]["k"] == data)
        };
        plane.members.iter().all(there)
    };
    plane.control_plane.seed(&SECRETS, secret);
    wait_until("the secret", || has("MQ==")).await;
    plane.edit(&SECRETS, "pull", |s| s["data"]["k"] = "Mg==".into());
    wait_until("its change", || has("Mg==")).await;
    plane.tasks.stop().await;
}

// proves: DEP-gate
#[tokio::test]
async fn a_restart_and_a_disabled_feature_write_nothing() {
    let mut plane = PropagationFixture::new();
    plane
        .control_plane
        .seed(&POLICIES, policy_with_dependencies(json!({})));
    plane.control_plane.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane
        .control_plane
        .seed(&DEPLOYMENTS, deployment_with_volumes("web", &["a"]));
    plane.start().await;
    plane.wait_for_data("a", in_both_members("1")).await;
    plane.wait_until_applied("web").await;
    let settled = || {
        let works = plane.control_plane.list_objects(&WORKS);
        works
            .iter()
            .filter(|w| {
                w["metadata"]["annotations"][well_known_keys::BINDING_NAME] == "a-configmap"
            })
            .filter(|w| super::applied_status(w) == Some("True"))
            .count()
            == 2
    };
    wait_until("all applied", settled).await;
    plane.tasks.stop().await;
    let mut same = plane
        .control_plane
        .get_object(&CONFIG_MAPS, "n", "a")
        .unwrap();
    same["status"] = json!({"seen": true});
    plane.control_plane.seed(&CONFIG_MAPS, same);
    plane.control_plane.clear_writes();
    plane.members.iter().for_each(|m| m.clear_writes());
    plane.start().await;
    plane.control_plane.seed(&CONFIG_MAPS, config_map("b", "1"));
    plane
        .control_plane
        .seed(&DEPLOYMENTS, deployment_with_volumes("other", &["b"]));
    plane.wait_for_data("b", in_both_members("1")).await;
    let is_own = |name: &str| name.contains("other") || name.starts_with('b') || name.is_empty();
    let writes = plane.control_plane.writes();
    let rest: Vec<_> = writes.iter().filter(|w| !is_own(&w.name)).collect();
    assert!(rest.is_empty(), "{rest:?}");
    plane.tasks.stop().await;

    let gates = FeatureGates::default().with_feature(KarmadaFeature::PropagateDeps, false);
    plane.start_with(gates, |_| {}).await;
    plane.control_plane.seed(&CONFIG_MAPS, config_map("c", "1"));
    plane
        .control_plane
        .seed(&DEPLOYMENTS, deployment_with_volumes("third", &["c"]));
    plane.wait_until_applied("third").await;
    assert_eq!(plane.attached_binding("c"), Value::Null);
    plane.tasks.stop().await;
}

fn slice(name: &str, service: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "n", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": []})
}

/// A ServiceImport, whose dependencies are the slices of its derived Service, and the name of that.
/// The slice `a` has its label.
async fn import_with_slices() -> (PropagationFixture, String) {
    let plane = PropagationFixture::new();
    for (resource, kind) in [
        (&IMPORTS, "ServiceImport"),
        (&SLICES, "EndpointSlice"),
        (&SERVICES, "Service"),
    ] {
        serve(&plane.control_plane, resource, kind, true);
    }
    for name in ["m1", "m2"] {
        let mut serving = cluster(name);
        let kinds = json!([{"kind": "ServiceImport", "name": "serviceimports"}]);
        let enabled = json!({"groupVersion": "multicluster.x-k8s.io/v1alpha1", "resources": kinds});
        let all = serving["status"]["apiEnablements"].as_array_mut().unwrap();
        all.push(enabled);
        plane.control_plane.seed(&CLUSTERS, serving);
    }
    let selector =
        json!([{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport"}]);
    plane.control_plane.seed(
        &POLICIES,
        policy_with_dependencies(json!({"resourceSelectors": selector})),
    );
    let import = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport",
        "metadata": {"name": "shop", "namespace": "n"}});
    plane.control_plane.seed(&IMPORTS, import);
    let service = names::derived_service_name("shop");
    plane.control_plane.seed(&SLICES, slice("a", &service));
    plane.control_plane.seed(&SLICES, slice("b", "other"));
    (plane.started().await, service)
}

// proves: DEP-selector, DEP-comes-later
#[tokio::test]
async fn label_selected_dependencies_are_propagated_while_they_match() {
    let (plane, service) = import_with_slices().await;
    let there = |name: &str| {
        let all = plane.members.iter();
        all.map(|m| m.get_object(&SLICES, "n", name).is_some())
            .collect::<Vec<_>>()
    };
    wait_until("the first", || there("a") == [true, true]).await;
    assert_eq!(there("b"), [false, false]);
    let binding = plane.binding("shop-serviceimport").unwrap();
    let recorded = binding["metadata"]["annotations"][well_known_keys::DEPENDENCIES].as_str();
    let recorded: Value = machinery::json::from_str(recorded.unwrap()).unwrap();
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
        plane.edit(&SLICES, name, label);
    }
    wait_until("the exchange", || {
        there("a") == [false, false] && there("b") == [true, true]
    })
    .await;
    let left = plane.binding("a-endpointslice").unwrap();
    assert_eq!(left["spec"].get("requiredBy"), None);
    plane.tasks.stop().await;
}

/// The cached copy of the attached binding is what the second change needs all the while.
// proves: DEP-own-writes
#[tokio::test]
async fn a_dependency_that_loses_and_regains_its_label_is_attached() {
    let (plane, service) = import_with_slices().await;
    let propagated = || {
        let mut members = plane.members.iter();
        members.all(|member| member.get_object(&SLICES, "n", "a").is_some())
    };
    wait_until("the objects", propagated).await;
    let attached = || {
        let binding = plane.binding("a-endpointslice").unwrap_or_default();
        binding["spec"]["requiredBy"].is_array()
    };
    plane.control_plane.pause_watches(&BINDINGS);
    for (label, expected) in [("other", false), (&service, true)] {
        let mut changed = plane.control_plane.get_object(&SLICES, "n", "a").unwrap();
        changed["metadata"]["labels"]["kubernetes.io/service-name"] = label.into();
        plane.control_plane.seed(&SLICES, changed);
        wait_until(label, || attached() == expected).await;
    }
    plane.control_plane.resume_watches(&BINDINGS);
    plane.tasks.stop().await;
}

// proves: DEP-failure-event
#[tokio::test]
async fn invalid_dependencies_record_an_event_on_the_template() {
    let plane = PropagationFixture::with_events();
    serve(&plane.control_plane, &INGRESSES, "Ingress", true);
    let selector = json!([{"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"}]);
    let object = policy_with_dependencies(json!({"resourceSelectors": selector}));
    plane.control_plane.seed(&POLICIES, object);
    let ingress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "n"}, "spec": {"tls": [{"hosts": ["a.b"]}]}});
    plane.control_plane.seed(&INGRESSES, ingress);
    let plane = plane.started().await;
    wait_until("the binding", || plane.binding("web-ingress").is_some()).await;
    plane.edit(&BINDINGS, "web-ingress", |b| {
        b["spec"]["clusters"] = json!([{"name": "m1"}]);
    });
    let text = "dependencies[0]: Invalid value: v1 of kind Secret: dependency can not leave name and labelSelector all empty";
    wait_until("the failure", || {
        plane
            .event_messages("GetDependenciesFailed")
            .iter()
            .any(|t| t == text)
    })
    .await;
    assert!(plane.event_messages("GetDependenciesSucceed").is_empty());
    plane.tasks.stop().await;
}

// proves: DEP-failure-event, DEP-foreign
#[tokio::test]
async fn a_binding_of_an_earlier_object_is_reported_and_waited_for() {
    let plane = PropagationFixture::with_events();
    let earlier = json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "a-configmap", "namespace": "n", "generation": 1, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "earlier", "controller": true}]},
        "spec": {"resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "a"}}});
    plane.control_plane.seed(&BINDINGS, earlier);
    plane
        .control_plane
        .seed(&POLICIES, policy_with_dependencies(json!({})));
    plane.control_plane.seed(&CONFIG_MAPS, config_map("a", "1"));
    plane
        .control_plane
        .seed(&DEPLOYMENTS, deployment_with_volumes("web", &["a"]));
    let plane = plane.started().await;
    let text = "failed to update resourceBinding(n/a-configmap) due to different owner reference UID, \
        will try again later after binding is garbage collected";
    wait_until("the failure", || {
        let events = plane.event_messages("SyncScheduleResultToDependenciesFailed");
        events.iter().any(|t| t == text)
    })
    .await;
    plane.control_plane.remove(&BINDINGS, "n", "a-configmap");
    plane.wait_for_data("a", in_both_members("1")).await;
    plane.tasks.stop().await;
}
