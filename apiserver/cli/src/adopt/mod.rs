//! The command `flotilla adopt`, which takes what already runs in a member under policies, in bulk:
//! objects become templates, and Works adopt them where they are.
//!
//! member ──[`candidates`]──► objects ──[`adoption`]──► templates and policies ──► Works ──► [`report`]
//!                                          └──[`field_differences`](crate::field_differences): what the Work would change

mod adoption;
mod candidates;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use adoption::{AdoptionPlanner, PlannedAdoption, PropagatedByItself};
use anyhow::{Context, bail};
use candidates::CandidateObject;
use clap::{Args, Subcommand};
use client::remote::RemoteApi;
use client::{Api, ResourcePath, ShutdownToken, TaskGroup};
use karmada_api::Cluster;
use karmada_api::resources::{CLUSTER_OVERRIDES, CLUSTERS, OVERRIDES};
use karmada_api::well_known_keys::{MANAGED, MANAGED_VALUE};
use machinery::{Gvr, Object, duration};
use report::{AdoptionReport, AdoptionResult, AdoptionRow};
use tokio::time::Instant;

use crate::kubectl::ControlPlaneArgs;
use crate::member_clusters::{load_member_config, verify_clusters_exist};
use crate::object_lists::{list_all, list_selected};
use crate::output;
use crate::printers::{OutputFormat, encode_output};

/// How often the member is asked whether its objects are adopted.
const ADOPTION_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Take what already runs in a member under policies, without a change in the member.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla adopt namespace orders -C branch --dry-run\n  flotilla adopt cluster branch --dry-run"
)]
pub struct AdoptArgs {
    #[command(subcommand)]
    scope: AdoptScope,
}

#[derive(Subcommand)]
enum AdoptScope {
    Namespace(NamespaceArgs),
    Cluster(ClusterArgs),
}

/// Adopt a namespace of a member, and the objects in it.
///
/// Each object becomes a template, with a policy of its own that names the member and leaves the
/// object there when the template is deleted. First the object is compared with what its Work would
/// carry: only objects that are equal are adopted. Objects with a controller, and those that every
/// cluster creates for itself, are skipped. An object that another member has too is adopted there
/// by the same command for that member.
#[derive(Args)]
#[command(
    after_help = "Exit codes:\n  0  all objects are adopted, or can be\n  1  the command failed, or objects differ\n\nExamples:\n  flotilla adopt namespace orders -C branch --dry-run\n  flotilla adopt namespace orders -C branch"
)]
struct NamespaceArgs {
    /// The namespace in the member.
    #[arg(value_name = "NAMESPACE")]
    namespace: String,
    /// The member.
    #[arg(short = 'C', long, value_name = "NAME")]
    cluster: String,
    #[command(flatten)]
    options: AdoptOptions,
}

/// Adopt all namespaces of a member that belong to no system, and the objects in them.
#[derive(Args)]
#[command(
    after_help = "Exit codes:\n  0  all objects are adopted, or can be\n  1  the command failed, or objects differ\n\nExamples:\n  flotilla adopt cluster branch --dry-run\n  flotilla adopt cluster branch --dry-run -o wide"
)]
struct ClusterArgs {
    /// The member.
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    #[command(flatten)]
    options: AdoptOptions,
}

