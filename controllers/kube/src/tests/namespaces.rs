//! Tests of namespace deletion and of the default objects of namespaces.

use super::*;
use crate::custom_resource_definitions::DEFINITIONS;

async fn namespace(fixture: &KubeControllersFixture, name: &str) {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    fixture.create(&NAMESPACES, body).await;
    wait_until("it has its default objects", async || {
        fixture.get(&ACCOUNTS, name, "default").await.is_some()
            && fixture
                .get(&CONFIG_MAPS, name, "kube-root-ca.crt")
                .await
                .is_some()
    })
    .await;
}

#[tokio::test]
async fn everything_in_a_namespace_goes_with_it() {
    let fixture = KubeControllersFixture::new().await;
    fixture
        .create(&DEFINITIONS, definition("things", "Thing"))
        .await;
    namespace(&fixture, "n").await;
    fixture.create_config_map("n", "free", json!([])).await;
    let with_finalizer = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "held", "namespace": "n", "finalizers": ["x.io/held"]}});
    fixture.create(&SECRETS, with_finalizer).await;
    let thing = json!({"apiVersion": "g.io/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "n"}});
    wait_until("instances are served", async || {
        let at = ResourcePath::collection(&THINGS, "n");
        fixture
            .api
            .create(at, thing.clone().into(), &WriteOptions::default())
            .await
            .is_ok()
    })
    .await;
    fixture.delete(&NAMESPACES, "", "n", None).await;
    fixture.wait_until_gone(&CONFIG_MAPS, "n", "free").await;
    fixture.wait_until_gone(&THINGS, "n", "t").await;
    wait_until("the remaining content is reported", async || {
        let n = fixture.get(&NAMESPACES, "", "n").await.unwrap();
        let text = "Some content in the namespace has finalizers remaining: x.io/held in 1 resource instances";
        let all = n["status"]["conditions"].as_array();
        all.is_some_and(|all| all.iter().any(|c| c["message"] == text && c["status"] == "True"))
    })
    .await;
    fixture
        .merge(
            &SECRETS,
            "n",
            "held",
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    fixture.wait_until_gone(&NAMESPACES, "", "n").await;
    for gvr in [&CONFIG_MAPS, &SECRETS, &ACCOUNTS, &THINGS] {
        assert!(fixture.list(gvr, "n").await.is_empty(), "{gvr}");
    }
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn default_objects_of_a_namespace_are_recreated() {
    let fixture = KubeControllersFixture::new().await;
    namespace(&fixture, "n").await;
    fixture.delete(&ACCOUNTS, "n", "default", None).await;
    fixture
        .merge(
            &CONFIG_MAPS,
            "n",
            "kube-root-ca.crt",
            json!({"data": {"ca.crt": "other"}}),
        )
        .await;
    wait_until("the account is back", async || {
        fixture.get(&ACCOUNTS, "n", "default").await.is_some()
    })
    .await;
    wait_until("the authority is back", async || {
        let map = fixture.get(&CONFIG_MAPS, "n", "kube-root-ca.crt").await;
        map.is_some_and(|m| m["data"]["ca.crt"] == "CA")
    })
    .await;
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn a_renewed_authority_reaches_namespaces_and_token_secrets() {
    let fixture = KubeControllersFixture::new().await;
    namespace(&fixture, "n").await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "n"}});
    fixture.create(&ACCOUNTS, account).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "namespace": "n", "annotations": {"kubernetes.io/service-account.name": "a"}}});
    fixture.create(&SECRETS, secret).await;
    for (root_ca, encoded) in [("CA", "Q0E="), ("CA2", "Q0Ey")] {
        fixture.root_ca.send_replace(root_ca.into());
        wait_until(root_ca, async || {
            let map = fixture
                .get(&CONFIG_MAPS, "n", "kube-root-ca.crt")
                .await
                .unwrap();
            let secret = fixture.get(&SECRETS, "n", "t").await.unwrap();
            map["data"]["ca.crt"] == root_ca
                && secret["data"]["ca.crt"] == encoded
                && secret["data"]["token"] == "bi9hL3Q="
        })
        .await;
    }
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn token_secrets_live_with_their_account() {
    let fixture = KubeControllersFixture::new().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "default"}});
    fixture.create(&ACCOUNTS, account).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "t", "namespace": "default", "annotations": {"kubernetes.io/service-account.name": "a"}}});
    fixture.create(&SECRETS, secret).await;
    wait_until("the secret is filled", async || {
        let t = fixture.get(&SECRETS, "default", "t").await.unwrap();
        // base64 of "default/a/t" and "CA"
        t["data"]["token"] == "ZGVmYXVsdC9hL3Q=" && t["data"]["ca.crt"] == "Q0E="
    })
    .await;
    fixture.delete(&ACCOUNTS, "default", "a", None).await;
    fixture.wait_until_gone(&SECRETS, "default", "t").await;
    fixture.tasks.stop().await;
}

#[tokio::test]
async fn the_authorities_of_clients_are_published() {
    let fixture = KubeControllersFixture::new().await;
    let name = "extension-apiserver-authentication";
    let published = async |expected: &str| {
        wait_until(expected, async || {
            let map = fixture.get(&CONFIG_MAPS, "kube-system", name).await;
            map.is_some_and(|m| m["data"] == json!({"client-ca-file": expected}))
        })
        .await;
    };
    published("CLIENT CA").await;
    fixture.client_ca.send_replace("OTHER CA".into());
    published("OTHER CA").await;
    let foreign = json!({"data": {"client-ca-file": "", "requestheader-client-ca-file": "x"}});
    fixture
        .merge(&CONFIG_MAPS, "kube-system", name, foreign)
        .await;
    published("OTHER CA").await;
    fixture
        .delete(&CONFIG_MAPS, "kube-system", name, None)
        .await;
    published("OTHER CA").await;
    fixture.tasks.stop().await;
}
