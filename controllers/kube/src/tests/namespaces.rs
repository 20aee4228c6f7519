//! Tests of namespace deletion and of the default objects of namespaces.

use super::*;
use crate::custom_resource_definitions::DEFINITIONS;

async fn namespace(lab: &KubeControllersFixture, name: &str) {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    lab.create(&NAMESPACES, body).await;
    wait_until("it has its default objects", async || {
        lab.get(&ACCOUNTS, name, "default").await.is_some()
            && lab
                .get(&CONFIG_MAPS, name, "kube-root-ca.crt")
                .await
                .is_some()
    })
    .await;
}

#[tokio::test]
async fn everything_in_a_namespace_goes_with_it() {
    let lab = KubeControllersFixture::new().await;
    lab.create(&DEFINITIONS, definition("things", "Thing"))
        .await;
    namespace(&lab, "n").await;
    lab.create_config_map("n", "free", json!([])).await;
    let held = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "held", "namespace": "n", "finalizers": ["x.io/held"]}});
    lab.create(&SECRETS, held).await;
    let thing = json!({"apiVersion": "g.io/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "n"}});
    wait_until("instances are served", async || {
        let at = ResourcePath::collection(&THINGS, "n");
        lab.api
            .create(at, thing.clone().into(), &WriteOptions::default())
            .await
            .is_ok()
    })
    .await;
    lab.delete(&NAMESPACES, "", "n", None).await;
    lab.wait_until_gone(&CONFIG_MAPS, "n", "free").await;
    lab.wait_until_gone(&THINGS, "n", "t").await;
    wait_until("the remaining content is reported", async || {
        let n = lab.get(&NAMESPACES, "", "n").await.unwrap();
        let text = "Some content in the namespace has finalizers remaining: x.io/held in 1 resource instances";
        let all = n["status"]["conditions"].as_array();
        all.is_some_and(|all| all.iter().any(|c| c["message"] == text && c["status"] == "True"))
    })
    .await;
    lab.merge(
        &SECRETS,
        "n",
        "held",
        json!({"metadata": {"finalizers": null}}),
    )
    .await;
    lab.wait_until_gone(&NAMESPACES, "", "n").await;
    for gvr in [&CONFIG_MAPS, &SECRETS, &ACCOUNTS, &THINGS] {
        assert!(lab.list(gvr, "n").await.is_empty(), "{gvr}");
    }
    lab.tasks.stop().await;
}

#[tokio::test]
async fn default_objects_of_a_namespace_are_recreated() {
    let lab = KubeControllersFixture::new().await;
    namespace(&lab, "n").await;
    lab.delete(&ACCOUNTS, "n", "default", None).await;
    lab.merge(
        &CONFIG_MAPS,
        "n",
        "kube-root-ca.crt",
        json!({"data": {"ca.crt": "other"}}),
    )
    .await;
    wait_until("the account is back", async || {
        lab.get(&ACCOUNTS, "n", "default").await.is_some()
    })
    .await;
    wait_until("the authority is back", async || {
        let map = lab.get(&CONFIG_MAPS, "n", "kube-root-ca.crt").await;
        map.is_some_and(|m| m["data"]["ca.crt"] == "CA")
    })
    .await;
    lab.tasks.stop().await;
}

#[tokio::test]
async fn a_renewed_authority_reaches_namespaces_and_token_secrets() {
    let lab = KubeControllersFixture::new().await;
    namespace(&lab, "n").await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "n"}});
    lab.create(&ACCOUNTS, account).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "namespace": "n", "annotations": {"kubernetes.io/service-account.name": "a"}}});
    lab.create(&SECRETS, secret).await;
    for (root_ca, encoded) in [("CA", "Q0E="), ("CA2", "Q0Ey")] {
        lab.root_ca.send_replace(root_ca.into());
        wait_until(root_ca, async || {
            let map = lab
                .get(&CONFIG_MAPS, "n", "kube-root-ca.crt")
                .await
                .unwrap();
            let secret = lab.get(&SECRETS, "n", "t").await.unwrap();
            map["data"]["ca.crt"] == root_ca
                && secret["data"]["ca.crt"] == encoded
                && secret["data"]["token"] == "bi9hL3Q="
        })
        .await;
    }
    lab.tasks.stop().await;
}

#[tokio::test]
async fn token_secrets_live_with_their_account() {
    let lab = KubeControllersFixture::new().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "default"}});
    lab.create(&ACCOUNTS, account).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "namespace": "default", "annotations": {"kubernetes.io/service-account.name": "a"}}});
    lab.create(&SECRETS, secret).await;
    wait_until("the secret is filled", async || {
        let t = lab.get(&SECRETS, "default", "t").await.unwrap();
        // base64 of "default/a/t" and "CA"
        t["data"]["token"] == "ZGVmYXVsdC9hL3Q=" && t["data"]["ca.crt"] == "Q0E="
    })
    .await;
    lab.delete(&ACCOUNTS, "default", "a", None).await;
    lab.wait_until_gone(&SECRETS, "default", "t").await;
    lab.tasks.stop().await;
}
