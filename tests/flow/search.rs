//! The search and the global proxy: objects of members that ResourceRegistries select.

use bytes::{Buf, BytesMut};
use harness::http_client::{
    HttpTestClient, HttpTestRequest, HttpTestResponse, full_body, within_timeout,
};
use harness::{FakeOpenSearch, FlotillaUpProcess};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, wait_for_namespace, wait_until};
use crate::flow::objects::{DEPLOYMENTS, RESOURCE_REGISTRIES, config_map, deployment, secret};

pub(crate) const SEARCH: &str = "/apis/search.karmada.io/v1alpha1/search";
pub(crate) const PROXY: &str = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy";
const USER: &str = "search-user";
pub(crate) const ORIGIN: &str = "resource.karmada.io/cached-from-cluster";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A control plane with a ResourceRegistry, and its administrator.
pub(crate) struct SearchFleet {
    pub(crate) fleet: FleetFixture,
    pub(crate) client: HttpTestClient,
    ns: &'static str,
}

/// The answers of a watch, line by line.
pub(crate) struct WatchLines {
    body: Incoming,
    buffer: BytesMut,
}

impl WatchLines {
    pub(crate) async fn start(client: &HttpTestClient, request: HttpTestRequest) -> Self {
        let response = client.send(request).await;
        assert_eq!(response.status(), 200);
        Self {
            body: response.into_body(),
            buffer: BytesMut::new(),
        }
    }

    /// The next event; `None` if the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                return Some(machinery::json::from_slice(&line).unwrap());
            }
            let frame = within_timeout("an event", self.body.frame()).await;
            let data = frame?.unwrap().into_data();
            self.buffer.extend_from_slice(&data.unwrap());
        }
    }

    /// Waits for the end of the watch, before which no event comes.
    pub(crate) async fn expect_end(&mut self) {
        assert_eq!(self.next().await, None);
    }

    /// The type of the next event, and the origin, name and version of its object.
    pub(crate) async fn next_event(&mut self) -> (String, String) {
        let event = self.next().await.unwrap();
        let metadata = &event["object"]["metadata"];
        let line = format!(
            "{} {}/{}",
            event["type"].as_str().unwrap(),
            metadata["annotations"][ORIGIN].as_str().unwrap(),
            metadata["name"].as_str().unwrap()
        );
        (
            line,
            metadata["resourceVersion"].as_str().unwrap().to_owned(),
        )
    }
}

impl SearchFleet {
    /// Selects a kind in a namespace that all members have.
    pub(crate) async fn start(ns: &'static str, selectors: Value) -> Self {
        let fleet = FleetFixture::shared(ns).await;
        wait_for_namespace(&fleet, ns).await;
        let registry = json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
            "metadata": {"name": ns}, "spec": {"targetCluster": {"clusterNames": ["member1", "member2"]},
                "resourceSelectors": selectors}});
        fleet.control.create(registry).await;
        let client = administrator(&fleet);
        Self { fleet, client, ns }
    }

    pub(crate) async fn create(&self, member: &str, object: Value) {
        self.fleet.member(member).create(object).await;
    }

    pub(crate) async fn get(&self, path: &str) -> HttpTestResponse {
        self.client.get(path).await
    }

    async fn get_as(&self, user: &str, path: &str) -> u16 {
        let request = HttpTestRequest::new(Method::GET, path).header("impersonate-user", user);
        self.client.call(request).await.code
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> HttpTestResponse {
        let request = HttpTestRequest::new(method, path).json(body);
        self.client.call(request).await
    }

    pub(crate) async fn watch(&self, path: &str) -> WatchLines {
        WatchLines::start(&self.client, HttpTestRequest::new(Method::GET, path)).await
    }

    /// Waits until a list has these objects, each with its origin.
    pub(crate) async fn wait_for_items(&self, path: &str, expected: &[&str]) {
        wait_until(path, async || {
            let response = self.get(path).await;
            response.code == 200 && origins(&response.json()) == expected
        })
        .await;
    }

    /// Grants reads to the user who is no administrator.
    async fn grant(&self, name: &str, group: &str, resources: &[&str]) {
        let control = &self.fleet.control;
        let name = format!("{}-{name}", self.ns);
        let rbac = "rbac.authorization.k8s.io";
        let version = format!("{rbac}/v1");
        control
            .create(json!({"apiVersion": version, "kind": "ClusterRole",
                "metadata": {"name": name}, "rules": [{"apiGroups": [group],
                    "resources": resources, "verbs": ["get", "list"]}]}))
            .await;
        control
            .create(json!({"apiVersion": version, "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "subjects": [{"kind": "User", "name": USER, "apiGroup": rbac}],
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name}}))
            .await;
    }

    pub(crate) async fn delete_registry(&self) {
        let control = &self.fleet.control;
        control.delete(&RESOURCE_REGISTRIES, "", self.ns).await;
    }
}

