//! `takeover --from kubefed`: a running KubeFed's objects become templates, and its copies are adopted.

use harness::ApiServerClient;
use harness::objects::{CONFIG_MAPS, DEPLOYMENTS, PODS, SECRETS, config_map, deployment};
use machinery::Gvr;
use serde_json::{Value, json};

use crate::cli::adopt::identities;
use crate::cli::fixture::CliFixture;
use crate::cli::join::UnjoinedMember;

const SYSTEM: &str = "kube-federation-system";
const NAMESPACE: &str = "storefront";
static FEDERATED_DEPLOYMENTS: Gvr =
    Gvr::from_static("types.kubefed.io", "v1beta1", "federateddeployments");

/// KubeFed's kinds: group, plural and kind.
const KINDS: [(&str, &str, &str); 5] = [
    ("core.kubefed.io", "kubefedclusters", "KubeFedCluster"),
    (
        "core.kubefed.io",
        "federatedtypeconfigs",
        "FederatedTypeConfig",
    ),
    (
        "types.kubefed.io",
        "federatednamespaces",
        "FederatedNamespace",
    ),
    (
        "types.kubefed.io",
        "federatedconfigmaps",
        "FederatedConfigMap",
    ),
    (
        "types.kubefed.io",
        "federateddeployments",
        "FederatedDeployment",
    ),
];

fn definition((group, plural, kind): (&str, &str, &str)) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

/// Creates an object of one of KubeFed's kinds, as soon as it is served.
async fn create_kubefed_object(host: &ApiServerClient, object: Value) {
    let kind = KINDS
        .iter()
        .find(|(.., kind)| object["kind"] == *kind)
        .unwrap();
    let resource = Gvr::new(kind.0, "v1beta1", kind.1);
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    harness::api_server_client::wait_until(&format!("{} is served", kind.1), async || {
        let at = client::ResourcePath::collection(&resource, namespace);
        let options = client::WriteOptions::default();
        host.api
            .create(at, object.clone().into(), &options)
            .await
            .is_ok()
    })
    .await;
}

/// The token of an account that may do anything in a member, as `kubefedctl join` makes it.
async fn create_account(member: &ApiServerClient) -> String {
    member.create_namespace(SYSTEM).await;
    let metadata = json!({"namespace": SYSTEM, "name": "kubefed"});
    let mut secret_metadata = metadata.clone();
    secret_metadata["annotations"] = json!({"kubernetes.io/service-account.name": "kubefed"});
    let role = json!({"name": "kubefed"});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": secret_metadata}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": role,
            "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": role,
            "subjects": [{"kind": "ServiceAccount", "name": "kubefed", "namespace": SYSTEM}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubefed"}}),
    ] {
        member.create(object).await;
    }
    let has_token = |secret: &Value| secret["data"]["token"].is_string();
    member
        .wait_until(&SECRETS, SYSTEM, "kubefed", "a token", has_token)
        .await;
    let secret = member.get(&SECRETS, SYSTEM, "kubefed").await.unwrap();
    secret["data"]["token"].as_str().unwrap().to_owned()
}

/// A member of KubeFed with copies of its objects, which is registered on the host.
async fn join_to_kubefed(host: &ApiServerClient, name: &str, member: &UnjoinedMember) {
    let kubeconfig = member.kubeconfig();
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let api = member.client();
    let token = create_account(&api).await;
    host.create(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"namespace": SYSTEM, "name": name}, "data": {"token": token}}))
        .await;
    create_kubefed_object(
        host,
        json!({"apiVersion": "core.kubefed.io/v1beta1", "kind": "KubeFedCluster",
            "metadata": {"namespace": SYSTEM, "name": name, "labels": {"tier": "store"}},
            "spec": {"apiEndpoint": cluster["server"], "caBundle": cluster["certificate-authority-data"],
                "secretRef": {"name": name}}}),
    )
    .await;
    api.create(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"kubefed.io/managed": "true"}}}))
        .await;
    for mut object in [
        config_map(NAMESPACE, "settings", "v"),
        deployment(NAMESPACE, "web", 2),
    ] {
        object["metadata"]["labels"] = json!({"kubefed.io/managed": "true"});
        api.create(object).await;
    }
    let is_ready = |d: &Value| d["status"]["readyReplicas"] == 2;
    api.wait_until(&DEPLOYMENTS, NAMESPACE, "web", "ready", is_ready)
        .await;
}

