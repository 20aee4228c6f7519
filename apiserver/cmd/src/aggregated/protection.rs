//! Deletion protection of templates: the host keeps them, so the host has to refuse.
//!
//! Enters: what the host serves, how it reaches us. Leaves: a
//! ValidatingAdmissionPolicy with its binding where the host has such, which needs
//! nobody to be up; else a webhook that asks us about labelled objects alone.

use std::sync::Arc;

pub(super) use admission::protection::PATH;
use admission::protection::{ALWAYS, LABEL, WEBHOOK, message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, At, DeleteOptions, Error, Patch, WriteOptions};
use flotilla_http::Webhook;
use machinery::Gvr;
use serde_json::{Value, json};

use super::Service;
use super::registration::{contains, labels};

const GROUP: &str = "admissionregistration.k8s.io";
static WEBHOOKS: Gvr = Gvr::constant(GROUP, "v1", "validatingwebhookconfigurations");
static POLICIES: Gvr = Gvr::constant(GROUP, "v1", "validatingadmissionpolicies");
static BINDINGS: Gvr = Gvr::constant(GROUP, "v1", "validatingadmissionpolicybindings");

/// Answers the webhook.
pub(super) const REVIEW: Webhook = admission::protection::review;

/// Of all that is made here.
const NAME: &str = "flotilla-deletion-protection";

/// Registers the protection, and takes away its other form.
pub(super) async fn ensure(
    host: &Arc<dyn Api>,
    service: &Service,
    bundle: &str,
    owners: &Value,
) -> Result<(), Error> {
    let found = host.resources_of(&|group| group == GROUP).await?;
    let has_policies = found.resources.iter().any(|r| r.resource == POLICIES);
    if !has_policies {
        return put(host, &WEBHOOKS, webhook(service, bundle), owners).await;
    }
    put(host, &POLICIES, policy(), owners).await?;
    put(host, &BINDINGS, binding(), owners).await?;
    let at = At::one(&WEBHOOKS, "", NAME);
    match host.get(at).await {
        Ok(_) => host.delete(at, &DeleteOptions::default()).await.map(drop),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

async fn put(
    host: &Arc<dyn Api>,
    resource: &Gvr,
    mut wanted: Value,
    owners: &Value,
) -> Result<(), Error> {
    wanted["apiVersion"] = "admissionregistration.k8s.io/v1".into();
    wanted["metadata"] = json!({"name": NAME, "labels": labels()});
    let options = WriteOptions::default();
    let at = At::one(resource, "", NAME);
    let found = match host.get(at).await {
        Ok(found) => found.value()?,
        Err(error) if error.is_not_found() => {
            wanted["metadata"]["ownerReferences"] = owners.clone();
            let made = host.create(At::all(resource, ""), wanted, &options).await;
            return match made {
                // Another replica was faster; the next look compares.
                Err(error) if !error.is_already_exists() => Err(error),
                _ => Ok(()),
            };
        }
        Err(error) => return Err(error),
    };
    if contains(&found, &wanted) {
        return Ok(());
    }
    let patched = host.patch(at, Patch::Merge(wanted), &options).await;
    patched.map(drop)
}

/// Every resource of every group, if it carries the label.
fn rules() -> Value {
    json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["DELETE"], "scope": "*"}])
}

fn labelled() -> Value {
    json!({"matchExpressions": [{"key": LABEL, "operator": "Exists"}]})
}

fn webhook(service: &Service, bundle: &str) -> Value {
    json!({
        "kind": "ValidatingWebhookConfiguration",
        "webhooks": [{
            "name": WEBHOOK,
            "clientConfig": {
                "caBundle": STANDARD.encode(bundle),
                "service": {"namespace": service.namespace, "name": service.name, "port": service.port, "path": PATH},
            },
            "rules": rules(),
            "objectSelector": labelled(),
            "namespaceSelector": {},
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 3,
        }],
    })
}

fn policy() -> Value {
    let free = format!("oldObject.metadata.labels['{LABEL}'] != '{ALWAYS}'");
    json!({
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": rules(),
                "objectSelector": labelled(),
                "namespaceSelector": {},
                "matchPolicy": "Equivalent",
            },
            "validations": [{"expression": free, "message": message(), "reason": "Forbidden"}],
        },
    })
}

fn binding() -> Value {
    json!({
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    })
}

#[cfg(test)]
mod tests {
    use client::ApiResource;
    use client::fake::FakeApi;

    use super::*;

    fn serve(fake: &FakeApi, resource: &Gvr) {
        fake.serve(ApiResource {
            resource: resource.clone(),
            kind: "X".into(),
            namespaced: false,
            verbs: vec![],
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        });
    }

    // proves: ADM-protection-host
    #[tokio::test]
    async fn the_form_follows_what_the_host_serves() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let service = Service {
            namespace: "flotilla-system".into(),
            name: "flotilla".into(),
            port: 443,
        };
        let made = |resource: &Gvr| fake.object(resource, "", NAME);
        serve(&fake, &WEBHOOKS);
        let owners = json!([{"name": "flotilla", "uid": "u"}]);
        ensure(&host, &service, "old", &owners).await.unwrap();
        ensure(&host, &service, "new", &owners).await.unwrap();
        let hook = made(&WEBHOOKS).unwrap();
        let client = &hook["webhooks"][0]["clientConfig"];
        assert_eq!(client["caBundle"], STANDARD.encode("new"));
        assert_eq!(client["service"]["path"], PATH);
        let said = &hook["webhooks"][0];
        let everything = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
            "operations": ["DELETE"], "scope": "*"});
        assert_eq!(said["rules"], json!([everything]));
        let carrying = json!({"matchExpressions": [{"key": LABEL, "operator": "Exists"}]});
        assert_eq!(said["objectSelector"], carrying);
        assert_eq!(said["failurePolicy"], "Fail");
        assert_eq!(hook["metadata"]["ownerReferences"], owners);
        fake.clear_writes();
        ensure(&host, &service, "new", &owners).await.unwrap();
        assert_eq!(fake.writes(), []);

        serve(&fake, &POLICIES);
        serve(&fake, &BINDINGS);
        ensure(&host, &service, "new", &owners).await.unwrap();
        assert_eq!(made(&WEBHOOKS), None, "one form is enough");
        let policy = made(&POLICIES).unwrap();
        let rule = &policy["spec"]["matchConstraints"]["resourceRules"][0];
        assert_eq!(*rule, everything);
        let constraints = &policy["spec"]["matchConstraints"];
        assert_eq!(constraints["objectSelector"], carrying);
        assert_eq!(made(&BINDINGS).unwrap()["spec"]["policyName"], NAME);
    }
}
