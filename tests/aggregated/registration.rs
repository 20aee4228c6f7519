//! APIServices of Flotilla in the host: they become Available soon, and stay so when Flotilla
//! restarts, when somebody changes or deletes them, and when the CA changes.

use std::time::Duration;

use harness::api_server_client::{find_condition, wait_until};
use harness::karmada_kinds::assert_karmada_kinds_are_served;
use harness::objects::{API_SERVICES, CONFIG_MAPS, POLICIES, SECRETS};
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::{AggregatedControlPlane, NAMESPACE};

const SERVING_CERT_SECRET: &str = "flotilla-serving-cert";
const API_SERVICE: &str = "v1alpha1.policy.karmada.io";

#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn api_services_stay_registered() {
    let Some(mut control_plane) = AggregatedControlPlane::start().await else {
        return;
    };
    let elapsed = control_plane.wait_until_available().await;
    assert!(
        elapsed < Duration::from_secs(5),
        "first available after {elapsed:?}"
    );
    let all = control_plane.api_services().await;
    assert!(all.len() >= 5, "{}", all.len());
    assert!(
        all.iter()
            .all(|s| s["spec"]["insecureSkipTLSVerify"] != true)
    );
    control_plane.client.list(&POLICIES, "").await;
    assert_karmada_kinds_are_served(&control_plane.host.kubeconfig).await;

    // The APIServices exist when Flotilla starts again.
    control_plane.kill();
    control_plane.start_flotilla();
    let elapsed = control_plane.wait_until_available().await;
    assert!(
        elapsed < Duration::from_secs(35),
        "available again after {elapsed:?}"
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
        let restored = |s: &Value| s["spec"]["service"]["port"] == port;
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
    let changed = |s: &Value| s["spec"]["caBundle"] == created["data"]["ca.crt"];
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

const METRICS_API_SERVICES: [&str; 4] = [
    "v1beta1.custom.metrics.k8s.io",
    "v1beta1.external.metrics.k8s.io",
    "v1beta1.metrics.k8s.io",
    "v1beta2.custom.metrics.k8s.io",
];

/// The name of the Service that each APIService of metrics leads to.
async fn metrics_services(control_plane: &AggregatedControlPlane) -> Vec<(String, Value)> {
    let all = control_plane.client.list(&API_SERVICES, "").await;
    let mut services: Vec<(String, Value)> = all
        .iter()
        .map(|s| (s["metadata"]["name"].as_str().unwrap(), s))
        .filter(|(name, _)| METRICS_API_SERVICES.contains(name))
        .map(|(name, s)| (name.to_owned(), s["spec"]["service"]["name"].clone()))
        .collect();
    services.sort_by(|(a, _), (b, _)| a.cmp(b));
    services
}

/// Waits until the APIServices of metrics lead to these Services.
async fn wait_for_metrics_services(
    control_plane: &AggregatedControlPlane,
    expected: &[(&str, &str)],
) {
    let expected: Vec<(String, Value)> = expected
        .iter()
        .map(|(name, service)| ((*name).to_owned(), json!(service)))
        .collect();
    wait_until("the APIServices of metrics", async || {
        metrics_services(control_plane).await == expected
    })
    .await;
}

/// Waits until the APIServices of metrics lead to Flotilla and are available.
pub(crate) async fn expect_metrics(control_plane: &AggregatedControlPlane) {
    let own = METRICS_API_SERVICES.map(|name| (name, "flotilla"));
    wait_for_metrics_services(control_plane, &own).await;
    for name in METRICS_API_SERVICES {
        let is_available = |s: &Value| find_condition(s, "Available")["status"] == "True";
        control_plane
            .client
            .wait_until(&API_SERVICES, "", name, "available", is_available)
            .await;
    }
}

// proves: MAG-register, MAG-others, ADD-metrics-adapter
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_registered_where_no_other_server_has_them() {
    let Some(mut control_plane) = AggregatedControlPlane::prepare().await else {
        return;
    };
    let client = &control_plane.client;
    let resource_metrics = METRICS_API_SERVICES[2];
    let other = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": resource_metrics},
        "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "insecureSkipTLSVerify": true,
            "service": {"namespace": "kube-system", "name": "metrics-server"}}});
    client.create(other).await;
    control_plane.start_flotilla_with(&["--metrics-api-services=IfNotPresent"]);
    control_plane.wait_until_available().await;
    let with_other = METRICS_API_SERVICES.map(|name| match name == resource_metrics {
        true => (name, "metrics-server"),
        false => (name, "flotilla"),
    });
    wait_for_metrics_services(&control_plane, &with_other).await;
    let client = &control_plane.client;
    let own = METRICS_API_SERVICES.into_iter();
    for name in own.filter(|name| *name != resource_metrics) {
        let is_available = |s: &Value| find_condition(s, "Available")["status"] == "True";
        client
            .wait_until(&API_SERVICES, "", name, "available", is_available)
            .await;
    }
    // There is no member that could have it.
    let metric = "/apis/custom.metrics.k8s.io/v1beta2/nodes/*/load";
    wait_until("the answer about a metric", async || {
        let answer = client.api.get_raw(metric).await.unwrap_err().to_string();
        answer.contains("could not find the metric load for nodes")
    })
    .await;
    let discovery = "/apis/external.metrics.k8s.io/v1beta1";
    wait_until("discovery", async || {
        client.api.get_raw(discovery).await.is_ok()
    })
    .await;

    control_plane.stop();
    control_plane.start_flotilla_with(&["--metrics-api-services=Always"]);
    let own = METRICS_API_SERVICES.map(|name| (name, "flotilla"));
    wait_for_metrics_services(&control_plane, &own).await;
    let client = &control_plane.client;
    wait_until("the metrics of nodes", async || {
        client
            .api
            .get_raw("/apis/metrics.k8s.io/v1beta1/nodes")
            .await
            .is_ok()
    })
    .await;

    control_plane.stop();
    control_plane.start_flotilla_with(&["--metrics-api-services=Never"]);
    wait_for_metrics_services(&control_plane, &[]).await;
    for (state, expected) in [("enabled", &own[..]), ("disabled", &[])] {
        let data = json!({"data": {"karmada-metrics-adapter": state}});
        let client = &control_plane.client;
        client
            .wait_until_exists(&CONFIG_MAPS, NAMESPACE, "flotilla-addons")
            .await;
        client
            .merge_patch(&CONFIG_MAPS, NAMESPACE, "flotilla-addons", data)
            .await;
        wait_for_metrics_services(&control_plane, expected).await;
    }
    control_plane.stop();
}
