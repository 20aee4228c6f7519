//! Describes and reports the repairs of objects that somebody in a member has changed or deleted.

use client::{Api, ResourcePath};
use controller_context::estimate_encoded_tree_bytes;
use karmada_api::history::DriftRepair;
use karmada_api::work::DRIFT_REPAIRED;
use machinery::Object;
use openapi::Schema;

use crate::compare::desired_object;
use crate::conditions::WorkCondition;
use crate::containment::differences;
use crate::controller::ExecutionController;
use crate::field_managers::FieldManagers;
use crate::manifest::{EncodedManifest, MappedManifest};
use crate::member_update::shown_path;
use crate::metrics::EXECUTION_METRICS;

/// A comparison has a tree of the manifest and one of the observed object.
const COPIES: usize = 2;
/// The most fields that a repair names.
const MAX_NAMED_FIELDS: usize = 5;
/// The longest message of the condition: Kubernetes' limit for messages of conditions.
const MAX_MESSAGE_BYTES: usize = 32 * 1024;

impl ExecutionController {
    /// The fields of an object that its repair changes, and who has changed them, for which the
    /// member is asked; `None` if no field differs.
    pub(crate) async fn find_drift(
        &self,
        api: &dyn Api,
        target: &MappedManifest<'_>,
        overridden_fields: &[String],
        observed: &Object,
    ) -> Option<DriftRepair> {
        let at = ResourcePath::object(&target.mapping.gvr, target.namespace, target.name);
        let current = self.with_call_timeout(api.get(at)).await;
        let current = current.as_ref().unwrap_or(observed);
        let bytes = estimate_encoded_tree_bytes(target.manifest.bytes())
            + estimate_encoded_tree_bytes(&current.bytes());
        let _memory = self.memory.reserve(bytes, COPIES).await;
        let observed = current.value().ok()?;
        let desired = desired_object(target.manifest.tree().ok()?, &observed)?;
        let retained = self.retain(target, desired.tree, overridden_fields, &observed);
        let retained = retained.await.ok()?;
        let schema = self.schema_of(&target.mapping, &retained, &observed).await;
        let root = schema.as_ref().map(Schema::root);
        let paths = differences(&retained, &observed, root, MAX_NAMED_FIELDS);
        let first = paths.first()?;
        let managers = FieldManagers::from_object(current);
        let manager = managers.and_then(|managers| managers.other_manager_of(first));
        Some(DriftRepair {
            object: target.object_key(),
            fields: paths.iter().map(|path| shown_path(path)).collect(),
            manager: manager.unwrap_or_default(),
        })
    }

    /// Counts a repair, and records it on the template. Repairs of the Work are recorded once.
    pub(crate) fn record_repair(
        &self,
        cluster: &str,
        manifest: &EncodedManifest,
        repair: &DriftRepair,
    ) {
        EXECUTION_METRICS.record_drift_repair(&manifest.kind, cluster);
        let text = format!("{} in cluster {cluster}", repair.to_message());
        let about = manifest.template_reference();
        self.recorder.normal(&about, DRIFT_REPAIRED, text);
    }

    /// Records the repairs of a Work on it; returns the condition about them, if there are any.
    pub(crate) fn report_repairs(
        &self,
        work: &Object,
        repairs: &[DriftRepair],
    ) -> Option<WorkCondition> {
        let condition = drift_repaired_condition(repairs)?;
        let text = condition.message.clone();
        self.recorder
            .normal(&Self::work_reference(work), DRIFT_REPAIRED, text);
        Some(condition)
    }
}

/// The repair of an object that somebody has deleted.
pub(crate) fn deletion_repair(target: &MappedManifest<'_>) -> DriftRepair {
    DriftRepair {
        object: target.object_key(),
        ..DriftRepair::default()
    }
}

/// The condition about repairs; `None` if there are none.
fn drift_repaired_condition(repairs: &[DriftRepair]) -> Option<WorkCondition> {
    if repairs.is_empty() {
        return None;
    }
    let messages: Vec<String> = repairs.iter().map(DriftRepair::to_message).collect();
    let mut message = messages.join("; ");
    message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
    Some(WorkCondition {
        kind: DRIFT_REPAIRED,
        status: "True",
        reason: DRIFT_REPAIRED,
        message,
    })
}
