//! Tests of the usage of ResourceQuotas.

use super::*;

static QUOTAS: Gvr = Gvr::from_static("", "v1", "resourcequotas");
static SERVICES: Gvr = Gvr::from_static("", "v1", "services");

#[tokio::test]
async fn usage_follows_the_objects() {
    let fixture = KubeControllersFixture::new().await;
    fixture.create_config_map("default", "a", json!([])).await;
    let hard = json!({"count/secrets": "5", "services.nodeports": "3", "requests.cpu": "1", "count/none.example.org": "1"});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}});
    fixture.create(&QUOTAS, quota).await;
    let used = async |expected: Value| {
        wait_until("the usage is recalculated", async || {
            let quota = fixture.get(&QUOTAS, "default", "q").await.unwrap();
            quota["status"]["hard"] == hard && quota["status"]["used"] == expected
        })
        .await;
    };
    let amounts = |secrets: &str, ports: &str, cpu: &str| json!({"count/secrets": secrets, "services.nodeports": ports, "requests.cpu": cpu, "count/none.example.org": "0"});
    used(amounts("0", "0", "0")).await;
    let meta = |name: &str| json!({"name": name, "namespace": "default"});
    fixture
        .create(
            &SECRETS,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("s")}),
        )
        .await;
    fixture
        .create(
            &SERVICES,
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("s"),
                   "spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
        )
        .await;
    fixture
        .create(
            &PODS,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta("p"), "spec": {"containers":
                [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "500m"}}}]}}),
        )
        .await;
    used(amounts("1", "1", "500m")).await;
    fixture
        .merge(
            &SERVICES,
            "default",
            "s",
            json!({"spec": {"type": "ClusterIP"}}),
        )
        .await;
    fixture.delete(&SECRETS, "default", "s", None).await;
    fixture.delete(&PODS, "default", "p", None).await;
    used(amounts("0", "0", "0")).await;
}
