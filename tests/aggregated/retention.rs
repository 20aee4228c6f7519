//! Retention of the fields that a real member cluster sets in propagated objects: addresses,
//! tokens, classes, tolerations, selectors.
//!
//! A change of the template is applied, and the fields keep the values of the member.

use harness::ApiServerClient;
use harness::api_server_client::find_condition;
use harness::objects::{
    BINDINGS, NAMESPACES, WORKS, deployment, execution_space, gvr, pod_template, policy,
};
use serde_json::{Value, json};

use crate::aggregated::real_clusters::{MEMBER_NAMES, RealMemberClusters};

/// Templates, each with the JSON pointer of a field that the member sets and that is retained.
fn templates_with_retained_fields(ns: &str) -> Vec<(Value, &'static str)> {
    let meta = |name: &str| json!({"name": name, "namespace": ns});
    let selector = json!({"matchLabels": {"app": "x"}});
    let storage = json!({"requests": {"storage": "1Gi"}});
    let mut once = pod_template("x");
    once["spec"]["restartPolicy"] = "Never".into();
    let mut token = meta("token");
    token["annotations"] = json!({"kubernetes.io/service-account.name": "worker"});
    vec![
        (
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("worker")}),
            "/secrets/0/name",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": token, "type": "kubernetes.io/service-account-token"}),
            "/data/token",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("plain"), "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}}),
            "/spec/clusterIP",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("wide"), "spec": {"type": "LoadBalancer",
                "externalTrafficPolicy": "Local", "selector": {"app": "x"}, "ports": [{"port": 80}]}}),
            "/spec/healthCheckNodePort",
        ),
        (
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta("data"), "spec": {"accessModes": ["ReadWriteOnce"], "resources": storage}}),
            "/spec/storageClassName",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta("lone"), "spec": pod_template("lone")["spec"]}),
            "/spec/tolerations",
        ),
        (
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta("once"), "spec": {"template": once}}),
            "/spec/selector/matchLabels/controller-uid",
        ),
        (
            deployment(ns, "web", 1),
            "/metadata/annotations/deployment.kubernetes.io~1revision",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta("set"), "spec": {"serviceName": "plain", "selector": selector, "template": pod_template("x")}}),
            "/spec/revisionHistoryLimit",
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta("all"), "spec": {"selector": selector, "template": pod_template("x")}}),
            "/metadata/annotations/deprecated.daemonset.template.generation",
        ),
    ]
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Waits until the current generation of a Work is applied.
async fn wait_until_applied(control: &ApiServerClient, cluster: &str, object: &Value, ns: &str) {
    let kind = object["kind"].as_str().unwrap_or_default();
    let work = karmada_api::names::work_name(kind, name_of(object), ns);
    control
        .wait_until(&WORKS, &execution_space(cluster), &work, "applied", |w| {
            let applied = find_condition(w, "Applied");
            applied["status"] == "True"
                && applied["observedGeneration"] == w["metadata"]["generation"]
        })
        .await;
}

pub(crate) async fn run_scenario(
    control: &ApiServerClient,
    members: &RealMemberClusters,
    ns: &str,
) {
    control.create_namespace(ns).await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.org/none",
        "metadata": {"name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}});
    for member in &members.all {
        member.server.create(class.clone()).await;
    }
    let all = templates_with_retained_fields(ns);
    for (object, _) in &all {
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let policy_name = format!("{kind}-{}", name_of(object));
        control
            .create(policy(ns, &policy_name, object, &MEMBER_NAMES))
            .await;
        control.create(object.clone()).await;
    }
    for (object, pointer) in &all {
        let mut defaulted = Vec::new();
        for member in &members.all {
            let object_with_field =
                member
                    .server
                    .wait_until(gvr(object), ns, name_of(object), pointer, |o| {
                        o.pointer(pointer).is_some_and(|value| !value.is_null())
                    });
            defaulted.push(object_with_field.await);
            wait_until_applied(control, member.name, object, ns).await;
        }
        let touched = json!({"metadata": {"labels": {"touched": "yes"}}});
        control
            .merge_patch(gvr(object), ns, name_of(object), touched)
            .await;
        for (member, before) in members.all.iter().zip(defaulted) {
            let after = member
                .server
                .wait_until(gvr(object), ns, name_of(object), "touched", |o| {
                    o["metadata"]["labels"]["touched"] == "yes"
                })
                .await;
            assert_eq!(after.pointer(pointer), before.pointer(pointer), "{pointer}");
            assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
            wait_until_applied(control, member.name, object, ns).await;
        }
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let binding = format!("{}-{kind}", name_of(object));
        control
            .wait_until(&BINDINGS, ns, &binding, "applied everywhere", |b| {
                find_condition(b, "FullyApplied")["status"] == "True"
            })
            .await;
    }
    control.delete(&NAMESPACES, "", ns).await;
    control.wait_until_deleted(&NAMESPACES, "", ns).await;
    for member in &members.all {
        member.server.wait_until_deleted(&NAMESPACES, "", ns).await;
    }
}
