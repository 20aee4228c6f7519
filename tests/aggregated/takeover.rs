//! The takeover of a Karmada in place and the way back, twice, with the command killed at each step
//! the second time.
//!
//! The records of Karmada are its definitions in the host with the objects that a Flotilla has
//! written before in the names and states of Karmada's controllers, and their copies in a member.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::Command;

use client::{
    Informer, InformerFactory, ListOptions, ListWatchSelector, ResourcePath, ShutdownToken,
    TaskGroup,
};
use harness::ApiServerClient;
use harness::api_server_client::{find_condition, wait_until};
use harness::karmada_crds::karmada_definitions;
use harness::objects::{
    API_SERVICES, BINDINGS, CLUSTERS, CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, LEASES, POLICIES,
    SECRETS, VALIDATING_WEBHOOKS, WORKS, config_map, deployment, policy,
};
use harness::process::RunningCommand;
use machinery::Gvr;
use serde_json::{Value, json};

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;
use crate::aggregated::real_clusters::{BINARY, join_cluster, path_string, run_flotilla};
use crate::aggregated::simulated_member::SimulatedMember;

pub(super) const NS: &str = "fleet";
pub(super) const MEMBER: &str = "m1";
const MOVED: [&Gvr; 4] = [&CLUSTERS, &POLICIES, &BINDINGS, &WORKS];
/// The identity and state of a server, which new objects do not have.
const SERVER_FIELDS: [&str; 5] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
];

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

type Uids = BTreeMap<String, String>;

/// The uids of all objects that are moved.
async fn uids(control: &ApiServerClient) -> Uids {
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

/// Replaces Flotilla by Karmada's definitions with the same objects, and a webhook of Karmada.
pub(super) async fn become_karmada(plane: &mut AggregatedControlPlane) {
    let mut objects = Vec::new();
    for resource in MOVED {
        objects.extend(plane.client.list(resource, "").await);
    }
    set_owner_of_secrets(&plane.client, Value::Null).await;
    plane.stop();
    plane.clear_store();
    let client = &plane.client;
    for service in plane.api_services().await {
        let name = service["metadata"]["name"].as_str().unwrap();
        client.delete(&API_SERVICES, "", name).await;
    }
    for webhook in client.list(&VALIDATING_WEBHOOKS, "").await {
        let name = webhook["metadata"]["name"].as_str().unwrap();
        client.delete(&VALIDATING_WEBHOOKS, "", name).await;
    }
    create_definitions(client).await;
    for mut object in objects {
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            set_uid_of_cluster(client, owners).await;
        }
        create_record(client, object).await;
    }
    client.create(karmada_webhooks()).await;
    let cluster = client.get(&CLUSTERS, "", MEMBER).await.unwrap();
    let owner = json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "name": MEMBER, "uid": cluster["metadata"]["uid"]}]);
    set_owner_of_secrets(client, owner).await;
}

/// Works of the member are collected with their owner, which has a new uid.
async fn set_uid_of_cluster(client: &ApiServerClient, owners: &mut [Value]) {
    for owner in owners.iter_mut().filter(|owner| owner["kind"] == "Cluster") {
        let cluster = client.get(&CLUSTERS, "", MEMBER).await.unwrap();
        owner["uid"] = cluster["metadata"]["uid"].clone();
    }
}

/// The credentials of the member are collected with their owner, which is known by its uid.
async fn set_owner_of_secrets(client: &ApiServerClient, owner: Value) {
    let namespace = "karmada-cluster";
    for secret in client.list(&SECRETS, namespace).await {
        let name = secret["metadata"]["name"].as_str().unwrap();
        if name.starts_with(MEMBER) {
            let patch = json!({"metadata": {"ownerReferences": owner}});
            client.merge_patch(&SECRETS, namespace, name, patch).await;
        }
    }
}

async fn create_definitions(client: &ApiServerClient) {
    let mut definitions: Vec<Value> = karmada_definitions()
        .into_iter()
        .map(|d| d.object)
        .collect();
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    // Karmada's aggregated API server stands for a definition of Clusters.
    definitions.push(json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "clusters.cluster.karmada.io"},
        "spec": {"group": "cluster.karmada.io", "scope": "Cluster",
            "names": {"plural": "clusters", "singular": "cluster", "kind": "Cluster", "listKind": "ClusterList"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": open}, "subresources": {"status": {}}}]}}));
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let versions = spec["versions"].as_array().unwrap().iter();
        let resources: Vec<Gvr> = versions
            .map(|version| Gvr::new(group.clone(), text(&version["name"]), plural.clone()))
            .collect();
        if client.get(&DEFINITIONS, "", &name).await.is_none() {
            client.create(definition).await;
        }
        let established = |d: &Value| find_condition(d, "Established")["status"] == "True";
        client
            .wait_until(&DEFINITIONS, "", &name, "established", established)
            .await;
        // The host asks Flotilla until it has heard that the group is its own.
        for resource in &resources {
            wait_until(&format!("{resource} is served"), async || {
                let all = ResourcePath::collection(resource, "");
                let options = ListOptions::default();
                client.api.list(all, &options).await.is_ok()
            })
            .await;
        }
    }
}

async fn create_record(client: &ApiServerClient, mut object: Value) {
    let status = object["status"].take();
    let meta = object["metadata"].as_object_mut().unwrap();
    for field in SERVER_FIELDS {
        meta.remove(field);
    }
    object.as_object_mut().unwrap().remove("status");
    wait_until("the definition is served", async || {
        match client.try_create(object.clone()).await {
            Ok(_) => true,
            Err(error) => error.is_already_exists(),
        }
    })
    .await;
    if !status.is_null() {
        let mut status = status;
        if !status["schedulerObservedGeneration"].is_null() {
            status["schedulerObservedGeneration"] = 1.into();
        }
        client.patch_status(&object, status).await;
    }
}

fn karmada_webhooks() -> Value {
    let webhook = json!({"name": "clusterpropagationpolicy.karmada.io",
        "clientConfig": {"url": "https://karmada-webhook.karmada-system.svc:443/validate"},
        "rules": [{"apiGroups": ["policy.karmada.io"], "apiVersions": ["*"],
            "operations": ["CREATE"], "resources": ["clusterpropagationpolicies"]}],
        "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"]});
    json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validating-config"}, "webhooks": [webhook]})
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
