//! The result of the command.

use aggregation::{MovedResource, TakeoverPhase};
use serde::Serialize;

/// The lines that are listed of many.
const MAX_LINES: usize = 20;

/// The first of many lines, and how many others there are.
pub(super) fn first_lines(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// A controller of Karmada, by its lease.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ComponentState {
    pub(super) name: String,
    /// Who holds the lease; empty if it is released or has expired.
    pub(super) holder: String,
}

/// The result of a preflight, a takeover or a return.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TakeoverSummary {
    pub(super) phase: TakeoverPhase,
    /// The version of the host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) host_version: String,
    pub(super) resources: Vec<MovedResource>,
    /// The controllers that must have stopped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) components: Vec<ComponentState>,
    /// The APIServices that lead elsewhere afterwards.
    pub(super) api_services: Vec<String>,
    /// The webhooks that are taken out, as configuration/webhook.
    pub(super) webhooks: Vec<String>,
    /// Next steps, and facts to know.
    pub(super) notes: Vec<String>,
    /// Objects that are refused or not as they should be.
    pub(super) errors: Vec<String>,
}

impl TakeoverSummary {
    pub(super) fn lines(&self) -> String {
        let mut lines = vec![format!("phase: {}", self.phase)];
        if !self.host_version.is_empty() {
            lines.push(format!("host: {}", self.host_version));
        }
        for component in &self.components {
            lines.push(match component.holder.as_str() {
                "" => format!("component: {} has stopped", component.name),
                holder => format!(
                    "component: {} runs ({holder}); scale its Deployment to 0, or name it with \
                     --scale-down",
                    component.name
                ),
            });
        }
        for resource in self.resources.iter().filter(|r| r.objects > 0) {
            lines.push(format!("objects: {} {}", resource.objects, resource.gvr()));
        }
        lines.extend(self.api_services.iter().map(|n| format!("APIService: {n}")));
        lines.extend(self.webhooks.iter().map(|n| format!("webhook: {n}")));
        lines.extend(self.notes.iter().map(|n| format!("note: {n}")));
        lines.extend(self.errors.iter().map(|n| format!("error: {n}")));
        lines.join("\n")
    }
}
