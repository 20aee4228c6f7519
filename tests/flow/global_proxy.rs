//! The global proxy for kinds without a namespace, for clients of protobuf, and for kubectl.

use std::cell::RefCell;

use harness::http_client::{HttpTestRequest, HttpTestResponse, full_body};
use harness::kubectl::Kubectl;
use http::Method;
use machinery::Gvk;
use serde_json::{Value, json};

use crate::flow::fleet::{FleetFixture, wait_for_namespace, wait_until};
use crate::flow::objects::{
    CLUSTER_ROLES, CONFIG_MAPS, DEPLOYMENTS, PODS, RESOURCE_REGISTRIES, config_map, deployment,
};
use crate::flow::search::{ORIGIN, PROXY, SEARCH, SearchFleet, WatchLines, origins, selector};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl SearchFleet {
    async fn call(&self, method: Method, path: &str, body: (&str, Vec<u8>)) -> HttpTestResponse {
        let request = HttpTestRequest::new(method, path)
            .header("accept", &format!("{PROTOBUF}, {JSON}"))
            .header("content-type", body.0)
            .body(full_body(body.1));
        self.client.call(request).await
    }

    async fn accept(&self, path: &str, media_types: &str) -> HttpTestResponse {
        let request = HttpTestRequest::new(Method::GET, path).header("accept", media_types);
        self.client.call(request).await
    }
}

// proves: SRC-cluster-scoped, SRC-proxy-watch, SRC-paged, SRC-registry-changes
#[tokio::test]
async fn kinds_without_a_namespace_are_read_and_written() {
    let ns = "proxy-roles";
    let roles = selector(RBAC, "ClusterRole", "");
    let search = SearchFleet::start(ns, json!([roles])).await;
    let (first, second) = ("proxy-roles-1", "proxy-roles-2");
    for (member, name) in [("member1", first), ("member2", second)] {
        let metadata = json!({"name": name, "labels": {"case": ns}});
        let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata,
            "rules": []});
        search.create(member, role).await;
    }
    let native = format!("apis/{RBAC}/clusterroles");
    let (path, searched) = (
        format!("{PROXY}/{native}"),
        format!("{SEARCH}/cache/{native}"),
    );
    let list = format!("{path}?labelSelector=case%3D{ns}");
    let all = ["member1/proxy-roles-1", "member2/proxy-roles-2"];
    search.wait_for_items(&list, &all).await;
    let one = format!("{searched}/{second}");
    search.wait_for_items(&one, &all[1..]).await;
    let object = search.get(&format!("{path}/{first}")).await.json();
    assert_eq!(object["metadata"]["annotations"][ORIGIN], "member1");
    let page = search.get(&format!("{list}&limit=1")).await.json();
    assert_eq!(origins(&page), all[..1]);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let rest = format!("{list}&limit=999999999999&continue={token}");
    assert_eq!(origins(&search.get(&rest).await.json()), all[1..]);

    // A watch that selects has what leaves its selection as deleted.
    let version = page["metadata"]["resourceVersion"].as_str().unwrap();
    let watch_path = format!("{list}&watch=1&resourceVersion={version}");
    let mut watch = search.watch(&watch_path).await;
    let annotated = json!({"metadata": {"annotations": {"seen": "yes"}}});
    let member = search.fleet.member("member1");
    member
        .merge_patch(&CLUSTER_ROLES, "", first, annotated)
        .await;
    assert_eq!(watch.next_event().await.0, "MODIFIED member1/proxy-roles-1");
    let unlabeled = json!({"metadata": {"labels": null, "annotations": {"case": "over"}}});
    let patch = (
        "application/strategic-merge-patch+json",
        unlabeled.to_string().into(),
    );
    let second_path = format!("{path}/{second}");
    let patched = search.call(Method::PATCH, &second_path, patch).await;
    assert_eq!(patched.code, 200);
    assert_eq!(watch.next_event().await.0, "DELETED member2/proxy-roles-2");
    let member = search.fleet.member("member2");
    let role = member.get(&CLUSTER_ROLES, "", second).await.unwrap();
    assert_eq!(role["metadata"]["annotations"]["case"], "over");

    // Kinds are added to a registry, and those that stay are watched on.
    let namespace = format!("{SEARCH}/cache/api/v1/namespaces/{ns}");
    search.wait_for_items(&namespace, &[]).await;
    let selectors =
        json!({"spec": {"resourceSelectors": [roles, selector("v1", "Namespace", "")]}});
    let control = &search.fleet.control;
    control
        .merge_patch(&RESOURCE_REGISTRIES, "", ns, selectors)
        .await;
    let both = [format!("member1/{ns}"), format!("member2/{ns}")];
    search
        .wait_for_items(&namespace, &[&both[0], &both[1]])
        .await;
    let ambiguous = search.get(&format!("{PROXY}/api/v1/namespaces/{ns}")).await;
    assert_eq!(ambiguous.code, 409);
    let relabeled = json!({"metadata": {"labels": {"case": ns}}});
    member
        .merge_patch(&CLUSTER_ROLES, "", second, relabeled)
        .await;
    assert_eq!(watch.next_event().await.0, "ADDED member2/proxy-roles-2");
    search.delete_registry().await;
    watch.expect_end().await;
    search.wait_for_items(&one, &[]).await;
    // The control plane, which answers now, has no such roles.
    search.wait_for_items(&list, &[]).await;
}

