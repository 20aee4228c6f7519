//! The tools that read: each answers what its command prints.

use anyhow::bail;
use clap::Args;
use client::TaskGroup;
use client::remote::RemoteApi;

use super::inputs::{GetInput, NoInput, OutputInput, PlanInput, ResourceInput, ScopeInput};
use super::redaction::redact_object;
use super::result_text::{has_hidden, is_shown_whole};
use super::server::{FleetServer, ToolAnswer};
use crate::doctor::{self, DoctorArgs};
use crate::get::{self, GetArgs, PrintedObjects};
use crate::history::{self, HistoryArgs, HistoryDescription};
use crate::manifest_files::parse_documents;
use crate::plan::{
    self, AbsentMetadata, DefaultPolicyNamespace, PlanSettings, PlannedDocuments, PlannedPolicies,
};
use crate::rollout;
use crate::why::{self, WhyArgs};

/// The most objects of a list that are shown.
const MAX_LISTED: u64 = 100;

impl FleetServer {
    /// The arguments of a command that describes a resource with all columns.
    fn wide_arguments<A: Args>(&self, input: ResourceInput) -> anyhow::Result<A> {
        let mut flags = flag("--namespace", input.namespace.as_deref());
        flags.push("--output=wide".to_owned());
        self.arguments.command_arguments(flags, &[input.resource])
    }

    pub(super) async fn why(
        &self,
        input: ResourceInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ToolAnswer> {
        let arguments: WhyArgs = self.wide_arguments(input)?;
        Ok(why::explain(&arguments, tasks).await?.into())
    }

    pub(super) async fn history(
        &self,
        input: ResourceInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ToolAnswer> {
        let arguments: HistoryArgs = self.wide_arguments(input)?;
        Ok(match history::describe(&arguments, tasks).await? {
            HistoryDescription::Entries(text) | HistoryDescription::NotMoved(text) => text.into(),
        })
    }

    pub(super) async fn rollout_status(
        &self,
        input: ResourceInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ToolAnswer> {
        let rollout = self.read_rollout(input, tasks).await?;
        Ok(rollout.status_text()?.into())
    }

    /// The staged rollout of a template.
    pub(super) async fn read_rollout(
        &self,
        input: ResourceInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<rollout::TemplateRollout> {
        let flags = flag("--namespace", input.namespace.as_deref());
        let arguments: rollout::TemplateArgs =
            self.arguments.command_arguments(flags, &[input.resource])?;
        rollout::TemplateRollout::read(&arguments, tasks).await
    }

    pub(super) async fn doctor(
        &self,
        NoInput {}: NoInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ToolAnswer> {
        let arguments: DoctorArgs = self.arguments.command_arguments(Vec::new(), &[])?;
        let api = RemoteApi::new(arguments.control.load_config()?, tasks)?;
        let report = Box::pin(doctor::examine(&api, arguments.timeout)).await;
        Ok(report.lines(true).into())
    }

    pub(super) async fn get(
        &self,
        input: GetInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ToolAnswer> {
        let mut flags = flag("--namespace", input.namespace.as_deref());
        flags.extend(flag("--labels", non_empty(&input.label_selector)));
        flags.extend(flag("--field-selector", non_empty(&input.field_selector)));
        if input.all_namespaces {
            flags.push("--all-namespaces".to_owned());
        }
        if !input.clusters.is_empty() {
            flags.push(format!("--clusters={}", input.clusters.join(",")));
        }
        let scope = input.scope.map(|scope| match scope {
            ScopeInput::Karmada => "karmada",
            ScopeInput::Members => "members",
            ScopeInput::All => "all",
        });
        flags.extend(flag("--operation-scope", scope));
        flags.extend(flag(
            "--output",
            match input.output {
                OutputInput::Table => None,
                OutputInput::Wide => Some("wide"),
                OutputInput::Json => Some("json"),
                OutputInput::Name => Some("name"),
            },
        ));
        let arguments: GetArgs = self.arguments.command_arguments(flags, &input.resources)?;
        let objects = get::read_first_page(&arguments, MAX_LISTED, redact_object, tasks).await?;
        Ok(described(objects)?.into())
    }

    pub(super) async fn plan(
        &self,
        input: PlanInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ToolAnswer> {
        let planned = self.plan_policies(&input, tasks).await?;
        let content = planned.content()?;
        let mut data = planned.report.lines(true);
        // Only a plan that is shown whole is carried out.
        let mut is_offered =
            self.arguments.allow_writes && planned.is_applicable() && is_shown_whole(&data);
        if is_offered && has_hidden(&content) {
            is_offered = false;
            data.push_str("\nNOTE: there is no token, since the policies, or what they replace, have characters that are not seen");
        }
        Ok(ToolAnswer {
            token: is_offered.then(|| self.plans.show(&content)),
            data,
        })
    }

    /// The effect that policies would have now.
    pub(super) async fn plan_policies(
        &self,
        input: &PlanInput,
        tasks: &TaskGroup,
    ) -> anyhow::Result<PlannedPolicies> {
        let mut documents = PlannedDocuments::default();
        documents.add(parse_documents(&input.manifest)?)?;
        let (api, namespace) = self.arguments.control.connect_with_namespace(tasks)?;
        let settings = PlanSettings {
            namespace: DefaultPolicyNamespace {
                flag: input.namespace.as_deref(),
                default: &namespace,
            },
            absent_metadata: AbsentMetadata::Stays,
            scheduling: &self.scheduling,
            gates: self.arguments.gates.feature_gates,
        };
        Box::pin(plan::plan_documents(api, documents, settings)).await
    }
}

/// The words of a flag, if it has a value.
fn flag(name: &str, value: Option<&str>) -> Vec<String> {
    let word = value.map(|value| format!("{name}={value}"));
    word.into_iter().collect()
}

fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// The answers of servers, with what is not there; an error if none has answered.
fn described(objects: PrintedObjects) -> anyhow::Result<String> {
    if objects.text.is_empty() && !objects.failures.is_empty() {
        bail!("{}", objects.failures.join("\n"));
    }
    let mut lines = vec![objects.text.trim_end().to_owned()];
    lines.extend(objects.warnings);
    lines.extend(objects.failures.into_iter().map(|f| format!("error: {f}")));
    if objects.has_more {
        lines.push(format!(
            "only the first {MAX_LISTED} objects of a list are shown"
        ));
    }
    Ok(lines.join("\n"))
}
