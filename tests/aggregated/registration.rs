//! APIServices of Flotilla in the host: they become Available soon, and stay so when Flotilla
//! restarts, when somebody changes or deletes them, and when the CA changes.

use std::time::Duration;

use harness::objects::{API_SERVICES, POLICIES, SECRETS};
use serde_json::json;

use crate::aggregated_control_plane::{AggregatedControlPlane, NAMESPACE};

const SERVING_CERT_SECRET: &str = "flotilla-serving-cert";
const API_SERVICE: &str = "v1alpha1.policy.karmada.io";

#[tokio::test(flavor = "multi_thread")]
async fn api_services_stay_registered() {
    let Some(mut control_plane) = AggregatedControlPlane::start().await else {
        return;
    };
    let took = control_plane.wait_until_available().await;
    assert!(
        took < Duration::from_secs(5),
        "first available after {took:?}"
    );
    let all = control_plane.api_services().await;
    assert!(all.len() >= 5, "{}", all.len());
    assert!(
        all.iter()
            .all(|s| s["spec"]["insecureSkipTLSVerify"] != true)
    );
    control_plane.client.list(&POLICIES, "").await;

    // The APIServices exist when Flotilla starts again.
    control_plane.kill();
    control_plane.start_flotilla();
    let took = control_plane.wait_until_available().await;
    assert!(
        took < Duration::from_secs(35),
        "available again after {took:?}"
    );
    control_plane.client.list(&POLICIES, "").await;

    // One is deleted, and another gets a wrong port.
    control_plane
        .client
        .delete(&API_SERVICES, "", API_SERVICE)
        .await;
    let elsewhere = json!({"spec": {"service": {"port": 1}}});
    let other = "v1alpha1.cluster.karmada.io";
    control_plane
        .client
        .merge_patch(&API_SERVICES, "", other, elsewhere)
        .await;
    let port = json!(control_plane.port);
    for name in [API_SERVICE, other] {
        let restored = |s: &serde_json::Value| s["spec"]["service"]["port"] == port;
        control_plane
            .client
            .wait_until(&API_SERVICES, "", name, "restored", restored)
            .await;
    }
    control_plane.wait_until_available().await;

    check_certificate_rotation(&control_plane).await;
}

/// The Secret of the serving certificate is deleted, and with it the CA. Flotilla creates a new
/// one and updates the CA bundles.
async fn check_certificate_rotation(control_plane: &AggregatedControlPlane) {
    let before = control_plane.ca_bundle().await;
    control_plane
        .client
        .delete(&SECRETS, NAMESPACE, SERVING_CERT_SECRET)
        .await;
    let created = control_plane
        .client
        .wait_until_exists(&SECRETS, NAMESPACE, SERVING_CERT_SECRET)
        .await;
    let changed = |s: &serde_json::Value| s["spec"]["caBundle"] == created["data"]["ca.crt"];
    control_plane
        .client
        .wait_until(
            &API_SERVICES,
            "",
            API_SERVICE,
            "trusting the new CA alone",
            changed,
        )
        .await;
    assert_ne!(control_plane.ca_bundle().await, before);
    control_plane.wait_until_available().await;
    control_plane.client.list(&POLICIES, "").await;
}
