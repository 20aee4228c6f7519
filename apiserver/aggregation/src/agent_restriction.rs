//! Registers the rules for agents at the host, which stores their leases, events, Secrets and
//! certificate requests.
//!
//! The host calls a webhook for the writes of agents alone, by a match condition. Hosts without match
//! conditions would call it for every lease and event, and need it to be up: there the rules apply to
//! Flotilla's own groups only.

use std::sync::Arc;

use admission::agent_restriction::{WEBHOOK_NAME, review_agent_write};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, Error};
use flotilla_http::AdmissionReviewHandler;
use karmada_api::agents::{AGENTS_GROUP, RBAC_GENERATOR};
use serde_json::{Value, json};

use super::host_admission::{WEBHOOKS, apply, serves_policies};
use super::host_objects::ApiServiceTarget;

pub use admission::agent_restriction::WEBHOOK_PATH;

/// Answers the calls of the webhook.
pub const REVIEW: AdmissionReviewHandler = review_agent_write;

const RESTRICTION_NAME: &str = "flotilla-agent-restriction";

/// Registers the webhook, if the host calls it for agents only.
pub(super) async fn ensure(
    host: &Arc<dyn Api>,
    service: &ApiServiceTarget,
    bundle: &str,
    owners: &Value,
) -> Result<(), Error> {
    match serves_policies(host).await? {
        true => {
            let webhook = webhook(service, bundle);
            apply(host, &WEBHOOKS, RESTRICTION_NAME, webhook, owners).await
        }
        false => Ok(()),
    }
}

fn webhook(service: &ApiServiceTarget, bundle: &str) -> Value {
    let rule = |group: &str, resource: &str| {
        json!({"apiGroups": [group], "apiVersions": ["*"], "resources": [resource],
            "operations": ["CREATE", "UPDATE"], "scope": "*"})
    };
    let is_agent = format!(
        "request.userInfo.username != '{RBAC_GENERATOR}' && request.userInfo.groups.exists(g, g == '{AGENTS_GROUP}')"
    );
    json!({
        "kind": "ValidatingWebhookConfiguration",
        "webhooks": [{
            "name": WEBHOOK_NAME,
            "clientConfig": {
                "caBundle": STANDARD.encode(bundle),
                "service": {"namespace": service.namespace, "name": service.name, "port": service.port, "path": WEBHOOK_PATH},
            },
            "rules": [
                rule("coordination.k8s.io", "leases"),
                rule("", "events"),
                rule("events.k8s.io", "events"),
                rule("", "secrets"),
                rule("certificates.k8s.io", "certificatesigningrequests"),
            ],
            "matchConditions": [{"name": "agents", "expression": is_agent}],
            "objectSelector": {},
            "namespaceSelector": {},
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 3,
        }],
    })
}

#[cfg(test)]
mod tests {
    use client::ApiResource;
    use client_fake::FakeApi;
    use machinery::Gvr;

    use super::super::host_admission::POLICIES;
    use super::*;

    fn serve(fake: &FakeApi, resource: &Gvr) {
        fake.add_resource(ApiResource {
            resource: resource.clone(),
            kind: "X".into(),
            namespaced: false,
            verbs: vec![],
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        });
    }

    // proves: AGT-host
    #[tokio::test]
    async fn a_host_calls_the_webhook_for_agents_only_or_not_at_all() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let service = ApiServiceTarget {
            namespace: "flotilla-system".into(),
            name: "flotilla".into(),
            port: 443,
        };
        serve(&fake, &WEBHOOKS);
        ensure(&host, &service, "ca", &json!([])).await.unwrap();
        assert_eq!(fake.get_object(&WEBHOOKS, "", RESTRICTION_NAME), None);
        serve(&fake, &POLICIES);
        ensure(&host, &service, "ca", &json!([])).await.unwrap();
        let registered = fake.get_object(&WEBHOOKS, "", RESTRICTION_NAME).unwrap();
        let webhook = &registered["webhooks"][0];
        assert_eq!(webhook["clientConfig"]["service"]["path"], WEBHOOK_PATH);
        let condition = webhook["matchConditions"][0]["expression"].as_str();
        assert!(condition.unwrap().contains(AGENTS_GROUP));
        assert_eq!(webhook["failurePolicy"], "Fail");
    }
}
