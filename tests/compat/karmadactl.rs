//! The requests of karmadactl, command by command, with the responses that it needs.
//!
//! karmadactl (Karmada's `pkg/karmadactl`, `pkg/util/credential.go`) sends requests to the control
//! plane, to a member cluster by a kubeconfig of its own, and to a member cluster through the
//! cluster proxy. The control plane may be standalone or in aggregated mode; the
//! [`HttpTestClient`] decides.

use hyper::Method;
use karmada_api::names;
use serde_json::{Value, json};

use crate::compat::karmadactl_requests::KarmadactlRequestChecker;
use crate::compat::karmadactl_top;
use harness::http_client::{
    CLUSTERS_PATH, HttpTestClient, HttpTestRequest, HttpTestResponse, cluster_proxy_path,
    within_timeout,
};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SERVICE_ACCOUNTS: &str = "/api/v1/namespaces/karmada-cluster/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/karmada-cluster/secrets";
const TABLE_ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const DISCOVERY_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

fn system_labels() -> Value {
    json!({"karmada.io/system": "true"})
}

/// Creates a token Secret for a service account and waits for the token; returns its data, whose
/// values are base64.
async fn token(member: &KarmadactlRequestChecker<'_>, account: &str) -> Value {
    member
        .get(&format!("{SERVICE_ACCOUNTS}/{account}"), 200, &[])
        .await;
    let path = format!("{SECRETS}/{account}");
    member
        .get(
            &path,
            404,
            &[
                ("/reason", json!("NotFound")),
                ("/details/kind", json!("secrets")),
            ],
        )
        .await;
    let secret = json!({"metadata": {"name": account, "namespace": "karmada-cluster",
        "annotations": {"kubernetes.io/service-account.name": account}},
        "type": "kubernetes.io/service-account-token"});
    member
        .post(SECRETS, secret, &[("/metadata/name", json!(account))])
        .await;
    let filled = |r: &HttpTestResponse| r.code == 200 && r.json()["data"]["token"].is_string();
    member.get_until(&path, "a token", filled).await.json()["data"].take()
}

