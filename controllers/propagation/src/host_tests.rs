//! Tests with a control plane that may run workloads itself, and whose kinds come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use machinery::{Gvr, Status};
use openapi::karmada::labels::{POLICY_ID, POLICY_NAME};
use openapi::karmada::resources::{BINDINGS, POLICIES};
use serde_json::{Value, json};

use crate::flow_tests::{DEPLOYMENTS, Plane, condition, deployment, policy, serve, until};
use crate::{Options, flow_tests::CONFIG_MAPS};

static NODES: Gvr = Gvr::constant("", "v1", "nodes");
static THINGS: Gvr = Gvr::constant("example.io", "v1", "things");
static OLD_THINGS: Gvr = Gvr::constant("example.io", "v1beta1", "things");
static DEFINITIONS: Gvr = Gvr::constant("apiextensions.k8s.io", "v1", "customresourcedefinitions");
static SERVICES: Gvr = Gvr::constant("apiregistration.k8s.io", "v1", "apiservices");

impl Plane {
    fn scheduled(&self) -> Value {
        let binding = self.binding("web-deployment").unwrap_or_default();
        condition(&binding, "Scheduled").clone()
    }

    fn is_refused(&self) -> bool {
        self.scheduled()["reason"] == "HostRunsWorkloads"
    }

    fn has_map(&self, name: &str) -> bool {
        self.members[0].object(&CONFIG_MAPS, "n", name).is_some()
    }

    /// Counts discovery requests and hides `hidden_resource`.
    fn count(&self, hidden_resource: Option<&'static Gvr>) -> Arc<AtomicU32> {
        let requests = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&requests);
        self.control.on_call(move |call| {
            if call.verb == "resources" {
                count.fetch_add(1, Ordering::SeqCst);
            }
            let hidden = call.resource.is_some() && call.resource == hidden_resource;
            hidden.then(|| Status::no_such_path().into())
        });
        requests
    }

    fn claim(&self) -> Value {
        let template = self.control.object(&DEPLOYMENTS, "n", "web").unwrap();
        template["metadata"]["labels"][POLICY_ID].clone()
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}})
}

fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
}

