//! A load on a control plane with two members, so that every metric has data: writes that succeed
//! and writes that cannot be scheduled, and requests with and without credentials.

use std::path::Path;
use std::time::Duration;

use client::{ListOptions, ResourcePath, WatchOptions};
use futures_util::StreamExt;
use harness::ApiServerClient;
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, divided_policy, policy,
};
use serde_json::json;

const NAMESPACE: &str = "load";
const DEPLOYMENT_COUNT: usize = 8;
const ROUND_PAUSE: Duration = Duration::from_millis(300);

/// Creates the first objects.
pub(crate) async fn create_objects(control: &ApiServerClient) {
    control.create_namespace(NAMESPACE).await;
    for n in 0..DEPLOYMENT_COUNT {
        let name = format!("web{n}");
        let object = deployment(NAMESPACE, &name, 2);
        let weights = [("member1", 1), ("member2", 1)];
        control
            .create(divided_policy(NAMESPACE, &name, &object, &weights))
            .await;
        control.create(object).await;
    }
    let lost = deployment(NAMESPACE, "lost", 1);
    control
        .create(policy(NAMESPACE, "lost", &lost, &["nowhere"]))
        .await;
    control.create(lost).await;
}

/// Creates autoscalers and a MultiClusterService of the first Deployment, and a ResourceRegistry. The
/// control plane needs the feature gate MultiClusterService.
pub(crate) async fn create_autoscalers_services_and_registries(control: &ApiServerClient) {
    let name = "web0";
    let metadata = json!({"namespace": NAMESPACE, "name": name});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let metric = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "AverageValue", "averageValue": "1"}}});
    let rule = json!({"name": "each-minute", "schedule": "* * * * *", "targetMaxReplicas": 4});
    let named = |cluster: &str| json!([{"name": cluster}]);
    for object in [
        json!({"apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA",
            "metadata": metadata, "spec": {"minReplicas": 2, "maxReplicas": 4,
                "metrics": [metric], "scaleTargetRef": target}}),
        json!({"apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "CronFederatedHPA",
            "metadata": metadata, "spec": {"rules": [rule], "scaleTargetRef":
                {"apiVersion": "autoscaling.karmada.io/v1alpha1", "kind": "FederatedHPA",
                    "name": name}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}}),
        json!({"apiVersion": "networking.karmada.io/v1alpha1", "kind": "MultiClusterService",
            "metadata": metadata, "spec": {"types": ["CrossCluster"],
                "providerClusters": named("member1"), "consumerClusters": named("member2")}}),
        json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
            "metadata": {"name": "maps"},
            "spec": {"targetCluster": {"clusterNames": ["member1", "member2"]},
                "resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}]}}),
    ] {
        control.create(object).await;
    }
}

/// Runs one round of changes; `n` is the number of the round.
pub(crate) async fn run_round(control: &ApiServerClient, n: i64) {
    let one = format!("web{}", n as usize % DEPLOYMENT_COUNT);
    let replicas = json!({"spec": {"replicas": 2 + n % 3}});
    control
        .merge_patch(&DEPLOYMENTS, NAMESPACE, &one, replicas)
        .await;
    // A binding that fits no cluster is scheduled again when it changes.
    let scaled = json!({"spec": {"replicas": 1 + n % 2}});
    control
        .merge_patch(&DEPLOYMENTS, NAMESPACE, "lost", scaled)
        .await;
    let name = format!("map{n}");
    let map = config_map(NAMESPACE, &name, "v");
    control
        .create(policy(NAMESPACE, &name, &map, &["member1", "member2"]))
        .await;
    control.create(map).await;
    control.list(&PODS, "").await;
    control.list(&BINDINGS, NAMESPACE).await;
    control.list(&DEPLOYMENTS, NAMESPACE).await;
    let fresh = ListOptions {
        limit: 2,
        ..ListOptions::default()
    };
    let _ = control
        .api
        .list(ResourcePath::collection(&DEPLOYMENTS, NAMESPACE), &fresh)
        .await;
    if n > 2 {
        let old = format!("map{}", n - 2);
        control.delete(&CONFIG_MAPS, NAMESPACE, &old).await;
        let replaced = control.get(&DEPLOYMENTS, NAMESPACE, &one).await.unwrap();
        let at = ResourcePath::object(&DEPLOYMENTS, NAMESPACE, &one);
        let options = client::WriteOptions::default();
        // The update may fail with a conflict: that is load, too.
        let _ = control.api.update(at, replaced.into(), &options).await;
    }
    tokio::time::sleep(ROUND_PAUSE).await;
}

/// Watches Deployments until the task is aborted.
pub(crate) fn spawn_watch(control: &ApiServerClient) -> tokio::task::JoinHandle<()> {
    let api = control.api.clone();
    tokio::spawn(async move {
        let options = WatchOptions::default();
        let watch = api.watch(ResourcePath::collection(&DEPLOYMENTS, ""), &options);
        if let Ok(mut events) = watch.await {
            while events.next().await.is_some() {}
        }
    })
}

/// Sends requests without credentials and with an unknown token.
pub(crate) async fn send_unauthenticated_requests(kubeconfig: &Path, dir: &Path) {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let mut file: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    for (n, user) in [json!({}), json!({"token": "nobody"})]
        .into_iter()
        .enumerate()
    {
        file["users"][0]["user"] = user;
        let path = dir.join(format!("stranger{n}"));
        std::fs::write(&path, file.to_string()).unwrap();
        let stranger = ApiServerClient::connect("a stranger", &path);
        let options = ListOptions::default();
        let listed = stranger
            .api
            .list(ResourcePath::collection(&PODS, ""), &options);
        assert!(listed.await.is_err());
    }
}
