//! The token of a member is replaced while its watches run.

use client::{ResourcePath, WriteOptions};
use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, FleetFixture, find_condition, run_flotilla, wait_until};
use crate::flow::member_outage::start_member;
use crate::flow::objects::{CLUSTERS, CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, config_map, policy};

const NAME: &str = "rotated";
const NS: &str = "credentials";

/// Requests a token of the account that the control plane has in this member, which is valid for ten minutes.
pub(crate) async fn short_token(member: &ApiServerClient, name: &str) -> String {
    let account = format!("karmada-{name}");
    let at = ResourcePath::object(&SERVICE_ACCOUNTS, "karmada-cluster", &account);
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600}});
    let options = WriteOptions::default();
    let created = member
        .api
        .create(at.subresource("token"), body.into(), &options);
    let created = created.await.unwrap().value().unwrap();
    created["status"]["token"].as_str().unwrap().to_owned()
}

// proves: CRT-watch, CRT-member
#[tokio::test]
async fn watches_go_on_with_a_token_that_replaces_the_old_one() {
    let fleet = FleetFixture::shared(NS).await;
    let control = &fleet.control;
    let dir = tempfile::tempdir().unwrap();
    let _process = start_member(dir.path()).await;
    let kubeconfig = dir.path().join("kubeconfig");
    let own = fleet.up.dir().join("kubeconfig").display().to_string();
    let member_kubeconfig = kubeconfig.display().to_string();
    let files = [
        "--cluster-kubeconfig",
        &member_kubeconfig,
        "--kubeconfig",
        &own,
    ];
    run_flotilla(&[&["join", NAME][..], &files].concat()).await;
    control.wait_until_cluster_ready(NAME).await;
    let member = ApiServerClient::connect(NAME, &kubeconfig);
    let map = config_map(NS, "kept", "v");
    control.create(policy(NS, "kept", &map, &[NAME])).await;
    control.create(map).await;
    member.wait_until_exists(&CONFIG_MAPS, NS, "kept").await;

    let token = short_token(&member, NAME).await;
    let patch = json!({"stringData": {"token": token}});
    control
        .merge_patch(&SECRETS, "karmada-cluster", NAME, patch)
        .await;
    // The former token is worth nothing from now on.
    let account = format!("karmada-{NAME}");
    member.delete(&SECRETS, "karmada-cluster", &account).await;
    let warned = |cluster: &Value| {
        let condition = find_condition(cluster, "CredentialsValid");
        condition["reason"] == "CredentialsExpireSoon"
    };
    control
        .wait_until(&CLUSTERS, "", NAME, "warned about", warned)
        .await;
    let name = "flotilla_cluster_credential_expiration_timestamp_seconds{";
    let credential = "credential=\"karmada-cluster/rotated/token\"";
    let reported = |line: &str| line.starts_with(name) && line.contains(credential);
    wait_until(&format!("{name}{credential}"), async || {
        let metrics = control.api.get_raw("/metrics").await.unwrap();
        String::from_utf8_lossy(&metrics).lines().any(reported)
    })
    .await;
    // A watch of the member sees the deletion, and a write restores the object.
    member.delete(&CONFIG_MAPS, NS, "kept").await;
    member.wait_until_exists(&CONFIG_MAPS, NS, "kept").await;
    control.wait_until_cluster_ready(NAME).await;
    run_flotilla(&[&["unjoin", NAME][..], &files].concat()).await;
}
