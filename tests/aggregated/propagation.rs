//! Propagation from policy to member objects, and the status back to the template, for any
//! control plane whose members are real clusters.

use client::At;
use harness::Server;
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, NAMESPACES, PODS, POLICIES, SECRETS, WIDGETS,
    cluster_wide, config_map, deployment, divided, policy, secret, widget, widgets,
};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::world::{Members, NAMES};

/// Runs the life of a template (create, update, delete) for each kind of template.
pub(crate) async fn story(control: &Server, members: &Members, ns: &str) {
    control.namespace(ns).await;
    tokio::join!(
        workload(control, members, ns),
        records(control, members, ns),
        instances(control, members, ns),
    );
    control.delete(&NAMESPACES, "", ns).await;
    control.until_gone(&NAMESPACES, "", ns).await;
    for member in &members.all {
        member.server.until_gone(&NAMESPACES, "", ns).await;
    }
}

/// A Deployment becomes ready in both members, and its status is aggregated on the template.
async fn workload(control: &Server, members: &Members, ns: &str) {
    let template = deployment(ns, "web", 4);
    let weights = NAMES.map(|name| (name, 1));
    control
        .create(divided(ns, "web", &template, &weights))
        .await;
    control.create(template).await;
    ready(control, ns, 4).await;
    for member in &members.all {
        let pods = member.server.list(&PODS, ns).await;
        assert_eq!(pods.len(), 2, "{}", member.name);
        assert!(pods.iter().all(|p| p["spec"]["nodeName"].is_string()));
    }
    let more = json!({"spec": {"replicas": 6}});
    control.merge(&DEPLOYMENTS, ns, "web", more).await;
    ready(control, ns, 6).await;
    let decision_path = At::one(&BINDINGS, ns, "web-deployment").sub("decision");
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
    let deleted = member.until_there(&DEPLOYMENTS, ns, "web").await;
    member.delete(&DEPLOYMENTS, ns, "web").await;
    let recreated = |d: &Value| d["metadata"]["uid"] != deleted["metadata"]["uid"];
    member
        .until(&DEPLOYMENTS, ns, "web", "created again", recreated)
        .await;
    ready(control, ns, 6).await;

    control.delete(&DEPLOYMENTS, ns, "web").await;
    control.until_gone(&BINDINGS, ns, "web-deployment").await;
    gone(members, &DEPLOYMENTS, ns, "web").await;
    control.delete(&POLICIES, ns, "web").await;
}

async fn ready(control: &Server, ns: &str, replicas: i64) {
    let what = format!("{replicas} ready");
    control
        .until(&DEPLOYMENTS, ns, "web", &what, |d| {
            let status = &d["status"];
            status["readyReplicas"] == replicas
                && status["updatedReplicas"] == replicas
                && status["observedGeneration"] == d["metadata"]["generation"]
        })
        .await;
}

/// Resources without a status: ConfigMaps and Secrets.
async fn records(control: &Server, members: &Members, ns: &str) {
    for (template, resource) in [
        (config_map(ns, "settings", "1"), &CONFIG_MAPS),
        (secret(ns, "password", "1"), &SECRETS),
    ] {
        let name = template["metadata"]["name"].as_str().unwrap().to_owned();
        control.create(policy(ns, &name, &template, &NAMES)).await;
        let created = control.create(template).await;
        let same = |o: &Value| o["data"] == created["data"];
        for member in &members.all {
            let server = &member.server;
            server
                .until(resource, ns, &name, "the template", same)
                .await;
        }
        let changed = json!({"data": {"k": "Mg=="}});
        control.merge(resource, ns, &name, changed).await;
        let same = |o: &Value| o["data"]["k"] == "Mg==";
        for member in &members.all {
            let server = &member.server;
            server.until(resource, ns, &name, "changed", same).await;
        }
        control.delete(resource, ns, &name).await;
        gone(members, resource, ns, &name).await;
    }
}

/// A custom resource, whose CRD is propagated to the members first.
async fn instances(control: &Server, members: &Members, ns: &str) {
    let definition = widgets();
    let everywhere = cluster_wide(policy("", "widgets", &definition, &NAMES));
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
            .until(&DEFINITIONS, "", name, what, established)
            .await;
    }
    let template = widget(ns, "w", 7);
    control.create(policy(ns, "w", &template, &NAMES)).await;
    control.create(template).await;
    for member in &members.all {
        let size = |w: &Value| w["spec"]["size"] == 7;
        let server = &member.server;
        server.until(&WIDGETS, ns, "w", "the template", size).await;
    }
    control.delete(&WIDGETS, ns, "w").await;
    gone(members, &WIDGETS, ns, "w").await;
    control.delete(&DEFINITIONS, "", name).await;
    gone(members, &DEFINITIONS, "", name).await;
}

async fn gone(members: &Members, resource: &Gvr, ns: &str, name: &str) {
    for member in &members.all {
        member.server.until_gone(resource, ns, name).await;
    }
}