/// Replays `join NAME` in push mode, with the kubeconfig of the cluster.
pub(crate) async fn join(control: &HttpTestClient, member: &HttpTestClient, name: &str) {
    let (command, account) = ("join", format!("karmada-{name}"));
    let role = format!("karmada-controller-manager:{account}");
    let [control, member] =
        [control, member].map(|target| KarmadactlRequestChecker { command, target });
    let system = member.get("/api/v1/namespaces/kube-system", 200, &[]).await;
    let id = system["metadata"]["uid"].as_str().unwrap().to_owned();
    control
        .get(CLUSTERS_PATH, 200, &[("/kind", json!("ClusterList"))])
        .await;
    let namespace = json!({"metadata": {"name": "karmada-cluster", "labels": system_labels()}});
    member.ensure("/api/v1/namespaces", namespace.clone()).await;
    let owned = |name: &str| json!({"name": name, "namespace": "karmada-cluster", "labels": system_labels()});
    member
        .ensure(
            SERVICE_ACCOUNTS,
            json!({"metadata": owned("karmada-impersonator")}),
        )
        .await;
    let impersonator = token(&member, "karmada-impersonator").await;
    member
        .ensure(SERVICE_ACCOUNTS, json!({"metadata": owned(&account)}))
        .await;
    let metadata = json!({"name": role, "labels": system_labels()});
    let rules = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                       {"verbs": ["get"], "nonResourceURLs": ["*"]}]);
    let roles = format!("{RBAC}/clusterroles");
    member
        .ensure(&roles, json!({"metadata": metadata, "rules": rules}))
        .await;
    let binding = json!({"metadata": metadata,
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "karmada-cluster"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
    member
        .ensure(&format!("{RBAC}/clusterrolebindings"), binding)
        .await;
    let access = token(&member, &account).await;

    control.ensure("/api/v1/namespaces", namespace).await;
    let impersonator_secret = format!("{name}-impersonator");
    let data = [
        (
            impersonator_secret.as_str(),
            json!({"token": impersonator["token"]}),
        ),
        (
            name,
            json!({"caBundle": access["ca.crt"], "token": access["token"]}),
        ),
    ];
    for (secret, data) in &data {
        let body = json!({"metadata": owned(secret), "data": data});
        control
            .post(SECRETS, body, &[("/type", json!("Opaque"))])
            .await;
    }
    let path = format!("{CLUSTERS_PATH}/{name}");
    control
        .get(
            &path,
            404,
            &[
                ("/reason", json!("NotFound")),
                ("/details/name", json!(name)),
            ],
        )
        .await;
    let reference = |secret: &str| json!({"namespace": "karmada-cluster", "name": secret});
    let endpoint = format!("https://{}", member.target.address);
    let cluster = json!({"metadata": {"name": name}, "spec": {
        "syncMode": "Push", "apiEndpoint": endpoint, "id": id, "provider": "p", "region": "r", "zones": ["z"],
        "secretRef": reference(name), "impersonatorSecretRef": reference(&impersonator_secret)}, "status": {}});
    let expected_fields = [
        ("/kind", json!("Cluster")),
        ("/spec/apiEndpoint", json!(endpoint)),
        ("/spec/id", json!(id)),
        (
            "/spec/impersonatorSecretRef",
            reference(&impersonator_secret),
        ),
        ("/spec/zones", json!(["z"])),
    ];
    let created = control.post(CLUSTERS_PATH, cluster, &expected_fields).await;
    let owner = json!([{"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "name": name,
        "uid": created["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}]);
    for (secret, _) in &data {
        let patch = json!({"metadata": {"ownerReferences": owner}});
        let expected_fields = [("/metadata/ownerReferences", owner.clone())];
        control
            .merge(&format!("{SECRETS}/{secret}"), patch, 200, &expected_fields)
            .await;
    }
    let condition = |r: &HttpTestResponse| {
        let conditions = r.json()["status"]["conditions"].take();
        let all = conditions.as_array().into_iter().flatten();
        all.into_iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    control.get_until(&path, "ready", condition).await;
}

/// Replays `get TYPE --operation-scope members`: as a table, as objects, and as a watch.
async fn get(control: &HttpTestClient, name: &str) {
    let control = KarmadactlRequestChecker {
        command: "get",
        target: control,
    };
    control
        .get(CLUSTERS_PATH, 200, &[("/items/0/kind", json!("Cluster"))])
        .await;
    let proxy = |path: &str| cluster_proxy_path(name, path);
    // The "basic connection test".
    let versions = control.wait_until_proxied(name).await;
    assert_eq!(versions["kind"], "APIVersions");
    // Clusters before 1.27 serve unaggregated discovery only.
    for (path, older) in [("/api", "APIVersions"), ("/apis", "APIGroupList")] {
        let groups = control
            .get_as(&proxy(path), DISCOVERY_ACCEPT, 200, &[])
            .await;
        assert!([older, "APIGroupDiscoveryList"].contains(&groups["kind"].as_str().unwrap()));
    }
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "legacy", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "legacy"}}, "template": {
            "metadata": {"labels": {"app": "legacy"}}, "spec": {"containers": [{"name": "c", "image": "nginx:1.27"}]}}}});
    let deployments = proxy("/apis/apps/v1/namespaces/default/deployments");
    control
        .post(
            &deployments,
            deployment,
            &[("/metadata/generation", json!(1))],
        )
        .await;
    let table = [
        ("/kind", json!("Table")),
        ("/columnDefinitions/0/name", json!("Name")),
    ];
    let rows = control
        .get_as(
            &format!("{deployments}?limit=500"),
            TABLE_ACCEPT,
            200,
            &table,
        )
        .await;
    assert_eq!(rows["rows"][0]["cells"][0], "legacy");
    control
        .get_as(&format!("{deployments}/legacy"), TABLE_ACCEPT, 200, &table)
        .await;
    let list = [
        ("/kind", json!("DeploymentList")),
        ("/items/0/metadata/name", json!("legacy")),
    ];
    control
        .get_as(&deployments, "application/json", 200, &list)
        .await;
    let missing = [
        ("/reason", json!("NotFound")),
        ("/message", json!("deployments.apps \"none\" not found")),
    ];
    control
        .get_as(&format!("{deployments}/none"), TABLE_ACCEPT, 404, &missing)
        .await;
    let unknown = [(
        "/message",
        json!("clusters.cluster.karmada.io \"none\" not found"),
    )];
    control
        .get_as(
            &cluster_proxy_path("none", "/api"),
            "application/json",
            404,
            &unknown,
        )
        .await;

    let watch = HttpTestRequest::new(
        Method::GET,
        &format!("{deployments}?watch=true&resourceVersion=0"),
    )
    .header("accept", TABLE_ACCEPT);
    let events = control.target.send(watch).await;
    assert_eq!(events.status(), 200);
    let mut body = events.into_body();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let frame = within_timeout("an event", http_body_util::BodyExt::frame(&mut body)).await;
        line.extend(frame.unwrap().unwrap().into_data().unwrap());
    }
    let event: Value =
        machinery::json::from_slice(line.split(|b| *b == b'\n').next().unwrap()).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["kind"]),
        (&json!("ADDED"), &json!("Table"))
    );
}

