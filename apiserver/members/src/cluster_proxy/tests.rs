//! Tests of the cluster proxy's backends.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::ShutdownToken;
use client_fake::FakeApi;
use serde_json::{Value, json};

use super::*;

fn cluster(spec: Value) -> Value {
    json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
           "metadata": {"name": "m"}, "spec": spec})
}

fn complete_spec() -> Value {
    json!({"syncMode": "Push", "apiEndpoint": "https://m/base/", "insecureSkipTLSVerification": true,
           "secretRef": {"namespace": "kc", "name": "m"},
           "impersonatorSecretRef": {"namespace": "kc", "name": "m-impersonator"}})
}

fn secret(name: &str, data: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<String, Value> = data
        .iter()
        .map(|(k, v)| ((*k).to_owned(), STANDARD.encode(v).into()))
        .collect();
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kc"}, "data": data})
}

fn base_path_or_error(entered: Result<ClusterProxyPermit, ClusterProxyError>) -> String {
    match entered {
        Ok(gateway) => gateway.forwarder().base_path().to_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn errors_name_what_is_missing() {
    let without = |field: &str| {
        let mut spec = complete_spec();
        spec.as_object_mut().unwrap().remove(field);
        cluster(spec)
    };
    let token = || vec![secret("m-impersonator", &[("token", "t")])];
    let table = [
        (None, vec![], "cluster \"m\" not found"),
        (
            Some(without("apiEndpoint")),
            token(),
            "cluster \"m\" has no apiEndpoint",
        ),
        (
            Some(without("impersonatorSecretRef")),
            token(),
            "the impersonatorSecretRef of cluster \"m\" is not set",
        ),
        (
            Some(cluster(complete_spec())),
            vec![],
            "the secret \"kc/m-impersonator\" of cluster \"m\" does not exist",
        ),
        (
            Some(cluster(complete_spec())),
            vec![secret("m-impersonator", &[("other", "t")])],
            "the secret \"kc/m-impersonator\" of cluster \"m\" has no \"token\"",
        ),
        (
            Some(without("insecureSkipTLSVerification")),
            token(),
            "the secret \"kc/m\" of cluster \"m\" does not exist",
        ),
        (Some(cluster(complete_spec())), token(), "/base"),
        (
            Some(cluster(json!({"syncMode": "Pull"}))),
            token(),
            "the agent of cluster \"m\" has no tunnel to this replica of the control plane",
        ),
        // A cluster in pull mode may have no access secret.
        (Some(without("secretRef")), token(), "/base"),
    ];
    for (cluster, secrets, expected) in table {
        let host = FakeApi::new();
        if let Some(cluster) = cluster {
            host.seed(&CLUSTERS, cluster);
        }
        for secret in secrets {
            host.seed(&SECRETS, secret);
        }
        let tasks = TaskGroup::new(ShutdownToken::new());
        let gateways = ClusterProxyBackends::start(host, &tasks);
        assert_eq!(base_path_or_error(gateways.acquire("m").await), expected);
        tasks.stop().await;
    }
}

#[tokio::test]
async fn a_gateway_is_kept_until_something_changes() {
    let host = FakeApi::new();
    host.seed(&CLUSTERS, cluster(complete_spec()));
    host.seed(&SECRETS, secret("m-impersonator", &[("token", "t")]));
    let tasks = TaskGroup::new(ShutdownToken::new());
    let gateways = ClusterProxyBackends::start(host.clone(), &tasks);
    let enter = async || gateways.acquire("m").await.unwrap();
    let (first, second) = (enter().await, enter().await);
    assert!(Arc::ptr_eq(&first.backend, &second.backend));
    drop(second);
    // A new token opens a new backend, while the first request keeps the old one.
    host.seed(&SECRETS, secret("m-impersonator", &[("token", "u")]));
    let replacement = async {
        loop {
            let now = enter().await;
            if !Arc::ptr_eq(&first.backend, &now.backend) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let replacement = tokio::time::timeout(Duration::from_secs(60), replacement)
        .await
        .unwrap();
    assert!(!first.backend.shutdown().is_triggered());
    let ended = first.backend.shutdown().clone();
    drop(first);
    let timeout = Duration::from_secs(60);
    tokio::time::timeout(timeout, ended.wait()).await.unwrap();
    // The number of requests per cluster is limited.
    let all: Vec<ClusterProxyPermit> = {
        let mut all = vec![replacement];
        while let Ok(gateway) = gateways.acquire("m").await {
            all.push(gateway);
        }
        all
    };
    assert_eq!(all.len(), MAX_REQUESTS_PER_CLUSTER as usize);
    assert!(matches!(
        gateways.acquire("m").await,
        Err(ClusterProxyError::TooManyRequests(_))
    ));
    tasks.stop().await;
}
