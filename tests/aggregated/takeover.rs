//! The takeover of a Karmada in place and the way back, twice, with the command killed at each step
//! the second time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::Command;

use client::{Informer, InformerFactory, ListWatchSelector, ShutdownToken, TaskGroup};
use harness::ApiServerClient;
use harness::api_server_client::{find_condition, wait_until};
use harness::objects::{
    BINDINGS, CONFIG_MAPS, DEPLOYMENTS, LEASES, POLICIES, VALIDATING_WEBHOOKS, WORKS, config_map,
    deployment, policy,
};
use harness::process::RunningCommand;
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::karmada_records::{MOVED, become_karmada};
use crate::aggregated::real_clusters::{BINARY, join_cluster, path_string, run_flotilla};
use crate::aggregated::simulated_member::SimulatedMember;

pub(super) const NS: &str = "fleet";
pub(super) const MEMBER: &str = "m1";
// proves: TKO-manifests, TKO-watches, TKO-versions, TKO-identity, TKO-no-member-write, TKO-back, TKO-await, TKO-webhooks, TKO-leases, TKO-resumed
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn a_karmada_is_taken_over_and_given_back_twice() {
    let Some(mut plane) = AggregatedControlPlane::start().await else {
        return;
    };
    plane.wait_until_available().await;
    let member = SimulatedMember::start(MEMBER).await;
    let kubeconfig = plane.host.kubeconfig.clone();
    join_cluster(&plane.client, &kubeconfig, MEMBER, &member.kubeconfig()).await;
    plane.client.create_namespace(NS).await;
    for name in ["kept", "deleted"] {
        propagate(&plane.client, &member, &config_map(NS, name, "1")).await;
    }
    propagate(&plane.client, &member, &deployment(NS, "web", 2)).await;
    let ready = |d: &Value| d["status"]["readyReplicas"] == 2;
    let (client, web) = (&plane.client, "web");
    client
        .wait_until(&DEPLOYMENTS, NS, web, "ready", ready)
        .await;
    become_karmada(&mut plane).await;

    plane.start_flotilla_with(&["--await-takeover"]);
    let dir = tempfile::tempdir().unwrap();
    let takeover = |arguments: &[&str]| {
        let mut all = vec!["takeover".to_owned(), "--kubeconfig".to_owned()];
        all.push(path_string(&kubeconfig));
        all.extend(arguments.iter().map(|a| (*a).to_owned()));
        all
    };
    check_preflight(&plane, &takeover(&["--preflight"])).await;
    check_changed_work(&plane, &takeover(&["--preflight"])).await;
    // As an agent, it has its watch at Karmada's definition.
    let tasks = TaskGroup::new(ShutdownToken::new());
    let informers = InformerFactory::new(&tasks);
    let works = informers.get(&plane.client.api, &ListWatchSelector::all(&WORKS));
    works.wait_for_cache_sync().await;
    for is_killed in [false, true] {
        let file = path_string(&dir.path().join(format!("backup-{is_killed}.json")));
        let round = TakeoverRound {
            plane: &plane,
            member: &member,
            works: &works,
            is_killed,
            forward: takeover(&["--backup", &file, "--watch", "2s"]),
            back: takeover(&["--back", "--backup", &file]),
        };
        round.check().await;
    }
    tasks.stop().await;
}

/// A takeover and the way back.
struct TakeoverRound<'a> {
    plane: &'a AggregatedControlPlane,
    member: &'a SimulatedMember,
    /// A client that has watched since before the takeover.
    works: &'a Informer,
    /// Whether the command is killed at each step.
    is_killed: bool,
    forward: Vec<String>,
    back: Vec<String>,
}

