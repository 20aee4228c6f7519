//! Native dependency rules: the objects that a template needs in every cluster to which it goes.
//!
//! These are ConfigMaps, Secrets, ServiceAccounts, PersistentVolumeClaims, and the Service and
//! EndpointSlices behind a ServiceImport; those of a pod sorted by kind and name. Source: Karmada's
//! `pkg/resourceinterpreter/default/native/dependencies.go`, and Kubernetes' `pkg/api/v1/pod/util.go`
//! for the fields of a pod that name Secrets.

use std::collections::{BTreeMap, BTreeSet};

use karmada_api::affinity::ApiLabelSelector;
use karmada_api::{DependentObjectReference, names};
use machinery::{Gvk, Object};
use serde_json::Value;

use crate::native::Error;
use crate::native::pod_template::{object_json, pod_spec_pointer};

const ERROR_CONTEXT: &str = "dependencies";

/// The JSON pointers of the fields of a volume that name a Secret.
const VOLUME_SECRET_POINTERS: [&str; 10] = [
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
) -> Result<Option<Vec<DependentObjectReference>>, Error> {
    let dependencies = match (&*kind.group, &*kind.kind) {
        ("networking.k8s.io", "Ingress") => {
            ingress_dependencies(&object_json(template, ERROR_CONTEXT)?, template.namespace())
        }
        ("multicluster.x-k8s.io", "ServiceImport") => service_import_dependencies(template),
        _ => {
            let Some(pod) = pod_spec_pointer(kind) else {
                return Ok(None);
            };
            let tree = object_json(template, ERROR_CONTEXT)?;
            let claims = (&*kind.kind == "StatefulSet").then_some("/spec/volumeClaimTemplates");
            let own_claims = claims.map(|list| names_in_list(&tree, list, "/metadata/name"));
            let spec = tree.pointer(pod).unwrap_or(&Value::Null);
            pod_spec_dependencies(spec, template.namespace(), &own_claims.unwrap_or_default())
        }
    };
    validate_dependencies(&dependencies)?;
    Ok(Some(dependencies))
}

/// The dependencies of a pod template.
pub(crate) fn pod_template_dependencies(
    template: &Value,
    namespace: &str,
) -> Vec<DependentObjectReference> {
    let pod = template.get("spec").unwrap_or(&Value::Null);
    pod_spec_dependencies(pod, namespace, &BTreeSet::new())
}

