//! Works with their manifests, and what tests read and reject while they are executed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Api, DeleteOptions, Error, ResourcePath};
use karmada_api::resources::WORKS;
use karmada_api::well_known_keys;
use machinery::{Gvr, Status};
use serde_json::{Value, json};

use super::{CONFIG_MAPS, EVENTS, PropagationFixture, applied_status, condition, wait_until};

pub(super) const EXECUTION_NAMESPACE: &str = "karmada-es-m1";

pub(super) fn manifest(kind: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "n",
        "labels": {well_known_keys::MANAGED: "true"},
        "annotations": {well_known_keys::WORK_NAMESPACE: EXECUTION_NAMESPACE, well_known_keys::WORK_NAME: "w",
                        well_known_keys::TEMPLATE_UID: format!("uid-of-{name}")}}})
}

pub(super) fn work(manifests: Value) -> Value {
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "w", "namespace": EXECUTION_NAMESPACE, "generation": 1, "finalizers": [well_known_keys::WORK_FINALIZER]},
        "spec": {"workload": {"manifests": manifests}}})
}

pub(super) fn one_map() -> Value {
    work(json!([manifest("ConfigMap", "c")]))
}

impl PropagationFixture {
    pub(super) fn test_work(&self) -> Option<Value> {
        self.control_plane
            .get_object(&WORKS, EXECUTION_NAMESPACE, "w")
    }

    pub(super) fn work_condition(&self, kind: &str) -> Value {
        condition(&self.test_work().unwrap_or_default(), kind).clone()
    }

    pub(super) async fn wait_until_work_applied(&self) {
        let done = || applied_status(&self.test_work().unwrap_or_default()) == Some("True");
        wait_until("applied", done).await;
    }

    pub(super) async fn wait_until_work_deleted(&self) {
        wait_until("the work to go", || self.test_work().is_none()).await;
    }

    pub(super) async fn delete_work(&self) {
        let options = DeleteOptions::default();
        let at = ResourcePath::object(&WORKS, EXECUTION_NAMESPACE, "w");
        self.control_plane.delete(at, &options).await.unwrap();
    }

    pub(super) fn config_map(&self) -> Option<Value> {
        self.members[0].get_object(&CONFIG_MAPS, "n", "c")
    }

    /// Kind, uid and message of the events with a reason.
    pub(super) fn recorded_events(&self, reason: &str) -> Vec<(String, String, String)> {
        let all = self.control_plane.list_objects(&EVENTS).into_iter();
        let some = all.filter(|event| event["reason"] == reason);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        some.map(|event| {
            let about = &event["involvedObject"];
            (
                text(&about["kind"]),
                text(&about["uid"]),
                text(&event["message"]),
            )
        })
        .collect()
    }

    pub(super) async fn wait_for_events(&self, reason: &str, expected: &[(&str, &str, &str)]) {
        let what = format!("{reason}: {expected:?}");
        let is_recorded = || {
            let events = self.recorded_events(reason);
            let fits = |(kind, uid, message): &(&str, &str, &str)| {
                let mut all = events.iter();
                all.any(|t| t.0 == *kind && t.1 == *uid && t.2 == *message)
            };
            expected.iter().all(fits)
        };
        wait_until(&what, is_recorded).await;
    }
}

/// Rejects calls of a verb on some resources of the first member until the flag is set.
pub(super) fn reject_calls(
    plane: &PropagationFixture,
    verb: &'static str,
    messages: &[(&'static Gvr, &str)],
) -> Arc<AtomicBool> {
    let let_it = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&let_it);
    let messages: HashMap<Gvr, String> = messages
        .iter()
        .map(|(resource, message)| ((*resource).clone(), (*message).to_owned()))
        .collect();
    plane.members[0].on_call(move |call| {
        let message = messages.get(call.resource?)?;
        let is_rejected = call.verb == verb && !open.load(Ordering::SeqCst);
        is_rejected.then(|| Error::from(Status::internal(message)))
    });
    let_it
}
