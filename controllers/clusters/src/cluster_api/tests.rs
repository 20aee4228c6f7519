//! Tests with a management cluster, a control plane and a workload cluster in memory.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, InformerFactory, ShutdownToken, TaskGroup};
use client_fake::FakeApi;
use flotilla_runtime::{ControllerContext, EventRecorder};
use karmada_api::resources::CLUSTERS;
use machinery::Gvr;
use machinery::time::SystemClock;
use serde_json::{Value, json};

use super::{ClusterApiOptions, start_cluster_api};
use crate::NAMESPACES;
use crate::fixture::api_resource;
use crate::join::objects::SECRETS;

static SOURCES: Gvr = Gvr::from_static("cluster.x-k8s.io", "v1beta2", "clusters");
const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": "https://workload:6443"}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    "users": [{"name": "c", "user": {"token": "t"}}]}"#;

struct ClusterApiFixture {
    control: Arc<FakeApi>,
    management: Arc<FakeApi>,
    tasks: TaskGroup,
    _informers: InformerFactory,
}

fn source(name: &str, phase: &str) -> Value {
    json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": {"namespace": "infra", "name": name}, "status": {"phase": phase}})
}

impl ClusterApiFixture {
    fn start() -> Self {
        let (control, management, member) = (FakeApi::new(), FakeApi::new(), FakeApi::new());
        member.seed(
            &NAMESPACES,
            json!({"metadata": {"name": "kube-system", "uid": "id-1"}}),
        );
        for name in ["karmada-m1", "karmada-impersonator"] {
            member.seed(
                &SECRETS,
                json!({"metadata": {"namespace": "karmada-cluster", "name": name},
                    "data": {"token": STANDARD.encode("t"), "ca.crt": STANDARD.encode("ca")}}),
            );
        }
        management.add_resource(api_resource(
            "cluster.x-k8s.io",
            "v1beta2",
            "clusters",
            "Cluster",
        ));
        let tasks = TaskGroup::new(ShutdownToken::new());
        let connect = Arc::new(move |_, _: &TaskGroup| Ok(Arc::clone(&member) as Arc<dyn Api>));
        let informers = InformerFactory::new(&tasks);
        let context = ControllerContext {
            control_plane: control.clone(),
            informers: informers.clone(),
            clock: Arc::new(SystemClock),
            recorder: EventRecorder::disabled(),
            tasks: tasks.clone(),
        };
        let options = ClusterApiOptions {
            management: management.clone(),
            connect,
        };
        start_cluster_api(&context, options);
        Self {
            control,
            management,
            tasks,
            _informers: informers,
        }
    }

    fn seed_kubeconfig(&self) {
        self.management.seed(
            &SECRETS,
            json!({"metadata": {"namespace": "infra", "name": "m1-kubeconfig"},
                "data": {"value": STANDARD.encode(KUBECONFIG)}}),
        );
    }

    async fn wait_until(&self, what: &str, holds: impl Fn(Option<Value>) -> bool) {
        let reached = async {
            while !holds(self.control.get_object(&CLUSTERS, "", "m1")) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(600), reached).await;
        reached.unwrap_or_else(|_| panic!("never {what}"));
    }
}

// proves: CAP-join
#[tokio::test(start_paused = true)]
async fn provisioned_clusters_are_joined_and_deleted_ones_removed() {
    let fixture = ClusterApiFixture::start();
    fixture
        .management
        .seed(&SOURCES, source("m1", "Provisioning"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.control.writes(), []);
    fixture
        .management
        .seed(&SOURCES, source("m1", "Provisioned"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.control.writes(), [], "its kubeconfig is missing");
    fixture.seed_kubeconfig();
    fixture
        .wait_until("joined", |cluster| {
            cluster.is_some_and(|c| {
                c["spec"]["apiEndpoint"] == "https://workload:6443"
                    && c["metadata"]["annotations"]["flotilla.io/cluster-api-cluster"] == "infra/m1"
            })
        })
        .await;
    fixture.management.remove(&SOURCES, "infra", "m1");
    fixture
        .wait_until("removed", |cluster| cluster.is_none())
        .await;
    fixture.tasks.stop().await;
}

// proves: CAP-remove
#[tokio::test(start_paused = true)]
async fn only_what_was_joined_for_a_source_is_removed() {
    let fixture = ClusterApiFixture::start();
    let cluster = |name: &str, annotations: Value| {
        json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name, "annotations": annotations}, "spec": {"syncMode": "Push"}})
    };
    let mark = json!({"flotilla.io/cluster-api-cluster": "infra/m1"});
    fixture.control.seed(&CLUSTERS, cluster("m1", mark));
    fixture.control.seed(&CLUSTERS, cluster("m2", json!({})));
    fixture
        .management
        .seed(&SOURCES, source("m2", "Provisioned"));
    fixture
        .wait_until("removed, as its source is gone", |c| c.is_none())
        .await;
    fixture.management.remove(&SOURCES, "infra", "m2");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(fixture.control.get_object(&CLUSTERS, "", "m2").is_some());
    fixture.tasks.stop().await;
}
