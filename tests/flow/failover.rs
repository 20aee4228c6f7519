//! Failover: which workloads leave a dead or unhealthy cluster, which stay, and which return
//! when the cluster comes back.

use harness::ServerProcess;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::flow::cache_waits::{wait_until_members_are_schedulable, wait_until_scheduler_sees};
use crate::flow::fleet::{ApiServerClient, BINARY, find_condition, run_flotilla};
use crate::flow::member_outage::start_member;
use crate::flow::objects::{
    BINDINGS, CLUSTERS, CONFIG_MAPS, DEPLOYMENTS, POLICIES, WORKS, config_map, deployment,
    divided_policy, execution_space, policy,
};

const NAMESPACE: &str = "failover";

/// A member in a process of its own.
struct MemberProcess {
    process: Option<ServerProcess>,
    dir: TempDir,
    server: ApiServerClient,
}

impl MemberProcess {
    async fn start(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let process = start_member(dir.path()).await;
        Self {
            process: Some(process),
            server: ApiServerClient::connect(name, &dir.path().join("kubeconfig")),
            dir,
        }
    }

    /// `kill -9`.
    fn kill(&mut self) {
        self.process = None;
    }

    async fn restart(&mut self) {
        self.process = Some(start_member(self.dir.path()).await);
    }
}

/// `flotilla serve` with two members, whose readiness it notices at once.
struct FlowFailoverFixture {
    control: ApiServerClient,
    a: MemberProcess,
    b: MemberProcess,
    _process: ServerProcess,
    _dir: TempDir,
}

impl FlowFailoverFixture {
    async fn start(flags: &'static [&'static str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().display().to_string(), dir.path().join("log"));
        let start = move || {
            let mut arguments = vec!["serve", "--listen", "127.0.0.1:0", "--data-dir", &path];
            arguments.extend(["--cluster-status-update-frequency", "500ms"]);
            arguments.extend(["--cluster-failure-threshold", "0s"]);
            arguments.extend(["--cluster-success-threshold", "0s"]);
            arguments.extend(flags);
            ServerProcess::start(BINARY, &arguments, &log).0
        };
        let process = tokio::task::spawn_blocking(start).await.unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let control = ApiServerClient::connect("control plane", &kubeconfig);
        control.create_namespace(NAMESPACE).await;
        let own = kubeconfig.display().to_string();
        let mut members = Vec::new();
        for name in ["a", "b"] {
            let member = MemberProcess::start(name).await;
            let member_kubeconfig = member.dir.path().join("kubeconfig").display().to_string();
            let kubeconfig_flags = [
                "--cluster-kubeconfig",
                &member_kubeconfig,
                "--kubeconfig",
                &own,
            ];
            run_flotilla(&[&["join", name][..], &kubeconfig_flags].concat()).await;
            control.wait_until_cluster_ready(name).await;
            members.push(member);
        }
        let (Some(b), Some(a)) = (members.pop(), members.pop()) else {
            unreachable!("two were started")
        };
        wait_until_members_are_schedulable(&control, 2).await;
        Self {
            control,
            a,
            b,
            _process: process,
            _dir: dir,
        }
    }

    async fn wait_until_not_ready(&self, cluster: &str) {
        self.control
            .wait_until(&CLUSTERS, "", cluster, "down", |c| {
                find_condition(c, "Ready")["status"] == "False"
            })
            .await;
    }
}

/// The targets of a binding with their replicas.
fn placed_replicas(binding: &Value) -> Vec<(String, i64)> {
    let all = binding["spec"]["clusters"].as_array();
    let one = |t: &Value| {
        let name = t["name"].as_str().unwrap().to_owned();
        (name, t["replicas"].as_i64().unwrap_or(0))
    };
    let mut all: Vec<_> = all.into_iter().flatten().map(one).collect();
    all.sort();
    all
}

fn target_replicas(all: &[(&str, i64)]) -> Vec<(String, i64)> {
    all.iter().map(|(c, n)| ((*c).to_owned(), *n)).collect()
}

fn eviction_task_count(binding: &Value) -> usize {
    let tasks = binding["spec"]["gracefulEvictionTasks"].as_array();
    tasks.map_or(0, Vec::len)
}

fn is_healthy_in(binding: &Value, clusters: usize) -> bool {
    let all = binding["status"]["aggregatedStatus"].as_array();
    all.is_some_and(|all| all.len() == clusters && all.iter().all(|i| i["health"] == "Healthy"))
}