#[tokio::test]
async fn workloads_of_a_host_with_nodes_stay_there() {
    let mut plane = Plane::new();
    plane.control.seed(&NODES, node("a"));
    plane.start_with(Options::default(), Some(false)).await;
    let mut both = policy(json!({}));
    both["spec"]["resourceSelectors"] = json!([{"apiVersion": "apps/v1", "kind": "Deployment"},
        {"apiVersion": "v1", "kind": "ConfigMap"}]);
    plane.control.seed(&POLICIES, both);
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.control.seed(&CONFIG_MAPS, map("c"));
    until("the refusal", || plane.is_refused()).await;
    assert!(
        plane.scheduled()["message"]
            .as_str()
            .is_some_and(|m| m.contains("--host-workloads=propagate"))
    );
    until("the map", || plane.has_map("c")).await;
    assert_eq!(plane.in_member(0, "web"), None);
    assert_eq!(
        plane.claim(),
        Value::Null,
        "a refused template is not claimed"
    );
    let binding = plane.binding("web-deployment").unwrap();
    assert_eq!(binding["metadata"]["labels"], Value::Null);
    assert_eq!(binding["spec"]["clusters"], Value::Null);

    // The last node leaves: the Deployment becomes an ordinary template.
    plane.control.remove(&NODES, "", "a");
    plane.applied("web").await;
    assert_eq!(plane.claim(), "policy-id");

    // Nodes come back: members keep their copies but receive no changes.
    plane.control.seed(&NODES, node("b"));
    until("the release", || {
        plane.claim().is_null() && plane.is_refused()
    })
    .await;
    plane.change(&DEPLOYMENTS, "web", |web| {
        web["spec"]["replicas"] = 7.into()
    });
    plane.control.seed(&CONFIG_MAPS, map("d"));
    until("a later map", || plane.has_map("d")).await;
    let copy = plane.in_member(0, "web").unwrap();
    assert_eq!(copy["spec"]["replicas"], 4);
    assert!(copy["metadata"]["labels"].get(POLICY_NAME).is_none());
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_notice_goes_with_its_policy() {
    let mut plane = Plane::new();
    plane.control.seed(&NODES, node("a"));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.start_with(Options::default(), Some(false)).await;
    for _ in 0..2 {
        plane.control.seed(&POLICIES, policy(json!({})));
        until("the refusal", || plane.is_refused()).await;
        plane.control.remove(&POLICIES, "n", "p");
        until("its end", || {
            let binding = plane.binding("web-deployment");
            let ends = |b: &Value| b["metadata"]["deletionTimestamp"].is_string();
            binding.as_ref().is_none_or(ends)
        })
        .await;
    }
    plane.tasks.stop().await;
}

#[tokio::test]
async fn a_host_may_be_told_to_propagate_what_it_runs() {
    let mut plane = Plane::new();
    plane.control.seed(&NODES, node("a"));
    plane.start_with(Options::default(), Some(true)).await;
    plane.control.seed(&POLICIES, policy(json!({})));
    plane.control.seed(&DEPLOYMENTS, deployment("web"));
    plane.applied("web").await;
    assert_eq!(plane.in_member(1, "web").unwrap()["spec"]["replicas"], 4);
    plane.tasks.stop().await;
}

/// No garbage collector runs in this test.
#[tokio::test]
async fn a_binding_goes_with_its_template_unless_it_was_orphaned() {
    let plane = Plane::new().started().await;
    plane.control.seed(&POLICIES, policy(json!({})));
    for name in ["web", "orphaned"] {
        let mut template = deployment(name);
        template["metadata"]["uid"] = name.into();
        plane.control.seed(&DEPLOYMENTS, template);
        plane.applied(name).await;
    }
    let mut orphan = plane.binding("orphaned-deployment").unwrap();
    orphan["metadata"]["ownerReferences"] = json!([]);
    plane.control.seed(&BINDINGS, orphan);
    plane.control.remove(&DEPLOYMENTS, "n", "orphaned");
    plane.control.remove(&DEPLOYMENTS, "n", "web");
    until("the binding's end", || {
        plane.binding("web-deployment").is_none()
    })
    .await;
    assert!(plane.in_member(0, "orphaned").is_some());
    let orphan = plane.binding("orphaned-deployment").unwrap();
    assert!(orphan["metadata"].get("deletionTimestamp").is_none());
    plane.tasks.stop().await;
}

fn definition(established: bool) -> Value {
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

fn things(version: &str) -> Value {
    let mut policy = policy(json!({}));
    let selector = json!([{"apiVersion": format!("example.io/{version}"), "kind": "Thing"}]);
    policy["spec"]["resourceSelectors"] = selector;
    policy
}

/// Discovery may lag behind the definition; no timer triggers it.
#[tokio::test]
async fn new_kinds_are_templates_as_soon_as_they_are_served() {
    let plane = Plane::new().started().await;
    plane.control.seed(&POLICIES, things("v1"));
    plane.control.seed(&THINGS, thing("v1", "a"));
    plane.control.seed(&DEFINITIONS, definition(false));
    let requests = plane.count(None);
    plane.control.seed(&DEFINITIONS, definition(true));
    until("more than one question", || {
        requests.load(Ordering::SeqCst) > 1
    })
    .await;
    assert_eq!(plane.binding("a-thing"), None);
    serve(&plane.control, &THINGS, "Thing", true);
    until("the binding", || plane.binding("a-thing").is_some()).await;
    plane.tasks.stop().await;
}

/// The same objects in another version, and an API that is removed.
#[tokio::test]
async fn kinds_that_go_are_let_go() {
    let plane = Plane::new();
    serve(&plane.control, &SERVICES, "APIService", false);
    serve(&plane.control, &OLD_THINGS, "Thing", true);
    plane.control.seed(&POLICIES, things("v1"));
    plane.control.seed(&OLD_THINGS, thing("v1beta1", "a"));
    plane.control.seed(&THINGS, thing("v1", "a"));
    let plane = plane.started().await;
    let service = |state: &str| {
        json!({"metadata": {"name": "v1.example.io"},
        "spec": {"group": "example.io", "version": "v1"}, "status": {"state": state}})
    };
    plane.control.seed(&SERVICES, service("new"));
    plane.control.unserve(&OLD_THINGS);
    serve(&plane.control, &THINGS, "Thing", true);
    plane.control.seed(&SERVICES, service("up"));
    until("the binding", || plane.binding("a-thing").is_some()).await;

    plane.control.unserve(&THINGS);
    let requests = plane.count(Some(&THINGS));
    plane.control.seed(&SERVICES, service("down"));
    plane.control.end_watches();
    until("a question", || requests.load(Ordering::SeqCst) > 0).await;
    plane.control.on_call(|_| None);
    assert!(plane.binding("a-thing").is_some(), "that is nobody's end");
    serve(&plane.control, &THINGS, "Thing", true);
    plane.control.seed(&THINGS, thing("v1", "b"));
    plane.control.seed(&SERVICES, service("up again"));
    until("the new one", || plane.binding("b-thing").is_some()).await;
    plane.tasks.stop().await;
}