/// A client with the certificate of the administrator.
pub(crate) fn administrator(fleet: &FleetFixture) -> HttpTestClient {
    administrator_of(&fleet.up)
}

pub(crate) fn administrator_of(up: &FlotillaUpProcess) -> HttpTestClient {
    let read = |name: &str| std::fs::read(up.dir().join("pki").join(name)).unwrap();
    let (certificate, key) = (read("admin.crt"), read("admin.key"));
    let identity = Some((&*certificate, &*key));
    HttpTestClient::new(up.address(), "127.0.0.1", &read("ca.crt"), identity)
}

/// The objects of a list, with their origin.
pub(crate) fn origins(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    let line = |item: &Value| {
        let metadata = &item["metadata"];
        let origin = metadata["annotations"][ORIGIN].as_str().unwrap();
        format!("{origin}/{}", metadata["name"].as_str().unwrap())
    };
    items.map(line).collect()
}

pub(crate) fn selector(api_version: &str, kind: &str, ns: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "namespace": ns})
}

// proves: SRC-search, SRC-search-errors, SRC-native-rights
#[tokio::test]
async fn a_search_lists_the_objects_of_all_members() {
    let ns = "search-maps";
    let search = SearchFleet::start(ns, json!([selector("v1", "ConfigMap", ns)])).await;
    let mut labeled = config_map(ns, "b", "2");
    labeled["metadata"]["labels"] = json!({"tier": "one"});
    search.create("member1", config_map(ns, "a", "1")).await;
    search.create("member2", labeled).await;
    search.create("member3", config_map(ns, "c", "3")).await;
    let native = format!("api/v1/namespaces/{ns}/configmaps");
    let path = format!("{SEARCH}/cache/{native}");
    let only = |list: &Value| -> Vec<String> {
        let all = origins(list).into_iter();
        all.filter(|name| !name.ends_with("kube-root-ca.crt"))
            .collect()
    };
    wait_until("the objects", async || {
        let response = search.get(&path).await;
        response.code == 200 && only(&response.json()) == ["member1/a", "member2/b"]
    })
    .await;
    let list = search.get(&path).await.json();
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("ConfigMapList"), &json!("v1"))
    );
    search
        .wait_for_items(&format!("{path}?labelSelector=tier%3Done"), &["member2/b"])
        .await;
    search
        .wait_for_items(&format!("{path}/a"), &["member1/a"])
        .await;

    for (path, code) in [
        (format!("{SEARCH}/opensearch/{native}"), 200),
        (format!("{SEARCH}/elsewhere/{native}"), 400),
        (format!("{SEARCH}/cache/api/v1"), 400),
        (format!("{SEARCH}/cache/apis/example.io/v1/dragons"), 404),
        (format!("{SEARCH}/cache"), 404),
    ] {
        assert_eq!(search.get(&path).await.code, code, "{path}");
    }
    assert_eq!(search.client.post(&path, &json!({})).await.code, 405);
    // A kind that no registry selects has no objects.
    for path in [
        "apis/apps/v1/controllerrevisions",
        "api/v1/namespaces/x/services/y",
    ] {
        let list = search.get(&format!("{SEARCH}/cache/{path}")).await.json();
        assert_eq!(list["items"], json!([]), "{path}");
        assert!(list["kind"].as_str().unwrap().ends_with("List"));
    }

    // Besides the search and the proxy, the user needs the rights to what is read.
    let paths = [path, format!("{PROXY}/{native}")];
    let user_gets = async |code: u16| {
        let [search_code, proxy_code] = [
            search.get_as(USER, &paths[0]).await,
            search.get_as(USER, &paths[1]).await,
        ];
        search_code == code && proxy_code == code
    };
    assert!(user_gets(403).await);
    let reach = ["search/api", "search/apis", "proxying/proxy"];
    search.grant("reach", "search.karmada.io", &reach).await;
    // The rights arrive: what is missing is named by another resource then.
    wait_until("the right to the search", async || {
        let request = HttpTestRequest::new(Method::GET, &paths[0]);
        let rejection = search.client.call(request.header("impersonate-user", USER));
        let message = rejection.await.json()["message"].to_string();
        message.contains("cannot list resource \\\"configmaps\\\"")
    })
    .await;
    assert!(user_gets(403).await);
    search.grant("read", "", &["configmaps"]).await;
    wait_until("the rights", async || user_gets(200).await).await;
    search.delete_registry().await;
}