/// Fails when a dependency lacks its apiVersion, its kind, or both name and label selector.
pub(crate) fn validate_dependencies(
    dependencies: &[DependentObjectReference],
) -> Result<(), Error> {
    for (at, one) in dependencies.iter().enumerate() {
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

fn core_dependency(kind: &str, namespace: &str, name: &str) -> DependentObjectReference {
    DependentObjectReference {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        label_selector: None,
    }
}

/// The dependencies of a pod spec. Claims named in `own_claims` are left out: the StatefulSet creates
/// them from its volumeClaimTemplates.
pub(crate) fn pod_spec_dependencies(
    pod: &Value,
    namespace: &str,
    own_claims: &BTreeSet<&str>,
) -> Vec<DependentObjectReference> {
    let volumes = || list_items(pod, "/volumes");
    let sources = || volumes().flat_map(|volume| list_items(volume, "/projected/sources"));
    let mut maps = BTreeSet::new();
    let mut secrets = names_in_list(pod, "/imagePullSecrets", "/name");
    for container in ["/initContainers", "/containers", "/ephemeralContainers"] {
        for container in list_items(pod, container) {
            maps.extend(names_in_list(container, "/envFrom", "/configMapRef/name"));
            maps.extend(names_in_list(
                container,
                "/env",
                "/valueFrom/configMapKeyRef/name",
            ));
            secrets.extend(names_in_list(container, "/envFrom", "/secretRef/name"));
            secrets.extend(names_in_list(
                container,
                "/env",
                "/valueFrom/secretKeyRef/name",
            ));
        }
    }
    maps.extend(volumes().filter_map(|volume| non_empty_string(volume, "/configMap/name")));
    maps.extend(sources().filter_map(|source| non_empty_string(source, "/configMap/name")));
    secrets.extend(sources().filter_map(|source| non_empty_string(source, "/secret/name")));
    for pointer in VOLUME_SECRET_POINTERS {
        secrets.extend(volumes().filter_map(|volume| non_empty_string(volume, pointer)));
    }
    let account = non_empty_string(pod, "/serviceAccountName").filter(|name| *name != "default");
    let claims = names_in_list(pod, "/volumes", "/persistentVolumeClaim/claimName");
    let claims = claims.into_iter().filter(|name| !own_claims.contains(name));
    let of = |kind: &'static str| move |name| core_dependency(kind, namespace, name);
    let maps = maps.into_iter().map(of("ConfigMap"));
    let secrets = secrets.into_iter().map(of("Secret"));
    let accounts = account.into_iter().map(of("ServiceAccount"));
    let claims = claims.map(of("PersistentVolumeClaim"));
    maps.chain(secrets).chain(accounts).chain(claims).collect()
}

fn ingress_dependencies(ingress: &Value, namespace: &str) -> Vec<DependentObjectReference> {
    let each = list_items(ingress, "/spec/tls");
    each.map(|tls| {
        core_dependency(
            "Secret",
            namespace,
            non_empty_string(tls, "/secretName").unwrap_or(""),
        )
    })
    .collect()
}

fn service_import_dependencies(import: &Object) -> Vec<DependentObjectReference> {
    let service = names::derived_service_name(import.name());
    let slices = DependentObjectReference {
        api_version: "discovery.k8s.io/v1".into(),
        kind: "EndpointSlice".into(),
        namespace: import.namespace().into(),
        name: String::new(),
        label_selector: Some(ApiLabelSelector {
            match_labels: BTreeMap::from([("kubernetes.io/service-name".into(), service.clone())]),
            match_expressions: Vec::new(),
        }),
    };
    vec![
        core_dependency("Service", import.namespace(), &service),
        slices,
    ]
}

fn list_items<'a>(tree: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    let items = tree.pointer(list).and_then(Value::as_array);
    items.into_iter().flatten()
}

/// The string at a JSON pointer, unless it is empty.
fn non_empty_string<'a>(tree: &'a Value, pointer: &str) -> Option<&'a str> {
    let text_at_pointer = tree.pointer(pointer).and_then(Value::as_str);
    text_at_pointer.filter(|text| !text.is_empty())
}

/// The strings at a JSON pointer in every element of a list.
fn names_in_list<'a>(tree: &'a Value, list: &str, pointer: &str) -> BTreeSet<&'a str> {
    list_items(tree, list)
        .filter_map(|item| non_empty_string(item, pointer))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::object;
    use serde_json::json;

    /// The dependencies as `kind/name`.
    fn dependency_names(
        group: &str,
        version: &str,
        kind: &str,
        spec: Value,
    ) -> Option<Vec<String>> {
        let template = object(json!({"metadata": {"name": "x", "namespace": "n"}, "spec": spec}));
        let all = dependencies(&Gvk::new(group, version, kind), &template).unwrap()?;
        assert!(all.iter().all(|d| d.namespace == "n"));
        let short = |d: DependentObjectReference| format!("{}/{}", d.kind, d.name);
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
            assert_eq!(
                dependency_names(group, "v1", kind, spec),
                Some(all.clone()),
                "{kind}"
            );
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
                dependency_names("apps", "v1", kind, spec.clone()),
                Some(expected),
                "{kind} {spec}"
            );
        }
        assert_eq!(dependency_names("", "v1", "ConfigMap", json!({})), None);
        assert_eq!(
            dependency_names("example.io", "v1", "Deployment", json!({})),
            None
        );
    }

    // proves: NAT-deps-others, NAT-deps-verified
    #[test]
    fn dependencies_of_ingresses_and_service_imports() {
        let tls = json!({"tls": [{"secretName": "b"}, {"secretName": "a"}]});
        assert_eq!(
            dependency_names("networking.k8s.io", "v1", "Ingress", tls),
            Some(vec!["Secret/b".into(), "Secret/a".into()])
        );
        let nameless = object(
            json!({"metadata": {"name": "x", "namespace": "n"}, "spec": {"tls": [{"hosts": ["h"]}]}}),
        );
        let ingress = Gvk::from_static("networking.k8s.io", "v1", "Ingress");
        let error = dependencies(&ingress, &nameless).unwrap_err().to_string();
        assert!(error.contains("dependencies[0]"), "{error}");
        let import = object(json!({"metadata": {"name": "web", "namespace": "n"}}));
        let kind = Gvk::from_static("multicluster.x-k8s.io", "v1alpha1", "ServiceImport");
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
