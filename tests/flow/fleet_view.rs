//! The fleet view: the objects of all members as those of one cluster, with the rights of the user in
//! each of them.

use harness::http_client::{HttpTestClient, HttpTestRequest, HttpTestResponse, full_body};
use harness::kubectl::Kubectl;
use http::Method;
use serde_json::{Value, json};

use crate::flow::fleet::{ApiServerClient, FleetFixture, wait_for_namespace, wait_until};
use crate::flow::objects::{CONFIG_MAPS, DEPLOYMENTS, config_map, deployment, policy, secret};
use crate::flow::search::{WatchLines, administrator, origins};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
const ORIGIN: &str = "resource.karmada.io/cached-from-cluster";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A control plane with members, and its administrator.
struct FleetView {
    fleet: FleetFixture,
    client: HttpTestClient,
}

impl FleetView {
    async fn start(ns: &'static str) -> Self {
        let fleet = FleetFixture::shared(ns).await;
        wait_for_namespace(&fleet, ns).await;
        let client = administrator(&fleet);
        Self { fleet, client }
    }

    async fn get(&self, path: &str) -> HttpTestResponse {
        self.client.get(path).await
    }

    async fn get_as(&self, user: &str, path: &str) -> HttpTestResponse {
        let request = HttpTestRequest::new(Method::GET, path).header("impersonate-user", user);
        self.client.call(request).await
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

    /// Waits until a list of a user has these objects.
    async fn wait_for_items(&self, user: Option<&str>, path: &str, expected: &[&str]) {
        wait_until(path, async || {
            let response = match user {
                Some(user) => self.get_as(user, path).await,
                None => self.get(path).await,
            };
            response.code == 200 && origins(&response.json()) == expected
        })
        .await;
    }
}

/// Binds a user to a new ClusterRole with one rule.
pub(crate) async fn grant(server: &ApiServerClient, role: &str, user: &str, rule: Value) {
    let version = format!("{RBAC_GROUP}/v1");
    server
        .create(json!({"apiVersion": version, "kind": "ClusterRole",
            "metadata": {"name": role}, "rules": [rule]}))
        .await;
    server
        .create(json!({"apiVersion": version, "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC_GROUP}],
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role}}))
        .await;
}

pub(crate) fn proxy_of(clusters: &[&str]) -> Value {
    json!({"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"],
        "resourceNames": clusters, "verbs": ["*"]})
}

