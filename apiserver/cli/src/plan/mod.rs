//! The command `flotilla plan`, which shows the templates that policies would move, and how changed
//! templates would go through their clusters.
//!
//! files ──[`policies`]──► policies ──[`inputs`]──► [`inputs::PlanInputs`] ──[`report`]──► [`report::PlanReport`] ──► lines
//!       ├──► templates ──[`templates`]──► [`template_report::TemplateChangeReport`] ──► lines
//!       └──► RolloutPolicies ──[`rollout_policies`]──► templates that they stage ──[`templates`]──► lines

mod inputs;
mod policies;
pub mod report;
mod rollout_policies;
mod template_report;
mod templates;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use client::{Api, ApiResource, ShutdownToken, TaskGroup};
use karmada_api::FeatureGates;
use machinery::Object;
use serde_json::{Value, json};

use crate::field_differences::document_differences;
use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::printers::{self, OutputFormat};
use crate::scheduler_flags::SchedulerFlagValues;
use crate::{feature_gate_flags, output, scheduler_flags};
pub(crate) use inputs::AbsentMetadata;
use inputs::ChangedObject;
pub(crate) use policies::{DefaultPolicyNamespace, PlannedDocuments};
pub use policies::{manifest_of_kind, parse_policy, policy_document, policy_kind, policy_manifest};
use report::{PlanReport, TemplatePlacementReport};
use rollout_policies::RolloutPolicyChanges;
use template_report::TemplateChangeReport;

/// The exit code when a template would move.
const EXIT_MOVES: u8 = 1;
/// The exit code of failures and usage errors.
const EXIT_FAILED: u8 = 2;

/// Show which templates would move if policies were applied, and which clusters would get a changed
/// template first. Nothing is persisted.
///
/// Of a template, the fields that would change in its clusters are shown, and with a
/// RolloutPolicy the stage that would begin; its placement and replicas are not planned. Of a changed
/// RolloutPolicy, this is shown for the templates whose changes it stages.
///
/// Policies and templates are sent to the server as a dry run, which validates and defaults them,
/// so the permission to create and update them is needed. The placement of templates is
/// computed by this command with the functions of the controllers; the flags for
/// scheduling and feature gates must be those of the server. Replicas that one template
/// of a plan takes are no longer available for the next.
#[derive(Args)]
#[command(
    after_help = "Exit codes, as of kubectl diff:\n  0   no template would move or change\n  1   some templates would move or change\n  >1  the command failed\n\nExamples:\n  flotilla plan -f policy.yaml\n  flotilla plan -f policies.yaml -n shop -o json\n  flotilla plan -f deployment.yaml\n  flotilla plan -f rolloutpolicy.yaml"
)]
pub struct PlanArgs {
    /// Policies and templates in YAML or JSON; - is standard input; may be repeated.
    #[arg(short, long, required = true, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// The namespace of policies and templates without one; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    /// Output format; text by default.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
    #[command(flatten)]
    scheduling: scheduler_flags::SchedulerArgs,
    #[command(flatten)]
    gates: feature_gate_flags::FeatureGateArgs,
}

