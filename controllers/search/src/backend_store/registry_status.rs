//! Reports in the condition `BackendStoreReady` whether the objects of a ResourceRegistry are sent
//! to its backend store.

use client::Api;
use flotilla_runtime::StatusWriter;
use karmada_api::resources::RESOURCE_REGISTRIES;
use machinery::Object;
use machinery::conditions::set_json_condition;
use machinery::time::{Clock, rfc3339_seconds};
use serde_json::{Value, json};

use super::health::{Availability, BackendStoreHealth, Failure};

/// The condition of registries with a backend store.
const BACKEND_STORE_READY: &str = "BackendStoreReady";

/// The reported state of a registry's backend store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackendStoreReport {
    /// The registry names none.
    None,
    Ready {
        reason: &'static str,
        message: String,
    },
    NotReady(Failure),
}

impl BackendStoreReport {
    /// The report of a running store; `None` while nothing is known.
    pub(crate) fn of(health: &BackendStoreHealth) -> Option<Self> {
        match &health.availability {
            Availability::Unknown => return None,
            Availability::Unavailable(failure) => return Some(Self::NotReady(failure.clone())),
            Availability::Available => {}
        }
        if let Some((resource, failure)) = health.sync_failures.first_key_value() {
            return Some(Self::NotReady(Failure {
                reason: failure.reason,
                message: format!("{resource}: {}", failure.message),
            }));
        }
        Some(match &health.rejected {
            None => Self::Ready {
                reason: "Connected",
                message: "The objects are sent to OpenSearch".to_owned(),
            },
            Some(rejected) => Self::Ready {
                reason: "ObjectsRejected",
                message: format!("OpenSearch refuses objects: {rejected}"),
            },
        })
    }

    fn condition(&self, now: &str) -> Option<Value> {
        let (status, reason, message) = match self {
            Self::None => return None,
            Self::Ready { reason, message } => ("True", reason, message),
            Self::NotReady(failure) => ("False", &failure.reason, &failure.message),
        };
        Some(
            json!({"type": BACKEND_STORE_READY, "status": status, "reason": reason,
            "message": message, "lastTransitionTime": now}),
        )
    }
}

/// The conditions that a registry should have; `None` if it has them.
fn desired_conditions(registry: &Object, report: &BackendStoreReport, now: &str) -> Option<Value> {
    let mut conditions = registry.value().ok()?["status"]["conditions"].take();
    let changed = match report.condition(now) {
        Some(condition) => set_json_condition(&mut conditions, condition),
        None => remove_condition(&mut conditions),
    };
    changed.then_some(conditions)
}

fn remove_condition(conditions: &mut Value) -> bool {
    let Some(all) = conditions.as_array_mut() else {
        return false;
    };
    let before = all.len();
    all.retain(|condition| condition["type"] != BACKEND_STORE_READY);
    all.len() != before
}

/// Writes the conditions of a registry if they differ. If somebody else has written it, its next
/// event leads here again.
pub(crate) async fn report(
    api: &dyn Api,
    clock: &dyn Clock,
    registry: &Object,
    report: &BackendStoreReport,
) {
    let now = rfc3339_seconds(clock.now());
    let conditions = desired_conditions(registry, report, &now);
    let status = conditions.map(|conditions| json!({"conditions": conditions}));
    let writer = StatusWriter::new(api, "backend-store");
    if let Err(error) = writer.patch(&RESOURCE_REGISTRIES, registry, status).await {
        tracing::debug!(registry = registry.name(), %error, "status is not written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(reason: &'static str) -> Failure {
        Failure {
            reason,
            message: "why".to_owned(),
        }
    }

    // proves: SRC-backend-condition
    #[test]
    fn registries_have_the_condition_of_their_store() {
        let mut health = BackendStoreHealth::default();
        assert_eq!(BackendStoreReport::of(&health), None);
        health.rejected = Some("m1: Pod a/b (x)".to_owned());
        health.availability = Availability::Available;
        let mut registry = json!({"metadata": {"name": "r", "resourceVersion": "1"}});
        let mut update = |report: &BackendStoreReport| {
            let object = Object::from_value(&registry).unwrap();
            let conditions = desired_conditions(&object, report, "2026-01-01T00:00:00Z")?;
            registry["status"]["conditions"] = conditions.clone();
            Some(conditions)
        };
        let rejected = BackendStoreReport::of(&health).unwrap();
        let conditions = update(&rejected).unwrap();
        assert_eq!(conditions[0]["status"], "True");
        assert_eq!(conditions[0]["reason"], "ObjectsRejected");
        assert_eq!(update(&rejected), None);
        health
            .sync_failures
            .insert("m2: Pod".to_owned(), failure("Forbidden"));
        let conditions = update(&BackendStoreReport::of(&health).unwrap()).unwrap();
        assert_eq!(conditions[0]["status"], "False");
        assert_eq!(conditions[0]["message"], "m2: Pod: why");
        health.availability = Availability::Unavailable(failure("Unreachable"));
        let conditions = update(&BackendStoreReport::of(&health).unwrap()).unwrap();
        assert_eq!(conditions[0]["reason"], "Unreachable");
        assert_eq!(update(&BackendStoreReport::None), Some(json!([])));
        assert_eq!(update(&BackendStoreReport::None), None);
    }
}