/// Replays `cordon`, `uncordon` and `taint clusters`.
async fn taints(control: &HttpTestClient, name: &str) {
    let path = format!("{CLUSTERS_PATH}/{name}");
    let cordon = KarmadactlRequestChecker {
        command: "cordon",
        target: control,
    };
    cordon.get(&path, 200, &[]).await;
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let unschedulable = taint("cluster.karmada.io/unschedulable", "NoSchedule");
    let patch = |taints: Value| json!({"spec": {"taints": taints}});
    let expected_fields = [("/spec/taints/0/key", unschedulable["key"].clone())];
    cordon
        .merge(&path, patch(json!([unschedulable])), 200, &expected_fields)
        .await;
    let uncordon = KarmadactlRequestChecker {
        command: "uncordon",
        target: control,
    };
    uncordon.get(&path, 200, &expected_fields).await;
    uncordon
        .merge(
            &path,
            patch(json!(null)),
            200,
            &[("/spec/taints", Value::Null)],
        )
        .await;

    let tainting = KarmadactlRequestChecker {
        command: "taint",
        target: control,
    };
    let get = tainting.get_as(&path, "application/json", 200, &[]).await;
    assert_eq!(get["apiVersion"], "cluster.karmada.io/v1alpha1");
    let mut no_execute = taint("foo", "NoExecute");
    no_execute["value"] = json!("bar");
    let expected_fields = [
        ("/spec/taints/0/value", json!("bar")),
        ("/spec/taints/0/effect", json!("NoExecute")),
    ];
    let set = tainting
        .merge(&path, patch(json!([no_execute])), 200, &expected_fields)
        .await;
    // A NoExecute taint has the time when it was added.
    assert!(set["spec"]["taints"][0]["timeAdded"].is_string());
    let soft = patch(json!([taint("foo", "PreferNoSchedule")]));
    tainting
        .merge(&path, soft, 422, &[("/reason", json!("Invalid"))])
        .await;
    tainting.merge(&path, patch(json!(null)), 200, &[]).await;
}

