//! Propagation from policy to member objects, and the status back to the template, for any
//! control plane whose members are real clusters.

use client::ResourcePath;
use harness::ApiServerClient;
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, NAMESPACES, PODS, POLICIES, SECRETS, WIDGETS,
    cluster_scoped, config_map, deployment, divided_policy, policy, secret, widget,
    widget_definition,
};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::aggregated::real_clusters::{MEMBER_NAMES, RealMemberClusters};

/// Runs the life of a template (create, update, delete) for each kind of template.
pub(crate) async fn run_scenario(
    control: &ApiServerClient,
    members: &RealMemberClusters,
    ns: &str,
) {
    control.create_namespace(ns).await;
    tokio::join!(
        propagate_deployment(control, members, ns),
        propagate_objects_without_status(control, members, ns),
        propagate_custom_resource(control, members, ns),
    );
    control.delete(&NAMESPACES, "", ns).await;
    control.wait_until_deleted(&NAMESPACES, "", ns).await;
    for member in &members.all {
        member.server.wait_until_deleted(&NAMESPACES, "", ns).await;
    }
}

/// A Deployment becomes ready in both members, and its status is aggregated on the template.
async fn propagate_deployment(control: &ApiServerClient, members: &RealMemberClusters, ns: &str) {
    let template = deployment(ns, "web", 4);
    let weights = MEMBER_NAMES.map(|name| (name, 1));
    control
        .create(divided_policy(ns, "web", &template, &weights))
        .await;
    control.create(template).await;
    wait_for_ready_replicas(control, ns, 4).await;
    for member in &members.all {
        let pods = member.server.list(&PODS, ns).await;
        assert_eq!(pods.len(), 2, "{}", member.name);
        assert!(pods.iter().all(|p| p["spec"]["nodeName"].is_string()));
    }
    let more = json!({"spec": {"replicas": 6}});
    control.merge_patch(&DEPLOYMENTS, ns, "web", more).await;
    wait_for_ready_replicas(control, ns, 6).await;
    let decision_path =
        ResourcePath::object(&BINDINGS, ns, "web-deployment").subresource("decision");
    let decision = control
        .api
        .get(decision_path)
        .await
        .unwrap()
        .value()
        .unwrap();
    assert_eq!(
        (&decision["kind"], &decision["chosenClusters"]),
        (&json!("Decision"), &json!(2)),
        "{decision:#}"
    );

    // An object that is deleted in a member is created again.
    let member = &members.all[0].server;
    let deleted = member.wait_until_exists(&DEPLOYMENTS, ns, "web").await;
    member.delete(&DEPLOYMENTS, ns, "web").await;
    let recreated = |d: &Value| d["metadata"]["uid"] != deleted["metadata"]["uid"];
    member
        .wait_until(&DEPLOYMENTS, ns, "web", "created again", recreated)
        .await;
    wait_for_ready_replicas(control, ns, 6).await;

    control.delete(&DEPLOYMENTS, ns, "web").await;
    control
        .wait_until_deleted(&BINDINGS, ns, "web-deployment")
        .await;
    wait_until_deleted_from_members(members, &DEPLOYMENTS, ns, "web").await;
    control.delete(&POLICIES, ns, "web").await;
}

async fn wait_for_ready_replicas(control: &ApiServerClient, ns: &str, replicas: i64) {
    let description = format!("{replicas} ready");
    control
        .wait_until(&DEPLOYMENTS, ns, "web", &description, |d| {
            let status = &d["status"];
            status["readyReplicas"] == replicas
                && status["updatedReplicas"] == replicas
                && status["observedGeneration"] == d["metadata"]["generation"]
        })
        .await;
}

/// Resources without a status: ConfigMaps and Secrets.
async fn propagate_objects_without_status(
    control: &ApiServerClient,
    members: &RealMemberClusters,
    ns: &str,
) {
    for (template, resource) in [
        (config_map(ns, "settings", "1"), &CONFIG_MAPS),
        (secret(ns, "password", "1"), &SECRETS),
    ] {
        let name = template["metadata"]["name"].as_str().unwrap().to_owned();
        control
            .create(policy(ns, &name, &template, &MEMBER_NAMES))
            .await;
        let created = control.create(template).await;
        let same = |o: &Value| o["data"] == created["data"];
        for member in &members.all {
            let server = &member.server;
            server
                .wait_until(resource, ns, &name, "the template", same)
                .await;
        }
        let changed = json!({"data": {"k": "Mg=="}});
        control.merge_patch(resource, ns, &name, changed).await;
        let same = |o: &Value| o["data"]["k"] == "Mg==";
        for member in &members.all {
            let server = &member.server;
            server
                .wait_until(resource, ns, &name, "changed", same)
                .await;
        }
        control.delete(resource, ns, &name).await;
        wait_until_deleted_from_members(members, resource, ns, &name).await;
    }
}

/// A custom resource, whose CRD is propagated to the members first.
async fn propagate_custom_resource(
    control: &ApiServerClient,
    members: &RealMemberClusters,
    ns: &str,
) {
    let definition = widget_definition();
    let everywhere = cluster_scoped(policy("", "widgets", &definition, &MEMBER_NAMES));
    control.create(everywhere).await;
    control.create(definition).await;
    let name = "widgets.example.org";
    let established = |d: &Value| {
        let all = d["status"]["conditions"].as_array().into_iter().flatten();
        all.into_iter()
            .any(|c| c["type"] == "Established" && c["status"] == "True")
    };
    for server in members.all.iter().map(|m| &m.server).chain([control]) {
        let what = "established";
        server
            .wait_until(&DEFINITIONS, "", name, what, established)
            .await;
    }
    let template = widget(ns, "w", 7);
    control
        .create(policy(ns, "w", &template, &MEMBER_NAMES))
        .await;
    control.create(template).await;
    for member in &members.all {
        let size = |w: &Value| w["spec"]["size"] == 7;
        let server = &member.server;
        server
            .wait_until(&WIDGETS, ns, "w", "the template", size)
            .await;
    }
    control.delete(&WIDGETS, ns, "w").await;
    wait_until_deleted_from_members(members, &WIDGETS, ns, "w").await;
    control.delete(&DEFINITIONS, "", name).await;
    wait_until_deleted_from_members(members, &DEFINITIONS, "", name).await;
}

async fn wait_until_deleted_from_members(
    members: &RealMemberClusters,
    resource: &Gvr,
    ns: &str,
    name: &str,
) {
    for member in &members.all {
        member.server.wait_until_deleted(resource, ns, name).await;
    }
}
