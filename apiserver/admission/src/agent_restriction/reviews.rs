//! Answers the AdmissionReviews of a host about the writes of agents. Does no I/O.

use machinery::UserInfo;
use serde::Deserialize;
use serde_json::Value;

use super::agent_write::AgentWrite;
use super::check_agent_write;
use crate::attributes::AdmissionOperation;
use crate::unstructured::text;

/// The name of the webhook.
pub const WEBHOOK_NAME: &str = "agentrestriction.flotilla.io";
/// The path of the webhook.
pub const WEBHOOK_PATH: &str = "/validate-agentrestriction";

/// Decides on the `request` of an AdmissionReview; the error is the message of the denial. The Works of
/// the agent are not looked up: which templates it has is not known here.
pub fn review_agent_write(request: &Value) -> Result<(), String> {
    let user = UserInfo::deserialize(&request["userInfo"]).map_err(|e| e.to_string())?;
    let operation = match text(request, "/operation") {
        "CREATE" => AdmissionOperation::Create,
        "UPDATE" => AdmissionOperation::Update,
        "DELETE" => AdmissionOperation::Delete,
        _ => AdmissionOperation::Connect,
    };
    let write = AgentWrite {
        group: text(request, "/kind/group"),
        kind: text(request, "/kind/kind"),
        subresource: text(request, "/subResource"),
        operation,
        namespace: text(request, "/namespace"),
        name: text(request, "/name"),
        new: &request["object"],
        old: &request["oldObject"],
    };
    check_agent_write(&user, &write).map(drop)
}
