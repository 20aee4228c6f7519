//! The APIServices as Flotilla registers them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::Object;
use serde_json::{Value, json};

use super::group_versions::ServedGroupVersion;
use super::host_objects::{ApiServiceTarget, labels};

/// The APIService of a group version, with its owner if that is known.
pub(super) fn desired_api_service(
    version: &ServedGroupVersion,
    service: &ApiServiceTarget,
    bundle: &str,
    owner: Option<&Object>,
) -> Value {
    let mut body = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": version.name(), "labels": labels()},
        "spec": version.api_service_spec(service),
    });
    body["spec"]["caBundle"] = STANDARD.encode(bundle).into();
    if owner.is_some() {
        body["metadata"]["ownerReferences"] = owner_references(owner);
    }
    body
}

/// The owner references to the installed ClusterRole.
pub(super) fn owner_references(role: Option<&Object>) -> Value {
    let reference = |role: &Object| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "name": role.name(),
            "uid": role.uid(),
        })
    };
    role.map(reference).into_iter().collect()
}
