//! The fleet tree: a name is of the control plane and `NAME@CLUSTER` of a member, each with the rights that the
//! user has there.

use harness::http_client::{HttpTestClient, HttpTestRequest, HttpTestResponse, full_body};
use harness::kubectl::Kubectl;
use http::Method;
use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, wait_for_namespace, wait_until};
use crate::flow::fleet_view::{grant, proxy_of};
use crate::flow::objects::{CONFIG_MAPS, config_map, deployment, policy, secret};
use crate::flow::search::{ORIGIN, WatchLines, administrator};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

struct FleetTree {
    fleet: FleetFixture,
    client: HttpTestClient,
}

impl FleetTree {
    async fn start(ns: &'static str) -> Self {
        let fleet = FleetFixture::shared(ns).await;
        wait_for_namespace(&fleet, ns).await;
        let client = administrator(&fleet);
        Self { fleet, client }
    }

    async fn get(&self, path: &str) -> HttpTestResponse {
        self.client.get(path).await
    }

    async fn send(&self, method: Method, path: &str, body: &Value) -> HttpTestResponse {
        let request = HttpTestRequest::new(method, path).json(body);
        self.client.call(request).await
    }

    async fn patch(&self, path: &str, patch: &Value) -> HttpTestResponse {
        let request = HttpTestRequest::new(Method::PATCH, path)
            .header("content-type", "application/merge-patch+json")
            .body(full_body(patch.to_string()));
        self.client.call(request).await
    }

    async fn get_as(&self, user: &str, path: &str) -> HttpTestResponse {
        let request = HttpTestRequest::new(Method::GET, path).header("impersonate-user", user);
        self.client.call(request).await
    }

    async fn wait_for_names(&self, path: &str, expected: &[&str]) {
        wait_until(path, async || {
            let response = self.get(path).await;
            response.code == 200 && names(&response.json()) == expected
        })
        .await;
    }
}

/// The names of a list, sorted.
fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
    let mut names: Vec<String> = names.filter(|name| name != "kube-root-ca.crt").collect();
    names.retain(|name| !name.starts_with("kube-root-ca.crt@"));
    names.sort();
    names
}

// proves: FLT-list, FLT-names, FLT-address, FLT-paths, FLT-table, FLT-paged, FLT-own-kinds
#[tokio::test]
async fn a_name_is_of_the_control_plane_and_an_address_of_a_member() {
    let ns = "fleet-tree-reads";
    let tree = FleetTree::start(ns).await;
    let (control, client) = (&tree.fleet.control, &tree.client);
    control.create(secret(ns, "twice", "control")).await;
    for member in ["member1", "member2"] {
        let object = secret(ns, "twice", member);
        tree.fleet.member(member).create(object).await;
    }
    let path = &format!("/fleet-tree/api/v1/namespaces/{ns}/secrets");
    let all = ["twice", "twice@member1", "twice@member2"];
    tree.wait_for_names(path, &all).await;
    let native = path.strip_prefix("/fleet-tree").unwrap();
    let proxied = format!("/apis/search.karmada.io/v1alpha1/proxying/fleet-tree/proxy{native}");
    tree.wait_for_names(&proxied, &all).await;
    for (query, expected) in [
        ("fieldSelector=metadata.name%3Dtwice", &all[..1]),
        ("fieldSelector=metadata.name%3Dtwice%40member2", &all[2..]),
        ("cluster=member1", &all[1..2]),
        (
            "labelSelector=resource.karmada.io%2Fcached-from-cluster",
            &all[1..],
        ),
        (
            "labelSelector=!resource.karmada.io%2Fcached-from-cluster",
            &all[..1],
        ),
    ] {
        let list = tree.get(&format!("{path}?{query}")).await.json();
        assert_eq!(names(&list), expected, "{query}");
    }
    let mut paged = Vec::new();
    let mut next = format!("{path}?limit=1");
    while !next.is_empty() {
        let page = tree.get(&next).await.json();
        assert!(names(&page).len() <= 1);
        paged.extend(names(&page));
        let token = page["metadata"]["continue"].as_str();
        next = token
            .map(|token| format!("{path}?limit=1&continue={token}"))
            .unwrap_or_default();
    }
    paged.sort();
    assert_eq!(paged, all);
    let request = HttpTestRequest::new(Method::GET, path).header("accept", TABLE);
    let table = client.call(request).await.json();
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    let rows = table["rows"].as_array().unwrap().iter();
    let mut cells: Vec<&str> = rows.map(|row| row["cells"][0].as_str().unwrap()).collect();
    cells.sort_unstable();
    assert_eq!(cells, all);

    for (name, code, origin) in [
        ("twice", 200, ""),
        ("twice@member1", 200, "member1"),
        ("twice?cluster=member2", 200, "member2"),
        ("twice@nowhere", 404, ""),
        ("none", 404, ""),
        ("none@member1", 404, ""),
    ] {
        let response = tree.get(&format!("{path}/{name}")).await;
        assert_eq!(response.code, code, "{name}");
        if code == 200 {
            let metadata = &response.json()["metadata"];
            let shown = metadata["annotations"][ORIGIN].as_str();
            assert_eq!(shown.unwrap_or(""), origin, "{name}");
            let suffix = if origin.is_empty() { "" } else { "@" };
            let expected = format!("twice{suffix}{origin}");
            assert_eq!(metadata["name"], *expected, "{name}");
        }
    }
    // The same names of the fleet view stay those of the members.
    let view = tree.get(&format!("/fleet{native}")).await.json();
    assert_eq!(names(&view), ["twice", "twice"]);
    check_versions(&tree, path).await;
}

