//! The tools that are offered.

use rmcp::model::{Tool, ToolAnnotations};

use super::inputs::{
    ApplyInput, CordonInput, GetInput, NoInput, PlanInput, ResourceInput, RolloutChangeInput,
};

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FleetTool {
    Why,
    Plan,
    Get,
    History,
    Doctor,
    RolloutStatus,
    ApplyPolicies,
    ChangeRollout,
    CordonCluster,
}

impl FleetTool {
    pub(super) const ALL: [Self; 9] = [
        Self::Why,
        Self::Plan,
        Self::Get,
        Self::History,
        Self::Doctor,
        Self::RolloutStatus,
        Self::ApplyPolicies,
        Self::ChangeRollout,
        Self::CordonCluster,
    ];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Why => "why",
            Self::Plan => "plan",
            Self::Get => "get",
            Self::History => "history",
            Self::Doctor => "doctor",
            Self::RolloutStatus => "rollout_status",
            Self::ApplyPolicies => "apply_policies",
            Self::ChangeRollout => "change_rollout",
            Self::CordonCluster => "cordon_cluster",
        }
    }

    /// Whether the tool changes objects.
    pub(super) fn is_write(self) -> bool {
        matches!(
            self,
            Self::ApplyPolicies | Self::ChangeRollout | Self::CordonCluster
        )
    }

    fn description(self) -> &'static str {
        match self {
            Self::Why => {
                "Why a template (a Deployment or another resource that a policy propagates) is in its clusters, or in none: the policy, the scheduler's result for each cluster, overrides, the state of its copies, and what is pending."
            }
            Self::Plan => {
                "Which templates would move between clusters if these policies were applied. Nothing is written. If changes are allowed, the answer has a token for apply_policies."
            }
            Self::Get => {
                "Objects of the control plane and of member clusters, as kubectl get shows them: at most the first 100 of each list. The content of Secrets is not shown."
            }
            Self::History => {
                "Who moved a template between clusters and why, the steps of its rollouts, and what was repaired in its clusters; the newest first."
            }
            Self::Doctor => {
                "Checks the control plane and its member clusters, and says what is wrong and what to do."
            }
            Self::RolloutStatus => {
                "The stages of a staged rollout of a template, with the state of each cluster."
            }
            Self::ApplyPolicies => {
                "Creates or replaces policies exactly as a call of plan has shown it in this session, if they would still do the same. Ask the user before."
            }
            Self::ChangeRollout => {
                "Pauses, resumes or approves a staged rollout. Without a token the change is only shown, and the answer has the token that makes it. Ask the user before you use it."
            }
            Self::CordonCluster => {
                "Marks a member cluster as unschedulable, or as schedulable again: nothing new is placed on an unschedulable one, and what is there stays. Without a token the change is only shown, and the answer has the token that makes it. Ask the user before you use it."
            }
        }
    }

    /// The tool as clients see it.
    pub(super) fn definition(self) -> Tool {
        let tool = Tool::new_with_raw(
            self.name(),
            Some(self.description().into()),
            serde_json::Map::new(),
        );
        let annotations = ToolAnnotations::new()
            .read_only(!self.is_write())
            .destructive(self == Self::ApplyPolicies)
            .open_world(false);
        let tool = tool.with_annotations(annotations);
        match self {
            Self::Why | Self::History | Self::RolloutStatus => {
                tool.with_input_schema::<ResourceInput>()
            }
            Self::Plan => tool.with_input_schema::<PlanInput>(),
            Self::Get => tool.with_input_schema::<GetInput>(),
            Self::Doctor => tool.with_input_schema::<NoInput>(),
            Self::ApplyPolicies => tool.with_input_schema::<ApplyInput>(),
            Self::ChangeRollout => tool.with_input_schema::<RolloutChangeInput>(),
            Self::CordonCluster => tool.with_input_schema::<CordonInput>(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: MCP-tools
    #[test]
    fn every_tool_has_a_closed_schema() {
        for tool in FleetTool::ALL {
            assert_eq!(FleetTool::from_name(tool.name()), Some(tool));
            let definition = tool.definition();
            let schema = definition.schema_as_json_value();
            assert_eq!(schema["type"], "object", "{}", tool.name());
            assert_eq!(schema["additionalProperties"], json!(false), "{schema}");
            let properties = schema["properties"].as_object();
            for (name, property) in properties.into_iter().flatten() {
                let is_described = property["description"].is_string();
                assert!(is_described, "{} {name}", tool.name());
            }
            let hints = definition.annotations.unwrap();
            assert_eq!(hints.read_only_hint, Some(!tool.is_write()));
        }
    }
}
