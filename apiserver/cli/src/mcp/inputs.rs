//! The arguments of the tools. Their schemas are those of these types.

use rmcp::schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct NoInput {}

/// A template, or another object of the control plane.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct ResourceInput {
    /// The object as TYPE/NAME, such as deployment/web.
    pub(super) resource: String,
    /// Its namespace; by default that of the kubeconfig's context.
    #[serde(default)]
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct PlanInput {
    /// PropagationPolicies and ClusterPropagationPolicies in YAML or JSON.
    pub(super) manifest: String,
    /// The namespace of policies without one; by default that of the kubeconfig's context.
    #[serde(default)]
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct ApplyInput {
    /// The policies, exactly as they were planned.
    pub(super) manifest: String,
    /// The namespace as it was planned.
    #[serde(default)]
    pub(super) namespace: Option<String>,
    /// The token of the plan of this content in this session.
    pub(super) token: String,
}

/// Where to look.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars")]
pub(super) enum ScopeInput {
    Karmada,
    Members,
    All,
}

/// How objects are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars")]
pub(super) enum OutputInput {
    #[default]
    Table,
    Wide,
    Json,
    Name,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct GetInput {
    /// A type and names of objects, such as [deployments] or [deployment, web], or TYPE/NAME for each.
    pub(super) resources: Vec<String>,
    /// Members to ask; all registered ones if the scope has members and none is named.
    #[serde(default)]
    pub(super) clusters: Vec<String>,
    /// karmada is the control plane; by default it is asked, or the named members.
    #[serde(default)]
    pub(super) scope: Option<ScopeInput>,
    /// The namespace; by default that of the kubeconfig's context.
    #[serde(default)]
    pub(super) namespace: Option<String>,
    /// List the objects of all namespaces.
    #[serde(default)]
    pub(super) all_namespaces: bool,
    /// A label selector, such as app=web.
    #[serde(default)]
    pub(super) label_selector: String,
    /// A field selector, such as metadata.name=web.
    #[serde(default)]
    pub(super) field_selector: String,
    /// How objects are shown: a table by default.
    #[serde(default)]
    pub(super) output: OutputInput,
}

/// A decision about a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars")]
pub(super) enum RolloutAction {
    Pause,
    Resume,
    Approve,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct RolloutChangeInput {
    /// What to do.
    pub(super) action: RolloutAction,
    /// The template as TYPE/NAME, such as deployment/web.
    pub(super) resource: String,
    /// Its namespace; by default that of the kubeconfig's context.
    #[serde(default)]
    pub(super) namespace: Option<String>,
    /// The stage to approve; by default the one that waits.
    #[serde(default)]
    pub(super) stage: Option<String>,
    /// Without it the change is only shown; the answer has the token that makes it.
    #[serde(default)]
    pub(super) token: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct CordonInput {
    /// The name of the cluster.
    pub(super) cluster: String,
    /// Mark it as schedulable again.
    #[serde(default)]
    pub(super) uncordon: bool,
    /// Without it the change is only shown; the answer has the token that makes it.
    #[serde(default)]
    pub(super) token: Option<String>,
}