#[derive(Args)]
struct AdoptOptions {
    /// Adopt also objects that their Works change.
    #[arg(long)]
    allow_changes: bool,
    /// Show what would be adopted and what differs, without writing anything.
    #[arg(long)]
    dry_run: bool,
    /// How long to wait until the Works have adopted the objects; 0s does not wait.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    timeout: Duration,
    /// Path of the cluster's kubeconfig; by default the cluster is reached through the
    /// cluster proxy.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Context name of the cluster's kubeconfig; the name of the cluster by default.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    /// Output format of the results; text by default. Only wide text shows skipped objects.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

pub async fn run(arguments: AdoptArgs) -> anyhow::Result<ExitCode> {
    let (cluster, namespace, options) = match arguments.scope {
        AdoptScope::Namespace(arguments) => (
            arguments.cluster,
            Some(arguments.namespace),
            arguments.options,
        ),
        AdoptScope::Cluster(arguments) => (arguments.cluster, None, arguments.options),
    };
    let tasks = TaskGroup::new(ShutdownToken::new());
    let adopted = Box::pin(connect(&cluster, namespace.as_deref(), &options, &tasks)).await;
    tasks.stop().await;
    let report = adopted?;
    let wide = options.output == Some(OutputFormat::Wide);
    let structured = encode_output(options.output, &report)?;
    output::print_line(structured.unwrap_or_else(|| report.text(wide)));
    output::print_progress(report.summary());
    Ok(match report.is_complete() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn connect(
    cluster: &str,
    namespace: Option<&str>,
    options: &AdoptOptions,
    tasks: &TaskGroup,
) -> anyhow::Result<AdoptionReport> {
    let config = options.control.load_config()?;
    let control = RemoteApi::new(config.clone(), tasks)?;
    verify_clusters_exist(&control, &[cluster.to_owned()]).await?;
    let member = load_member_config(
        &config,
        cluster,
        options.cluster_kubeconfig.as_deref(),
        options.cluster_context.as_deref(),
    )?;
    let member = RemoteApi::new(member, tasks)?;
    let request = AdoptionRequest {
        cluster,
        namespace,
        allow_changes: options.allow_changes,
        dry_run: options.dry_run,
        timeout: options.timeout,
    };
    Box::pin(adopt(&control, &member, &request)).await
}

/// The objects that are adopted, and how.
struct AdoptionRequest<'a> {
    cluster: &'a str,
    /// `None`: all namespaces that belong to no system.
    namespace: Option<&'a str>,
    allow_changes: bool,
    dry_run: bool,
    timeout: Duration,
}

async fn adopt(
    control: &dyn Api,
    member: &dyn Api,
    request: &AdoptionRequest<'_>,
) -> anyhow::Result<AdoptionReport> {
    let path = ResourcePath::object(&CLUSTERS, "", request.cluster);
    let cluster = control.get(path).await?;
    let cluster_view = cluster.decode::<Cluster>()?;
    let candidates = read_candidates(control, member, request).await?;
    let mut overrides = list_all(control, &OVERRIDES, "").await?;
    overrides.extend(list_all(control, &CLUSTER_OVERRIDES, "").await?);
    let planner = AdoptionPlanner {
        control,
        cluster: &cluster,
        cluster_view: &cluster_view,
        overrides: &overrides,
    };
    output::print_progress(format!(
        "comparing {} objects of {} with their Works",
        candidates.len(),
        request.cluster
    ));
    let mut rows = Vec::with_capacity(candidates.len());
    let mut adopted = Vec::new();
    for candidate in &candidates {
        let (row, planned) = adopt_object(&planner, candidate, request).await;
        adopted.extend(planned.map(|planned| (rows.len(), planned)));
        rows.push(row);
    }
    let mut report = AdoptionReport {
        cluster: request.cluster.to_owned(),
        objects: rows,
    };
    if !request.dry_run {
        wait_until_adopted(member, &adopted, request.timeout, &mut report).await?;
    }
    Ok(report)
}

async fn read_candidates(
    control: &dyn Api,
    member: &dyn Api,
    request: &AdoptionRequest<'_>,
) -> anyhow::Result<Vec<CandidateObject>> {
    let cannot_read = || format!("failed to read the objects of cluster({})", request.cluster);
    let namespaces = match request.namespace {
        None => candidates::list_namespaces(member)
            .await
            .with_context(cannot_read)?,
        Some(name) => {
            let path = ResourcePath::object(&candidates::NAMESPACES, "", name);
            let namespace = member.get(path).await.with_context(cannot_read)?;
            if let Some(reason) = candidates::system_reason(&namespace) {
                bail!("{reason}");
            }
            vec![namespace]
        }
    };
    let served = member.discover().await.with_context(cannot_read)?;
    for (group_version, reason) in &served.failed_group_versions {
        output::print_progress(format!(
            "Warning: objects of {group_version} are left out, whose kinds the member does not tell: {reason}"
        ));
    }
    let control_resources = control.discover().await?;
    let scope = request.namespace.unwrap_or_default();
    candidates::list_candidates(member, &served, &control_resources, &namespaces, scope)
        .await
        .with_context(cannot_read)
}

/// Compares an object with its Work, and writes template and policy if they are equal. Returns the
/// adoption that the member has to complete.
async fn adopt_object(
    planner: &AdoptionPlanner<'_>,
    candidate: &CandidateObject,
    request: &AdoptionRequest<'_>,
) -> (AdoptionRow, Option<PlannedAdoption>) {
    let mut row = AdoptionRow {
        api_version: candidate.resource.resource.api_version(),
        kind: candidate.resource.kind.clone(),
        namespace: candidate.object.namespace().to_owned(),
        name: candidate.object.name().to_owned(),
        result: AdoptionResult::Skipped,
        reason: candidate.skip_reason.clone().unwrap_or_default(),
        differences: Vec::new(),
    };
    if candidate.skip_reason.is_some() {
        return (row, None);
    }
    let mut planned = match Box::pin(planner.plan(candidate)).await {
        Ok(planned) => planned,
        Err(error) => {
            if !error.is::<PropagatedByItself>() {
                row.result = AdoptionResult::Failed;
            }
            row.reason = format!("{error:#}");
            return (row, None);
        }
    };
    row.differences = std::mem::take(&mut planned.differences);
    if !row.differences.is_empty() && !request.allow_changes {
        row.result = AdoptionResult::Different;
        row.reason = "its Work would change it; --allow-changes adopts it".to_owned();
        return (row, None);
    }
    if request.dry_run {
        row.result = AdoptionResult::Adoptable;
        return (row, None);
    }
    match planned.write(planner.control, request.cluster).await {
        Ok(()) => {
            row.result = AdoptionResult::Pending;
            (row, Some(planned))
        }
        Err(error) => {
            row.result = AdoptionResult::Failed;
            row.reason = error.to_string();
            (row, None)
        }
    }
}

/// Waits until the objects bear the mark of a Work, and verifies that none was created anew.
async fn wait_until_adopted(
    member: &dyn Api,
    adopted: &[(usize, PlannedAdoption)],
    timeout: Duration,
    report: &mut AdoptionReport,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    let managed = format!("{MANAGED}={MANAGED_VALUE}");
    loop {
        let pending: Vec<&(usize, PlannedAdoption)> = adopted
            .iter()
            .filter(|(row, _)| report.objects[*row].result == AdoptionResult::Pending)
            .collect();
        let kinds: BTreeSet<&Gvr> = pending
            .iter()
            .map(|(_, p)| &p.promotion.resource.resource)
            .collect();
        let mut uids: BTreeMap<(Gvr, String), String> = BTreeMap::new();
        for kind in kinds {
            let objects: Vec<Object> = list_selected(member, kind, "", &managed).await?;
            let by_key = objects
                .iter()
                .map(|o| ((kind.clone(), o.meta().key()), o.uid().to_owned()));
            uids.extend(by_key);
        }
        for (row, planned) in &pending {
            let promotion = &planned.promotion;
            let key = match promotion.namespace.as_str() {
                "" => promotion.name.clone(),
                namespace => format!("{namespace}/{}", promotion.name),
            };
            let row = &mut report.objects[*row];
            match uids.get(&(promotion.resource.resource.clone(), key)) {
                None => {}
                Some(uid) if *uid == planned.uid => row.result = AdoptionResult::Adopted,
                Some(uid) => {
                    row.result = AdoptionResult::Failed;
                    row.reason = format!("the object was created anew: its uid is {uid}");
                }
            }
        }
        let left = report.count(AdoptionResult::Pending);
        if left == 0 || Instant::now() >= deadline {
            return Ok(());
        }
        output::print_progress(format!("waiting for {left} objects to be adopted"));
        tokio::time::sleep(ADOPTION_POLL_INTERVAL).await;
    }
}
