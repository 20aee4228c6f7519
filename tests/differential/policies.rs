//! Puts the admission policies of a theme in force. Both servers obey the policies of Flotilla,
//! which is the reference's core API server.
//!
//! The short form of a policy is its `spec`, with the field `binding` for the spec of its
//! binding. A policy that has `mutations` mutates, others validate. Without constraints of its
//! own it applies to the things of the theme that carry the label `use: NAME`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::differential::request::PreparedRequest;
use crate::differential::servers::ServerConnection;

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The last policies to be created; they show that the others are in force.
const LAST_VALIDATING: &str = "zz-last-validating";
const LAST_MUTATING: &str = "zz-last-mutating";

/// Creates the policies, and waits until both servers obey them.
pub(crate) async fn put_in_force(
    servers: &[ServerConnection; 2],
    group: &str,
    policies: impl Iterator<Item = (&String, &Value)>,
) {
    let flotilla = &servers[1];
    for (name, short) in policies {
        create(flotilla, group, name, short.clone()).await;
    }
    let denial = json!({"validations": [{"expression": "false"}]});
    create(flotilla, group, LAST_VALIDATING, denial).await;
    let label = "Object{metadata: Object.metadata{labels: {'last': 'mutated'}}}";
    let mutation =
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}});
    create(
        flotilla,
        group,
        LAST_MUTATING,
        json!({"mutations": [mutation]}),
    )
    .await;
    for server in servers {
        wait_in_force(server, group).await;
    }
}

async fn create(flotilla: &ServerConnection, group: &str, name: &str, short: Value) {
    let mut spec = short;
    let mutates = !spec["mutations"].is_null();
    let binding = spec.as_object_mut().unwrap().remove("binding");
    let operations = match mutates {
        true => json!(["CREATE", "UPDATE"]),
        false => json!(["CREATE", "UPDATE", "DELETE"]),
    };
    let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "resources": ["things"], "operations": operations});
    let constraints =
        json!({"resourceRules": [rule], "objectSelector": {"matchLabels": {"use": name}}});
    let fields = spec.as_object_mut().unwrap();
    fields.entry("matchConstraints").or_insert(constraints);
    let mut binding = binding.unwrap_or_else(|| json!({}));
    binding["policyName"] = json!(name);
    let kind = match mutates {
        true => "MutatingAdmissionPolicy",
        false => "ValidatingAdmissionPolicy",
    };
    if mutates {
        fields.entry("reinvocationPolicy").or_insert(json!("Never"));
    } else {
        let actions = binding.as_object_mut().unwrap();
        actions
            .entry("validationActions")
            .or_insert(json!(["Deny"]));
    }
    for (kind, plural, spec) in [
        (kind.to_owned(), "policies", spec),
        (format!("{kind}Binding"), "policybindings", binding),
    ] {
        let prefix = kind
            .split("Policy")
            .next()
            .unwrap_or_default()
            .to_lowercase();
        let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "spec": spec});
        let request =
            PreparedRequest::json("POST", &format!("{ADMISSION}/{prefix}{plural}"), &body);
        let created = flotilla.send(request).await;
        assert_eq!(created.code, 201, "{}", created.text());
    }
}

async fn wait_in_force(server: &ServerConnection, group: &str) {
    let path = format!("/apis/{group}/v1/namespaces/default/things?dryRun=All");
    let end = Instant::now() + IN_FORCE_TIMEOUT;
    for (policy, fits) in [
        (
            LAST_VALIDATING,
            (|code, _| code == 422) as fn(u16, &str) -> bool,
        ),
        (LAST_MUTATING, |_, text| text.contains("mutated")),
    ] {
        let thing = json!({"apiVersion": format!("{group}/v1"), "kind": "Thing",
            "metadata": {"name": "probe", "labels": {"use": policy}}});
        loop {
            let reply = server
                .send(PreparedRequest::json("POST", &path, &thing))
                .await;
            if fits(reply.code, &reply.text()) {
                break;
            }
            let late = Instant::now() > end;
            assert!(
                !late,
                "{} does not obey {policy}: {}",
                server.name,
                reply.text()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