/// Waits until an update in protobuf succeeds of what the client has just read.
async fn update_in_protobuf(search: &SearchFleet, path: &str, value: &str) {
    wait_until(path, async || {
        let accept = format!("{PROTOBUF}, {JSON}");
        let mut object = search.accept(path, &accept).await.json();
        object["data"]["k"] = value.into();
        let kind = Gvk::from_static("", "v1", "ConfigMap");
        let body = openapi::protobuf::encode_object(&kind, &object).unwrap();
        search.call(Method::PUT, path, (PROTOBUF, body)).await.code == 200
    })
    .await;
}

// proves: SRC-media-types, FLV-media-types
#[tokio::test]
async fn clients_of_protobuf_get_json() {
    let ns = "proxy-protobuf";
    let search = SearchFleet::start(ns, json!([selector("v1", "ConfigMap", ns)])).await;
    search.create("member2", config_map(ns, "a", "1")).await;
    let member = search.fleet.member("member2");
    let metadata = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for base in [PROXY, "/fleet"] {
        let list = format!("{base}/api/v1/namespaces/{ns}/configmaps");
        let one = format!("{list}/a");
        let selected = format!("{list}?fieldSelector=metadata.name%3Da");
        search.wait_for_items(&selected, &["member2/a"]).await;
        for (path, accept, kind) in [
            (&list, format!("{PROTOBUF}, {JSON}"), "ConfigMapList"),
            (&list, format!("{PROTOBUF}, */*"), "ConfigMapList"),
            (&one, format!("{PROTOBUF},{JSON}"), "ConfigMap"),
            (
                &list,
                format!("{PROTOBUF};{metadata},{JSON};{metadata},{JSON}"),
                "PartialObjectMetadataList",
            ),
        ] {
            let response = search.accept(path, &accept).await;
            assert_eq!(response.headers["content-type"], JSON, "{path}: {accept}");
            assert_eq!(response.json()["kind"], kind, "{path}: {accept}");
        }
        let watch = HttpTestRequest::new(Method::GET, &format!("{selected}&watch=1"))
            .header("accept", &format!("{PROTOBUF};stream=watch, {JSON}"));
        let mut events = WatchLines::start(&search.client, watch).await;
        assert_eq!(events.next_event().await.0, "ADDED member2/a");
        for path in [&list, &one, &format!("{list}?watch=1")] {
            for accept in [PROTOBUF.to_owned(), format!("{PROTOBUF};{metadata}")] {
                // The Status itself is in protobuf.
                let rejection = search.accept(path, &accept).await;
                assert_eq!(rejection.code, 406, "{path}: {accept}");
                let text = String::from_utf8_lossy(&rejection.body).into_owned();
                assert!(
                    text.contains("accepted: application/json, application/yaml"),
                    "{text}"
                );
            }
        }

        update_in_protobuf(&search, &one, base).await;
        let object = member.get(&CONFIG_MAPS, ns, "a").await.unwrap();
        assert_eq!(object["data"]["k"], base);
        assert!(object["metadata"]["annotations"][ORIGIN].is_null());
        for (method, media_type) in [(Method::PUT, "text/plain"), (Method::PATCH, PROTOBUF)] {
            let rejection = search.call(method, &one, (media_type, b"{}".into())).await;
            assert_eq!(rejection.code, 415, "{media_type}");
        }
    }
    let discovery = search.accept("/fleet/apis/apps/v1", PROTOBUF).await;
    assert_eq!(discovery.code, 406);
    search.delete_registry().await;
}

// proves: SRC-kubectl, SRC-subresources
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_works_through_the_global_proxy() {
    let (home, ns) = ("proxy-kubectl-home", "proxy-kubectl");
    let selectors = json!([
        selector("apps/v1", "Deployment", ns),
        selector("v1", "Pod", ns)
    ]);
    let search = SearchFleet::start(home, selectors).await;
    let kubeconfig = proxy_kubeconfig(&search.fleet);
    let folder = search.fleet.up.dir().to_owned();
    // Its namespace is created in the control plane, through the proxy.
    let start = move || Kubectl::of_1_36(&kubeconfig, &folder, ns);
    if let Some(kubectl) = tokio::task::spawn_blocking(start).await.unwrap() {
        wait_for_namespace(&search.fleet, ns).await;
        search.create("member2", deployment(ns, "web", 1)).await;
        let pod = wait_for_running_pods(&search, ns, 1).await.remove(0);
        let run = tokio::task::spawn_blocking(move || read_and_write_with(&kubectl, &pod));
        run.await.unwrap();
        let member = search.fleet.member("member2");
        let web = member.get(&DEPLOYMENTS, ns, "web").await.unwrap();
        assert_eq!(web["spec"]["replicas"], 2);
    }
    search.delete_registry().await;
}