/// Runs the command. Failures are printed here and have their own exit code.
pub async fn run(arguments: PlanArgs) -> ExitCode {
    match Box::pin(plan(&arguments)).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(EXIT_MOVES),
        Err(error) => {
            output::print_error(&error);
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// Prints the plan, and returns the number of templates that would move.
async fn plan(arguments: &PlanArgs) -> anyhow::Result<usize> {
    let gates = arguments.gates.feature_gates;
    let scheduling = arguments.scheduling.options(gates)?;
    let documents = policies::read_documents(&arguments.filename)?;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let (api, namespace) = arguments.control.connect_with_namespace(&tasks)?;
    let settings = PlanSettings {
        namespace: DefaultPolicyNamespace {
            flag: arguments.namespace.as_deref(),
            default: &namespace,
        },
        absent_metadata: AbsentMetadata::Stays,
        scheduling: &scheduling,
        gates,
    };
    let planned = Box::pin(plan_documents(api, documents, settings)).await;
    tasks.stop().await;
    let plan = planned?.report;
    let wide = arguments.output == Some(OutputFormat::Wide);
    let structured = printers::encode_output(arguments.output, &plan)?;
    output::print_line(structured.unwrap_or_else(|| plan.lines(wide)));
    Ok(plan.moving + plan.changes.iter().filter(|change| change.changes).count())
}

/// How policies are planned.
#[derive(Clone, Copy)]
pub(crate) struct PlanSettings<'a> {
    pub(crate) namespace: DefaultPolicyNamespace<'a>,
    pub(crate) absent_metadata: AbsentMetadata,
    pub(crate) scheduling: &'a SchedulerFlagValues,
    pub(crate) gates: FeatureGates,
}

/// Policies with what they would do.
pub struct PlannedPolicies {
    api: Arc<dyn Api>,
    /// The policies with their namespaces.
    policies: Vec<Value>,
    has_rollout_policies: bool,
    absent_metadata: AbsentMetadata,
    /// Each with the policy that it replaces.
    changes: Vec<ChangedObject>,
    pub report: PlanReport,
}

/// Plans policies in the order in which they would be applied, and then templates.
pub(crate) async fn plan_documents(
    api: Arc<dyn Api>,
    documents: PlannedDocuments,
    settings: PlanSettings<'_>,
) -> anyhow::Result<PlannedPolicies> {
    let PlannedDocuments {
        mut policies,
        rollout_policies,
        templates,
    } = documents;
    for policy in &mut policies {
        settings.namespace.set_namespace(policy)?;
    }
    let mut report = PlanReport::default();
    let mut changes = Vec::new();
    if !policies.is_empty() {
        let inputs = inputs::collect_inputs(
            &*api,
            policies.clone(),
            settings.absent_metadata,
            settings.gates,
        );
        let inputs = Box::pin(inputs).await?;
        report = report::plan_report(&inputs, settings.scheduling, settings.gates);
        changes = inputs.changes;
    }
    let has_rollout_policies = !rollout_policies.is_empty();
    let stagings = RolloutPolicyChanges::read(&*api, rollout_policies, settings.namespace).await?;
    let planned = templates::plan_templates(&*api, templates, &stagings, settings.namespace);
    report.changes = Box::pin(planned).await?;
    report.stages_nothing = has_rollout_policies && report.changes.is_empty();
    Ok(PlannedPolicies {
        api,
        has_rollout_policies,
        absent_metadata: settings.absent_metadata,
        policies,
        changes,
        report,
    })
}

impl PlannedPolicies {
    /// All that is planned, what it replaces, and all that it would do.
    pub fn content(&self) -> anyhow::Result<String> {
        let replaced: anyhow::Result<Vec<Value>> = self.changes.iter().map(policy_before).collect();
        Ok(json!([self.policies, replaced?, self.report.lines(true)]).to_string())
    }

    /// Whether [`Self::apply`] would apply all that is planned: neither templates nor RolloutPolicies
    /// are.
    pub(crate) fn is_applicable(&self) -> bool {
        self.report.changes.is_empty() && !self.has_rollout_policies
    }

    /// The fields, labels and annotations of policies that change, each as `path: old -> new`.
    pub fn differences(&self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        for change in &self.changes {
            let after = policy_document(&change.after)?;
            let differences = document_differences(&policy_before(change)?, &after);
            lines.extend(differences.iter().map(ToString::to_string));
        }
        Ok(lines)
    }

    /// Whether a policy is new.
    pub fn has_new(&self) -> bool {
        self.changes.iter().any(|change| change.before.is_none())
    }

    /// Applies the policies over those that the plan has read; returns a line about each. It is a
    /// conflict if somebody else has written one since.
    pub async fn apply(&self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        for (policy, change) in self.policies.iter().zip(&self.changes) {
            let before = change.before.as_ref();
            let after =
                inputs::write_policy(&*self.api, policy.clone(), before, self.absent_metadata)
                    .await?;
            let outcome = match before {
                Some(_) => "configured",
                None => "created",
            };
            let kind = policy["kind"].as_str().unwrap_or_default().to_lowercase();
            lines.push(format!("{kind}/{} {outcome}", after.meta().key()));
        }
        Ok(lines)
    }
}

/// The policy that is replaced; null if there is none.
fn policy_before(change: &ChangedObject) -> anyhow::Result<Value> {
    let before = change.before.as_ref().map(policy_document).transpose()?;
    Ok(before.unwrap_or_default())
}

/// Plans one whole policy, which names its namespace, with Karmada's defaults of the flags for scheduling
/// and of feature gates.
pub async fn plan_policy(api: Arc<dyn Api>, policy: Value) -> anyhow::Result<PlannedPolicies> {
    let documents = PlannedDocuments {
        policies: vec![policy],
        ..PlannedDocuments::default()
    };
    let settings = PlanSettings {
        namespace: DefaultPolicyNamespace {
            flag: None,
            default: "",
        },
        absent_metadata: AbsentMetadata::IsRemoved,
        scheduling: &SchedulerFlagValues::default(),
        gates: FeatureGates::default(),
    };
    plan_documents(api, documents, settings).await
}

/// Where a changed template would go under the policies as they are, with Karmada's defaults of the
/// flags for scheduling and of feature gates.
pub async fn plan_placement(
    api: &dyn Api,
    kind: &ApiResource,
    template: Object,
) -> anyhow::Result<Option<TemplatePlacementReport>> {
    let gates = FeatureGates::default();
    let inputs = Box::pin(inputs::collect_template_inputs(api, kind, template, gates)).await?;
    let plan = report::plan_report(&inputs, &SchedulerFlagValues::default(), gates);
    Ok(plan.templates.into_iter().next())
}

/// How a changed template would go through its clusters, as lines of text.
pub async fn plan_template(api: &dyn Api, template: Value) -> anyhow::Result<Vec<String>> {
    let namespace = DefaultPolicyNamespace {
        flag: None,
        default: "",
    };
    let stagings = RolloutPolicyChanges::default();
    let planned = templates::plan_templates(api, vec![template], &stagings, namespace);
    let reports = Box::pin(planned).await?;
    let lines = reports.iter().flat_map(TemplateChangeReport::lines);
    Ok(lines.collect())
}

/// The templates that would move if the controllers of this version ran on the server with
/// these flags, without a change of policies: they read what another version has decided.
pub(crate) async fn moving_templates(
    api: &dyn Api,
    scheduling: &SchedulerFlagValues,
    gates: FeatureGates,
) -> anyhow::Result<Vec<String>> {
    let inputs = Box::pin(inputs::collect_present_inputs(api, gates)).await?;
    let plan = report::plan_report(&inputs, scheduling, gates);
    Ok(plan.moving_templates().collect())
}
