//! Conflict resolution for objects that exist in a member cluster before they are propagated.
//!
//! The member's API server rejects the create before it looks for an object of the same name:
//! a Service because its node port is allocated (422), a ConfigMap because its quota is
//! exhausted (403). The Work must report the conflict all the same.

use harness::Server;
use harness::objects::{
    CONFIG_MAPS, NAMESPACES, POLICIES, RESOURCE_QUOTAS, SERVICES, WORKS, config_map, policy,
    works_of,
};
use harness::server::{condition, until};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::world::{Member, Members};

pub(crate) async fn story(control: &Server, members: &Members, ns: &str) {
    control.namespace(ns).await;
    let member = &members.all[0];
    let there = async || member.server.get(&NAMESPACES, "", ns).await.is_some();
    until("the namespace in the member", there).await;

    let web = service(ns);
    let (before, after) = adopt(control, member, &SERVICES, &web).await;
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
        .until(&RESOURCE_QUOTAS, ns, "q", "exhausted", |q| {
            q["status"]["used"]["count/configmaps"] == "2"
        })
        .await;
    let rejected = member
        .server
        .try_create(config_map(ns, "settings", "again"));
    let rejected = rejected.await.unwrap_err();
    assert_eq!(rejected.status().map(|s| s.code), Some(403), "{rejected}");
    let ours = config_map(ns, "settings", "ours");
    let (_, after) = adopt(control, member, &CONFIG_MAPS, &ours).await;
    assert_eq!(after["data"]["k"], "ours");
    control.delete(&NAMESPACES, "", ns).await;
    control.until_gone(&NAMESPACES, "", ns).await;
}

fn service(ns: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": ns},
        "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80, "nodePort": 30971}]}})
}

/// Propagates an object to a member that has an object of the same name: first with
/// `conflictResolution: Abort`, then with `Overwrite`.
///
/// Returns the member's object before and after.
async fn adopt(
    control: &Server,
    member: &Member,
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
    let work = openapi::karmada::names::work(kind, &name, &ns);
    let space = works_of(member.name);
    let wait_for_applied = async |what: &str| {
        let expected = if what == "applied" { "True" } else { "False" };
        control
            .until(&WORKS, &space, &work, what, |w| {
                condition(w, "Applied")["status"] == expected
            })
            .await
    };
    let rejected = wait_for_applied("refused").await;
    let message = condition(&rejected, "Applied")["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("already exists in the cluster"),
        "{message}"
    );
    let overwrite = json!({"spec": {"conflictResolution": "Overwrite"}});
    control.merge(&POLICIES, &ns, &name, overwrite).await;
    wait_for_applied("applied").await;
    let after = member.server.get(resource, &ns, &name).await.unwrap();
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_eq!(after["metadata"]["labels"]["karmada.io/managed"], "true");
    (before, after)
}
