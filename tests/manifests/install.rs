//! The install manifests in a real Kubernetes cluster: kubectl accepts them, the rights that they
//! grant are enough for Flotilla, and `flotilla uninstall` removes everything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{InformerFactory, ListOptions, ResourcePath, ShutdownToken, TaskGroup};
use flotilla_runtime::{ControllerContext, EventRecorder};
use harness::cluster::{DEFAULT_CONTROLLERS, KubernetesClusterOptions};
use harness::daemon::TestDir;
use harness::objects::{
    API_SERVICES, CLUSTERS, CONFIG_MAPS, NAMESPACES, POLICIES, config_map, policy,
};
use harness::process::run_with_input;
use harness::{
    ApiServerClient, Daemon, EtcdCluster, KubernetesCluster, ServerProcess, etcd, port, tools,
};
use hollow::HollowCluster;
use machinery::Gvr;
use machinery::time::SystemClock;
use serde_json::{Value, json};

use crate::manifests::installed_etcd::{self, InstalledEtcd};
use crate::manifests::{BINARY, manifest_path};

const ROUTE_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const SERVICE_ACCOUNT_USER: &str = "system:serviceaccount:flotilla-system:flotilla";
/// Resources of which `flotilla uninstall` must not leave objects.
static INVENTORY_RESOURCES: [Gvr; 8] = [
    Gvr::from_static("", "v1", "namespaces"),
    Gvr::from_static("apiregistration.k8s.io", "v1", "apiservices"),
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles"),
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "roles"),
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "rolebindings"),
    Gvr::from_static(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
    ),
    Gvr::from_static(
        "admissionregistration.k8s.io",
        "v1",
        "mutatingwebhookconfigurations",
    ),
];

/// A cluster into which Flotilla is installed. A hollow kubelet runs the pods, so that Deployments
/// become available.
pub(crate) struct InstallHost {
    cluster: KubernetesCluster,
    pub(crate) server: ApiServerClient,
    kubectl: PathBuf,
    _kubelet: (Arc<HollowCluster>, InformerFactory, TaskGroup),
    _etcd: EtcdCluster,
}

impl InstallHost {
    pub(crate) async fn start() -> Option<Self> {
        // On this thread, whose name is that of the test.
        let [kubectl] = tools(["kubectl-new"])?;
        tools(["etcd-3.5", "kube-apiserver", "kube-controller-manager"])?;
        let started = tokio::task::spawn_blocking(|| {
            let etcd = EtcdCluster::start(etcd::VERSION_3_5, 1)?;
            let options = KubernetesClusterOptions {
                name: "host",
                controllers: DEFAULT_CONTROLLERS,
                flags: &[],
            };
            Some((KubernetesCluster::start(&options, &etcd)?, etcd))
        });
        let (cluster, etcd) = started.await.unwrap()?;
        let tasks = TaskGroup::new(ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        let options = hollow::HollowClusterOptions {
            nodes: 1,
            ready_after: Duration::from_millis(10),
            run_controllers: false,
            ..hollow::HollowClusterOptions::default()
        };
        let context = ControllerContext {
            control_plane: cluster.api(),
            informers: informers.clone(),
            clock: Arc::new(SystemClock),
            recorder: EventRecorder::disabled(),
            tasks: tasks.clone(),
        };
        let hollow = HollowCluster::start(&context, options);
        let server = ApiServerClient::connect("host", &cluster.kubeconfig);
        server.wait_until_exists(&NAMESPACES, "", "default").await;
        Some(Self {
            _kubelet: (hollow.await.unwrap(), informers, tasks),
            server,
            cluster,
            kubectl,
            _etcd: etcd,
        })
    }

    pub(crate) fn kubeconfig(&self) -> String {
        self.cluster.kubeconfig.display().to_string()
    }

    /// Runs `kubectl ARGUMENTS` with `input`, which must succeed; returns its output.
    pub(crate) async fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new(&self.kubectl);
        let config = self.kubeconfig();
        command.args(["--kubeconfig", &config]).args(arguments);
        run_command(command, input.to_owned()).await
    }

