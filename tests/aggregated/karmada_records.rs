//! The records of a Karmada: its definitions in the host, with the objects that a Flotilla has written
//! before in the names and states of Karmada's controllers.

use client::{ListOptions, ResourcePath};
use futures_util::{StreamExt, stream};
use harness::ApiServerClient;
use harness::api_server_client::{find_condition, wait_until};
use harness::karmada_crds::karmada_definitions;
use harness::objects::{
    API_SERVICES, BINDINGS, CLUSTERS, DEFINITIONS, POLICIES, SECRETS, VALIDATING_WEBHOOKS, WORKS,
};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;

pub(super) const MOVED: [&Gvr; 4] = [&CLUSTERS, &POLICIES, &BINDINGS, &WORKS];
/// Records that are created at the same time.
pub(super) const WRITERS: usize = 10;
/// The identity and state of a server, which new objects do not have.
const SERVER_FIELDS: [&str; 5] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
];

/// Replaces Flotilla by Karmada's definitions with the same objects, and a webhook of Karmada.
pub(super) async fn become_karmada(plane: &mut AggregatedControlPlane) {
    // Others may have a Cluster as their owner.
    let clusters = plane.client.list(&CLUSTERS, "").await;
    let mut others = Vec::new();
    for resource in MOVED.into_iter().filter(|r| **r != CLUSTERS) {
        others.extend(plane.client.list(resource, "").await);
    }
    for cluster in &clusters {
        set_owner_of_secrets(&plane.client, cluster, &Value::Null).await;
    }
    plane.stop();
    plane.clear_store();
    let client = &plane.client;
    for service in plane.api_services().await {
        let name = service["metadata"]["name"].as_str().unwrap();
        client.delete(&API_SERVICES, "", name).await;
    }
    for webhook in client.list(&VALIDATING_WEBHOOKS, "").await {
        let name = webhook["metadata"]["name"].as_str().unwrap();
        client.delete(&VALIDATING_WEBHOOKS, "", name).await;
    }
    create_definitions(client).await;
    for objects in [clusters, others] {
        let records = objects.into_iter().map(|o| create_record(client, o));
        let records = stream::iter(records).buffer_unordered(WRITERS);
        records.collect::<()>().await;
    }
    client.create(karmada_webhooks()).await;
    for cluster in client.list(&CLUSTERS, "").await {
        let meta = &cluster["metadata"];
        let owner = json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "name": meta["name"], "uid": meta["uid"]}]);
        set_owner_of_secrets(client, &cluster, &owner).await;
    }
}

/// Works of a member are collected with their owner, which has a new uid.
async fn set_uid_of_cluster(client: &ApiServerClient, owners: &mut [Value]) {
    for owner in owners.iter_mut().filter(|owner| owner["kind"] == "Cluster") {
        let name = owner["name"].as_str().unwrap();
        let cluster = client.get(&CLUSTERS, "", name).await.unwrap();
        owner["uid"] = cluster["metadata"]["uid"].clone();
    }
}

/// The credentials of a member are collected with their owner, which is known by its uid.
async fn set_owner_of_secrets(client: &ApiServerClient, cluster: &Value, owner: &Value) {
    for field in ["secretRef", "impersonatorSecretRef"] {
        let secret = &cluster["spec"][field];
        let text = |key: &str| secret[key].as_str().unwrap();
        let patch = json!({"metadata": {"ownerReferences": owner}});
        client
            .merge_patch(&SECRETS, text("namespace"), text("name"), patch)
            .await;
    }
}

async fn create_definitions(client: &ApiServerClient) {
    let mut definitions: Vec<Value> = karmada_definitions()
        .into_iter()
        .map(|d| d.object)
        .collect();
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    // Karmada's aggregated API server stands for a definition of Clusters.
    definitions.push(json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "clusters.cluster.karmada.io"},
        "spec": {"group": "cluster.karmada.io", "scope": "Cluster",
            "names": {"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": open}, "subresources": {"status": {}}}]}}));
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let versions = spec["versions"].as_array().unwrap().iter();
        let resources: Vec<Gvr> = versions
            .map(|version| Gvr::new(group.clone(), text(&version["name"]), plural.clone()))
            .collect();
        if client.get(&DEFINITIONS, "", &name).await.is_none() {
            client.create(definition).await;
        }
        let established = |d: &Value| find_condition(d, "Established")["status"] == "True";
        client
            .wait_until(&DEFINITIONS, "", &name, "established", established)
            .await;
        // The host asks Flotilla until it has heard that the group is its own.
        for resource in &resources {
            wait_until(&format!("{resource} is served"), async || {
                let all = ResourcePath::collection(resource, "");
                let options = ListOptions::default();
                client.api.list(all, &options).await.is_ok()
            })
            .await;
        }
    }
}

async fn create_record(client: &ApiServerClient, mut object: Value) {
    if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
        set_uid_of_cluster(client, owners).await;
    }
    let status = object["status"].take();
    let meta = object["metadata"].as_object_mut().unwrap();
    for field in SERVER_FIELDS {
        meta.remove(field);
    }
    object.as_object_mut().unwrap().remove("status");
    wait_until("the definition is served", async || {
        match client.try_create(object.clone()).await {
            Ok(_) => true,
            Err(error) => error.is_already_exists(),
        }
    })
    .await;
    if !status.is_null() {
        let mut status = status;
        if !status["schedulerObservedGeneration"].is_null() {
            status["schedulerObservedGeneration"] = 1.into();
        }
        client.patch_status(&object, status).await;
    }
}

fn karmada_webhooks() -> Value {
    let webhook = json!({"name": "clusterpropagationpolicy.karmada.io",
        "clientConfig": {"url": "https://karmada-webhook.karmada-system.svc:443/validate"},
        "rules": [{"apiGroups": ["policy.karmada.io"], "apiVersions": ["*"],
            "operations": ["CREATE"], "resources": ["clusterpropagationpolicies"]}],
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validating-config"}, "webhooks": [webhook]})
}
