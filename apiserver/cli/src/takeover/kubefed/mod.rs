//! Takes over what KubeFed runs: its objects become templates, policies and clusters, and the Works
//! adopt the copies. Every step tolerates that its work is already done.
//!
//! host ──[`host_objects`]──► `convert kubefed` ──[`manifests`]──► control plane ──► Works ──► [`copies`]
//!   └──[`controller_lease`]: KubeFed's controllers have stopped      └──[`member_clusters`]: joined clusters

mod controller_lease;
mod copies;
mod host_objects;
mod manifests;
mod member_clusters;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use client::remote::RemoteApi;
use client::{Api, ShutdownToken, TaskGroup};
use host_objects::HostObjects;
use karmada_api::well_known_keys::CONFLICT_RESOLUTION;
use member_clusters::KubefedCluster;
use serde_json::Value;

use crate::convert::conversion::{Conversion, Severity};
use crate::convert::{ManifestFormat, kubefed, print_manifests};
use crate::kubeconfig_flags::load_cluster_config;
use crate::kubectl::ControlPlaneArgs;
use crate::output;
use crate::printers::OutputFormat;

/// The flags that have no effect on a takeover from KubeFed.
const KARMADA_FLAGS: [&str; 15] = [
    "to_standalone",
    "leave",
    "preflight",
    "back",
    "backup",
    "namespace",
    "karmada_namespace",
    "scale_down",
    "karmada_host_kubeconfig",
    "allow_changes",
    "watch",
    "plugins",
    "scheduler_name",
    "enable_empty_workload_propagation",
    "feature_gates",
];

/// The flags of a takeover from KubeFed.
#[derive(Args)]
#[command(next_help_heading = "KubeFed flags (with --from kubefed)")]
pub(super) struct KubefedFlags {
    /// Kubeconfig of KubeFed's host cluster.
    #[arg(
        long,
        value_name = "FILE",
        required_if_eq("from", "kubefed"),
        conflicts_with_all = KARMADA_FLAGS
    )]
    host_kubeconfig: Option<PathBuf>,
    /// Context in that kubeconfig; the current one by default.
    #[arg(long, value_name = "CONTEXT", requires = "host_kubeconfig")]
    host_context: Option<String>,
    /// The namespace of KubeFed on its host.
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "kube-federation-system",
        requires = "host_kubeconfig"
    )]
    kubefed_namespace: String,
    /// Take over although something has no equal.
    #[arg(long, requires = "host_kubeconfig")]
    allow_loss: bool,
    /// Show what has no equal, and with -o the manifests, without writing anything.
    #[arg(long, requires = "host_kubeconfig")]
    dry_run: bool,
}

impl KubefedFlags {
    /// Whether a flag is set that has no effect without KubeFed.
    pub(super) fn are_set(&self) -> bool {
        self.host_kubeconfig.is_some()
            || self.host_context.is_some()
            || self.allow_loss
            || self.dry_run
    }
}

/// A takeover from KubeFed with all of its flags.
pub(super) struct KubefedTakeover<'a> {
    pub(super) flags: &'a KubefedFlags,
    /// How long to wait until KubeFed's controller manager has stopped, and until the copies are
    /// adopted.
    pub(super) timeout: Duration,
    pub(super) control: &'a ControlPlaneArgs,
    /// The format in which a dry run prints the manifests; none by default.
    pub(super) output: Option<OutputFormat>,
}

impl KubefedTakeover<'_> {
    fn manifest_format(&self) -> anyhow::Result<Option<ManifestFormat>> {
        match self.output {
            Some(_) if !self.flags.dry_run => {
                bail!("-o prints the manifests of a dry run; add --dry-run")
            }
            Some(OutputFormat::Wide) => bail!("-o is json or yaml for manifests"),
            Some(OutputFormat::Json) => Ok(Some(ManifestFormat::Json)),
            Some(OutputFormat::Yaml) => Ok(Some(ManifestFormat::Yaml)),
            None => Ok(None),
        }
    }
}

/// The exit code is 1 if something has no equal and that is not allowed.
pub(super) async fn run(takeover: KubefedTakeover<'_>) -> anyhow::Result<ExitCode> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let done = Box::pin(take_over(&takeover, &tasks)).await;
    tasks.stop().await;
    done
}