impl TakeoverRound<'_> {
    async fn check(&self) {
        let client = &self.plane.client;
        let before = uids(client).await;
        let copies = member_versions(self.member).await;
        self.run(&self.forward).await;
        assert_eq!(uids(client).await, before);
        assert_eq!(member_versions(self.member).await, copies);
        check_routes(self.plane, true).await;

        let name = format!("new-{}", self.is_killed);
        propagate(client, self.member, &config_map(NS, &name, "1")).await;
        self.wait_for_works().await;
        if !self.is_killed {
            delete_propagated(client, self.member, "deleted").await;
        }
        let served = uids(client).await;
        let copies = member_versions(self.member).await;
        self.run(&self.back).await;
        check_routes(self.plane, false).await;
        let returned = uids(client).await;
        assert!(
            returned.keys().eq(served.keys()),
            "{returned:#?} {served:#?}"
        );
        for (key, uid) in &returned {
            let is_new = !before.contains_key(key);
            assert_eq!(*uid != served[key], is_new, "{key}");
        }
        assert_eq!(member_versions(self.member).await, copies);
        self.wait_for_works().await;
    }

    /// Waits until the client that watches has the Works that are served now.
    async fn wait_for_works(&self) {
        wait_until("the watch of Works goes on", async || {
            let served = self.plane.client.list(&WORKS, "").await;
            let mut served: Vec<String> = served
                .iter()
                .map(|work| work["metadata"]["uid"].as_str().unwrap().to_owned())
                .collect();
            let watched = self.works.list();
            let mut watched: Vec<String> = watched.iter().map(|w| w.uid().to_owned()).collect();
            served.sort();
            watched.sort();
            served == watched
        })
        .await;
    }

    async fn run(&self, arguments: &[String]) {
        match self.is_killed {
            true => assert!(run_with_kills(arguments.to_vec()).await >= 5),
            false => drop(run(arguments).await),
        }
    }
}

pub(super) type Uids = BTreeMap<String, String>;

/// The uids of all objects that are moved.
pub(super) async fn uids(control: &ApiServerClient) -> Uids {
    let mut uids = Uids::new();
    for resource in MOVED {
        for object in control.list(resource, "").await {
            let meta = &object["metadata"];
            let key = format!(
                "{} {}/{}",
                resource.resource, meta["namespace"], meta["name"]
            );
            uids.insert(key, meta["uid"].to_string());
        }
    }
    uids
}

/// The versions of the copies in the member.
pub(super) async fn member_versions(member: &SimulatedMember) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    for resource in [&CONFIG_MAPS, &DEPLOYMENTS] {
        for object in member.server.list(resource, NS).await {
            let meta = &object["metadata"];
            let key = format!("{} {}", resource.resource, meta["name"]);
            versions.insert(key, meta["resourceVersion"].to_string());
        }
    }
    versions
}

/// Creates a template and its policy, and waits for the copy and the state of its Work.
pub(super) async fn propagate(
    control: &ApiServerClient,
    member: &SimulatedMember,
    template: &Value,
) {
    let name = template["metadata"]["name"].as_str().unwrap();
    let resource = harness::objects::gvr(template);
    control.create(policy(NS, name, template, &[MEMBER])).await;
    control.create(template.clone()).await;
    member.server.wait_until_exists(resource, NS, name).await;
    let kind = template["kind"].as_str().unwrap().to_lowercase();
    let binding = format!("{name}-{kind}");
    let applied = |b: &Value| find_condition(b, "FullyApplied")["status"] == "True";
    control
        .wait_until(&BINDINGS, NS, &binding, "applied", applied)
        .await;
}

async fn delete_propagated(control: &ApiServerClient, member: &SimulatedMember, name: &str) {
    control.delete(&POLICIES, NS, name).await;
    control.delete(&CONFIG_MAPS, NS, name).await;
    member
        .server
        .wait_until_deleted(&CONFIG_MAPS, NS, name)
        .await;
    let binding = format!("{name}-configmap");
    control.wait_until_deleted(&BINDINGS, NS, &binding).await;
}

