//! Creates the objects that every control plane needs: namespaces and default RBAC roles and
//! bindings (contract F2.5, F3.8).

use client::ResourcePath;
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use crate::registry::{NAMESPACES, Registry};
use crate::request::{
    GetOptions, ObjectBodyAndDuplicateFields, RegistryWriteOptions, RequestUserAndDeadline,
};

const CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
const CLUSTER_ROLE_BINDINGS: Gvr =
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterrolebindings");

const BOOTSTRAP_NAMESPACES: [&str; 6] = [
    "default",
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "karmada-system",
    "karmada-cluster",
];

/// The administrators of Karmada and of this control plane.
const PROXY_ADMINS: [&str; 2] = ["system:admin", "kubernetes-admin"];

const DISCOVERY_PATHS: [&str; 9] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
];
const VERSION_PATHS: [&str; 2] = ["/version", "/version/"];
const PUBLIC_PATHS: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

fn bootstrap_metadata(name: &str) -> Value {
    json!({
        "name": name,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
    })
}

fn cluster_role(name: &str, rules: &Value) -> (Gvr, Value) {
    let body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                      "metadata": bootstrap_metadata(name), "rules": rules});
    (CLUSTER_ROLES, body)
}

fn cluster_role_binding(name: &str, groups: &[&str]) -> (Gvr, Value) {
    let subjects: Vec<Value> = groups
        .iter()
        .map(|g| json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": g}))
        .collect();
    let body = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": bootstrap_metadata(name), "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}});
    (CLUSTER_ROLE_BINDINGS, body)
}

/// The role and binding that name the administrators: clusters grant impersonation of the
/// subjects of roles with `clusters/proxy`.
fn cluster_proxy_admin() -> [(Gvr, Value); 2] {
    let name = "cluster-proxy-admin";
    let rules = json!([{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["*"]}]);
    let (gvr, mut body) = cluster_role_binding(name, &[]);
    body["subjects"] = json!(PROXY_ADMINS.map(|user| {
        json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user})
    }));
    [cluster_role(name, &rules), (gvr, body)]
}

fn bootstrap_objects() -> Vec<(Gvr, Value)> {
    let mut paths: Vec<&str> = DISCOVERY_PATHS.to_vec();
    paths.extend(VERSION_PATHS);
    let mut all: Vec<(Gvr, Value)> = BOOTSTRAP_NAMESPACES
        .iter()
        .map(|name| {
            let mut body =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            // The label that joining a cluster sets.
            if *name == "karmada-cluster" {
                body["metadata"]["labels"] = json!({"karmada.io/system": "true"});
            }
            (NAMESPACES, body)
        })
        .collect();
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let own_reviews = json!([
        {"apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
         "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]},
        {"apiGroups": ["authentication.k8s.io"], "verbs": ["create"],
         "resources": ["selfsubjectreviews"]},
    ]);
    all.extend([
        cluster_role("cluster-admin", &everything),
        cluster_role(
            "system:discovery",
            &json!([{"nonResourceURLs": paths, "verbs": ["get"]}]),
        ),
        cluster_role("system:basic-user", &own_reviews),
        cluster_role(
            "system:public-info-viewer",
            &json!([{"nonResourceURLs": PUBLIC_PATHS, "verbs": ["get"]}]),
        ),
        cluster_role_binding("cluster-admin", &["system:masters"]),
        cluster_role_binding("system:discovery", &["system:authenticated"]),
        cluster_role_binding("system:basic-user", &["system:authenticated"]),
        cluster_role_binding(
            "system:public-info-viewer",
            &["system:authenticated", "system:unauthenticated"],
        ),
    ]);
    all
}

impl Registry {
    /// Creates the objects that do not exist. Idempotent, and safe in several processes.
    pub async fn bootstrap(&self) -> Result<(), Status> {
        let ctx = RequestUserAndDeadline::internal();
        let mut all = bootstrap_objects();
        if (self.options.serves_group)("cluster.karmada.io") {
            all.extend(cluster_proxy_admin());
        }
        for (gvr, body) in all {
            let name = body["metadata"]["name"].as_str().unwrap_or("").to_owned();
            let existing = self
                .get(
                    &ctx,
                    ResourcePath::object(&gvr, "", &name),
                    &GetOptions::default(),
                )
                .await;
            match existing {
                Ok(_) => continue,
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
            }
            let at = ResourcePath::collection(&gvr, "");
            let options = RegistryWriteOptions::default();
            match self
                .create(&ctx, at, ObjectBodyAndDuplicateFields::from(body), &options)
                .await
            {
                Err(status) if status.reason != "AlreadyExists" => return Err(status),
                _ => {}
            }
        }
        Ok(())
    }
}