// proves: SRC-subresources
#[tokio::test]
async fn subresources_are_those_of_the_member_with_the_object() {
    let ns = "proxy-subresources";
    let selectors = json!([
        selector("apps/v1", "Deployment", ns),
        selector("v1", "Pod", ns)
    ]);
    let search = SearchFleet::start(ns, selectors).await;
    search.create("member2", deployment(ns, "web", 1)).await;
    let pod = wait_for_running_pods(&search, ns, 1).await.remove(0);
    let web = format!("{PROXY}/apis/apps/v1/namespaces/{ns}/deployments/web");
    let mut scale = search.get(&format!("{web}/scale")).await.json();
    scale["spec"]["replicas"] = 2.into();
    scale["metadata"]["resourceVersion"] = "".into();
    let scaled = search
        .send(Method::PUT, &format!("{web}/scale"), &scale)
        .await;
    assert_eq!(scaled.code, 200, "{:?}", scaled.body);
    let annotations = json!({"metadata": {"annotations": {"checked": "yes"}}});
    let patch = (
        "application/merge-patch+json",
        annotations.to_string().into(),
    );
    let patched = search
        .call(Method::PATCH, &format!("{web}/status"), patch)
        .await;
    assert_eq!(patched.code, 200);
    wait_for_running_pods(&search, ns, 2).await;

    let path = format!("{PROXY}/api/v1/namespaces/{ns}/pods/{pod}");
    assert_eq!(search.get(&format!("{path}/log")).await.code, 200);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod, "namespace": ns}});
    let member = search.fleet.member("member2");
    let uid = async || {
        let pod = member.get(&PODS, ns, &pod).await;
        pod.map(|pod| pod["metadata"]["uid"].to_string())
    };
    let evicted_uid = uid().await;
    assert!(evicted_uid.is_some());
    let eviction_path = format!("{path}/eviction");
    let evicted = search.client.post(&eviction_path, &eviction).await;
    assert_eq!(evicted.code, 201, "{:?}", evicted.body);
    // Another pod may have its name.
    wait_until("the eviction", async || uid().await != evicted_uid).await;
    search.delete_registry().await;
}

/// The names of the running pods, once there are so many.
async fn wait_for_running_pods(search: &SearchFleet, ns: &str, count: usize) -> Vec<String> {
    let names = RefCell::default();
    wait_until(&format!("{count} running pods"), async || {
        let path = format!("{PROXY}/api/v1/namespaces/{ns}/pods");
        let list = search.get(&path).await.json();
        let pods = list["items"].as_array().into_iter().flatten();
        let running = pods.filter(|pod| pod["status"]["phase"] == "Running");
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
        names.replace(running.map(name).collect::<Vec<String>>());
        names.borrow().len() == count
    })
    .await;
    names.into_inner()
}

/// The administrator's kubeconfig with the global proxy for its server.
fn proxy_kubeconfig(fleet: &FleetFixture) -> std::path::PathBuf {
    let text = std::fs::read_to_string(fleet.kubeconfig()).unwrap();
    let server = format!("https://{}", fleet.up.address());
    let text = text.replace(&format!("{server:?}"), &format!("\"{server}{PROXY}\""));
    let path = fleet.up.dir().join("kubeconfig-global-proxy");
    std::fs::write(&path, text).unwrap();
    path
}

/// Reads and writes a Deployment and its pod, which goes.
fn read_and_write_with(kubectl: &Kubectl, pod: &str) {
    let pods = kubectl.output("get pods -o wide");
    assert!(pods.contains(pod), "{pods}");
    kubectl.output(&format!("logs {pod}"));
    let printed = kubectl.output(&format!("exec -v=4 {pod} -- say this"));
    assert!(printed.contains("say this"), "{printed}");
    kubectl.output("scale deploy web --replicas=2");
    let rolled_out = kubectl.output("rollout status deploy web");
    assert!(
        rolled_out.contains("successfully rolled out"),
        "{rolled_out}"
    );
    kubectl.output("annotate deploy web by=kubectl");
    // It ends when a watch has the deletion.
    kubectl.output(&format!("delete pod {pod}"));
    let (code, printed) = kubectl.run_with_input("create deployment new --image=nginx", "");
    assert_eq!(code, 1, "{printed}");
    assert!(printed.contains("not support"), "{printed}");
}
