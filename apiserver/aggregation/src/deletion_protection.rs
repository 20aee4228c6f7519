//! Registers the deletion protection of templates at the host, which stores them.
//!
//! Where the host serves ValidatingAdmissionPolicies, this is a policy with its binding,
//! which works while Flotilla is down; otherwise it is a webhook, which the host calls for
//! labeled objects only.

use std::sync::Arc;

use admission::deletion_protection::{
    DELETION_PROTECTED_ALWAYS, DELETION_PROTECTED_LABEL, WEBHOOK_NAME, WEBHOOK_PATH,
    denial_message, review_deletion,
};
use client::{Api, DeleteOptions, Error, ResourcePath};
use flotilla_http::AdmissionReviewHandler;
use machinery::Gvr;
use serde_json::{Value, json};

use super::host_admission::{
    ADMISSION_GROUP, HostWebhook, POLICIES, WEBHOOKS, apply, serves_policies,
};
use super::host_objects::ApiServiceTarget;

static BINDINGS: Gvr = Gvr::from_static(ADMISSION_GROUP, "v1", "validatingadmissionpolicybindings");

/// The path of the webhook, and what answers its calls.
pub const HANDLER: (&str, AdmissionReviewHandler) = (WEBHOOK_PATH, review_deletion);

/// The name of the objects that are created here.
const PROTECTION_NAME: &str = "flotilla-deletion-protection";

/// Registers the policy or the webhook, and removes a webhook that a policy replaces.
pub(super) async fn ensure(
    host: &Arc<dyn Api>,
    service: &ApiServiceTarget,
    bundle: &str,
    owners: &Value,
) -> Result<(), Error> {
    if !serves_policies(host).await? {
        return apply(
            host,
            &WEBHOOKS,
            PROTECTION_NAME,
            webhook(service, bundle),
            owners,
        )
        .await;
    }
    apply(host, &POLICIES, PROTECTION_NAME, policy(), owners).await?;
    apply(host, &BINDINGS, PROTECTION_NAME, binding(), owners).await?;
    let at = ResourcePath::object(&WEBHOOKS, "", PROTECTION_NAME);
    match host.get(at).await {
        Ok(_) => host.delete(at, &DeleteOptions::default()).await.map(drop),
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletions of every resource in every group.
fn rules() -> Value {
    json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["DELETE"], "scope": "*"}])
}

fn object_selector() -> Value {
    json!({"matchExpressions": [{"key": DELETION_PROTECTED_LABEL, "operator": "Exists"}]})
}

fn webhook(service: &ApiServiceTarget, bundle: &str) -> Value {
    let webhook = HostWebhook {
        name: WEBHOOK_NAME,
        path: WEBHOOK_PATH,
        rules: rules(),
        object_selector: object_selector(),
        match_conditions: Value::Null,
    };
    webhook.configuration(service, bundle)
}

fn policy() -> Value {
    let free = format!(
        "oldObject.metadata.labels['{DELETION_PROTECTED_LABEL}'] != '{DELETION_PROTECTED_ALWAYS}'"
    );
    json!({
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": rules(),
                "objectSelector": object_selector(),
                "namespaceSelector": {},
                "matchPolicy": "Equivalent",
            },
            "validations": [{"expression": free, "message": denial_message(), "reason": "Forbidden"}],
        },
    })
}

fn binding() -> Value {
    json!({
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": PROTECTION_NAME, "validationActions": ["Deny"]},
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use client_fake::FakeApi;

    use super::super::testing::{serve, service};
    use super::*;

    #[tokio::test]
    async fn the_protection_is_a_policy_or_a_webhook() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let service = service();
        let created = |resource: &Gvr| fake.get_object(resource, "", PROTECTION_NAME);
        serve(&fake, &WEBHOOKS);
        let owners = json!([{"name": "flotilla", "uid": "u"}]);
        ensure(&host, &service, "old", &owners).await.unwrap();
        ensure(&host, &service, "new", &owners).await.unwrap();
        let configuration = created(&WEBHOOKS).unwrap();
        let client = &configuration["webhooks"][0]["clientConfig"];
        assert_eq!(client["caBundle"], STANDARD.encode("new"));
        assert_eq!(client["service"]["path"], WEBHOOK_PATH);
        let webhook = &configuration["webhooks"][0];
        let everything = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
            "operations": ["DELETE"], "scope": "*"});
        assert_eq!(webhook["rules"], json!([everything]));
        let carrying =
            json!({"matchExpressions": [{"key": DELETION_PROTECTED_LABEL, "operator": "Exists"}]});
        assert_eq!(webhook["objectSelector"], carrying);
        assert_eq!(webhook["failurePolicy"], "Fail");
        assert_eq!(configuration["metadata"]["ownerReferences"], owners);
        fake.clear_writes();
        ensure(&host, &service, "new", &owners).await.unwrap();
        assert_eq!(fake.writes(), []);

        serve(&fake, &POLICIES);
        serve(&fake, &BINDINGS);
        ensure(&host, &service, "new", &owners).await.unwrap();
        assert_eq!(created(&WEBHOOKS), None, "one form is enough");
        let policy = created(&POLICIES).unwrap();
        let rule = &policy["spec"]["matchConstraints"]["resourceRules"][0];
        assert_eq!(*rule, everything);
        let constraints = &policy["spec"]["matchConstraints"];
        assert_eq!(constraints["objectSelector"], carrying);
        assert_eq!(
            created(&BINDINGS).unwrap()["spec"]["policyName"],
            PROTECTION_NAME
        );
    }

    /// Evaluates an expression for each object with cel-go; an error is one that cel-go
    /// reports.
    fn evaluate(program: &Path, expression: &str, objects: &[Value]) -> Vec<Result<bool, String>> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut questions = child.stdin.take().unwrap();
        for object in objects {
            let variables = json!({"oldObject": object, "object": null});
            let question = json!({"expression": expression, "variables": variables});
            writeln!(questions, "{question}").unwrap();
        }
        drop(questions);
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{out:?}");
        let output = String::from_utf8(out.stdout).unwrap();
        let answer = |line: &str| line.parse().map_err(|_| line.to_owned());
        output.lines().map(answer).collect()
    }

    #[test]
    fn cel_go_decides_as_the_webhook_does() {
        let Some([program]) = harness::tools(["cel-eval"]) else {
            return;
        };
        let policy = policy();
        let validations = policy["spec"]["validations"].as_array().unwrap();
        assert_eq!(validations.len(), 1);
        let expression = validations[0]["expression"].as_str().unwrap();
        let values = ["Always", "always", "ALWAYS", "Always ", "Never", "", "true"];
        // The object selector of the policy excludes objects without the label.
        let objects = values.map(|value| {
            let labels = json!({DELETION_PROTECTED_LABEL: value, "another": "Always"});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": labels}})
        });
        let results = evaluate(&program, expression, &objects);
        assert_eq!(results.len(), objects.len());
        for (object, result) in objects.iter().zip(results) {
            let review = json!({"operation": "DELETE", "oldObject": object});
            assert_eq!(result, Ok(review_deletion(&review).is_ok()), "{object}");
        }
        // An error of the evaluation denies the deletion: the policy fails closed.
        let bare = evaluate(&program, expression, &[json!({"metadata": {}})]);
        assert!(bare[0].is_err(), "{bare:?}");
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    }
}
