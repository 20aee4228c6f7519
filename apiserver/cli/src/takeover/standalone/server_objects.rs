//! The objects that an API server makes for itself, and those that lead to Karmada's components. A
//! standalone Flotilla makes its own, so that none of them moves.

use aggregation::RECORD_CONFIG_MAP;
use machinery::Gvr;
use serde_json::Value;

use crate::takeover::freeze;
use crate::takeover::snapshot::object_names;
use crate::takeover::webhooks;

/// Resources of which no object moves: records of processes that run, requests that are answered,
/// and what a server derives from others.
const RESOURCES: [(&str, &str); 9] = [
    ("", "componentstatuses"),
    ("", "events"),
    ("apiregistration.k8s.io", "apiservices"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("coordination.k8s.io", "leases"),
    ("events.k8s.io", "events"),
    ("internal.apiserver.k8s.io", "storageversions"),
    ("networking.k8s.io", "ipaddresses"),
    ("networking.k8s.io", "servicecidrs"),
];
/// ConfigMaps that publish the authorities of the server, as namespace and name; without a
/// namespace those of every namespace.
const AUTHORITY_MAPS: [(&str, &str); 3] = [
    ("", "kube-root-ca.crt"),
    ("kube-public", "cluster-info"),
    ("kube-system", "extension-apiserver-authentication"),
];
const SERVICE_ACCOUNT_TOKEN: &str = "kubernetes.io/service-account-token";
/// The label of the roles and bindings that every server has.
const BOOTSTRAPPING_LABEL: &str = "kubernetes.io/bootstrapping";
/// The annotation of the flow control that a server keeps up to date itself.
const AUTOUPDATE_ANNOTATION: &str = "apf.kubernetes.io/autoupdate-spec";
const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Whether no object of a resource moves.
pub(super) fn is_server_made(group: &str, resource: &str) -> bool {
    RESOURCES.contains(&(group, resource))
}

/// An object as it moves; `None` if a server makes it itself.
pub(super) fn moving(resource: &Gvr, object: Value) -> Option<Value> {
    let meta = &object["metadata"];
    let is_left = match (&*resource.group, &*resource.resource) {
        ("", "configmaps") => is_authority(&object),
        ("", "secrets") => object["type"] == SERVICE_ACCOUNT_TOKEN,
        ("", "services" | "endpoints") | ("discovery.k8s.io", "endpointslices") => {
            object_names(&object) == ("default", "kubernetes")
        }
        ("rbac.authorization.k8s.io", _) => meta["labels"][BOOTSTRAPPING_LABEL].is_string(),
        ("flowcontrol.apiserver.k8s.io", _) => meta["annotations"][AUTOUPDATE_ANNOTATION] == "true",
        ("admissionregistration.k8s.io", _) => {
            meta["name"] == freeze::CONFIGURATION || meta["labels"][MANAGED_BY_LABEL] == "flotilla"
        }
        _ => false,
    };
    match &*resource.group {
        _ if is_left => None,
        "admissionregistration.k8s.io" => webhooks::without_karmada(object),
        _ => Some(object),
    }
}

fn is_authority(object: &Value) -> bool {
    let (namespace, name) = object_names(object);
    let mut maps = AUTHORITY_MAPS.into_iter();
    name == RECORD_CONFIG_MAP
        || maps.any(|map| map.1 == name && (map.0.is_empty() || map.0 == namespace))
}

#[cfg(test)]
mod tests {
    use machinery::names::split_api_version;
    use serde_json::json;

    use super::*;

    // proves: TKS-left-out
    #[test]
    fn what_a_server_makes_itself_does_not_move() {
        let webhook = |host: &str| json!({"name": host, "clientConfig": {"url": format!("https://{host}/x")}});
        let karmada = webhook("karmada-webhook.karmada-system.svc");
        let other = webhook("policy.example.com");
        let meta = |namespace: &str, name: &str| json!({"namespace": namespace, "name": name});
        for (resource, object, moves) in [
            (
                "v1 configmaps",
                json!({"metadata": meta("a", "kube-root-ca.crt")}),
                false,
            ),
            (
                "v1 configmaps",
                json!({"metadata": meta("kube-public", "cluster-info")}),
                false,
            ),
            (
                "v1 configmaps",
                json!({"metadata": meta("a", "cluster-info")}),
                true,
            ),
            (
                "v1 configmaps",
                json!({"metadata": meta("f", "flotilla-takeover")}),
                false,
            ),
            (
                "v1 secrets",
                json!({"metadata": meta("a", "t"), "type": SERVICE_ACCOUNT_TOKEN}),
                false,
            ),
            (
                "v1 secrets",
                json!({"metadata": meta("a", "t"), "type": "Opaque"}),
                true,
            ),
            (
                "v1 services",
                json!({"metadata": meta("default", "kubernetes")}),
                false,
            ),
            (
                "v1 services",
                json!({"metadata": meta("a", "kubernetes")}),
                true,
            ),
            (
                "discovery.k8s.io/v1 endpointslices",
                json!({"metadata": meta("default", "kubernetes")}),
                false,
            ),
            (
                "rbac.authorization.k8s.io/v1 clusterroles",
                json!({"metadata": {"name": "edit", "labels": {BOOTSTRAPPING_LABEL: "rbac-defaults"}}}),
                false,
            ),
            (
                "rbac.authorization.k8s.io/v1 clusterroles",
                json!({"metadata": {"name": "team"}}),
                true,
            ),
            (
                "flowcontrol.apiserver.k8s.io/v1 flowschemas",
                json!({"metadata": {"name": "exempt", "annotations": {AUTOUPDATE_ANNOTATION: "true"}}}),
                false,
            ),
            (
                "admissionregistration.k8s.io/v1 validatingwebhookconfigurations",
                json!({"metadata": {"name": freeze::CONFIGURATION}, "webhooks": [other]}),
                false,
            ),
            (
                "admissionregistration.k8s.io/v1 validatingwebhookconfigurations",
                json!({"metadata": {"name": "k"}, "webhooks": [karmada]}),
                false,
            ),
            (
                "admissionregistration.k8s.io/v1 validatingadmissionpolicies",
                json!({"metadata": {"name": "p", "labels": {MANAGED_BY_LABEL: "flotilla"}}}),
                false,
            ),
        ] {
            let (api_version, name) = resource.split_once(' ').unwrap();
            let (group, version) = split_api_version(api_version);
            let gvr = Gvr::new(group.to_owned(), version.to_owned(), name.to_owned());
            let expected = moves.then(|| object.clone());
            assert_eq!(
                moving(&gvr, object.clone()),
                expected,
                "{resource} {object}"
            );
        }
        let mixed = json!({"metadata": {"name": "k"}, "webhooks": [karmada, other]});
        let webhooks = Gvr::new(
            "admissionregistration.k8s.io",
            "v1",
            "mutatingwebhookconfigurations",
        );
        let moved = moving(&webhooks, mixed).unwrap();
        assert_eq!(moved["webhooks"], json!([other]));
        assert!(is_server_made("coordination.k8s.io", "leases"));
        assert!(!is_server_made("", "namespaces"));
    }
}