/// Replays `promote deployment legacy -C NAME`.
async fn promote(control: &HttpTestClient, name: &str) {
    let control = KarmadactlRequestChecker {
        command: "promote",
        target: control,
    };
    let member = cluster_proxy_path(name, "/apis/apps/v1/namespaces/default/deployments/legacy");
    let accept = "application/json";
    let mut object = control
        .get_as(&member, accept, 200, &[("/kind", json!("Deployment"))])
        .await;
    for path in ["/api", "/apis"] {
        control.get_as(path, DISCOVERY_ACCEPT, 200, &[]).await;
    }
    control
        .get_as(
            "/apis/apps/v1",
            accept,
            200,
            &[("/kind", json!("APIResourceList"))],
        )
        .await;
    let templates = "/apis/apps/v1/namespaces/default/deployments";
    control
        .get_as(&format!("{templates}/legacy"), accept, 404, &[])
        .await;
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata
        .retain(|key, _| ["name", "namespace", "labels", "annotations"].contains(&key.as_str()));
    metadata.insert(
        "annotations".into(),
        json!({"work.karmada.io/conflict-resolution": "overwrite"}),
    );
    object.as_object_mut().unwrap().remove("status");
    let expected_fields = [(
        "/metadata/annotations/work.karmada.io~1conflict-resolution",
        json!("overwrite"),
    )];
    control.post(templates, object, &expected_fields).await;
    let policies = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies";
    let policy = names::policy_name("default", "legacy", "apps/v1, Kind=Deployment");
    control.get(&format!("{policies}/{policy}"), 404, &[]).await;
    let spec = json!({"conflictResolution": "Overwrite", "preserveResourcesOnDeletion": true, "propagateDeps": false,
        "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "legacy", "namespace": "default"}],
        "placement": {"clusterAffinity": {"clusterNames": [name]}}});
    // karmadactl leaves the kind out; the encoder of its client adds it.
    let body = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": policy, "namespace": "default"}, "spec": spec});
    let expected_fields = [
        ("/spec/conflictResolution", json!("Overwrite")),
        ("/spec/preserveResourcesOnDeletion", json!(true)),
        (
            "/spec/placement/clusterAffinity/clusterNames",
            json!([name]),
        ),
        ("/spec/resourceSelectors/0/namespace", json!("default")),
    ];
    control.post(policies, body, &expected_fields).await;
    let adopted =
        |r: &HttpTestResponse| r.json()["metadata"]["labels"]["karmada.io/managed"] == "true";
    control.get_until(&member, "adopted", adopted).await;
}

/// Replays `unjoin NAME`, with the kubeconfig of the cluster.
async fn unjoin(control: &HttpTestClient, member: &HttpTestClient, name: &str) {
    let command = "unjoin";
    let [control, member] =
        [control, member].map(|target| KarmadactlRequestChecker { command, target });
    let path = format!("{CLUSTERS_PATH}/{name}");
    control
        .get(&path, 200, &[("/spec/syncMode", json!("Push"))])
        .await;
    control.delete(&path).await;
    control.get_until(&path, "gone", |r| r.code == 404).await;
    let role = format!("karmada-controller-manager:karmada-{name}");
    for path in [
        format!("{RBAC}/clusterrolebindings/{role}"),
        format!("{RBAC}/clusterroles/{role}"),
        format!("{SERVICE_ACCOUNTS}/karmada-{name}"),
        "/api/v1/namespaces/karmada-cluster".to_owned(),
    ] {
        member.delete(&path).await;
    }
    // The promoted Deployment stays in the cluster.
    let left = "/apis/apps/v1/namespaces/default/deployments/legacy";
    member.get(left, 200, &[]).await;
    for secret in [name.to_owned(), format!("{name}-impersonator")] {
        let path = format!("{SECRETS}/{secret}");
        control.get_until(&path, "gone", |r| r.code == 404).await;
    }
}

/// Replays all commands in order. The cluster must not be joined before.
pub(crate) async fn replay(control: &HttpTestClient, member: &HttpTestClient, name: &str) {
    join(control, member, name).await;
    get(control, name).await;
    taints(control, name).await;
    promote(control, name).await;
    karmadactl_top::replay(control, name).await;
    unjoin(control, member, name).await;
}
