//! Conflict resolution for objects that exist in a member cluster before they are propagated.
//!
//! The member's API server rejects the create before it looks for an object of the same name:
//! a Service because its node port is allocated (422), a ConfigMap because its quota is
//! exhausted (403). The Work must report the conflict all the same.

use harness::ApiServerClient;
use harness::api_server_client::{find_condition, wait_until};
use harness::objects::{
    CONFIG_MAPS, NAMESPACES, POLICIES, RESOURCE_QUOTAS, SERVICES, WORKS, config_map,
    execution_space, policy,
};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::aggregated::real_clusters::{RealMemberCluster, RealMemberClusters};

pub(crate) async fn run_scenario(
    control: &ApiServerClient,
    members: &RealMemberClusters,
    ns: &str,
) {
    control.create_namespace(ns).await;
    let member = &members.all[0];
    let there = async || member.server.get(&NAMESPACES, "", ns).await.is_some();
    wait_until("the namespace in the member", there).await;

    let web = service(ns);
    let (before, after) = resolve_conflict(control, member, &SERVICES, &web).await;
    assert_eq!(before["spec"]["clusterIP"], after["spec"]["clusterIP"]);
    assert_eq!(after["spec"]["ports"][0]["nodePort"], 30971);

    // With the `kube-root-ca.crt` of every namespace this is the second and last ConfigMap
    // that the quota admits.
    let settings = config_map(ns, "settings", "theirs");
    member.server.create(settings).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": ns},
        "spec": {"hard": {"count/configmaps": "2"}}});
    member.server.create(quota).await;
    member
        .server
        .wait_until(&RESOURCE_QUOTAS, ns, "q", "exhausted", |q| {
            q["status"]["used"]["count/configmaps"] == "2"
        })
        .await;
    let rejected = member
        .server
        .try_create(config_map(ns, "settings", "again"));
    let rejected = rejected.await.unwrap_err();
    assert_eq!(rejected.status().map(|s| s.code), Some(403), "{rejected}");
    let template = config_map(ns, "settings", "ours");
    let (_, after) = resolve_conflict(control, member, &CONFIG_MAPS, &template).await;
    assert_eq!(after["data"]["k"], "ours");
    control.delete(&NAMESPACES, "", ns).await;
    control.wait_until_deleted(&NAMESPACES, "", ns).await;
}

fn service(ns: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": ns},
        "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80, "nodePort": 30971}]}})
}

/// Propagates an object to a member that has an object of the same name: first with
/// `conflictResolution: Abort`, then with `Overwrite`.
///
/// Returns the member's object before and after.
async fn resolve_conflict(
    control: &ApiServerClient,
    member: &RealMemberCluster,
    resource: &Gvr,
    template: &Value,
) -> (Value, Value) {
    let text = |field: &str| template["metadata"][field].as_str().unwrap().to_owned();
    let (ns, name) = (text("namespace"), text("name"));
    if member.server.get(resource, &ns, &name).await.is_none() {
        member.server.create(template.clone()).await;
    }
    let before = member.server.get(resource, &ns, &name).await.unwrap();
    control
        .create(policy(&ns, &name, template, &[member.name]))
        .await;
    control.create(template.clone()).await;
    let kind = template["kind"].as_str().unwrap();
    let work = karmada_api::names::work_name(kind, &name, &ns);
    let space = execution_space(member.name);
    let wait_for_applied = async |what: &str| {
        let expected = if what == "applied" { "True" } else { "False" };
        control
            .wait_until(&WORKS, &space, &work, what, |w| {
                find_condition(w, "Applied")["status"] == expected
            })
            .await
    };
    let rejected = wait_for_applied("refused").await;
    let message = find_condition(&rejected, "Applied")["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("already exists in the cluster"),
        "{message}"
    );
    let overwrite = json!({"spec": {"conflictResolution": "Overwrite"}});
    control.merge_patch(&POLICIES, &ns, &name, overwrite).await;
    wait_for_applied("applied").await;
    let after = member.server.get(resource, &ns, &name).await.unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(after["metadata"]["labels"]["karmada.io/managed"], "true");
    (before, after)
}