// proves: FLV-list, FLV-table, FLV-select, FLV-paged, FLV-get, FLV-address, FLV-watch, FLV-resume
#[tokio::test]
async fn the_objects_of_all_members_are_those_of_one_cluster() {
    let ns = "fleet-reads";
    let view = FleetView::start(ns).await;
    for (member, names) in [("member1", ["a", "b"]), ("member2", ["b", "c"])] {
        for name in names {
            let object = secret(ns, name, "x");
            view.fleet.member(member).create(object).await;
        }
    }
    let native = format!("/api/v1/namespaces/{ns}/secrets");
    let path = &format!("/fleet{native}");
    let all = ["member1/a", "member1/b", "member2/b", "member2/c"];
    view.wait_for_items(None, path, &all).await;
    // Behind an aggregator it is reached as a global proxy.
    let proxied = format!("/apis/search.karmada.io/v1alpha1/proxying/fleet/proxy{native}");
    view.wait_for_items(None, &proxied, &all).await;
    for (query, expected) in [
        ("fieldSelector=metadata.name%3Db", &all[1..3]),
        ("fieldSelector=metadata.name%3Db%40member2", &all[2..3]),
        ("cluster=member1", &all[..2]),
        (
            "labelSelector=resource.karmada.io/cached-from-cluster%20notin%20(member1)",
            &all[2..],
        ),
        ("labelSelector=tier%3Done", &[]),
    ] {
        let list = view.get(&format!("{path}?{query}")).await.json();
        assert_eq!(origins(&list), expected, "{query}");
    }
    let mut paged = Vec::new();
    let mut next = format!("{path}?limit=3");
    while !next.is_empty() {
        let page = view.get(&next).await.json();
        paged.extend(origins(&page));
        let token = page["metadata"]["continue"].as_str();
        next = token
            .map(|t| format!("{path}?limit=3&continue={t}"))
            .unwrap_or_default();
    }
    assert_eq!(paged, all);

    let request = HttpTestRequest::new(Method::GET, path).header("accept", TABLE);
    let table = view.client.call(request).await.json();
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<&str> = columns.map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(columns[..3], ["Cluster", "Name", "Type"]);
    assert_eq!(table["rows"][3]["cells"][0], "member2");
    let request = HttpTestRequest::new(Method::GET, path).header("accept", METADATA);
    let list = view.client.call(request).await.json();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(origins(&list), all);

    // One name of several objects is completed by the cluster.
    let ambiguous = view.get(&format!("{path}/b")).await;
    assert_eq!(ambiguous.code, 409);
    let message = ambiguous.json()["message"].to_string();
    for text in ["[member1, member2]", "b@CLUSTER"] {
        assert!(message.contains(text), "{message}");
    }
    for (name, code, origin) in [
        ("a", 200, "member1"),
        ("b@member2", 200, "member2"),
        ("b?cluster=member1", 200, "member1"),
        ("a@member2", 404, ""),
        ("none", 404, ""),
        ("a@nowhere", 404, ""),
        ("a?cluster=nowhere", 404, ""),
        ("b@member1?cluster=member2", 400, ""),
    ] {
        let response = view.get(&format!("{path}/{name}")).await;
        assert_eq!(response.code, code, "{name}");
        if code == 200 {
            let metadata = &response.json()["metadata"];
            assert_eq!(metadata["annotations"][ORIGIN], origin, "{name}");
        }
    }

    let version = view.get(path).await.json()["metadata"]["resourceVersion"].clone();
    let watch = |version: &str| {
        let path = format!("{path}?watch=1&resourceVersion={version}");
        HttpTestRequest::new(Method::GET, &path)
    };
    let mut events = WatchLines::start(&view.client, watch(version.as_str().unwrap())).await;
    let create = async |member: &str, name: &str| {
        let object = secret(ns, name, "x");
        view.fleet.member(member).create(object).await;
    };
    create("member2", "d").await;
    let (event, after) = events.next_event().await;
    assert_eq!(event, "ADDED member2/d");
    create("member1", "e").await;
    assert_eq!(events.next_event().await.0, "ADDED member1/e");
    drop(events);
    let mut resumed = WatchLines::start(&view.client, watch(&after)).await;
    assert_eq!(resumed.next_event().await.0, "ADDED member1/e");
}

/// Aggregated discovery has the same kinds in two documents.
async fn check_aggregated_discovery(view: &FleetView) {
    for (path, group, resource, subresource) in [
        ("/fleet/api", "", "pods", "log"),
        ("/fleet/apis", "apps", "deployments", "scale"),
    ] {
        let accept = format!("{AGGREGATED},application/json");
        let request = HttpTestRequest::new(Method::GET, path).header("accept", &accept);
        let response = view.client.call(request).await;
        assert_eq!(response.headers["content-type"], AGGREGATED, "{path}");
        let document = response.json();
        let groups = document["items"].as_array().unwrap();
        let group = groups.iter().find(|g| g["metadata"]["name"] == group);
        let version = &group.unwrap()["versions"][0];
        assert_eq!(version["freshness"], "Current", "{path}");
        let resources = version["resources"].as_array().unwrap();
        let resource = resources.iter().find(|r| r["resource"] == resource);
        let subresources = resource.unwrap()["subresources"].as_array().unwrap();
        let mut names = subresources.iter().map(|s| &s["subresource"]);
        assert!(names.any(|name| name == subresource), "{path}");
    }
}