async fn take_over(takeover: &KubefedTakeover<'_>, tasks: &TaskGroup) -> anyhow::Result<ExitCode> {
    let flags = takeover.flags;
    let format = takeover.manifest_format()?;
    let file = flags.host_kubeconfig.as_deref();
    let file = file.context("--from kubefed requires --host-kubeconfig")?;
    let host = load_cluster_config(Some(file), flags.host_context.clone())?;
    let host = RemoteApi::new(host, tasks)?;
    let namespace = flags.kubefed_namespace.as_str();
    let mut objects = host_objects::read(&host, namespace).await?;
    let mut conversion = kubefed::convert(std::mem::take(&mut objects.documents))?;
    if !report_findings(&conversion, flags.allow_loss) {
        return Ok(ExitCode::FAILURE);
    }
    if flags.dry_run {
        report_dry_run(&host, namespace, &objects, &conversion).await?;
        if let Some(format) = format {
            print_manifests(&conversion, format)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let clusters = member_clusters::connect(&mut conversion.prerequisites, tasks)?;
    let control = takeover.control.connect(tasks)?;
    member_clusters::check_unmanaged(&*control, &clusters).await?;
    controller_lease::wait_until_released(&host, namespace, takeover.timeout).await?;
    let adopted = Box::pin(adopt(&*control, &clusters, &conversion, takeover.timeout)).await?;
    let released = host_objects::remove_finalizers(&host, &objects.federated).await?;
    output::print_line(format!(
        "KubeFed is taken over: {} clusters, {} federated objects, {adopted} copies adopted, {released} finalizers removed",
        clusters.len(),
        objects.federated.len(),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Prints the findings of the conversion; returns whether the takeover may go on.
fn report_findings(conversion: &Conversion, allow_loss: bool) -> bool {
    let shown = conversion.findings.iter().filter(|finding| {
        // Joined clusters have the credentials that the note asks for.
        !(finding.severity == Severity::Note && finding.field == "spec.impersonatorSecretRef")
    });
    for finding in shown {
        output::print_progress(finding.to_string());
    }
    let losses = conversion.count(Severity::Loss);
    if losses > 0 && !allow_loss {
        output::print_progress(format!(
            "error: {losses} fields have no equal; change them, or take over without them by --allow-loss"
        ));
        return false;
    }
    true
}

async fn report_dry_run(
    host: &dyn Api,
    namespace: &str,
    objects: &HostObjects,
    conversion: &Conversion,
) -> anyhow::Result<()> {
    for record in controller_lease::read_holders(host, namespace).await? {
        output::print_progress(format!(
            "{} holds, or held, the lock of KubeFed's controller manager; a takeover waits until it does not renew it",
            record.holder
        ));
    }
    output::print_progress(format!(
        "{} federated objects become {} manifests (dry run)",
        objects.federated.len(),
        conversion.manifests().count()
    ));
    Ok(())
}

/// The templates that go somewhere: those that a policy selects, and namespaces that go everywhere.
fn placed_templates(conversion: &Conversion) -> Vec<&Value> {
    let key = |kind: &Value, namespace: &Value, name: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        [text(kind), text(namespace), text(name)]
    };
    let policies = conversion.policies.iter().filter(|policy| {
        let kind = policy["kind"].as_str().unwrap_or_default();
        kind.ends_with("PropagationPolicy")
    });
    let selected: BTreeSet<[String; 3]> = policies
        .map(|policy| {
            let selector = &policy["spec"]["resourceSelectors"][0];
            let namespace = &policy["metadata"]["namespace"];
            key(&selector["kind"], namespace, &selector["name"])
        })
        .collect();
    let manifests = conversion.prerequisites.iter().chain(&conversion.templates);
    let is_placed = |manifest: &&Value| {
        let metadata = &manifest["metadata"];
        let goes_everywhere = manifest["kind"] == "Namespace"
            && metadata["annotations"][CONFLICT_RESOLUTION] == "overwrite";
        let key = key(&manifest["kind"], &metadata["namespace"], &metadata["name"]);
        goes_everywhere || selected.contains(&key)
    };
    manifests.filter(is_placed).collect()
}

/// Joins the clusters, writes the manifests, and waits until the copies are adopted; returns how
/// many there were.
async fn adopt(
    control: &dyn Api,
    clusters: &[KubefedCluster],
    conversion: &Conversion,
    timeout: Duration,
) -> anyhow::Result<usize> {
    let templates: Vec<&Value> = placed_templates(conversion);
    let mut copies = copies::list(clusters, &templates).await?;
    for cluster in clusters {
        cluster.join(control).await?;
    }
    let mut created = 0;
    for part in [
        &conversion.prerequisites,
        &conversion.policies,
        &conversion.templates,
    ] {
        created += manifests::create_all(control, part).await?;
    }
    output::print_progress(format!("created {created} manifests"));
    copies::wait_until_adopted(clusters, &mut copies, timeout).await?;
    copies::remove_labels(clusters, &copies).await?;
    Ok(copies.len())
}