/// A version is one of several servers where the objects are, and else one of the control plane.
async fn check_versions(tree: &FleetTree, path: &str) {
    let policies = "/fleet-tree/apis/policy.karmada.io/v1alpha1/propagationpolicies";
    let version = async |path: &str| {
        let list = tree.get(path).await.json();
        list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (own, merged) = (version(policies).await, version(path).await);
    assert!(own.parse::<u64>().is_ok(), "{own}");
    assert!(merged.parse::<u64>().is_err(), "{merged}");
    for (path, version) in [(policies, &merged), (path, &own)] {
        let watch = format!("{path}?watch=1&resourceVersion={version}");
        assert_eq!(tree.get(&watch).await.code, 410, "{watch}");
    }
}

// proves: FLT-discovery
#[tokio::test]
async fn every_kind_of_the_control_plane_and_of_the_members_is_discovered() {
    let tree = FleetTree::start("fleet-tree-kinds").await;
    for (path, code) in [
        ("/fleet-tree", 200),
        ("/fleet-tree/version", 200),
        ("/fleet-tree/openapi/v3", 200),
        ("/fleet-tree/apis/policy.karmada.io/v1alpha1", 200),
        ("/fleet-tree/apis/apps", 200),
        ("/fleet-tree/api/v1", 200),
        ("/fleet-tree/apis/dragons.io/v1", 404),
        ("/fleet-tree/apis/dragons.io", 404),
        ("/fleet-tree/metrics", 404),
        // Nothing leads from the tree to itself.
        ("/fleet-tree/fleet-tree/api", 400),
        (
            "/fleet-tree/apis/search.karmada.io/v1alpha1/proxying/fleet-tree/proxy/api/v1/pods",
            400,
        ),
    ] {
        assert_eq!(tree.get(path).await.code, code, "{path}");
    }
    let groups = tree.get("/fleet-tree/apis").await.json();
    let groups = groups["groups"].as_array().unwrap().iter();
    let names: Vec<&str> = groups.map(|g| g["name"].as_str().unwrap()).collect();
    for group in ["apps", "policy.karmada.io"] {
        assert_eq!(
            names.iter().filter(|name| **name == group).count(),
            1,
            "{names:?}"
        );
    }
    for (path, group, resource) in [
        ("/fleet-tree/api", "", "pods"),
        ("/fleet-tree/apis", "apps", "deployments"),
        (
            "/fleet-tree/apis",
            "policy.karmada.io",
            "propagationpolicies",
        ),
    ] {
        let request = HttpTestRequest::new(Method::GET, path).header("accept", AGGREGATED);
        let response = tree.client.call(request).await;
        assert_eq!(response.headers["content-type"], AGGREGATED, "{path}");
        let document = response.json();
        let groups = document["items"].as_array().unwrap();
        let group = groups.iter().find(|g| g["metadata"]["name"] == group);
        let resources = group.unwrap()["versions"][0]["resources"].as_array();
        let of_name = resources
            .unwrap()
            .iter()
            .filter(|r| r["resource"] == resource);
        assert_eq!(of_name.count(), 1, "{path} {resource}");
    }
}

// proves: FLT-writes, FLT-write-names
#[tokio::test]
async fn a_write_of_a_name_is_one_of_the_control_plane() {
    let ns = "fleet-tree-writes";
    let tree = FleetTree::start(ns).await;
    let (control, member) = (&tree.fleet.control, tree.fleet.member("member2"));
    let path = &format!("/fleet-tree/api/v1/namespaces/{ns}/configmaps");
    let created = tree
        .client
        .post(path, &config_map(ns, "a", "control"))
        .await;
    assert_eq!(created.code, 201);
    assert!(control.get(&CONFIG_MAPS, ns, "a").await.is_some());
    let of_member = config_map(ns, "a", "member");
    let path_in_member = format!("{path}?cluster=member2");
    let created = tree.client.post(&path_in_member, &of_member).await;
    assert_eq!(created.code, 201);
    tree.wait_for_names(path, &["a", "a@member2"]).await;
    let value = async |name: &str| match name {
        "a" => control.get(&CONFIG_MAPS, ns, "a").await.unwrap()["data"]["k"].clone(),
        _ => member.get(&CONFIG_MAPS, ns, "a").await.unwrap()["data"]["k"].clone(),
    };
    let patch = |value: &str| json!({"data": {"k": value}});
    for (name, new, others) in [("a", "x", "member"), ("a@member2", "y", "x")] {
        let patched = tree.patch(&format!("{path}/{name}"), &patch(new)).await;
        assert_eq!(patched.code, 200, "{name}");
        assert_eq!(value(name).await, new);
        let other = if name == "a" { "a@member2" } else { "a" };
        assert_eq!(value(other).await, others);
    }
    // An object that was read can be written back: from a get, and from a list.
    for name in ["a", "a@member2"] {
        wait_until(name, async || {
            let one = format!("{path}/{name}");
            let mut object = tree.get(&one).await.json();
            assert_eq!(object["metadata"]["name"], name);
            object["data"]["k"] = "got".into();
            tree.send(Method::PUT, &one, &object).await.code == 200
        })
        .await;
        assert_eq!(value(name).await, "got");
        wait_until(name, async || {
            let list = tree.get(path).await.json();
            let items = list["items"].as_array().unwrap().iter();
            let mut items = items.filter(|item| item["metadata"]["name"] == name);
            let mut object = items.next().unwrap().clone();
            object["data"]["k"] = "listed".into();
            let one = format!("{path}/{name}");
            tree.send(Method::PUT, &one, &object).await.code == 200
        })
        .await;
        assert_eq!(value(name).await, "listed");
    }
    // From a watch, whose versions are of all servers.
    let watch = HttpTestRequest::new(Method::GET, &format!("{path}?watch=1"));
    let mut events = WatchLines::start(&tree.client, watch).await;
    let mut object = loop {
        let event = events.next().await.unwrap();
        if event["object"]["metadata"]["name"] == "a" {
            break event["object"].clone();
        }
    };
    object["data"]["k"] = "watched".into();
    let one = format!("{path}/a");
    for code in [200, 409] {
        let written = tree.send(Method::PUT, &one, &object).await;
        assert_eq!(written.code, code, "{:?}", written.body);
    }
    assert_eq!(value("a").await, "watched");
    let all = tree.send(Method::DELETE, path, &json!({})).await;
    assert_eq!(all.code, 400, "{:?}", all.body);
    let one = format!("{path}/a@member2");
    assert_eq!(tree.send(Method::DELETE, &one, &json!({})).await.code, 200);
    tree.wait_for_names(path, &["a"]).await;
    assert!(control.get(&CONFIG_MAPS, ns, "a").await.is_some());
    let one = format!("{path}/a");
    assert_eq!(tree.send(Method::DELETE, &one, &json!({})).await.code, 200);
    tree.wait_for_names(path, &[]).await;
}

// proves: FLT-rights
#[tokio::test]
async fn rights_in_the_control_plane_and_in_each_member_decide() {
    let ns = "fleet-tree-rights";
    let tree = FleetTree::start(ns).await;
    let control = &tree.fleet.control;
    control.create(secret(ns, "own", "x")).await;
    for member in ["member1", "member2"] {
        let object = secret(ns, "of", "x");
        tree.fleet.member(member).create(object).await;
    }
    let path = &format!("/fleet-tree/api/v1/namespaces/{ns}/secrets");
    tree.wait_for_names(path, &["of@member1", "of@member2", "own"])
        .await;
    let reads =
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]});
    let (of_member, of_control, stranger) = ("tree-member", "tree-control", "tree-stranger");
    grant(control, "tree-proxy", of_member, proxy_of(&["member1"])).await;
    grant(
        tree.fleet.member("member1"),
        "tree-reads",
        of_member,
        reads.clone(),
    )
    .await;
    grant(control, "tree-reads", of_control, reads).await;
    for (user, expected, missing) in [
        (of_member, "of@member1", Some("@control-plane")),
        (of_control, "own", None),
    ] {
        wait_until(user, async || {
            let list = tree.get_as(user, path).await;
            list.code == 200 && names(&list.json()) == [expected]
        })
        .await;
        let list = tree.get_as(user, path).await;
        let warnings = list.headers.get_all("warning").iter();
        let warnings: Vec<&str> = warnings.map(|w| w.to_str().unwrap()).collect();
        assert_eq!(
            warnings.len(),
            usize::from(missing.is_some()),
            "{warnings:?}"
        );
        assert!(
            warnings.iter().all(|w| w.contains(missing.unwrap())),
            "{warnings:?}"
        );
    }
    assert_eq!(tree.get_as(stranger, path).await.code, 403);
    for (user, name, code) in [
        (of_member, "own", 403),
        (of_member, "of@member1", 200),
        (of_member, "of@member2", 403),
        (of_control, "own", 200),
        (of_control, "of@member1", 404),
        (stranger, "own", 403),
    ] {
        let response = tree.get_as(user, &format!("{path}/{name}")).await;
        assert_eq!(response.code, code, "{user} {name}");
        let delete = HttpTestRequest::new(Method::DELETE, &format!("{path}/{name}"));
        let response = tree
            .client
            .call(delete.header("impersonate-user", user))
            .await;
        assert_eq!(response.code, 403, "{user} {name}");
    }
    // Nor do the versions of others help.
    let wide = tree.get(path).await.json();
    let version = wide["metadata"]["resourceVersion"].as_str().unwrap();
    let watch = format!("{path}?watch=1&resourceVersion={version}");
    for user in [of_member, of_control] {
        assert_eq!(tree.get_as(user, &watch).await.code, 410, "{user}");
    }
}