/// The preflight changes nothing, and names a controller that still runs; the takeover waits.
async fn check_preflight(plane: &AggregatedControlPlane, preflight: &[String]) {
    let client = &plane.client;
    client.create_namespace("karmada-system").await;
    let name = "karmada-scheduler";
    let now = machinery::time::rfc3339_micros(jiff::Timestamp::now());
    client
        .create(
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "karmada-system"},
            "spec": {"holderIdentity": "it", "leaseDurationSeconds": 3600, "renewTime": now}}),
        )
        .await;
    let output = run(preflight).await;
    for part in [
        "karmada-scheduler runs (it)",
        "webhook: validating-config/",
        "objects: ",
    ] {
        assert!(output.contains(part), "no {part}: {output}");
    }
    check_routes(plane, false).await;
    let free = json!({"spec": {"holderIdentity": ""}});
    client
        .merge_patch(&LEASES, "karmada-system", name, free)
        .await;
}

/// A Work that says something else than its template is named by the preflight, which fails.
async fn check_changed_work(plane: &AggregatedControlPlane, preflight: &[String]) {
    let client = &plane.client;
    let space = format!("karmada-es-{MEMBER}");
    let works = client.list(&WORKS, &space).await;
    let manifest = |work: &Value| work["spec"]["workload"]["manifests"][0].clone();
    let mut works = works
        .iter()
        .filter(|w| manifest(w)["metadata"]["name"] == "kept");
    let work = works.next().unwrap();
    let name = work["metadata"]["name"].as_str().unwrap();
    let mut changed = manifest(work);
    changed["data"]["k"] = json!("other");
    let write = async |manifest: Value| {
        let patch = json!({"spec": {"workload": {"manifests": [manifest]}}});
        client.merge_patch(&WORKS, &space, name, patch).await;
    };
    write(changed).await;
    let arguments = preflight.iter().map(String::as_str);
    let arguments: Vec<&str> = arguments.collect();
    let (code, printed) = harness::process::run_to_exit(BINARY, &arguments).await;
    assert_eq!(code, Some(1), "{printed}");
    let line = "error: ConfigMap fleet/kept would change in m1, in its Work: \
                workload.manifests[0].data.k";
    assert!(printed.lines().any(|l| l == line), "{printed}");
    write(manifest(work)).await;
    let printed = run(preflight).await;
    assert!(!printed.contains("would"), "{printed}");
}

/// The APIServices lead to Flotilla, or are the host's own; Karmada's webhooks are there in the
/// second case only.
async fn check_routes(plane: &AggregatedControlPlane, to_flotilla: bool) {
    for service in plane.api_services().await {
        let group = service["spec"]["group"].as_str().unwrap();
        // Groups of which Karmada had no definition are Flotilla's, and gone afterwards.
        assert_eq!(
            service["spec"]["service"].is_object(),
            to_flotilla,
            "{group}"
        );
    }
    let webhooks = plane
        .client
        .get(&VALIDATING_WEBHOOKS, "", "validating-config");
    assert_eq!(webhooks.await.is_none(), to_flotilla);
}

async fn run(arguments: &[String]) -> String {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run_flotilla(&arguments).await
}

/// Runs the command, kills it at each step once and runs it again, until it succeeds. Returns the
/// number of steps.
pub(super) async fn run_with_kills(arguments: Vec<String>) -> usize {
    let run = move || {
        let mut killed = BTreeSet::new();
        loop {
            let mut command = Command::new(BINARY);
            command.args(&arguments);
            let mut running = RunningCommand::start(&command);
            let output = BufReader::new(running.child.stderr.take().unwrap());
            let mut printed = Vec::new();
            let step = output.lines().map_while(Result::ok).find(|line| {
                printed.push(line.clone());
                let is_step = line.starts_with("takeover: ") && !line.contains("waiting");
                is_step && killed.insert(line.clone())
            });
            if step.is_none() {
                let status = running.child.wait().unwrap();
                assert!(status.success(), "{printed:#?}");
                return killed.len();
            }
        }
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}
