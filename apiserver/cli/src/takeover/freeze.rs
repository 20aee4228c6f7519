//! The freeze of writes: while objects are copied for the last time, the host refuses writes to
//! Karmada's groups, and so does Flotilla, which asks the host's webhooks too. Before a move to a
//! standalone Flotilla it refuses writes to everything that moves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Context;
use client::{DeleteOptions, Error, Patch, ResourcePath, ignore_not_found};
use serde_json::{Value, json};

use super::session::{FIELD_MANAGER, TakeoverSession, write_options};
use super::snapshot::{Snapshot, object_names};
use super::webhooks::VALIDATING;

/// The name of the webhook configuration.
pub(super) const CONFIGURATION: &str = "flotilla-takeover-freeze";
/// The name that refused writes read.
const WEBHOOK: &str = "writes-are-frozen.takeover.flotilla.io";
/// Nobody listens there: every request that the webhook concerns is refused.
const URL: &str = "https://127.0.0.1:1/";
/// The time in which the other replicas of the API server learn of the webhook, too.
const SETTLE_PAUSE: Duration = Duration::from_secs(2);
/// The first minor version of Kubernetes that evaluates `matchConditions` unasked.
const MATCH_CONDITIONS_MINOR: u32 = 28;

/// The subresources that change an object.
const WRITTEN_SUBRESOURCES: [&str; 3] = ["status", "scale", "finalize"];

/// The minor version in the host's answer to `/version`.
pub(super) fn minor_version(version: &Value) -> u32 {
    let minor = version["minor"].as_str().unwrap_or_default();
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_default()
}

/// Freezes writes to the groups of a snapshot, and waits until they are refused. Returns whether
/// the writes of this command are exempt.
pub(super) async fn freeze(session: &TakeoverSession, snapshot: &Snapshot) -> anyhow::Result<bool> {
    session.ensure_current().await?;
    let is_exempt = minor_version(&session.host_version().await?) >= MATCH_CONDITIONS_MINOR;
    let configuration = configuration(group_rules(snapshot), is_exempt);
    refuse_writes(session, snapshot, configuration).await?;
    Ok(is_exempt)
}

/// Freezes writes to the resources of a snapshot and to nothing else, such as leases; nobody is
/// exempt.
pub(super) async fn freeze_resources(
    session: &TakeoverSession,
    snapshot: &Snapshot,
) -> anyhow::Result<()> {
    let configuration = configuration(resource_rules(snapshot), false);
    refuse_writes(session, snapshot, configuration).await
}

async fn refuse_writes(
    session: &TakeoverSession,
    snapshot: &Snapshot,
    configuration: Value,
) -> anyhow::Result<()> {
    let all = ResourcePath::collection(&VALIDATING, "");
    let webhooks = configuration["webhooks"].clone();
    let host = &session.host;
    let created = host.create(all, configuration.into(), write_options());
    let written = match created.await {
        // An earlier run has left it, which may have frozen other resources.
        Err(error) if error.is_already_exists() => {
            let at = ResourcePath::object(&VALIDATING, "", CONFIGURATION);
            let patch = Patch::Merge(json!({"webhooks": webhooks}));
            host.patch(at, patch, write_options()).await
        }
        created => created,
    };
    written.context("the freeze of writes")?;
    let waiting = "writes to be refused";
    session
        .wait_for(waiting, async || {
            let is_frozen = is_refused(session, snapshot).await?.unwrap_or(true);
            Ok(is_frozen.then_some(()))
        })
        .await?;
    tokio::time::sleep(SETTLE_PAUSE).await;
    Ok(())
}

/// Ends the freeze.
pub(super) async fn thaw(session: &TakeoverSession) -> anyhow::Result<()> {
    let at = ResourcePath::object(&VALIDATING, "", CONFIGURATION);
    let deleted = session.host.delete(at, &DeleteOptions::default()).await;
    ignore_not_found(deleted).context("the freeze of writes")?;
    Ok(())
}

/// Waits until writes are accepted again.
pub(super) async fn wait_until_thawed(
    session: &TakeoverSession,
    snapshot: &Snapshot,
) -> anyhow::Result<()> {
    session
        .wait_for("writes to be accepted", async || {
            let is_frozen = is_refused(session, snapshot).await?.unwrap_or(false);
            Ok((!is_frozen).then_some(()))
        })
        .await
}

