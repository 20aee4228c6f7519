//! Writes the admission policies and webhooks by which Flotilla has a say in what the host stores.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, Error, Patch, ResourcePath, WriteOptions};
use machinery::Gvr;
use serde_json::{Value, json};

use super::host_objects::{ApiServiceTarget, contains, labels};

pub(super) const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
pub(super) static WEBHOOKS: Gvr =
    Gvr::from_static(ADMISSION_GROUP, "v1", "validatingwebhookconfigurations");
pub(crate) static POLICIES: Gvr =
    Gvr::from_static(ADMISSION_GROUP, "v1", "validatingadmissionpolicies");

/// A webhook of this server, which the host calls before it stores something.
pub(super) struct HostWebhook {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    pub(super) rules: Value,
    pub(super) object_selector: Value,
    /// Null for a host without match conditions.
    pub(super) match_conditions: Value,
}

impl HostWebhook {
    /// Its ValidatingWebhookConfiguration. The host refuses a write while the webhook does not answer.
    pub(super) fn configuration(self, service: &ApiServiceTarget, bundle: &str) -> Value {
        let mut webhook = json!({
            "name": self.name,
            "clientConfig": {
                "caBundle": STANDARD.encode(bundle),
                "service": {"namespace": service.namespace, "name": service.name, "port": service.port, "path": self.path},
            },
            "rules": self.rules,
            "objectSelector": self.object_selector,
            "namespaceSelector": {},
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 3,
        });
        if !self.match_conditions.is_null() {
            webhook["matchConditions"] = self.match_conditions;
        }
        json!({"kind": "ValidatingWebhookConfiguration", "webhooks": [webhook]})
    }
}

/// Whether the host serves ValidatingAdmissionPolicies (1.30), and with them the match conditions of
/// webhooks.
pub(super) async fn serves_policies(host: &Arc<dyn Api>) -> Result<bool, Error> {
    let discovered = host
        .discover_groups(&|group| group == ADMISSION_GROUP)
        .await?;
    Ok(discovered.resources.iter().any(|r| r.resource == POLICIES))
}

/// Creates the object with these owners, or changes what differs.
pub(super) async fn apply(
    host: &Arc<dyn Api>,
    resource: &Gvr,
    name: &str,
    mut desired: Value,
    owners: &Value,
) -> Result<(), Error> {
    desired["apiVersion"] = "admissionregistration.k8s.io/v1".into();
    desired["metadata"] = json!({"name": name, "labels": labels()});
    let options = WriteOptions::default();
    let at = ResourcePath::object(resource, "", name);
    let existing = match host.get(at).await {
        Ok(existing) => existing.value()?,
        Err(error) if error.is_not_found() => {
            desired["metadata"]["ownerReferences"] = owners.clone();
            let created = host
                .create(
                    ResourcePath::collection(resource, ""),
                    desired.into(),
                    &options,
                )
                .await;
            return match created {
                // Another replica has created it; the next check compares.
                Err(error) if !error.is_already_exists() => Err(error),
                _ => Ok(()),
            };
        }
        Err(error) => return Err(error),
    };
    if contains(&existing, &desired) {
        return Ok(());
    }
    let patched = host.patch(at, Patch::Merge(desired), &options).await;
    patched.map(drop)
}
