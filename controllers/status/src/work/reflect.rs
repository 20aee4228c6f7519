//! Computes the manifest statuses of a Work, and the events to record, from the Work and
//! its objects in the member. Pure.

use std::time::Duration;

use interpreter::ResourceInterpreter;
use jiff::{SignedDuration, Timestamp};
use karmada_api::names::cluster_of_execution_space;
use karmada_api::rollout::REVISION;
use karmada_api::well_known_keys::{WORK_NAME, WORK_NAMESPACE};
use karmada_api::work::{ManifestIdentity, ManifestStatus, ResourceIdentifier};
use machinery::{Gvk, Object};
use serde_json::Value;

use crate::partial_work::PartialWork;

/// An event about the Work.
#[derive(Debug, PartialEq)]
pub(crate) struct WorkEventToRecord {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct ReflectResult {
    /// `None`: nothing to write.
    pub(crate) statuses: Option<Vec<ManifestStatus>>,
    pub(crate) events: Vec<WorkEventToRecord>,
    /// An interpreter error that a retry may fix.
    pub(crate) retryable_error: Option<String>,
}

/// The key of the Work that an object in a cluster belongs to; `None` if it has no Work, or
/// one of another cluster.
pub(crate) fn owning_work_key(cluster: &str, object: &Object) -> Option<String> {
    let annotations = object.annotations();
    let (namespace, name) = (
        annotations.get(WORK_NAMESPACE)?,
        annotations.get(WORK_NAME)?,
    );
    let is_own = cluster_of_execution_space(namespace) == Some(cluster) && !name.is_empty();
    is_own.then(|| format!("{namespace}/{name}"))
}

/// The interpreter's results for one object.
pub(crate) struct InterpretedStatus {
    status: Result<Option<Value>, interpreter::Error>,
    /// `None`: the kind has no notion of health.
    healthy: Result<Option<bool>, interpreter::Error>,
}

impl InterpretedStatus {
    fn retryable_error(&self) -> Option<String> {
        let [status, healthy] = [self.status.as_ref().err(), self.healthy.as_ref().err()];
        let mut failed = status.into_iter().chain(healthy);
        failed.find(|e| e.is_retryable()).map(ToString::to_string)
    }
}

/// Interprets each observed object. `observed` and the result have an entry per manifest.
pub(crate) async fn interpret(
    interpreter: &ResourceInterpreter,
    work: &PartialWork,
    observed: &[Option<Object>],
) -> Vec<Option<InterpretedStatus>> {
    let mut readings = Vec::with_capacity(observed.len());
    for (manifest, object) in work.manifests().iter().zip(observed) {
        let kind = manifest.gvk();
        readings.push(match object {
            None => None,
            Some(object) => Some(InterpretedStatus {
                status: interpreter.reflect_status(&kind, object).await,
                healthy: interpreter.interpret_health(&kind, object).await,
            }),
        });
    }
    readings
}

/// Computes the statuses and events. Objects that do not exist keep their last status.
pub(crate) fn reflect_status(
    work: &PartialWork,
    observed: &[Option<Object>],
    readings: Vec<Option<InterpretedStatus>>,
) -> ReflectResult {
    let old = &work.status.manifest_statuses;
    let unanswered = readings
        .iter()
        .flatten()
        .find_map(InterpretedStatus::retryable_error);
    let mut events = Vec::new();
    let mut statuses = Vec::new();
    let observations = observed.iter().zip(readings);
    for ((ordinal, manifest), (object, reading)) in (0..).zip(work.manifests()).zip(observations) {
        let identifier = manifest_identifier(ordinal, &manifest.gvk(), manifest);
        let before = old.iter().find(|s| s.identifier == identifier);
        let now = object.as_ref().zip(reading).and_then(|(object, reading)| {
            manifest_status(identifier, object, reading, before, &mut events)
        });
        statuses.extend(now.or_else(|| before.cloned()));
    }
    ReflectResult {
        statuses: (statuses != *old).then_some(statuses),
        events,
        retryable_error: unanswered,
    }
}

/// How long to delay the first status: an object created within the last second is about
/// to become healthy, and waiting saves one write each of the Work, the binding and the
/// template. `None`: write now.
pub(crate) fn first_status_delay(
    work: &PartialWork,
    outcome: &ReflectResult,
    observed: &[Option<Object>],
    now: Timestamp,
) -> Option<Duration> {
    let first = work.status.manifest_statuses.is_empty();
    let statuses = outcome.statuses.as_deref().unwrap_or_default();
    if !first || statuses.is_empty() || statuses.iter().any(|s| s.health != "Unhealthy") {
        return None;
    }
    let rest = |object: &Object| {
        let age = now.duration_since(object.creation_timestamp()?);
        let second = SignedDuration::from_secs(1);
        (!age.is_negative() && age < second).then(|| (second - age).unsigned_abs())
    };
    observed.iter().flatten().filter_map(rest).max()
}

fn manifest_identifier(
    ordinal: i64,
    kind: &Gvk,
    manifest: &ManifestIdentity,
) -> ResourceIdentifier {
    ResourceIdentifier {
        ordinal,
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        kind: kind.kind.to_string(),
        resource: String::new(),
        namespace: manifest.metadata.namespace.clone(),
        name: manifest.metadata.name.clone(),
    }
}

/// The status of one object; `None` if the interpreter fails.
fn manifest_status(
    identifier: ResourceIdentifier,
    object: &Object,
    reading: InterpretedStatus,
    before: Option<&ManifestStatus>,
    events: &mut Vec<WorkEventToRecord>,
) -> Option<ManifestStatus> {
    let kind = &identifier.kind;
    let name = format!("{kind}/{}/{}", object.namespace(), object.name());
    let status = match reading.status {
        Ok(status) => status,
        Err(error) => {
            events.push(WorkEventToRecord {
                warning: true,
                reason: "ReflectStatusFailed",
                message: format!("Reflect status for object({name}) failed, err: {error}."),
            });
            return None;
        }
    };
    if before.is_none() {
        events.push(WorkEventToRecord {
            warning: false,
            reason: "ReflectStatusSucceed",
            message: format!("Reflect status for object({name}) succeed."),
        });
    }
    let health = interpret_health(reading.healthy, &name, before, events);
    Some(ManifestStatus {
        identifier,
        status,
        health: health.to_owned(),
        revision: object.annotation(REVISION).unwrap_or_default(),
    })
}

/// Records an event if the health is new.
fn interpret_health(
    healthy: Result<Option<bool>, interpreter::Error>,
    name: &str,
    before: Option<&ManifestStatus>,
    events: &mut Vec<WorkEventToRecord>,
) -> &'static str {
    let (health, word) = match healthy {
        // A kind without a notion of health counts as healthy.
        Ok(None) => return "Healthy",
        Ok(Some(true)) => ("Healthy", "healthy"),
        Ok(Some(false)) => ("Unhealthy", "unhealthy"),
        Err(error) => {
            events.push(WorkEventToRecord {
                warning: true,
                reason: "InterpretHealthFailed",
                message: format!("Interpret health of object({name}) failed, err: {error}."),
            });
            return "Unknown";
        }
    };
    if before.is_none_or(|b| b.health != health) {
        events.push(WorkEventToRecord {
            warning: false,
            reason: "InterpretHealthSucceed",
            message: format!("Interpret health of object({name}) as {word}."),
        });
    }
    health
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use serde_json::json;