/// Whether the deletion of an object would be refused, by a dry run; `None` if no object can tell, and
/// none could be lost.
async fn is_refused(
    session: &TakeoverSession,
    snapshot: &Snapshot,
) -> anyhow::Result<Option<bool>> {
    let options = DeleteOptions {
        dry_run: true,
        ..DeleteOptions::default()
    };
    for resource in snapshot.resources.iter().filter(|r| r.is_frozen()) {
        for object in resource.objects.values() {
            let (namespace, name) = object_names(object);
            let gvr = resource.resource.gvr();
            let at = ResourcePath::object(&gvr, namespace, name);
            match session.host.delete(at, &options).await {
                Ok(_) => return Ok(Some(false)),
                Err(Error::Status(status)) if status.message.contains(WEBHOOK) => {
                    return Ok(Some(true));
                }
                // It is gone, or protected against deletion.
                Err(Error::Status(status)) if status.code < 500 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(None)
}

fn group_rules(snapshot: &Snapshot) -> Vec<Value> {
    let frozen = snapshot.resources.iter();
    let groups: BTreeSet<&str> = frozen.map(|r| r.resource.group.as_str()).collect();
    vec![
        json!({"apiGroups": groups, "apiVersions": ["*"], "resources": ["*/*"],
        "operations": ["CREATE", "UPDATE", "DELETE"]}),
    ]
}

fn resource_rules(snapshot: &Snapshot) -> Vec<Value> {
    let mut written: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for frozen in &snapshot.resources {
        let resource = &frozen.resource;
        let names = written.entry(&resource.group).or_default();
        names.push(resource.resource.clone());
        let subresources = WRITTEN_SUBRESOURCES.into_iter();
        names.extend(subresources.map(|s| format!("{}/{s}", resource.resource)));
    }
    let rules = written.into_iter().map(|(group, resources)| {
        json!({"apiGroups": [group], "apiVersions": ["*"], "resources": resources,
            "operations": ["CREATE", "UPDATE", "DELETE"]})
    });
    rules.collect()
}

fn configuration(rules: Vec<Value>, is_exempt: bool) -> Value {
    let mut webhook = json!({
        "name": WEBHOOK,
        "clientConfig": {"url": URL},
        "rules": rules,
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
    });
    if is_exempt {
        let expression = format!(
            "!has(request.options.fieldManager) || request.options.fieldManager != '{FIELD_MANAGER}'"
        );
        webhook["matchConditions"] = json!([{"name": "others", "expression": expression}]);
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION}, "webhooks": [webhook]})
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;

    use super::super::snapshot::test_snapshot;
    use super::*;

    // proves: TKO-empty
    #[tokio::test]
    async fn a_karmada_without_objects_is_frozen_and_thawed() {
        let session = TakeoverSession {
            host: FakeApi::new(),
            namespace: "f".into(),
            timeout: Duration::ZERO,
            run: "1".into(),
        };
        let empty = Snapshot::default();
        assert_eq!(is_refused(&session, &empty).await.unwrap(), None);
        wait_until_thawed(&session, &empty).await.unwrap();
    }

    // proves: TKS-frozen
    #[tokio::test]
    async fn a_freeze_that_an_earlier_run_has_left_concerns_what_moves_now() {
        let session = TakeoverSession {
            host: FakeApi::new(),
            namespace: "f".into(),
            timeout: Duration::ZERO,
            run: "1".into(),
        };
        for group in ["policy.karmada.io", "work.karmada.io"] {
            let snapshot = test_snapshot(group, &[]);
            freeze_resources(&session, &snapshot).await.unwrap();
            let at = ResourcePath::object(&VALIDATING, "", CONFIGURATION);
            let stored = session.host.get(at).await.unwrap().value().unwrap();
            let groups = &stored["webhooks"][0]["rules"][0]["apiGroups"];
            assert_eq!(groups, &json!([group]));
        }
    }

    // proves: TKS-frozen
    #[test]
    fn a_move_freezes_the_resources_that_move_and_no_others() {
        let snapshot = test_snapshot("work.karmada.io", &[]);
        let rules = resource_rules(&snapshot);
        assert_eq!(rules.len(), 1);
        assert_eq!(rules[0]["apiGroups"], json!(["work.karmada.io"]));
        assert_eq!(
            rules[0]["resources"],
            json!(["works", "works/status", "works/scale", "works/finalize"])
        );
        assert_eq!(group_rules(&snapshot)[0]["resources"], json!(["*/*"]));
    }

    #[test]
    fn minor_versions_may_have_a_suffix() {
        for (minor, expected) in [("36", 36), ("20+", 20), ("", 0)] {
            assert_eq!(minor_version(&json!({"minor": minor})), expected, "{minor}");
        }
    }
}