// proves: SRC-proxy-reads, SRC-table, SRC-proxy-watch
#[tokio::test]
async fn the_proxy_reads_from_all_members() {
    let ns = "search-reads";
    let search = SearchFleet::start(ns, json!([selector("v1", "Secret", ns)])).await;
    for (member, names) in [("member1", ["a", "b"]), ("member2", ["b", "c"])] {
        for name in names {
            search.create(member, secret(ns, name, "x")).await;
        }
    }
    let path = format!("{PROXY}/api/v1/namespaces/{ns}/secrets");
    let all = ["member1/a", "member1/b", "member2/b", "member2/c"];
    search.wait_for_items(&path, &all).await;
    search
        .wait_for_items(
            &format!("{path}?fieldSelector=metadata.name%3Db"),
            &["member1/b", "member2/b"],
        )
        .await;
    search
        .wait_for_items(&format!("{path}?fieldSelector=type%21%3DOpaque"), &[])
        .await;

    let mut listed = Vec::new();
    let mut next = format!("{path}?limit=3");
    while !next.is_empty() {
        let page = search.get(&next).await.json();
        listed.extend(origins(&page));
        let token = page["metadata"]["continue"].as_str();
        next = token
            .map(|t| format!("{path}?limit=3&continue={t}"))
            .unwrap_or_default();
    }
    assert_eq!(listed, all);

    let request = HttpTestRequest::new(Method::GET, &path).header("accept", TABLE);
    let table = search.client.call(request).await.json();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let columns: Vec<&str> = columns
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        (&columns[..2], table["rows"].as_array().unwrap().len()),
        (&["Name", "Type"][..], 4)
    );

    assert_eq!(search.get(&format!("{path}/b")).await.code, 409);
    assert_eq!(search.get(&format!("{path}/x")).await.code, 404);
    assert_eq!(
        search.get(&format!("{path}?resourceVersion=7")).await.code,
        400
    );
    let version = search.get(&path).await.json()["metadata"]["resourceVersion"].clone();
    let version = version.as_str().unwrap();
    let watch_path = |version: &str| format!("{path}?watch=1&resourceVersion={version}");
    let mut watch = search.watch(&watch_path(version)).await;
    search.create("member2", secret(ns, "d", "x")).await;
    let (line, after) = watch.next_event().await;
    assert_eq!(line, "ADDED member2/d");
    search.create("member1", secret(ns, "e", "x")).await;
    assert_eq!(watch.next_event().await.0, "ADDED member1/e");
    drop(watch);
    // The next watch resumes in both members.
    let mut resumed = search.watch(&watch_path(&after)).await;
    assert_eq!(resumed.next_event().await.0, "ADDED member1/e");
    search.delete_registry().await;
}

