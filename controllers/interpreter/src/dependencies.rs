//! Native dependency rules: the objects that a template needs in every cluster to which it goes.
//!
//! These are ConfigMaps, Secrets, ServiceAccounts, PersistentVolumeClaims, and the Service and
//! EndpointSlices behind a ServiceImport; those of a pod sorted by kind and name. Source: Karmada's
//! `pkg/resourceinterpreter/default/native/dependencies.go`, and Kubernetes' `pkg/api/v1/pod/util.go`
//! for the fields of a pod that name Secrets.

use std::collections::{BTreeMap, BTreeSet};

use machinery::{Gvk, Object};
use openapi::karmada::affinity::Selector;
use openapi::karmada::{Dependency, names};
use serde_json::Value;

use crate::native::Error;
use crate::pods::{place, tree};

const WHAT: &str = "dependencies";

/// The JSON pointers of the fields of a volume that name a Secret.
const SECRET_VOLUMES: [&str; 10] = [
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/secret/secretName",
    "/storageos/secretRef/name",
];

/// The dependencies of a template; `None` when its kind has no dependency rule. The version is
/// ignored.
pub(crate) fn dependencies(
    kind: &Gvk,
    template: &Object,
) -> Result<Option<Vec<Dependency>>, Error> {
    let found = match (&*kind.group, &*kind.kind) {
        ("networking.k8s.io", "Ingress") => {
            certificates(&tree(template, WHAT)?, template.namespace())
        }
        ("multicluster.x-k8s.io", "ServiceImport") => imported(template),
        _ => {
            let Some(pod) = place(kind) else {
                return Ok(None);
            };
            let tree = tree(template, WHAT)?;
            let claims = (&*kind.kind == "StatefulSet").then_some("/spec/volumeClaimTemplates");
            let own_claims = claims.map(|list| names_at(&tree, list, "/metadata/name"));
            let spec = tree.pointer(pod).unwrap_or(&Value::Null);
            of_pod(spec, template.namespace(), &own_claims.unwrap_or_default())
        }
    };
    verify(&found)?;
    Ok(Some(found))
}

/// The dependencies of a pod template.
pub(crate) fn of_template(template: &Value, namespace: &str) -> Vec<Dependency> {
    let pod = template.get("spec").unwrap_or(&Value::Null);
    of_pod(pod, namespace, &BTreeSet::new())
}

/// Fails when a dependency lacks its apiVersion, its kind, or both name and label selector.
pub(crate) fn verify(found: &[Dependency]) -> Result<(), Error> {
    for (at, one) in found.iter().enumerate() {
        for (field, text) in [("apiVersion", &one.api_version), ("kind", &one.kind)] {
            if text.is_empty() {
                return Err(Error::Dependency(format!(
                    "dependencies[{at}].{field}: Required value: missing required {field}"
                )));
            }
        }
        if one.name.is_empty() && one.label_selector.is_none() {
            return Err(Error::Dependency(format!(
                "dependencies[{at}]: Invalid value: {} of kind {}: dependency can not leave name and labelSelector all empty",
                one.api_version, one.kind
            )));
        }
    }
    Ok(())
}

fn core(kind: &str, namespace: &str, name: &str) -> Dependency {
    Dependency {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        label_selector: None,
    }
}

