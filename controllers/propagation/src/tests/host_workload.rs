//! Tests with a control plane that may run workloads itself, and whose kinds come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use controller_testing::{CONFIG_MAPS, DEPLOYMENTS, deployment, policy, serve, wait_until};
use karmada_api::resources::{BINDINGS, POLICIES};
use karmada_api::well_known_keys::{POLICY_ID, POLICY_NAME};
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use crate::tests::{PropagationFixture, condition};

static NODES: Gvr = Gvr::from_static("", "v1", "nodes");
static THINGS: Gvr = Gvr::from_static("example.io", "v1", "things");
static OLD_THINGS: Gvr = Gvr::from_static("example.io", "v1beta1", "things");
static CUSTOM_RESOURCE_DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
static API_SERVICES: Gvr = Gvr::from_static("apiregistration.k8s.io", "v1", "apiservices");

impl PropagationFixture {
    fn scheduled(&self) -> Value {
        let binding = self.binding("web-deployment").unwrap_or_default();
        condition(&binding, "Scheduled").clone()
    }

    fn is_refused(&self) -> bool {
        self.scheduled()["reason"] == "HostRunsWorkloads"
    }

    fn has_map(&self, name: &str) -> bool {
        self.members[0]
            .get_object(&CONFIG_MAPS, "n", name)
            .is_some()
    }

    /// Counts discovery requests and hides `hidden_resource`.
    fn count_discovery_requests(&self, hidden_resource: Option<&'static Gvr>) -> Arc<AtomicU32> {
        let requests = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&requests);
        self.control_plane.on_call(move |call| {
            if call.verb == "discover" {
                count.fetch_add(1, Ordering::SeqCst);
            }
            let hidden = call.resource.is_some() && call.resource == hidden_resource;
            hidden.then(|| Status::path_not_found().into())
        });
        requests
    }

    fn claim(&self) -> Value {
        let template = self
            .control_plane
            .get_object(&DEPLOYMENTS, "n", "web")
            .unwrap();
        template["metadata"]["labels"][POLICY_ID].clone()
    }
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

#[tokio::test]
async fn workloads_of_a_host_with_nodes_stay_there() {
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&NODES, node("a"));
    plane.start_on_host(false).await;
    let mut both = policy(json!({}));
    both["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"},
        {"apiVersion": "v1", "kind": "ConfigMap"}]);
    plane.control_plane.seed(&POLICIES, both);
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.control_plane.seed(&CONFIG_MAPS, config_map("c"));
    wait_until("the refusal", || plane.is_refused()).await;
    assert!(
        plane.scheduled()["message"]
            .as_str()
            .is_some_and(|m| m.contains("--host-workloads=propagate"))
    );
    wait_until("the map", || plane.has_map("c")).await;
    assert_eq!(plane.deployment_in_member(0, "web"), None);
    assert_eq!(
        plane.claim(),
        Value::Null,
        "a refused template is not claimed"
    );
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(binding["metadata"]["labels"], Value::Null);
    assert_eq!(binding["spec"]["clusters"], Value::Null);

    // The last node leaves: the Deployment becomes an ordinary template.
    plane.control_plane.remove(&NODES, "", "a");
    plane.wait_until_applied("web").await;
    assert_eq!(plane.claim(), "policy-id");

    // Nodes come back: members keep their copies but receive no changes.
    plane.control_plane.seed(&NODES, node("b"));
    wait_until("the release", || {
        plane.claim().is_null() && plane.is_refused()
    })
    .await;
    plane.edit(&DEPLOYMENTS, "web", |web| {
        web["spec"]["replicas"] = 7.into()
    });
    plane.control_plane.seed(&CONFIG_MAPS, config_map("d"));
    wait_until("a later map", || plane.has_map("d")).await;
    let copy = plane.deployment_in_member(0, "web").unwrap();
    assert_eq!(copy["spec"]["replicas"], 4);
    assert!(copy["metadata"]["labels"].get(POLICY_NAME).is_none());
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_refused_binding_is_deleted_with_its_policy() {
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&NODES, node("a"));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.start_on_host(false).await;
    for _ in 0..2 {
        plane.control_plane.seed(&POLICIES, policy(json!({})));
        wait_until("the refusal", || plane.is_refused()).await;
        plane.control_plane.remove(&POLICIES, "n", "p");
        wait_until("its end", || {
            let binding = plane.binding("web-deployment");
            let ends = |b: &Value| b["metadata"]["deletionTimestamp"].is_string();
            binding.as_ref().is_none_or(ends)
        })
        .await;
    }
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_host_can_be_configured_to_propagate_workloads() {
    let mut plane = PropagationFixture::new();
    plane.control_plane.seed(&NODES, node("a"));
    plane.start_on_host(true).await;
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    plane.control_plane.seed(&DEPLOYMENTS, deployment("web"));
    plane.wait_until_applied("web").await;
    assert_eq!(
        plane.deployment_in_member(1, "web").unwrap()["spec"]["replicas"],
        4
    );
    plane.tasks.stop().await;
}

