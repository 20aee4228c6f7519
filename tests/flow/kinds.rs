//! Kinds other than Deployments.

use serde_json::{Value, json};

use crate::fleet::{Fleet, condition};
use crate::objects::{
    BINDINGS, DAEMON_SETS, JOBS, POLICIES, SERVICES, STATEFUL_SETS, config_map, divided, gvr, pods,
    policy,
};

/// One of each, and a field that must arrive.
fn samples(ns: &str) -> Vec<(Value, &'static str)> {
    let meta = json!({"name": "x", "namespace": ns});
    let selector = json!({"matchLabels": {"app": "x"}});
    vec![
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}}),
            "/spec/ports/0/port",
        ),
        (config_map(ns, "x", "v"), "/data/k"),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": {"k": "dg=="}}),
            "/data/k",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": false}),
            "/automountServiceAccountToken",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": {"replicas": 2, "serviceName": "x", "selector": selector, "template": pods("x")}}),
            "/spec/serviceName",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta, "spec": {"selector": selector, "template": pods("x")}}),
            "/spec/selector/matchLabels/app",
        ),
        (
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta, "spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}}),
            "/spec/defaultBackend/service/name",
        ),
    ]
}

#[tokio::test]
async fn each_kind_arrives_and_reports() {
    let ns = "kinds";
    let fleet = Fleet::shared(ns).await;
    let control = &fleet.control;
    let all = samples(ns);
    let selectors: Vec<Value> = all
        .iter()
        .map(|(o, _)| crate::objects::selector(o))
        .collect();
    let mut everything = policy(ns, "everything", &all[0].0, &["member1", "member2"]);
    everything["spec"]["resourceSelectors"] = json!(selectors);
    control.create(everything).await;
    for (object, _) in &all {
        control.create(object.clone()).await;
    }
    for (object, field) in &all {
        for member in &fleet.members[..2] {
            member
                .until(gvr(object), ns, "x", "as created", |o| {
                    o.pointer(field) == object.pointer(field)
                })
                .await;
        }
        let binding = format!("x-{}", object["kind"].as_str().unwrap().to_lowercase());
        control
            .until(&BINDINGS, ns, &binding, "applied", |b| {
                condition(b, "FullyApplied")["status"] == "True"
            })
            .await;
    }
    control
        .until(&STATEFUL_SETS, ns, "x", "aggregated", |s| {
            s["status"]["readyReplicas"] == 4 && s["status"]["replicas"] == 4
        })
        .await;
    control
        .until(&DAEMON_SETS, ns, "x", "aggregated", |d| {
            d["status"]["numberReady"] == 6 && d["status"]["desiredNumberScheduled"] == 6
        })
        .await;

    // Addresses are each cluster's own.
    let ours = control.get(&SERVICES, ns, "x").await.unwrap();
    let theirs = fleet.members[0].get(&SERVICES, ns, "x").await.unwrap();
    assert!(
        theirs["spec"]["clusterIP"].is_string(),
        "{ours:#} {theirs:#}"
    );
    control
        .merge(
            &SERVICES,
            ns,
            "x",
            json!({"spec": {"ports": [{"port": 81}]}}),
        )
        .await;
    for member in &fleet.members[..2] {
        let changed = |s: &Value| s["spec"]["ports"][0]["port"] == 81;
        member.until(&SERVICES, ns, "x", "changed", changed).await;
    }
    control.get(&POLICIES, ns, "everything").await.unwrap();
}

#[tokio::test]
async fn completions_of_a_job_are_divided_and_it_completes() {
    let ns = "job";
    let fleet = Fleet::shared(ns).await;
    let control = &fleet.control;
    let mut template = pods("work");
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "work", "namespace": ns},
        "spec": {"parallelism": 4, "completions": 4, "template": template},
    });
    let weights = [("member1", 1), ("member2", 1)];
    control.create(divided(ns, "work", &job, &weights)).await;
    control.create(job).await;
    for member in &fleet.members[..2] {
        member
            .until(&JOBS, ns, "work", "2 of 4", |j| {
                j["spec"]["parallelism"] == 2 && j["spec"]["completions"] == 2
            })
            .await;
    }
    control
        .until(&JOBS, ns, "work", "complete", |j| {
            j["status"]["succeeded"] == 4
                && condition(j, "Complete")["status"] == "True"
                && j["status"]["completionTime"].is_string()
        })
        .await;
}