async fn federate(host: &ApiServerClient) {
    host.create_namespace(NAMESPACE).await;
    let federated = |kind: &str, name: &str, template: Value| {
        json!({"apiVersion": "types.kubefed.io/v1beta1", "kind": kind,
            "metadata": {"namespace": NAMESPACE, "name": name, "finalizers": ["kubefed.io/sync-controller"]},
            "spec": {"template": template, "placement": {"clusterSelector": {"matchLabels": {"tier": "store"}}}}})
    };
    let spec = deployment(NAMESPACE, "web", 2)["spec"].clone();
    let data = config_map(NAMESPACE, "settings", "v")["data"].clone();
    for object in [
        federated("FederatedNamespace", NAMESPACE, json!({})),
        federated("FederatedConfigMap", "settings", json!({"data": data})),
        federated("FederatedDeployment", "web", json!({"spec": spec})),
    ] {
        create_kubefed_object(host, object).await;
    }
    // The lock of a controller manager that has stopped.
    host.create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": SYSTEM, "name": "kubefed-controller-manager"},
        "spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 2, "renewTime": "2026-01-01T00:00:00.000000Z"}}))
        .await;
}

// proves: TKK-adopts, TKK-finalizers, TKK-joins
#[test]
fn a_running_kubefed_is_taken_over_in_place() {
    let fixture = CliFixture::with_changing_clusters();
    let host_cluster = UnjoinedMember::start();
    let members = [UnjoinedMember::start(), UnjoinedMember::start()];
    fixture.write_kubeconfig("kubefed", &host_cluster.kubeconfig());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let before = runtime.block_on(async {
        let host = host_cluster.client();
        host.create_namespace(SYSTEM).await;
        for kind in KINDS {
            host.create(definition(kind)).await;
        }
        let mut identities_before = Vec::new();
        for (name, member) in ["store1", "store2"].into_iter().zip(&members) {
            join_to_kubefed(&host, name, member).await;
            identities_before.push(identities(&member.client(), NAMESPACE).await);
        }
        federate(&host).await;
        identities_before
    });
    fixture
        .run("takeover --host-kubeconfig kubefed.kubeconfig --dry-run")
        .failed_with("add --from kubefed");
    let mut examples = fixture.examples("takeover");
    examples.retain(|line| line.starts_with("takeover --from kubefed"));
    assert_eq!(examples.len(), 2);
    fixture.run(&examples[0]).succeeded();
    fixture.run("get cluster store1").failed_with("not found");
    fixture.run(&examples[1]).succeeded();

    for name in ["store1", "store2"] {
        let cluster = fixture.json(&format!("get cluster {name}"));
        assert_eq!(cluster["metadata"]["labels"]["tier"], "store");
    }
    runtime.block_on(async {
        for (member, before) in members.iter().zip(&before) {
            let api = member.client();
            assert_eq!(identities(&api, NAMESPACE).await, *before);
            for (kind, name) in [(&CONFIG_MAPS, "settings"), (&DEPLOYMENTS, "web")] {
                let copy = api.get(kind, NAMESPACE, name).await.unwrap();
                let labels = &copy["metadata"]["labels"];
                assert_eq!(labels["karmada.io/managed"], "true", "{copy}");
                assert_eq!(labels.get("kubefed.io/managed"), None, "{copy}");
            }
            assert_eq!(api.list(&PODS, NAMESPACE).await.len(), 2);
        }
        let host = host_cluster.client();
        let federated = host.get(&FEDERATED_DEPLOYMENTS, NAMESPACE, "web").await;
        let finalizers = &federated.unwrap()["metadata"]["finalizers"];
        assert_eq!(*finalizers, Value::Null);
    });
    // Nothing is left to do.
    let line = "takeover --from kubefed --host-kubeconfig kubefed.kubeconfig";
    let again = fixture.run(line).succeeded();
    assert!(
        again.contains("0 copies adopted, 0 finalizers removed"),
        "{again}"
    );
}