/// The dependencies of a pod spec. Claims named in `own_claims` are left out: the StatefulSet creates
/// them from its volumeClaimTemplates.
pub(crate) fn of_pod(pod: &Value, namespace: &str, own_claims: &BTreeSet<&str>) -> Vec<Dependency> {
    let volumes = || items(pod, "/volumes");
    let sources = || volumes().flat_map(|volume| items(volume, "/projected/sources"));
    let mut maps = BTreeSet::new();
    let mut secrets = names_at(pod, "/imagePullSecrets", "/name");
    for container in ["/initContainers", "/containers", "/ephemeralContainers"] {
        for container in items(pod, container) {
            maps.extend(names_at(container, "/envFrom", "/configMapRef/name"));
            maps.extend(names_at(
                container,
                "/env",
                "/valueFrom/configMapKeyRef/name",
            ));
            secrets.extend(names_at(container, "/envFrom", "/secretRef/name"));
            secrets.extend(names_at(container, "/env", "/valueFrom/secretKeyRef/name"));
        }
    }
    maps.extend(volumes().filter_map(|volume| text(volume, "/configMap/name")));
    maps.extend(sources().filter_map(|source| text(source, "/configMap/name")));
    secrets.extend(sources().filter_map(|source| text(source, "/secret/name")));
    for pointer in SECRET_VOLUMES {
        secrets.extend(volumes().filter_map(|volume| text(volume, pointer)));
    }
    let account = text(pod, "/serviceAccountName").filter(|name| *name != "default");
    let claims = names_at(pod, "/volumes", "/persistentVolumeClaim/claimName");
    let claims = claims.into_iter().filter(|name| !own_claims.contains(name));
    let of = |kind: &'static str| move |name| core(kind, namespace, name);
    let maps = maps.into_iter().map(of("ConfigMap"));
    let secrets = secrets.into_iter().map(of("Secret"));
    let accounts = account.into_iter().map(of("ServiceAccount"));
    let claims = claims.map(of("PersistentVolumeClaim"));
    maps.chain(secrets).chain(accounts).chain(claims).collect()
}

fn certificates(ingress: &Value, namespace: &str) -> Vec<Dependency> {
    let each = items(ingress, "/spec/tls");
    each.map(|tls| core("Secret", namespace, text(tls, "/secretName").unwrap_or("")))
        .collect()
}

fn imported(import: &Object) -> Vec<Dependency> {
    let service = names::derived_service(import.name());
    let slices = Dependency {
        api_version: "discovery.k8s.io/v1".into(),
        kind: "EndpointSlice".into(),
        namespace: import.namespace().into(),
        name: String::new(),
        label_selector: Some(Selector {
            match_labels: BTreeMap::from([("kubernetes.io/service-name".into(), service.clone())]),
            match_expressions: Vec::new(),
        }),
    };
    vec![core("Service", import.namespace(), &service), slices]
}

fn items<'a>(tree: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    let found = tree.pointer(list).and_then(Value::as_array);
    found.into_iter().flatten()
}

/// The string at a JSON pointer, unless it is empty.
fn text<'a>(tree: &'a Value, pointer: &str) -> Option<&'a str> {
    let found = tree.pointer(pointer).and_then(Value::as_str);
    found.filter(|text| !text.is_empty())
}