// proves: FLV-discovery, FLV-discovery-aggregated, FLV-documents, FLV-paths, FLV-unwatched
#[tokio::test]
async fn every_kind_of_the_members_is_discovered() {
    let view = FleetView::start("fleet-kinds").await;
    let groups = view.get("/fleet/apis").await.json();
    let groups = groups["groups"].as_array().unwrap().iter();
    let names: Vec<&str> = groups.map(|g| g["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"apps"), "{names:?}");
    // The kinds of the control plane are not those of the members.
    assert!(!names.contains(&"policy.karmada.io"), "{names:?}");
    check_aggregated_discovery(&view).await;
    let core = view.get("/fleet/api").await.json();
    assert_eq!(core["versions"], json!(["v1"]));
    let list = view.get("/fleet/apis/apps/v1").await.json();
    let resources = list["resources"].as_array().unwrap();
    let deployments = resources.iter().find(|r| r["name"] == "deployments");
    let deployments = deployments.unwrap();
    assert_eq!(deployments["namespaced"], true);
    assert_eq!(deployments["shortNames"], json!(["deploy"]));
    assert!(resources.iter().any(|r| r["name"] == "deployments/scale"));
    for (path, code) in [
        ("/fleet", 200),
        ("/fleet/version", 200),
        ("/fleet/openapi/v3", 200),
        ("/fleet/apis/apps", 200),
        ("/fleet/apis/metrics.k8s.io/v1beta1/pods", 200),
        ("/fleet/api/v1/componentstatuses", 405),
        ("/fleet/api/v1/componentstatuses?cluster=member1", 200),
        ("/fleet/apis/dragons.io", 404),
        ("/fleet/apis/dragons.io/v1", 404),
        ("/fleet/apis/dragons.io/v1/dragons", 404),
        ("/fleet/metrics", 404),
        ("/fleet/apis/apps/v1/namespaces/a/nodes", 404),
        ("/fleet/api/v1/namespaces/a/nodes", 404),
    ] {
        assert_eq!(view.get(path).await.code, code, "{path}");
    }
    // Who may read no member sees no kinds.
    let groups = view.get_as("fleet-nobody", "/fleet/apis").await.json();
    assert_eq!(groups["groups"], json!([]));
    let anonymous = view.get_as("system:anonymous", "/fleet/apis").await;
    assert_eq!(anonymous.code, 403);
}

// proves: FLV-rights
#[tokio::test]
async fn rights_in_each_member_decide() {
    let ns = "fleet-rights";
    let view = FleetView::start(ns).await;
    let (user, stranger) = ("fleet-reader", "fleet-stranger");
    for member in ["member1", "member2", "member3"] {
        view.fleet
            .member(member)
            .create(secret(ns, &format!("of-{member}"), "x"))
            .await;
    }
    let native = format!("/api/v1/namespaces/{ns}/secrets");
    let path = &format!("/fleet{native}");
    let all = [
        "member1/of-member1",
        "member2/of-member2",
        "member3/of-member3",
    ];
    view.wait_for_items(None, path, &all).await;
    for code in [403, 403] {
        assert_eq!(view.get_as(user, path).await.code, code);
    }

    // In member1 the user has both rights, in member2 only the proxy's, in member3 only the member's.
    let control = &view.fleet.control;
    grant(
        control,
        "fleet-proxy",
        user,
        proxy_of(&["member1", "member2"]),
    )
    .await;
    let reads =
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]});
    for member in ["member1", "member3"] {
        grant(
            view.fleet.member(member),
            "fleet-reads",
            user,
            reads.clone(),
        )
        .await;
    }
    // The right on a list is not one on a deletion, nor on another namespace or kind.
    view.wait_for_items(Some(user), path, &all[..1]).await;
    let list = view.get_as(user, path).await;
    let warning = list.headers.get_all("warning").iter();
    let warnings: Vec<&str> = warning.map(|w| w.to_str().unwrap()).collect();
    assert!(
        warnings.iter().any(|w| w.contains("member2")),
        "{warnings:?}"
    );
    assert!(
        !warnings.iter().any(|w| w.contains("member3")),
        "{warnings:?}"
    );
    let body = String::from_utf8(list.body.to_vec()).unwrap();
    assert!(
        !body.contains("member2") && !body.contains("member3"),
        "{body}"
    );
    for (rest, code) in [
        ("/of-member1", 200),
        ("/of-member1@member1", 200),
        ("/of-member2", 404),
        ("/of-member2@member2", 403),
        ("/of-member3", 404),
        ("/of-member3@member3", 404),
        ("?cluster=member2", 403),
        ("?cluster=member3", 403),
        ("?limit=1", 200),
    ] {
        let response = view.get_as(user, &format!("{path}{rest}")).await;
        assert_eq!(response.code, code, "{rest}: {:?}", response.body);
        if rest == "?limit=1" {
            let list = response.json();
            assert!(list["metadata"]["continue"].is_null(), "{list}");
            assert!(list["metadata"]["remainingItemCount"].is_null(), "{list}");
        }
    }
    // Nor do the tokens and resourceVersions of others help.
    let wide = view.get(&format!("{path}?limit=1")).await.json();
    let token = wide["metadata"]["continue"].as_str().unwrap();
    let version = wide["metadata"]["resourceVersion"].as_str().unwrap();
    for rest in [
        format!("?limit=1&continue={token}"),
        format!("?watch=1&resourceVersion={version}"),
    ] {
        let response = view.get_as(user, &format!("{path}{rest}")).await;
        assert_eq!(response.code, 410, "{rest}");
    }
    for other in ["configmaps", "pods"] {
        let path = path.replace("secrets", other);
        assert_eq!(view.get_as(user, &path).await.code, 403, "{other}");
    }
    assert_eq!(view.get_as(stranger, path).await.code, 403);
    let request = HttpTestRequest::new(Method::DELETE, &format!("{path}/of-member1@member1"));
    let request = request.header("impersonate-user", user);
    assert_eq!(view.client.call(request).await.code, 403);

    // A watch has the events of the same members.
    let watch = format!("{path}?watch=1");
    let request = HttpTestRequest::new(Method::GET, &watch).header("impersonate-user", user);
    let mut events = WatchLines::start(&view.client, request).await;
    assert_eq!(events.next_event().await.0, "ADDED member1/of-member1");
    for member in ["member2", "member3", "member1"] {
        let object = secret(ns, "later", "x");
        view.fleet.member(member).create(object).await;
    }
    assert_eq!(events.next_event().await.0, "ADDED member1/later");
    // Who may do everything here reads nothing of a member that does not know him.
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    grant(control, "fleet-everything", stranger, everything).await;
    wait_until("the denial of every member", async || {
        let response = view.get_as(stranger, path).await;
        response.code == 403
            && response.json()["message"]
                .to_string()
                .contains("in any cluster")
    })
    .await;
}

