//! Policy in, objects in members, status back on the template; told to any control
//! plane whose members are real clusters.

use client::At;
use harness::Server;
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, NAMESPACES, PODS, POLICIES, SECRETS, WIDGETS,
    cluster_wide, config_map, deployment, divided, policy, secret, widget, widgets,
};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::world::{Members, NAMES};

/// Everything a template goes through, for each kind of template.
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

/// A Deployment becomes ReplicaSets and pods that are Ready, and says so.
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
    let why = At::one(&BINDINGS, ns, "web-deployment").sub("decision");
    let told = control.api.get(why).await.unwrap().value().unwrap();
    assert_eq!(
        (&told["kind"], &told["chosenClusters"]),
        (&json!("Decision"), &json!(2)),
        "{told:#}"
    );

    // What somebody takes away in a member comes back.
    let member = &members.all[0].server;
    let taken = member.until_there(&DEPLOYMENTS, ns, "web").await;
    member.delete(&DEPLOYMENTS, ns, "web").await;
    let again = |d: &Value| d["metadata"]["uid"] != taken["metadata"]["uid"];
    member
        .until(&DEPLOYMENTS, ns, "web", "made again", again)
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

/// Kinds without a status.
async fn records(control: &Server, members: &Members, ns: &str) {
    for (template, resource) in [
        (config_map(ns, "settings", "1"), &CONFIG_MAPS),
        (secret(ns, "password", "1"), &SECRETS),
    ] {
        let name = template["metadata"]["name"].as_str().unwrap().to_owned();
        control.create(policy(ns, &name, &template, &NAMES)).await;
        let made = control.create(template).await;
        let same = |o: &Value| o["data"] == made["data"];
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

/// A kind that users bring: its definition goes to the members first.
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
