//! Objects that are being deleted, and dependents of owners that are gone, replaced, or in another
//! namespace.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::test_server::ApiTestServer;

const TIMEOUT: Duration = Duration::from_secs(90);
const ABSENT_UID: &str = "6c8a1d70-0000-4000-8000-000000000000";

fn maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// Creates a ConfigMap with these owners: name and uid.
fn create(server: &ApiTestServer, namespace: &str, name: &str, owners: &[(&str, &str)]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(name, uid)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
        })
        .collect();
    let map = json!({"metadata": {"name": name, "ownerReferences": owners}});
    let reply = server.post(&maps(namespace), &map);
    assert_eq!(reply.code, 201, "{}", reply.text());
    reply.json()
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap()
}

fn exists(server: &ApiTestServer, namespace: &str, name: &str) -> bool {
    server.get(&format!("{}/{name}", maps(namespace))).code == 200
}

fn wait_until_gone(server: &ApiTestServer, namespace: &str, name: &str) {
    let end = Instant::now() + TIMEOUT;
    while exists(server, namespace, name) {
        assert!(Instant::now() < end, "{namespace}/{name} is still there");
        harness::sleep_blocking(Duration::from_millis(20));
    }
}

#[test]
fn an_object_that_is_being_deleted_cannot_be_created() {
    let server = ApiTestServer::shared();
    server.create_namespace("recreated");
    let path = maps("recreated");
    let with_finalizer = json!({"metadata": {"name": "held", "finalizers": ["example.io/held"]}});
    assert_eq!(server.post(&path, &with_finalizer).code, 201);
    let one = format!("{path}/held");
    assert_eq!(server.request("DELETE", &one).send().code, 200);
    let rejection = server.post(&path, &with_finalizer);
    assert_eq!(rejection.code, 409, "{}", rejection.text());
    let status = rejection.json();
    assert_eq!(status["reason"], "AlreadyExists");
    assert_eq!(
        status["message"],
        "object is being deleted: configmaps \"held\" already exists"
    );
    assert_eq!(
        status["details"],
        json!({"name": "held", "kind": "configmaps"})
    );
}

/// The collector knows the owner of the name from its cache; the uid decides.
#[test]
fn a_dependent_of_a_replaced_owner_is_deleted_and_that_of_the_new_owner_stays() {
    let server = ApiTestServer::shared();
    let namespace = "replaced-owner";
    server.create_namespace(namespace);
    let old = create(&server, namespace, "owner", &[]);
    let path = format!("{}/owner?propagationPolicy=Background", maps(namespace));
    assert_eq!(server.request("DELETE", &path).send().code, 200);
    let new = create(&server, namespace, "owner", &[]);
    assert_ne!(uid(&old), uid(&new));
    create(&server, namespace, "of-new", &[("owner", uid(&new))]);
    let both = [("owner", uid(&old)), ("owner", uid(&new))];
    create(&server, namespace, "of-both", &both);
    create(&server, namespace, "of-old", &[("owner", uid(&old))]);
    wait_until_gone(&server, namespace, "of-old");
    assert!(exists(&server, namespace, "of-new"));
    assert!(exists(&server, namespace, "of-both"));
}

/// A reference to a namespaced kind is to an object of the dependent's own namespace, where there
/// is none. Nothing is deleted for an owner of a kind that is not served.
#[test]
fn owners_are_in_the_namespace_of_their_dependents() {
    let server = ApiTestServer::shared();
    for namespace in ["owners", "dependents"] {
        server.create_namespace(namespace);
    }
    let owner = create(&server, "owners", "owner", &[]);
    let unknown = json!({"metadata": {"name": "of-unknown", "ownerReferences": [{
        "apiVersion": "unknown.example.io/v1", "kind": "Unknown", "name": "owner", "uid": ABSENT_UID,
    }]}});
    let path = maps("dependents");
    assert_eq!(server.post(&path, &unknown).code, 201);
    create(&server, "dependents", "astray", &[("owner", uid(&owner))]);
    create(&server, "owners", "at-home", &[("owner", uid(&owner))]);
    wait_until_gone(&server, "dependents", "astray");
    assert!(exists(&server, "owners", "at-home"));
    assert!(exists(&server, "owners", "owner"));
    // The objects that follow were collected after the object of the unknown owner was seen.
    create(&server, "dependents", "late", &[("none", ABSENT_UID)]);
    wait_until_gone(&server, "dependents", "late");
    assert!(exists(&server, "dependents", "of-unknown"));
}