// proves: FLT-kubectl
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_has_a_template_and_its_copies_in_one_context() {
    let ns = "fleet-tree-kubectl";
    let tree = FleetTree::start("fleet-tree-kubectl-home").await;
    let (kubeconfig, folder) = (tree.fleet.kubeconfig(), tree.fleet.up.dir().to_owned());
    let start = move || Kubectl::of_1_36(&kubeconfig, &folder, ns);
    let kubectl = tokio::task::spawn_blocking(start).await.unwrap();
    let control = &tree.fleet.control;
    let template = deployment(ns, "web", 1);
    let clusters = ["member1", "member2"];
    control
        .create(policy(ns, "web", &template, &clusters))
        .await;
    control.create(template).await;
    let path = format!("/fleet-tree/api/v1/namespaces/{ns}/pods");
    wait_until("two running pods", async || {
        let list = tree.get(&path).await.json();
        let pods = list["items"].as_array().into_iter().flatten();
        pods.filter(|pod| pod["status"]["phase"] == "Running")
            .count()
            == 2
    })
    .await;
    let run = tokio::task::spawn_blocking(move || kubectl.iter().for_each(use_tree_with));
    run.await.unwrap();
}

/// Reads and writes a template `web`, its copies and their pods.
fn use_tree_with(kubectl: &Kubectl) {
    let tree = |line: &str| kubectl.output(&format!("--context fleet-tree {line}"));
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let all = ["web", "web@member1", "web@member2"].map(|name| format!("deployment.apps/{name}"));
    let mut listed = lines(tree("get deployments -o name"));
    listed.sort();
    assert_eq!(listed, all);
    for name in &all {
        assert_eq!(tree(&format!("get {name} -o name")).trim(), name);
    }
    let pods = lines(tree("get pods -o name"));
    let of_member = |member: &str| pods.iter().find(|pod| pod.ends_with(member)).unwrap();
    let pod = of_member("@member1");
    // kubectl compares the name that it has asked for with that of the answer.
    tree(&format!("wait {pod} --for=condition=Ready --timeout=30s"));
    tree(&format!("logs {pod}"));
    tree(&format!("exec {pod} -- true"));
    tree(&format!("delete {pod} --wait=false"));
    tree("scale deploy web --replicas=2");
    tree("rollout restart deploy/web");
    let (code, printed) = kubectl.run_with_input(
        "--context fleet-tree scale deploy web@member1 --replicas=5",
        "",
    );
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("change the template"), "{printed}");
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {k: v}\n";
    for _ in 0..2 {
        let (code, printed) = kubectl.run_with_input("--context fleet-tree apply -f -", manifest);
        assert_eq!(code, 0, "{printed}");
    }
    let (code, printed) = kubectl.run_with_input(
        "--context fleet-tree apply --server-side --force-conflicts -f -",
        manifest,
    );
    assert_eq!(code, 0, "{printed}");
    tree("delete cm applied");
    tree("delete deploy web --wait=false");
}
