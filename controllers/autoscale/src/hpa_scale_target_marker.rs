//! Labels the scale targets of propagated HorizontalPodAutoscalers, so that members keep the replicas
//! that their autoscalers set.
//!
//! Source: Karmada's `pkg/controllers/hpascaletargetmarker`. A target keeps its label as long as any
//! propagated autoscaler targets it; Karmada removes it with the first autoscaler that is deleted.

use std::sync::Arc;

use client::{Api, Error, Informer, Patch, ResourcePath, Result, WriteOptions};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use karmada_api::cron_federated_hpa::ScaleTargetReference;
use karmada_api::well_known_keys::{CLUSTER_POLICY_ID, POLICY_ID, RETAIN_REPLICAS};
use machinery::Object;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::AUTOSCALERS;
use crate::scale_target::resolve_resource;

/// The value of the label, as in Karmada.
const RETAIN_REPLICAS_VALUE: &str = "true";
const WORKERS: usize = 1;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HpaWithScaleTargetRef {
    spec: HpaSpecScaleTargetRef,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HpaSpecScaleTargetRef {
    scale_target_ref: ScaleTargetReference,
}

/// A scale target: the namespace, and the reference of the autoscaler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ScaleTarget {
    namespace: String,
    reference: ScaleTargetReference,
}

fn scale_target(autoscaler: &Object) -> Option<ScaleTarget> {
    let autoscaler_view = autoscaler.decode::<HpaWithScaleTargetRef>().ok()?;
    let reference = autoscaler_view.spec.scale_target_ref.clone();
    let namespace = autoscaler.namespace().to_owned();
    (!reference.name.is_empty()).then_some(ScaleTarget {
        namespace,
        reference,
    })
}

fn is_propagated(autoscaler: &Object) -> bool {
    let has = |key| autoscaler.meta().label(key).is_some();
    has(POLICY_ID) || has(CLUSTER_POLICY_ID)
}

/// The targets to reconcile after a change: one that is no longer targeted, and that of a propagated
/// autoscaler.
fn affected_targets(old: Option<&Object>, new: Option<&Object>) -> Vec<ScaleTarget> {
    let (before, after) = (old.and_then(scale_target), new.and_then(scale_target));
    let former = before.filter(|before| Some(before) != after.as_ref());
    let current = after.filter(|_| new.is_some_and(is_propagated));
    former.into_iter().chain(current).collect()
}

/// The merge patch that sets or removes the label; `None` when nothing has to change.
fn label_patch(object: &Object, marked: bool) -> Option<Value> {
    let label = match (marked, object.meta().label(RETAIN_REPLICAS)) {
        (true, Some(RETAIN_REPLICAS_VALUE)) | (false, None) => return None,
        (true, _) => RETAIN_REPLICAS_VALUE.into(),
        (false, Some(_)) => Value::Null,
    };
    Some(json!({"metadata": {"labels": {RETAIN_REPLICAS: label}}}))
}

/// The controller hpaScaleTargetMarker.
pub(crate) struct HpaScaleTargetMarker {
    api: Arc<dyn Api>,
    autoscalers: Informer,
}

impl HpaScaleTargetMarker {
    pub(crate) async fn start(context: &ControllerContext) {
        let marker = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            autoscalers: context.informer(&AUTOSCALERS),
        });
        marker.autoscalers.wait_for_cache_sync().await;
        let queue = Workqueue::new();
        let changed = queue.clone();
        marker.autoscalers.add_event_handler(move |change| {
            for target in affected_targets(change.old, change.new) {
                changed.add_event(target, change);
            }
        });
        run_workers(
            &context.tasks,
            "hpa-scale-target-marker",
            &queue,
            WORKERS,
            move |target| {
                let marker = Arc::clone(&marker);
                async move { marker.reconcile(&target).await }
            },
        );
    }

    async fn reconcile(&self, scaled: &ScaleTarget) -> Result<ReconcileAction> {
        let Some(resource) = resolve_resource(&*self.api, &scaled.reference).await? else {
            let ScaleTargetReference {
                api_version, kind, ..
            } = &scaled.reference;
            return Err(Error::Protocol(format!(
                "unable to recognize scale ref resource, {}: no kind {kind} in {api_version}",
                scaled.namespace
            )));
        };
        let at = ResourcePath::object(&resource, &scaled.namespace, &scaled.reference.name);
        let object = match self.api.get(at).await {
            Err(e) if e.is_not_found() => return Ok(ReconcileAction::Done),
            other => other?,
        };
        let targets_it = |a: &Object| is_propagated(a) && scale_target(a).as_ref() == Some(scaled);
        let marked = !self.autoscalers.list_where(targets_it).is_empty();
        if let Some(patch) = label_patch(&object, marked) {
            let options = WriteOptions::default();
            match self.api.patch(at, Patch::Merge(patch), &options).await {
                Err(e) if e.is_not_found() => {}
                other => drop(other?),
            }
        }
        Ok(ReconcileAction::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn autoscaler(propagated: bool, target: &str) -> Object {
        let mut value = json!({"metadata": {"name": "h", "namespace": "n"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}}});
        if propagated {
            value["metadata"]["labels"] = json!({POLICY_ID: "x"});
        }
        Object::from_value(&value).unwrap()
    }

    // proves: AUT-propagated
    #[test]
    fn changes_affect_former_and_current_targets() {
        let (own, other, moved) = (
            autoscaler(true, "a"),
            autoscaler(false, "a"),
            autoscaler(true, "b"),
        );
        let mut value = other.value().unwrap();
        value["metadata"]["labels"] = json!({CLUSTER_POLICY_ID: "x"});
        let of_cluster = Object::from_value(&value).unwrap();
        for (old, new, expected) in [
            (None, Some(&own), vec!["a"]),
            (None, Some(&of_cluster), vec!["a"]),
            (None, Some(&other), vec![]),
            (Some(&own), Some(&own), vec!["a"]),
            (Some(&own), Some(&other), vec![]),
            (Some(&own), Some(&moved), vec!["a", "b"]),
            (Some(&moved), Some(&other), vec!["b"]),
            (Some(&own), None, vec!["a"]),
            (Some(&other), None, vec!["a"]),
        ] {
            let targets = affected_targets(old, new);
            let names: Vec<&str> = targets.iter().map(|t| &*t.reference.name).collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn label_is_patched_only_when_wrong() {
        for (label, marked, expected) in [
            (None, true, Some(json!("true"))),
            (Some("false"), true, Some(json!("true"))),
            (Some("true"), true, None),
            (Some("true"), false, Some(Value::Null)),
            (Some("no"), false, Some(Value::Null)),
            (None, false, None),
        ] {
            let mut value = json!({"metadata": {"name": "d"}});
            if let Some(label) = label {
                value["metadata"]["labels"] = json!({RETAIN_REPLICAS: label});
            }
            let object = Object::from_value(&value).unwrap();
            let written = label_patch(&object, marked);
            let written = written.map(|p| p["metadata"]["labels"][RETAIN_REPLICAS].clone());
            assert_eq!(written, expected, "{label:?} {marked}");
        }
    }
}