// proves: AFO-asked, AFO-moves, AFO-old-copy, AFO-back
#[tokio::test]
async fn workloads_leave_a_dead_cluster_if_the_policy_enables_failover() {
    let mut fixture = FlowFailoverFixture::start(&[]).await;
    let control = &fixture.control;
    let auto = json!({"flotilla.io/failover": "auto", "flotilla.io/failover-after": "1s"});

    // Four replicas in both clusters.
    let web = deployment(NAMESPACE, "web", 4);
    let mut spread = divided_policy(NAMESPACE, "web", &web, &[("a", 1), ("b", 1)]);
    spread["metadata"]["annotations"] = auto.clone();
    control.create(spread).await;
    control.create(web).await;
    // An object for one of both clusters; dispatching to the second is suspended.
    let single = config_map(NAMESPACE, "single", "x");
    let mut either = policy(NAMESPACE, "single", &single, &["a"]);
    either["metadata"]["annotations"] = auto.clone();
    either["spec"]["suspension"] = json!({"dispatchingOnClusters": {"clusterNames": ["b"]}});
    control.create(either).await;
    control.create(single).await;
    // Three replicas divided by capacity; dispatching to the second cluster is suspended.
    for cluster in ["a", "b"] {
        let has_capacity = |c: &Value| c["status"]["resourceSummary"]["allocatable"].is_object();
        control
            .wait_until(&CLUSTERS, "", cluster, "reporting capacity", has_capacity)
            .await;
    }
    wait_until_scheduler_sees(control, NAMESPACE, &["a", "b"]).await;
    let held_deployment = deployment(NAMESPACE, "held", 3);
    let mut by_room = divided_policy(NAMESPACE, "held", &held_deployment, &[("a", 1), ("b", 1)]);
    by_room["metadata"]["annotations"] = auto.clone();
    by_room["spec"]["suspension"] = json!({"dispatchingOnClusters": {"clusterNames": ["b"]}});
    by_room["spec"]["placement"]["replicaScheduling"]["weightPreference"] =
        json!({"dynamicWeight": "AvailableReplicas"});
    control.create(by_room).await;
    control.create(held_deployment).await;
    // The policy of this workload does not enable failover.
    let stays = deployment(NAMESPACE, "stays", 2);
    control
        .create(divided_policy(
            NAMESPACE,
            "stays",
            &stays,
            &[("a", 1), ("b", 1)],
        ))
        .await;
    control.create(stays).await;
    let until = |name: &'static str, what: &'static str, fits: fn(&Value) -> bool| async move {
        control
            .wait_until(&BINDINGS, NAMESPACE, name, what, fits)
            .await
    };
    until("web-deployment", "healthy", |b| is_healthy_in(b, 2)).await;
    until("stays-deployment", "healthy", |b| is_healthy_in(b, 2)).await;
    until("single-configmap", "healthy", |b| is_healthy_in(b, 1)).await;
    let wider = json!({"spec": {"placement": {
        "clusterAffinity": {"clusterNames": ["a", "b"]},
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]}}});
    control
        .merge_patch(&POLICIES, NAMESPACE, "single", wider)
        .await;
    let before = fixture
        .a
        .server
        .wait_until_exists(&CONFIG_MAPS, NAMESPACE, "single")
        .await;
    let shares = until("held-deployment", "healthy in a", |b| {
        let all = b["status"]["aggregatedStatus"].as_array();
        let first = |i: &Value| i["clusterName"] == "a" && i["health"] == "Healthy";
        placed_replicas(b).len() == 2 && all.is_some_and(|all| all.iter().any(first))
    });
    let shares = placed_replicas(&shares.await);

    fixture.a.kill();
    fixture.wait_until_not_ready("a").await;
    let moved = until("web-deployment", "moved", |b| {
        eviction_task_count(b) == 0
            && placed_replicas(b) == target_replicas(&[("b", 4)])
            && is_healthy_in(b, 1)
    });
    moved.await;
    fixture
        .b
        .server
        .wait_until(
            &DEPLOYMENTS,
            NAMESPACE,
            "web",
            "ready with all replicas",
            |d| d["status"]["readyReplicas"] == 4,
        )
        .await;
    // The eviction lasts until the replacement is healthy.
    let waiting = until("single-configmap", "waiting", |b| {
        eviction_task_count(b) == 1 && placed_replicas(b) == target_replicas(&[("b", 0)])
    });
    let task = &waiting.await["spec"]["gracefulEvictionTasks"][0];
    for (field, value) in [
        ("fromCluster", json!("a")),
        ("producer", json!("flotilla-failover")),
        ("reason", json!("ClusterNotReady")),
        ("suppressDeletion", json!(true)),
        ("clustersBeforeFailover", json!(["a"])),
    ] {
        assert_eq!(task[field], value, "{task}");
    }
    until("held-deployment", "waiting", |b| {
        eviction_task_count(b) == 1 && placed_replicas(b) == target_replicas(&[("b", 3)])
    })
    .await;
    let work = karmada_api::names::work_name("ConfigMap", "single", NAMESPACE);
    let kept = control
        .get(&WORKS, &execution_space("a"), &work)
        .await
        .unwrap();
    assert_eq!(kept["metadata"].get("deletionTimestamp"), None);

    fixture.a.restart().await;
    control.wait_until_cluster_ready("a").await;
    let back = until("single-configmap", "back", |b| {
        eviction_task_count(b) == 0
            && placed_replicas(b) == target_replicas(&[("a", 0)])
            && is_healthy_in(b, 1)
    });
    let annotations = &back.await["metadata"]["annotations"];
    assert_eq!(
        annotations.get("flotilla.io/clusters-before-failover"),
        None
    );
    let after = fixture
        .a
        .server
        .wait_until_exists(&CONFIG_MAPS, NAMESPACE, "single")
        .await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    control
        .wait_until_deleted(&WORKS, &execution_space("b"), &work)
        .await;
    let back = until("held-deployment", "back", |b| {
        eviction_task_count(b) == 0
            && b["status"]["schedulerObservedGeneration"] == b["metadata"]["generation"]
    });
    assert_eq!(placed_replicas(&back.await), shares);
    // The evicted workload is deleted as soon as its cluster is reachable.
    fixture
        .a
        .server
        .wait_until_deleted(&DEPLOYMENTS, NAMESPACE, "web")
        .await;
    let still = until("stays-deployment", "as it was", |b| is_healthy_in(b, 2)).await;
    assert_eq!(
        placed_replicas(&still),
        target_replicas(&[("a", 1), ("b", 1)])
    );
}
