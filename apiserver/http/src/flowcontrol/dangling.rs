//! Says in the status of each FlowSchema whether the PriorityLevelConfiguration exists that it
//! refers to: the condition `Dangling` (`presyncFlowSchemaStatus` of `apf_controller.go`).

use std::time::Duration;

use client::{Api, Patch, ResourcePath, WriteOptions};
use machinery::Gvr;
use machinery::time::rfc3339_seconds;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::flow_schema::{FlowSchema, FlowSchemaCondition};

static FLOW_SCHEMAS: Gvr = Gvr::from_static("flowcontrol.apiserver.k8s.io", "v1", "flowschemas");
const FIELD_MANAGER: &str = "api-priority-and-fairness-config-consumer-v1";
const DANGLING: &str = "Dangling";
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// A condition to write.
pub(super) struct DueCondition {
    schema: String,
    condition: FlowSchemaCondition,
}

/// The condition to write for a schema, unless its status has it.
pub(super) fn due_condition(schema: &FlowSchema, level_exists: bool) -> Option<DueCondition> {
    let level = &schema.spec.priority_level_configuration.name;
    let (status, reason, end) = match level_exists {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let condition = FlowSchemaCondition {
        kind: DANGLING.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}"
        ),
    };
    let is_written = schema.status.conditions.contains(&condition);
    (!is_written).then(|| DueCondition {
        schema: schema.metadata.name.clone(),
        condition,
    })
}

/// Writes the conditions that are due after each change; never completes.
pub(super) async fn write_conditions(
    api: &dyn Api,
    changed: &Notify,
    due_conditions: impl Fn() -> Vec<DueCondition>,
) {
    loop {
        let mut failed = false;
        for condition in due_conditions() {
            if let Err(error) = write_condition(api, &condition).await
                && !error.is_not_found()
            {
                failed = true;
                let name = condition.schema;
                tracing::debug!(name, %error, "cannot write the status of a FlowSchema");
            }
        }
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep(RETRY_DELAY), if failed => {}
        }
    }
}

async fn write_condition(api: &dyn Api, due_condition: &DueCondition) -> client::Result<()> {
    let path = ResourcePath::object(&FLOW_SCHEMAS, "", &due_condition.schema).subresource("status");
    let options = WriteOptions {
        field_manager: FIELD_MANAGER.to_owned(),
        ..WriteOptions::default()
    };
    let patch = Patch::Strategic(status_patch(&due_condition.condition));
    api.patch(path, patch, &options).await.map(drop)
}

fn status_patch(condition: &FlowSchemaCondition) -> Value {
    json!({"status": {"conditions": [{
        "type": condition.kind, "status": condition.status, "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": rfc3339_seconds(jiff::Timestamp::now())}]}})
}