/// No garbage collector runs in this test.
#[tokio::test]
async fn a_binding_is_deleted_with_its_template_unless_it_was_orphaned() {
    let plane = PropagationFixture::new().started().await;
    plane.control_plane.seed(&POLICIES, policy(json!({})));
    for name in ["web", "orphaned"] {
        let mut template = deployment(name);
        template["metadata"]["uid"] = name.into();
        plane.control_plane.seed(&DEPLOYMENTS, template);
        plane.wait_until_applied(name).await;
    }
    let mut orphan = plane.binding("orphaned-deployment").unwrap();
    orphan["metadata"]["ownerReferences"] = json!([]);
    plane.control_plane.seed(&BINDINGS, orphan);
    plane.control_plane.remove(&DEPLOYMENTS, "n", "orphaned");
    plane.control_plane.remove(&DEPLOYMENTS, "n", "web");
    wait_until("the binding's end", || {
        plane.binding("web-deployment").is_none()
    })
    .await;
    assert!(plane.deployment_in_member(0, "orphaned").is_some());
    let orphan = plane.binding("orphaned-deployment").unwrap();
    assert!(orphan["metadata"].get("deletionTimestamp").is_none());
    plane.tasks.stop().await;
}

fn thing_definition(established: bool) -> Value {
    let status = if established { "True" } else { "False" };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.io"},
        "spec": {"group": "example.io", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true}]},
        "status": {"conditions": [{"type": "Established", "status": status}]}})
}

fn thing(version: &str, name: &str) -> Value {
    json!({"apiVersion": format!("example.io/{version}"), "kind": "Thing",
        "metadata": {"name": name, "namespace": "n"}})
}

fn thing_policy(version: &str) -> Value {
    let mut policy = policy(json!({}));
    let selector = json!([{"apiVersion": format!("example.io/{version}"), "kind": "Thing"}]);
    policy["spec"]["resourceSelectors"] = selector;
    policy
}

/// Discovery may lag behind the definition; no timer triggers it.
#[tokio::test]
async fn new_kinds_are_templates_as_soon_as_they_are_served() {
    let plane = PropagationFixture::new().started().await;
    plane.control_plane.seed(&POLICIES, thing_policy("v1"));
    plane.control_plane.seed(&THINGS, thing("v1", "a"));
    plane
        .control_plane
        .seed(&CUSTOM_RESOURCE_DEFINITIONS, thing_definition(false));
    let requests = plane.count_discovery_requests(None);
    plane
        .control_plane
        .seed(&CUSTOM_RESOURCE_DEFINITIONS, thing_definition(true));
    wait_until("more than one question", || {
        requests.load(Ordering::SeqCst) > 1
    })
    .await;
    assert_eq!(plane.binding("a-thing"), None);
    serve(&plane.control_plane, &THINGS, "Thing", true);
    wait_until("the binding", || plane.binding("a-thing").is_some()).await;
    plane.tasks.stop().await;
}

/// Discovery at the start lags behind a definition that is listed only after it.
// proves: DET-new-kinds
#[tokio::test(start_paused = true)]
async fn kinds_of_earlier_definitions_are_templates_as_soon_as_they_are_served() {
    let plane = PropagationFixture::new();
    plane.control_plane.seed(&POLICIES, thing_policy("v1"));
    plane.control_plane.seed(&THINGS, thing("v1", "a"));
    plane
        .control_plane
        .seed(&CUSTOM_RESOURCE_DEFINITIONS, thing_definition(true));
    let lists = AtomicU32::new(0);
    plane.control_plane.on_call(move |call| {
        let is_list = call.verb == "list" && call.resource == Some(&CUSTOM_RESOURCE_DEFINITIONS);
        let is_first = is_list && lists.fetch_add(1, Ordering::SeqCst) == 0;
        is_first.then(|| Status::unavailable("not yet").into())
    });
    let plane = plane.started().await;
    assert_eq!(plane.binding("a-thing"), None);
    serve(&plane.control_plane, &THINGS, "Thing", true);
    wait_until("the binding", || plane.binding("a-thing").is_some()).await;
    plane.tasks.stop().await;
}

/// The same objects in another version, and an API that is removed.
#[tokio::test]
async fn informers_of_removed_kinds_stop() {
    let plane = PropagationFixture::new();
    serve(&plane.control_plane, &API_SERVICES, "APIService", false);
    serve(&plane.control_plane, &OLD_THINGS, "Thing", true);
    plane.control_plane.seed(&POLICIES, thing_policy("v1"));
    plane.control_plane.seed(&OLD_THINGS, thing("v1beta1", "a"));
    plane.control_plane.seed(&THINGS, thing("v1", "a"));
    let plane = plane.started().await;
    let service = |state: &str| {
        json!({"metadata": {"name": "v1.example.io"},
        "spec": {"group": "example.io", "version": "v1"}, "status": {"state": state}})
    };
    plane.control_plane.seed(&API_SERVICES, service("new"));
    plane.control_plane.remove_resource(&OLD_THINGS);
    serve(&plane.control_plane, &THINGS, "Thing", true);
    plane.control_plane.seed(&API_SERVICES, service("up"));
    wait_until("the binding", || plane.binding("a-thing").is_some()).await;

    plane.control_plane.remove_resource(&THINGS);
    let requests = plane.count_discovery_requests(Some(&THINGS));
    plane.control_plane.seed(&API_SERVICES, service("down"));
    plane.control_plane.end_watches();
    wait_until("a question", || requests.load(Ordering::SeqCst) > 0).await;
    plane.control_plane.on_call(|_| None);
    assert!(plane.binding("a-thing").is_some(), "that is nobody's end");
    serve(&plane.control_plane, &THINGS, "Thing", true);
    plane.control_plane.seed(&THINGS, thing("v1", "b"));
    plane.control_plane.seed(&API_SERVICES, service("up again"));
    wait_until("the new one", || plane.binding("b-thing").is_some()).await;
    plane.tasks.stop().await;
}