/// The strings at a JSON pointer in every element of a list.
fn names_at<'a>(tree: &'a Value, list: &str, pointer: &str) -> BTreeSet<&'a str> {
    items(tree, list)
        .filter_map(|item| text(item, pointer))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::tests::object;
    use serde_json::json;

    /// The dependencies as `kind/name`.
    fn found(group: &str, version: &str, kind: &str, spec: Value) -> Option<Vec<String>> {
        let template = object(json!({"metadata": {"name": "x", "namespace": "n"}, "spec": spec}));
        let all = dependencies(&Gvk::new(group, version, kind), &template).unwrap()?;
        assert!(all.iter().all(|d| d.namespace == "n"));
        let short = |d: Dependency| format!("{}/{}", d.kind, d.name);
        Some(all.into_iter().map(short).collect())
    }

    fn pod() -> Value {
        let volume = |source: &str, value: Value| json!({"name": "v", source: value});
        let secret = |name: &str| json!({"secretRef": {"name": name}});
        json!({
            "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}, {"name": ""}],
            "initContainers": [{"envFrom": [{"configMapRef": {"name": "init"}}, {"secretRef": {"name": "init"}}]}],
            "ephemeralContainers": [{"env": [{"name": "a", "valueFrom": {"secretKeyRef": {"name": "debug", "key": "k"}}}]}],
            "containers": [
                {"env": [{"name": "a", "value": "b"}, {"name": "c", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "k"}}}]},
                {"envFrom": [{"configMapRef": {"name": "env"}}], "env": null},
            ],
            "volumes": [
                volume("configMap", json!({"name": "files"})),
                volume("secret", json!({"secretName": "tls"})),
                volume("projected", json!({"sources": [{"configMap": {"name": "mixed"}}, {"secret": {"name": "mixed"}}, {"downwardAPI": {}}]})),
                volume("persistentVolumeClaim", json!({"claimName": "disk"})),
                volume("azureFile", json!({"secretName": "azure"})),
                volume("cephfs", secret("ceph")), volume("cinder", secret("cinder")),
                volume("flexVolume", secret("flex")), volume("rbd", secret("rbd")),
                volume("scaleIO", secret("scale")), volume("iscsi", secret("iscsi")),
                volume("storageos", secret("os")),
                volume("csi", json!({"nodePublishSecretRef": {"name": "csi"}})),
                volume("emptyDir", json!({})),
            ],
        })
    }

    // proves: NAT-deps-pod
    #[test]
    fn dependencies_of_a_pod_are_sorted_without_duplicates() {
        let maps = ["env", "files", "init", "mixed"].map(|n| format!("ConfigMap/{n}"));
        let secrets = [
            "azure", "ceph", "cinder", "csi", "debug", "flex", "init", "iscsi", "mixed", "os",
            "pull", "rbd", "scale", "tls",
        ];
        let mut all: Vec<String> = maps.into();
        all.extend(secrets.map(|n| format!("Secret/{n}")));
        all.push("ServiceAccount/robot".into());
        all.push("PersistentVolumeClaim/disk".into());
        let template = json!({"template": {"spec": pod()}});
        for (group, kind, spec) in [
            ("", "Pod", pod()),
            ("apps", "Deployment", template.clone()),
            ("apps", "ReplicaSet", template.clone()),
            ("apps", "DaemonSet", template.clone()),
            ("apps", "StatefulSet", template.clone()),
            ("batch", "Job", template.clone()),
            (
                "batch",
                "CronJob",
                json!({"jobTemplate": {"spec": template}}),
            ),
        ] {
            assert_eq!(found(group, "v1", kind, spec), Some(all.clone()), "{kind}");
        }
    }

    // proves: NAT-deps-default
    #[test]
    fn default_service_account_and_own_claims_are_no_dependencies() {
        let plain = json!({"template": {"spec": {"serviceAccountName": "default", "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "other", "persistentVolumeClaim": {"claimName": "other"}}]}}});
        let mut own_claims = plain.clone();
        own_claims["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}}]);
        let claim = |name: &str| format!("PersistentVolumeClaim/{name}");
        for (kind, spec, expected) in [
            (
                "Deployment",
                own_claims.clone(),
                vec![claim("data"), claim("other")],
            ),
            ("StatefulSet", own_claims, vec![claim("other")]),
            ("StatefulSet", plain, vec![claim("data"), claim("other")]),
            ("Deployment", json!({"template": {"spec": null}}), vec![]),
            ("Deployment", json!({}), vec![]),
        ] {
            assert_eq!(
                found("apps", "v1", kind, spec.clone()),
                Some(expected),
                "{kind} {spec}"
            );
        }
        assert_eq!(found("", "v1", "ConfigMap", json!({})), None);
        assert_eq!(found("example.io", "v1", "Deployment", json!({})), None);
    }

    // proves: NAT-deps-others, NAT-deps-verified
    #[test]
    fn dependencies_of_ingresses_and_service_imports() {
        let tls = json!({"tls": [{"secretName": "b"}, {"secretName": "a"}]});
        assert_eq!(
            found("networking.k8s.io", "v1", "Ingress", tls),
            Some(vec!["Secret/b".into(), "Secret/a".into()])
        );
        let nameless = object(
            json!({"metadata": {"name": "x", "namespace": "n"}, "spec": {"tls": [{"hosts": ["h"]}]}}),
        );
        let ingress = Gvk::constant("networking.k8s.io", "v1", "Ingress");
        let error = dependencies(&ingress, &nameless).unwrap_err().to_string();
        assert!(error.contains("dependencies[0]"), "{error}");
        let import = object(json!({"metadata": {"name": "web", "namespace": "n"}}));
        let kind = Gvk::constant("multicluster.x-k8s.io", "v1alpha1", "ServiceImport");
        assert_eq!(
            serde_json::to_value(dependencies(&kind, &import).unwrap()).unwrap(),
            json!([
                {"apiVersion": "v1", "kind": "Service", "namespace": "n", "name": "derived-web"},
                {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "namespace": "n",
                 "labelSelector": {"matchLabels": {"kubernetes.io/service-name": "derived-web"}}},
            ])
        );
    }
}