// proves: FLV-writes, FLV-write-identity, FLV-copies, FLV-owners, FLV-uid
#[tokio::test]
async fn writes_go_to_the_member_that_they_name() {
    let ns = "fleet-writes";
    let view = FleetView::start(ns).await;
    let path = format!("/fleet/api/v1/namespaces/{ns}/configmaps");
    for member in ["member1", "member2"] {
        let object = config_map(ns, "twice", member);
        view.fleet.member(member).create(object).await;
    }
    let new = config_map(ns, "new", "v");
    assert_eq!(view.client.post(&path, &new).await.code, 400);
    let created = view
        .client
        .post(&format!("{path}?cluster=member2"), &new)
        .await;
    assert_eq!(created.code, 201);
    let one = format!("{path}/twice@member2");
    let twice = format!("{path}?fieldSelector=metadata.name%3Dtwice");
    view.wait_for_items(None, &twice, &["member1/twice", "member2/twice"])
        .await;
    let ambiguous = view.patch(&format!("{path}/twice"), &json!({})).await;
    assert_eq!(ambiguous.code, 409);
    let labeled = json!({"metadata": {"labels": {"x": "y"}}});
    assert_eq!(view.patch(&one, &labeled).await.code, 200);

    // An object that was read can be written back, and a stale one cannot.
    let stale = view.get(&one).await.json();
    wait_until("the update", async || {
        let mut object = view.get(&one).await.json();
        object["data"]["k"] = "w".into();
        view.send(Method::PUT, &one, &object).await.code == 200
    })
    .await;
    let native = view.fleet.member("member2");
    let object = native.get(&CONFIG_MAPS, ns, "twice").await.unwrap();
    assert_eq!(object["data"]["k"], "w");
    assert_eq!(object["metadata"]["labels"], json!({"x": "y"}));
    assert!(object["metadata"]["annotations"][ORIGIN].is_null());
    assert_ne!(object["metadata"]["uid"], stale["metadata"]["uid"]);
    assert_eq!(view.send(Method::PUT, &one, &stale).await.code, 409);
    // A resourceVersion of another cluster is as stale.
    let other = view.get(&format!("{path}/twice@member1")).await.json();
    let mut foreign = view.get(&one).await.json();
    foreign["metadata"]["resourceVersion"] = other["metadata"]["resourceVersion"].clone();
    assert_eq!(view.send(Method::PUT, &one, &foreign).await.code, 409);
    // The uid of the fleet view is a precondition, that of another object is not met.
    let delete = |uid: &Value| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}});
    let wrong = delete(&other["metadata"]["uid"]);
    assert_eq!(view.send(Method::DELETE, &one, &wrong).await.code, 409);
    let right = delete(&stale["metadata"]["uid"]);
    assert_eq!(view.send(Method::DELETE, &one, &right).await.code, 200);
    native.wait_until_deleted(&CONFIG_MAPS, ns, "twice").await;
    assert_eq!(
        view.send(Method::DELETE, &format!("{path}/new"), &json!({}))
            .await
            .code,
        200
    );

    // A copy has its template for an owner, and is not changed behind its back.
    let control = &view.fleet.control;
    let template = deployment(ns, "web", 1);
    control
        .create(policy(ns, "web", &template, &["member1"]))
        .await;
    control.create(template).await;
    let copy = format!("/fleet/apis/apps/v1/namespaces/{ns}/deployments/web");
    wait_until("the copy", async || view.get(&copy).await.code == 200).await;
    let template = control.get(&DEPLOYMENTS, ns, "web").await.unwrap();
    let object = view.get(&copy).await.json();
    let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.last().unwrap()["uid"], template["metadata"]["uid"]);
    let restart =
        json!({"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}});
    for path in [copy.clone(), format!("{copy}/scale")] {
        let rejection = view.patch(&path, &restart).await;
        assert_eq!(rejection.code, 403, "{path}");
        let message = rejection.json()["message"].to_string();
        assert!(message.contains("change the template"), "{message}");
    }
    // The ReplicaSet's owner is the Deployment as it is shown.
    let sets = format!("/fleet/apis/apps/v1/namespaces/{ns}/replicasets");
    wait_until("the ReplicaSet", async || {
        let list = view.get(&sets).await;
        let owner = &list.json()["items"][0]["metadata"]["ownerReferences"][0]["uid"];
        *owner == object["metadata"]["uid"]
    })
    .await;
}

// proves: FLV-kubectl, FLV-streams
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_sees_one_cluster() {
    let ns = "fleet-kubectl";
    let fleet = FleetFixture::shared("fleet-kubectl-home").await;
    let (kubeconfig, folder) = (fleet.kubeconfig(), fleet.up.dir().to_owned());
    let start = move || Kubectl::of_1_36(&kubeconfig, &folder, ns);
    let kubectl = tokio::task::spawn_blocking(start).await.unwrap();
    let control = &fleet.control;
    let template = deployment(ns, "web", 2);
    let clusters = ["member1", "member2"];
    control
        .create(policy(ns, "web", &template, &clusters))
        .await;
    control.create(template).await;
    let client = administrator(&fleet);
    wait_until("four running pods", async || {
        let path = format!("/fleet/api/v1/namespaces/{ns}/pods");
        let list = client.get(&path).await.json();
        let pods = list["items"].as_array().into_iter().flatten();
        pods.filter(|pod| pod["status"]["phase"] == "Running")
            .count()
            == 4
    })
    .await;
    let run = tokio::task::spawn_blocking(move || kubectl.iter().for_each(read_and_write_with));
    run.await.unwrap();
}

/// Reads the pods and the Deployment of a template with two copies as a user of one cluster would.
fn read_and_write_with(kubectl: &Kubectl) {
    let fleet = |line: &str| kubectl.output(&format!("--context fleet {line}"));
    let pods = fleet("get pods -A -o wide");
    let header: Vec<&str> = pods.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header[..3], ["NAMESPACE", "CLUSTER", "NAME"], "{pods}");
    let of = |cluster: &str| {
        let rows = pods
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>());
        let rows = rows.filter(|row| row[0] == kubectl.namespace && row[1] == cluster);
        rows.map(|row| row[2].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((of("member1").len(), of("member2").len()), (2, 2), "{pods}");
    let pod = &of("member2")[0];
    let watch = kubectl.spawn("--context fleet get pods -w");
    watch.wait_for_line("member2");
    fleet(&format!("logs {pod}"));
    fleet(&format!("exec {pod} -- true"));
    let deployments = fleet("get deploy -o yaml");
    assert_eq!(
        deployments.matches("cached-from-cluster: member1").count(),
        2
    );
    let (code, printed) = kubectl.run_with_input("--context fleet get deploy web", "");
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("web@CLUSTER"), "{printed}");
    fleet("get deploy web@member1");
    fleet(&format!("delete pod {pod} --wait=false"));
    let (code, printed) =
        kubectl.run_with_input("--context fleet rollout restart deploy/web@member1", "");
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("change the template"), "{printed}");
}