    /// Resources, namespaces and names of the objects in the cluster.
    pub(crate) async fn inventory(&self) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for resource in &INVENTORY_RESOURCES {
            for object in self.server.list(resource, "").await {
                let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
                let (namespace, name) = (text("namespace"), text("name"));
                all.insert(format!("{} {namespace}/{name}", resource.resource));
            }
        }
        all
    }

    /// Waits until the cluster has exactly these objects.
    pub(crate) async fn wait_for_inventory(&self, expected: &BTreeSet<String>) {
        let deadline = Instant::now() + ROUTE_TIMEOUT;
        loop {
            let inventory = self.inventory().await;
            if inventory == *expected || Instant::now() > deadline {
                return assert_same_inventory(&inventory, expected);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

pub(crate) async fn run_command(command: Command, input: String) -> String {
    let done = tokio::task::spawn_blocking(move || {
        let out = run_with_input(&command, input.as_bytes());
        let errors = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{command:?}: {errors}");
        format!("{}{errors}", String::from_utf8_lossy(&out.stdout))
    });
    done.await.unwrap()
}

pub(crate) async fn run_flotilla(arguments: &[&str]) -> String {
    let mut command = Command::new(BINARY);
    command.args(arguments);
    run_command(command, String::new()).await
}

/// Asserts that two inventories are equal; the panic shows the differences only.
fn assert_same_inventory(actual: &BTreeSet<String>, expected: &BTreeSet<String>) {
    let more: Vec<&String> = actual.difference(expected).collect();
    let less: Vec<&String> = expected.difference(actual).collect();
    assert!(more.is_empty() && less.is_empty(), "+ {more:?}\n- {less:?}");
}

/// Parses a stream of YAML documents into objects by kind, namespace and name.
pub(crate) fn parse_objects(text: &str) -> BTreeMap<String, Value> {
    let documents = text.split("\n---\n").map(|d| {
        let object: Value = serde_saphyr::from_str(d).unwrap();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("");
        let key = format!(
            "{} {namespace}/{}",
            object["kind"], object["metadata"]["name"]
        );
        (key, object)
    });
    documents.collect()
}

/// Replaces the version of PodDisruptionBudgets by the version of Kubernetes before 1.21.
fn with_old_api_versions(text: &str) -> String {
    text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn kustomize_build_equals_install_output() {
    let Some([kubectl]) = tools(["kubectl-new"]) else {
        return;
    };
    let mut command = Command::new(kubectl);
    command.arg("kustomize").arg(manifest_path("install"));
    let built = parse_objects(&run_command(command, String::new()).await);
    let printed = parse_objects(&run_flotilla(&["install"]).await);
    assert_eq!(built, printed);
    let listed = run_flotilla(&["install", "--output", "json"]).await;
    let listed: Value = machinery::json::from_str(&listed).unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), printed.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn monitoring_manifests_build() {
    let Some([kubectl]) = tools(["kubectl-new"]) else {
        return;
    };
    let mut command = Command::new(kubectl);
    command.arg("kustomize").arg(manifest_path("monitoring"));
    let built = parse_objects(&run_command(command, String::new()).await);
    let kinds: BTreeSet<&str> = built
        .values()
        .map(|o| o["kind"].as_str().unwrap())
        .collect();
    for kind in [
        "ServiceMonitor",
        "PrometheusRule",
        "ConfigMap",
        "ClusterRole",
    ] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
    // The ServiceMonitor selects the Service of Flotilla and no other one.
    let monitor = built
        .values()
        .find(|o| o["kind"] == "ServiceMonitor")
        .unwrap();
    let selector = &monitor["spec"]["selector"]["matchLabels"];
    let installed = parse_objects(&run_flotilla(&["install"]).await);
    let services = installed.values().filter(|o| o["kind"] == "Service");
    let matching: Vec<&Value> = services
        .filter(|s| {
            let labels = &s["metadata"]["labels"];
            labels["app.kubernetes.io/name"] == selector["app.kubernetes.io/name"]
                && labels["app.kubernetes.io/component"].is_null()
        })
        .collect();
    assert_eq!(matching.len(), 1);
    let port = &monitor["spec"]["endpoints"][0]["port"];
    assert_eq!(matching[0]["spec"]["ports"][0]["name"], *port);
}

/// Installs and uninstalls twice in one cluster: with `kubectl apply`, and with
/// `flotilla install --apply`.
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn installed_rights_are_enough_and_uninstall_removes_everything() {
    let Some(host) = InstallHost::start().await else {
        return;
    };
    let before = host.inventory().await;
    let config = host.kubeconfig();

    let printed = with_old_api_versions(&run_flotilla(&["install"]).await);
    // A dry run creates no namespaces for the objects in them.
    for namespace in ["flotilla-system", "karmada-cluster"] {
        host.kubectl(&["create", "namespace", namespace], "").await;
    }
    let checked = host
        .kubectl(&["apply", "--dry-run=server", "-f", "-"], &printed)
        .await;
    let count = checked.matches("(server dry run)").count();
    assert_eq!(count, parse_objects(&printed).len(), "{checked}");
    host.kubectl(&["apply", "-f", "-"], &printed).await;
    host.kubectl(
        &[
            "-n",
            "flotilla-system",
            "rollout",
            "status",
            "deployment/flotilla",
        ],
        "",
    )
    .await;
    check_installed_flotilla(&host, &parse_objects(&printed)).await;
    // Registering a member with an agent creates such a role.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "system:karmada:member1:agent"}});
    host.server.create(role).await;
    let output = run_flotilla(&["uninstall", "--kubeconfig", &config]).await;
    assert!(
        output.contains("apiservices v1alpha1.cluster.karmada.io deleted"),
        "{output}"
    );
    assert!(
        output.contains("namespaces karmada-es-member1 deleted"),
        "{output}"
    );
    // The definitions of ServiceExport and ServiceImport stay, and the host's own APIService for them.
    let mut remaining = before.clone();
    remaining.insert("apiservices /v1alpha1.multicluster.x-k8s.io".into());
    assert_same_inventory(&host.inventory().await, &remaining);

    let checked = run_flotilla(&["install", "--apply", "--dry-run", "--kubeconfig", &config]).await;
    assert!(checked.contains("can be installed (dry run)"), "{checked}");
    assert_same_inventory(&host.inventory().await, &remaining);
    let apply = [
        "install",
        "--apply",
        "--kubeconfig",
        &config,
        "--namespace",
        "fleet",
    ];
    let output = run_flotilla(&[&apply[..], &["--replicas", "3"]].concat()).await;
    assert!(output.contains("Deployment flotilla created"), "{output}");
    assert!(
        output.contains("Flotilla is installed in namespace fleet"),
        "{output}"
    );
    let again = run_flotilla(&[&apply[..], &["--replicas", "3"]].concat()).await;
    assert!(
        !again.contains("created") && !again.contains("configured"),
        "{again}"
    );
    // A namespace that only has the prefix of an execution space is not deleted.
    host.server.create_namespace("karmada-es-other").await;
    let mut expected = remaining.clone();
    expected.insert("namespaces /karmada-es-other".into());
    let uninstalled =
        run_flotilla(&["uninstall", "--kubeconfig", &config, "--namespace", "fleet"]).await;
    assert!(
        uninstalled.contains("namespaces fleet deleted"),
        "{uninstalled}"
    );
    assert_same_inventory(&host.inventory().await, &expected);
    let again = run_flotilla(&["uninstall", "--kubeconfig", &config, "--namespace", "fleet"]).await;
    assert!(
        !again.contains("deleted"),
        "nothing is left to delete: {again}"
    );
}

/// Runs Flotilla and its etcd on this machine with the arguments of the manifests.
///
/// Flotilla has the rights of the installed service account. It must serve through the host and
/// propagate objects, and its log must have no forbidden request.
pub(crate) async fn check_installed_flotilla(
    host: &InstallHost,
    installed: &BTreeMap<String, Value>,
) {
    let dir = TestDir::new();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:flotilla-system",
        "system:authenticated",
    ];
    let account = host.cluster.user_kubeconfig(SERVICE_ACCOUNT_USER, &groups);
    let ports = [
        port::free_port(),
        port::free_port(),
        port::free_port(),
        port::free_port(),
    ];
    let [port, etcd_port, ..] = ports;
    point_service_to_loopback(host, port).await;
    let replacements = [
        (
            "--in-cluster",
            format!("--kubeconfig={}", account.display()),
        ),
        ("--listen=", format!("--listen=127.0.0.1:{port}")),
        ("--data-dir=", format!("--data-dir={}", path("data"))),
        ("--shutdown-delay-duration=", "-v=1".into()),
        (
            "--etcd-servers=",
            format!("--etcd-servers=https://127.0.0.1:{etcd_port}"),
        ),
    ];
    let mut arguments = installed_etcd::container_arguments(installed, "Deployment");
    for (flag, argument) in replacements {
        let existing = arguments.iter_mut().find(|a| a.starts_with(flag));
        *existing.unwrap() = argument;
    }
    arguments.push("--service-namespace=flotilla-system".into());
    arguments.push(format!("--service-port={port}"));
    let log = dir.path().join("flotilla.log");
    let served = Daemon::start(Path::new(BINARY), arguments, &log);
    let etcd = InstalledEtcd::start(&host.server, installed, etcd_port).await;
    for name in ["v1alpha1.cluster.karmada.io", "v1alpha1.policy.karmada.io"] {
        host.server
            .wait_until(&API_SERVICES, "", name, "available", |s| {
                harness::api_server_client::find_condition(s, "Available")["status"] == "True"
            })
            .await;
    }
    // The host routes requests some time after the APIServices are Available.
    let end = Instant::now() + ROUTE_TIMEOUT;
    while !is_routed(host).await {
        assert!(Instant::now() < end, "the host does not route");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let _member = ServerProcess::start_member(BINARY, &dir.path().join("member"), 1, &[]);
    let kubeconfig = dir.path().join("member/kubeconfig");
    let of_member = kubeconfig.display().to_string();
    let config = host.kubeconfig();
    let join = ["join", "member1", "--kubeconfig", &config];
    run_flotilla(&[&join[..], &["--cluster-kubeconfig", &of_member]].concat()).await;
    host.server.wait_until_cluster_ready("member1").await;
    let map = config_map("default", "settings", "v");
    let policy = policy("default", "settings", &map, &["member1"]);
    host.server.create(policy).await;
    host.server.create(map).await;
    let member = ApiServerClient::connect("member1", &kubeconfig);
    member
        .wait_until_exists(&CONFIG_MAPS, "default", "settings")
        .await;
    etcd.assert_requires_client_certificate();
    let flotilla_log = std::fs::read_to_string(&log).unwrap();
    assert!(!flotilla_log.contains("forbidden"), "{flotilla_log}");
    drop(served);
    host.kubectl(
        &[
            "-n",
            "default",
            "delete",
            "configmap",
            "settings",
            "--ignore-not-found",
        ],
        "",
    )
    .await;
    // Without its control plane the member keeps its objects.
    member
        .wait_until_exists(&CONFIG_MAPS, "default", "settings")
        .await;
}

/// Whether the host routes requests to Flotilla.
async fn is_routed(host: &InstallHost) -> bool {
    for resource in [&CLUSTERS, &POLICIES] {
        let options = ListOptions::default();
        let listed = host
            .server
            .api
            .list(ResourcePath::collection(resource, ""), &options);
        if listed.await.is_err() {
            return false;
        }
    }
    true
}

/// Replaces the installed Service by one that resolves to a port of this machine, because there
/// is no pod network.
async fn point_service_to_loopback(host: &InstallHost, port: u16) {
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "flotilla", "namespace": "flotilla-system",
                     "labels": {"app.kubernetes.io/name": "flotilla"}},
        "spec": {"type": "ExternalName", "externalName": "localhost",
                 "ports": [{"port": port, "name": "https"}]}});
    let delete = ["-n", "flotilla-system", "delete", "service", "flotilla"];
    host.kubectl(&delete, "").await;
    host.server.create(service).await;
}