    fn object(value: Value) -> Object {
        Object::from_value(&value).unwrap()
    }

    fn work(old: Value) -> PartialWork {
        let manifests = json!([
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "n", "name": "web"}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "n", "name": "map"}},
        ]);
        PartialWork::from_object(&object(
            json!({"metadata": {"name": "w"}, "spec": {"workload": {"manifests": manifests}},
                   "status": {"manifestStatuses": old}}),
        ))
        .unwrap()
    }

    fn deployment(available: i64, status: Value) -> Value {
        let mut deployment = json!({"metadata": {"namespace": "n", "name": "web", "generation": 1,
                "annotations": {"resourcetemplate.karmada.io/generation": "3"}},
            "spec": {"replicas": 2},
            "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": available}});
        if !status.is_object() {
            deployment["status"] = status;
        }
        deployment
    }

    fn id(ordinal: i64, group: &str, kind: &str, name: &str) -> Value {
        let mut id = json!({"ordinal": ordinal, "version": "v1", "kind": kind, "resource": "", "namespace": "n", "name": name});
        if !group.is_empty() {
            id["group"] = group.into();
        }
        id
    }

    /// The result under the native rules, which do not wait.
    fn reflect_natively(work: &PartialWork, observed: &[Option<Object>]) -> ReflectResult {
        let interpreter = ResourceInterpreter::default();
        let readings = pin!(interpret(&interpreter, work, observed));
        let Poll::Ready(readings) = readings.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("not decided at once")
        };
        reflect_status(work, observed, readings)
    }

    /// Asserts the written statuses (null: nothing is written) and the reasons of events.
    fn check(old: Value, observed: [Option<Value>; 2], written: Value, reasons: &[&str]) {
        let observed = observed.map(|o| o.map(object));
        let outcome = reflect_natively(&work(old), &observed);
        assert_eq!(json!(outcome.statuses), written);
        let reported: Vec<_> = outcome.events.iter().map(|t| t.reason).collect();
        assert_eq!(reported, reasons);
    }

    // proves: STA-reflect, STA-gone-stays, STA-health-turns, STA-work-event, STA-work-failure-event
    #[test]
    fn statuses_and_verdicts_are_collected_once() {
        let web = |available: i64, health: &str| {
            json!({"identifier": id(0, "apps", "Deployment", "web"), "health": health,
                "status": {"generation": 1, "resourceTemplateGeneration": 3, "observedGeneration": 1,
                           "updatedReplicas": 2, "availableReplicas": available}})
        };
        let map = json!({"identifier": id(1, "", "ConfigMap", "map"), "health": "Healthy"});
        let config = json!({"metadata": {"namespace": "n", "name": "map"}});
        check(json!([]), [None, None], Value::Null, &[]);
        check(
            json!([]),
            [Some(deployment(1, json!({}))), None],
            json!([web(1, "Unhealthy")]),
            &["ReflectStatusSucceed", "InterpretHealthSucceed"],
        );
        check(
            json!([web(1, "Unhealthy")]),
            [Some(deployment(2, json!({}))), Some(config.clone())],
            json!([web(2, "Healthy"), map]),
            &["InterpretHealthSucceed", "ReflectStatusSucceed"],
        );
        check(
            json!([web(2, "Healthy"), map]),
            [Some(deployment(2, json!({}))), Some(config)],
            Value::Null,
            &[],
        );
        // Deleted from the member: the last status stays.
        check(
            json!([web(2, "Healthy"), map]),
            [None, None],
            Value::Null,
            &[],
        );
        // The status of a removed manifest is removed.
        check(
            json!([web(2, "Healthy"), {"identifier": id(1, "", "Secret", "x"), "health": "Healthy"}]),
            [None, None],
            json!([web(2, "Healthy")]),
            &[],
        );
        check(
            json!([web(2, "Healthy")]),
            [Some(deployment(0, json!("broken"))), None],
            Value::Null,
            &["ReflectStatusFailed"],
        );
    }

    // proves: ROL-reported
    #[test]
    fn the_revision_is_that_of_the_observed_object() {
        let config = |revision: &str| {
            let annotations = json!({REVISION: revision});
            json!({"metadata": {"namespace": "n", "name": "map", "annotations": annotations}})
        };
        let status = |revision: &str| json!({"identifier": id(1, "", "ConfigMap", "map"), "health": "Healthy", "revision": revision});
        let observed = [None, Some(config("map-2"))];
        check(
            json!([status("map-1")]),
            observed,
            json!([status("map-2")]),
            &[],
        );
        check(
            json!([status("map-2")]),
            [None, Some(config("map-2"))],
            Value::Null,
            &[],
        );
    }

    #[test]
    fn the_first_status_of_a_new_copy_waits_until_it_is_healthy_or_a_second_old() {
        let wait = |old: Value, available: i64, created: &str, now: &str| {
            let mut copy = deployment(available, json!({}));
            copy["metadata"]["creationTimestamp"] = created.into();
            let observed = [Some(object(copy)), None];
            let facts = work(old);
            let outcome = reflect_natively(&facts, &observed);
            first_status_delay(&facts, &outcome, &observed, now.parse().unwrap())
        };
        let (born, later) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.25Z");
        assert_eq!(
            wait(json!([]), 1, born, later),
            Some(Duration::from_millis(750))
        );
        assert_eq!(wait(json!([]), 2, born, later), None, "healthy");
        assert_eq!(
            wait(json!([]), 1, born, "2026-01-01T00:00:01Z"),
            None,
            "old enough"
        );
        assert_eq!(
            wait(json!([]), 1, later, born),
            None,
            "the member's clock is ahead"
        );
        let statuses =
            json!([{"identifier": id(0, "apps", "Deployment", "web"), "health": "Healthy"}]);
        assert_eq!(wait(statuses, 1, born, later), None, "not the first");
    }

    // proves: STA-health-unknown, STA-work-failure-event
    #[test]
    fn health_that_cannot_be_read_is_unknown() {
        let ingress = json!({"metadata": {"name": "w"}, "spec": {"workload": {"manifests": [
            {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}}]}}});
        let observed = object(json!({"metadata": {"name": "i"}, "status": {"loadBalancer": 3}}));
        let outcome = reflect_natively(
            &PartialWork::from_object(&object(ingress)).unwrap(),
            &[Some(observed)],
        );
        assert_eq!(outcome.statuses.unwrap()[0].health, "Unknown");
        assert_eq!(outcome.events[1].reason, "InterpretHealthFailed");
        assert!(outcome.events[1].warning);
    }

    // proves: STA-routed
    #[test]
    fn objects_name_their_work() {
        let table = [
            (
                json!({WORK_NAMESPACE: "karmada-es-m1", WORK_NAME: "w"}),
                Some("karmada-es-m1/w"),
            ),
            (
                json!({WORK_NAMESPACE: "karmada-es-m2", WORK_NAME: "w"}),
                None,
            ),
            (json!({WORK_NAMESPACE: "karmada-es-m1"}), None),
            (
                json!({WORK_NAMESPACE: "karmada-es-m1", WORK_NAME: ""}),
                None,
            ),
            (json!({WORK_NAMESPACE: "elsewhere", WORK_NAME: "w"}), None),
            (Value::Null, None),
        ];
        for (annotations, work) in table {
            let named = object(json!({"metadata": {"name": "o", "annotations": annotations}}));
            assert_eq!(
                owning_work_key("m1", &named).as_deref(),
                work,
                "{annotations}"
            );
        }
    }
}
