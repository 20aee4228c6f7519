//! Registers the rules for agents at the host, which stores their leases, events, Secrets and
//! certificate requests.
//!
//! The host calls a webhook for the writes of agents alone, by a match condition. Hosts without match
//! conditions would call it for every lease and event, and need it to be up: there the rules apply to
//! Flotilla's own groups only.

use std::sync::Arc;

use admission::agent_restriction::{WEBHOOK_NAME, WEBHOOK_PATH, review_agent_write};
use client::{Api, Error};
use flotilla_http::AdmissionReviewHandler;
use machinery::agent_user::{AGENTS_GROUP, RBAC_GENERATOR};
use serde_json::{Value, json};

use super::host_admission::{HostWebhook, WEBHOOKS, apply, serves_policies};
use super::host_objects::ApiServiceTarget;

/// The path of the webhook, and what answers its calls.
pub const HANDLER: (&str, AdmissionReviewHandler) = (WEBHOOK_PATH, review_agent_write);

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
    let webhook = HostWebhook {
        name: WEBHOOK_NAME,
        path: WEBHOOK_PATH,
        rules: json!([
            rule("coordination.k8s.io", "leases"),
            rule("", "events"),
            rule("events.k8s.io", "events"),
            rule("", "secrets"),
            rule("certificates.k8s.io", "certificatesigningrequests"),
        ]),
        object_selector: json!({}),
        match_conditions: json!([{"name": "agents", "expression": is_agent}]),
    };
    webhook.configuration(service, bundle)
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;

    use super::super::host_admission::POLICIES;
    use super::super::testing::{serve, service};
    use super::*;

    // proves: AGT-host
    #[tokio::test]
    async fn a_host_calls_the_webhook_for_agents_only_or_not_at_all() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let service = service();
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
