//! The commands `flotilla install` and `flotilla uninstall`.
//!
//! options ──► [`manifests`] ──► standard output | [`apply`] ──► cluster; [`uninstall`](mod@uninstall) removes everything.

mod apply;
mod manifests;
mod uninstall;

use std::time::Duration;

use clap::{Args, ValueEnum};
use client::{ShutdownToken, TaskGroup};
use serde_json::Value;

use crate::default_image::DEFAULT_IMAGE;
use crate::kubeconfig_flags::{HostClusterFlags, KubeconfigArgs};
use crate::output;
pub(crate) use manifests::encode_manifests;
use manifests::{InstallOptions, NAMESPACE};

/// Install Flotilla into a cluster, or print the manifests.
///
/// Without --apply the manifests are printed and nothing is changed.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla install --image registry.example.com/flotilla:0.1.0 | kubectl apply -f -\n  flotilla install --image registry.example.com/flotilla:0.1.0 --apply --kubeconfig host.kubeconfig"
)]
pub struct InstallArgs {
    /// The image of Flotilla.
    #[arg(long, default_value = DEFAULT_IMAGE, value_name = "IMAGE")]
    image: String,
    /// The namespace in which Flotilla is installed.
    #[arg(long, default_value = NAMESPACE, value_name = "NAMESPACE")]
    namespace: String,
    /// The number of replicas; an elected leader runs the controllers.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    replicas: u32,
    /// URLs of an existing etcd; without it, an etcd is installed for Flotilla.
    #[arg(long, value_delimiter = ',', value_name = "URL,...")]
    etcd_servers: Vec<String>,
    /// The prefix of Flotilla's keys in that etcd.
    #[arg(long, value_name = "PREFIX", requires = "etcd_servers")]
    etcd_prefix: Option<String>,
    /// A Secret in the namespace with ca.crt, tls.crt and tls.key for that etcd.
    #[arg(long, value_name = "NAME", requires = "etcd_servers")]
    etcd_secret: Option<String>,
    /// Whether workload templates, which the cluster itself would run, are refused or
    /// propagated.
    #[arg(long, value_name = "refuse|propagate", value_parser = ["refuse", "propagate"])]
    host_workloads: Option<String>,
    /// Flotilla waits for flotilla takeover, which moves a running Karmada to it in place.
    #[arg(long)]
    await_takeover: bool,
    /// Apply the manifests instead of printing them.
    #[arg(long)]
    apply: bool,
    /// With --apply, submit server-side requests without persisting anything.
    #[arg(long, requires = "apply")]
    dry_run: bool,
    /// With --apply, the seconds to wait until Flotilla is available; 0 does not wait.
    #[arg(
        long,
        default_value_t = 180,
        value_name = "SECONDS",
        requires = "apply"
    )]
    wait: u64,
    #[command(flatten)]
    host: KubeconfigArgs<HostClusterFlags>,
    /// The output format of the manifests.
    #[arg(short, long, default_value = "yaml", value_name = "FORMAT")]
    output: ManifestFormat,
}

/// Uninstall Flotilla from a cluster; member clusters keep their objects.
///
/// Removes the Deployment, waits until its pods are gone, and then removes the objects
/// that Flotilla or its installation created: APIServices, webhooks and policies, the
/// namespaces of members, roles, secrets and its own namespace. Members are not changed,
/// and neither is an etcd that was not installed with it. Where the cluster has Karmada's
/// definitions, namespaces and roles of members stay.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla uninstall --kubeconfig host.kubeconfig")]
pub struct UninstallArgs {
    /// The namespace in which Flotilla is installed.
    #[arg(long, default_value = NAMESPACE, value_name = "NAMESPACE")]
    namespace: String,
    /// The seconds to wait until pods and namespaces are gone.
    #[arg(long, default_value_t = 180, value_name = "SECONDS")]
    wait: u64,
    #[command(flatten)]
    host: KubeconfigArgs<HostClusterFlags>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ManifestFormat {
    Yaml,
    Json,
}

impl InstallArgs {
    /// Renders the objects of the installation, in the order in which they are applied.
    pub fn manifests(&self) -> anyhow::Result<Vec<Value>> {
        manifests::render(&InstallOptions {
            namespace: self.namespace.clone(),
            image: self.image.clone(),
            replicas: self.replicas,
            etcd_servers: self.etcd_servers.clone(),
            etcd_prefix: self.etcd_prefix.clone(),
            etcd_secret: self.etcd_secret.clone(),
            host_workloads: self.host_workloads.clone(),
            await_takeover: self.await_takeover,
        })
    }
}

pub async fn install(arguments: InstallArgs) -> anyhow::Result<()> {
    let objects = arguments.manifests()?;
    if !arguments.apply {
        let json = matches!(arguments.output, ManifestFormat::Json);
        output::print_line(encode_manifests(&objects, json)?);
        return Ok(());
    }
    let tasks = TaskGroup::new(ShutdownToken::new());
    let host = arguments.host.connect(&tasks)?;
    let wait = Duration::from_secs(arguments.wait);
    let outcome = async {
        apply::apply_all(&*host, objects, arguments.dry_run).await?;
        if arguments.dry_run {
            return Ok("Flotilla can be installed (dry run)".to_owned());
        }
        if !wait.is_zero() {
            apply::wait_until_available(&*host, &arguments.namespace, wait).await?;
        }
        Ok(format!(
            "Flotilla is installed in namespace {}",
            arguments.namespace
        ))
    };
    let outcome: anyhow::Result<String> = Box::pin(outcome).await;
    tasks.stop().await;
    output::print_line(outcome?);
    Ok(())
}

pub async fn uninstall(arguments: UninstallArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let host = arguments.host.connect(&tasks)?;
    let wait = Duration::from_secs(arguments.wait);
    let uninstalled = Box::pin(uninstall::uninstall_all(&*host, &arguments.namespace, wait)).await;
    tasks.stop().await;
    uninstalled?;
    output::print_line(format!(
        "Flotilla is uninstalled from namespace {}; members keep their objects",
        arguments.namespace
    ));
    Ok(())
}
