//! APIServices of Flotilla in the host: they become Available soon, and stay so when Flotilla
//! restarts, when somebody changes or deletes them, and when the CA changes.

use std::time::Duration;

use harness::objects::{API_SERVICES, POLICIES, SECRETS};
use serde_json::json;

use crate::behind::{Behind, NAMESPACE};

const SECRET: &str = "flotilla-serving-cert";
const VERSION: &str = "v1alpha1.policy.karmada.io";

#[tokio::test(flavor = "multi_thread")]
async fn api_services_stay_registered() {
    let Some(mut control_plane) = Behind::start().await else {
        return;
    };
    let took = control_plane.until_available().await;
    assert!(
        took < Duration::from_secs(5),
        "first available after {took:?}"
    );
    let all = control_plane.registered().await;
    assert!(all.len() >= 5, "{}", all.len());
    assert!(
        all.iter()
            .all(|s| s["spec"]["insecureSkipTLSVerify"] != true)
    );
    control_plane.control.list(&POLICIES, "").await;

    // The APIServices exist when Flotilla starts again.
    control_plane.kill();
    control_plane.run();
    let took = control_plane.until_available().await;
    assert!(
        took < Duration::from_secs(35),
        "available again after {took:?}"
    );
    control_plane.control.list(&POLICIES, "").await;

    // One is deleted, and another gets a wrong port.
    control_plane
        .control
        .delete(&API_SERVICES, "", VERSION)
        .await;
    let elsewhere = json!({"spec": {"service": {"port": 1}}});
    let other = "v1alpha1.cluster.karmada.io";
    control_plane
        .control
        .merge(&API_SERVICES, "", other, elsewhere)
        .await;
    let port = json!(control_plane.port);
    for name in [VERSION, other] {
        let restored = |s: &serde_json::Value| s["spec"]["service"]["port"] == port;
        control_plane
            .control
            .until(&API_SERVICES, "", name, "restored", restored)
            .await;
    }
    control_plane.until_available().await;

    new_certificate(&control_plane).await;
}

/// The Secret of the serving certificate is deleted, and with it the CA. Flotilla creates a new
/// one and updates the CA bundles.
async fn new_certificate(control_plane: &Behind) {
    let before = control_plane.bundle().await;
    control_plane
        .control
        .delete(&SECRETS, NAMESPACE, SECRET)
        .await;
    let created = control_plane
        .control
        .until_there(&SECRETS, NAMESPACE, SECRET)
        .await;
    let changed = |s: &serde_json::Value| s["spec"]["caBundle"] == created["data"]["ca.crt"];
    control_plane
        .control
        .until(
            &API_SERVICES,
            "",
            VERSION,
            "trusting the new CA alone",
            changed,
        )
        .await;
    assert_ne!(control_plane.bundle().await, before);
    control_plane.until_available().await;
    control_plane.control.list(&POLICIES, "").await;
}