// proves: SRC-writes, SRC-elsewhere, SRC-update
#[tokio::test]
async fn the_proxy_forwards_writes_to_the_member_with_the_object() {
    let ns = "search-writes";
    let selectors = json!([
        selector("apps/v1", "Deployment", ns),
        selector("v1", "Pod", ns)
    ]);
    let search = SearchFleet::start(ns, selectors).await;
    search.create("member2", deployment(ns, "web", 1)).await;
    let path = format!("{PROXY}/apis/apps/v1/namespaces/{ns}/deployments");
    search.wait_for_items(&path, &["member2/web"]).await;
    let one = format!("{path}/web");

    // An object that was read through the proxy can be written back.
    wait_until("the update", async || {
        let mut object = search.get(&one).await.json();
        object["spec"]["replicas"] = 2.into();
        let updated = search.send(Method::PUT, &one, &object).await;
        updated.code == 200
    })
    .await;
    let member = search.fleet.member("member2");
    let scaled = member.get(&DEPLOYMENTS, ns, "web").await.unwrap();
    assert_eq!(scaled["spec"]["replicas"], 2);
    assert!(scaled["metadata"]["annotations"][ORIGIN].is_null());
    let patch = json!({"metadata": {"labels": {"patched": "yes"}}}).to_string();
    let request = HttpTestRequest::new(Method::PATCH, &one)
        .header("content-type", "application/merge-patch+json")
        .body(full_body(patch));
    let patched = search.client.call(request).await.json();
    assert_eq!(patched["metadata"]["labels"]["patched"], "yes");
    let scale = search.get(&format!("{one}/scale")).await.json();
    assert_eq!(scale["spec"]["replicas"], 2);

    // No member is the one for a new object, or for a collection.
    assert_eq!(
        search
            .client
            .post(&path, &deployment(ns, "new", 1))
            .await
            .code,
        405
    );
    assert_eq!(
        search.send(Method::DELETE, &path, &json!({})).await.code,
        405
    );
    assert_eq!(
        search
            .send(Method::DELETE, &format!("{path}/none"), &json!({}))
            .await
            .code,
        404
    );

    // Other kinds and other paths are the control plane's.
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "own", "namespace": ns}, "spec": {"ports": [{"port": 80}]}});
    let services = format!("/api/v1/namespaces/{ns}/services");
    let through_proxy = format!("{PROXY}{services}");
    let created = search.client.post(&through_proxy, &service).await;
    assert_eq!(created.code, 201);
    // A list has the revision of the store, which tests beside this one raise.
    let own = format!("{services}/own");
    for native in [&own, "/api", "/version"] {
        let direct = search.get(native).await;
        let response = search.get(&format!("{PROXY}{native}")).await;
        assert_eq!(
            (response.code, &response.body),
            (200, &direct.body),
            "{native}"
        );
    }
    // The user may use the proxy, and needs the rights to what is behind it.
    assert_eq!(search.get_as(USER, &through_proxy).await, 403);
    let itself = search.get(&format!("{PROXY}{PROXY}/api")).await;
    assert_eq!(itself.code, 400);
    assert_eq!(
        search.send(Method::DELETE, &one, &json!({})).await.code,
        200
    );
    search.wait_for_items(&path, &[]).await;
    member.wait_until_deleted(&DEPLOYMENTS, ns, "web").await;
    search.delete_registry().await;
}

// proves: SRC-backend-documents, SRC-backend-restart, SRC-backend-condition
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_members_are_documents_of_open_search() {
    let ns = "search-documents";
    let search = SearchFleet::start(ns, json!([selector("apps/v1", "Deployment", ns)])).await;
    let open_search = FakeOpenSearch::start("ann", "secret").await;
    let index = "kubernetes-deployment";
    let mut credentials = secret(ns, "open-search", "x");
    credentials["data"] = open_search.secret_data("ann", "secret");
    let control = &search.fleet.control;
    control.create(credentials).await;
    let backend = json!({"spec": {"backendStore": {"openSearch": {
        "addresses": [open_search.url()],
        "secretRef": {"namespace": ns, "name": "open-search"}}}}});
    let registries = &RESOURCE_REGISTRIES;
    control.merge_patch(registries, "", ns, backend).await;
    let wait_for_reason = async |reason: &str| {
        wait_until(reason, async || {
            let registry = control.get(registries, "", ns).await.unwrap();
            registry["status"]["conditions"][0]["reason"] == reason
        })
        .await;
    };
    search.create("member1", deployment(ns, "web", 1)).await;
    search.create("member2", deployment(ns, "api", 1)).await;
    search.create("member3", deployment(ns, "none", 1)).await;
    let wait_for_names = async |expected: &[&str]| {
        wait_until("the documents", async || {
            open_search.names(index) == expected
        })
        .await;
    };
    wait_for_names(&["member1/web", "member2/api"]).await;
    wait_until("the status", async || {
        let documents = open_search.documents(index);
        documents.values().all(|document| {
            let status = document.source["status"].as_str().unwrap();
            let status: Value = machinery::json::from_str(status).unwrap();
            status["readyReplicas"] == 1
        })
    })
    .await;
    wait_for_reason("Connected").await;

    open_search.stop();
    let member = search.fleet.member("member2");
    member.delete(&DEPLOYMENTS, ns, "api").await;
    search.create("member2", deployment(ns, "late", 1)).await;
    wait_for_reason("Unreachable").await;
    open_search.restart();
    wait_for_names(&["member1/web", "member2/late"]).await;
    wait_for_reason("Connected").await;
    search.delete_registry().await;
}
