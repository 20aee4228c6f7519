//! `flotilla install` and `flotilla uninstall`: Flotilla in a cluster that is there.
//!
//! choices ──► [`manifests`] (the files of the tree, fitted) ──► standard output | [`apply`] ──► cluster
//! [`remove`] takes all of it away again.

mod apply;
mod manifests;
mod remove;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use client::Api;
use client::remote::Remote;
use client::remote::kubeconfig::Source;
use flotilla_runtime::{Shutdown, Tasks};

use crate::output;
use manifests::{Choices, NAMESPACE};

/// Print what installs Flotilla into a cluster, or install it.
///
/// Without --apply the manifests are printed and nothing is touched.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla install --image registry.example.com/flotilla:0.1.0 | kubectl apply -f -\n  flotilla install --image registry.example.com/flotilla:0.1.0 --apply --kubeconfig host.kubeconfig"
)]
pub(crate) struct InstallArguments {
    /// The image that holds this program.
    #[arg(long, default_value = "flotilla:latest", value_name = "IMAGE")]
    image: String,
    /// The namespace that Flotilla gets for itself.
    #[arg(long, default_value = NAMESPACE, value_name = "NAMESPACE")]
    namespace: String,
    /// How many serve; one of them leads the controllers.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    replicas: u32,
    /// URLs of an etcd that is there already; without, one is installed for Flotilla
    /// alone.
    #[arg(long, value_delimiter = ',', value_name = "URL,...")]
    etcd_servers: Vec<String>,
    /// What the keys of Flotilla begin with in that etcd.
    #[arg(long, value_name = "PREFIX", requires = "etcd_servers")]
    etcd_prefix: Option<String>,
    /// A Secret in the namespace with ca.crt, tls.crt and tls.key for that etcd.
    #[arg(long, value_name = "NAME", requires = "etcd_servers")]
    etcd_secret: Option<String>,
    /// What becomes of templates that the cluster itself would run.
    #[arg(long, value_name = "refuse|propagate", value_parser = ["refuse", "propagate"])]
    host_workloads: Option<String>,
    /// Apply the manifests instead of printing them.
    #[arg(long)]
    apply: bool,
    /// With --apply, have the cluster check everything and change nothing.
    #[arg(long, requires = "apply")]
    dry_run: bool,
    /// With --apply, seconds to wait until Flotilla is available; 0 does not wait.
    #[arg(
        long,
        default_value_t = 180,
        value_name = "SECONDS",
        requires = "apply"
    )]
    wait: u64,
    #[command(flatten)]
    host: Host,
    /// How the manifests are printed.
    #[arg(short, long, default_value = "yaml", value_name = "FORMAT")]
    output: Format,
}

/// Take Flotilla out of a cluster; its members keep what they have.
///
/// Removes the Deployment, waits until its pods are gone, and then removes what
/// Flotilla made and what was installed: APIServices, webhooks and policies, the
/// namespaces of members, roles, secrets and its own namespace. Members are not
/// touched, and neither is an etcd that was not installed with it.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla uninstall --kubeconfig host.kubeconfig")]
pub(crate) struct UninstallArguments {
    /// The namespace that Flotilla has for itself.
    #[arg(long, default_value = NAMESPACE, value_name = "NAMESPACE")]
    namespace: String,
    /// Seconds to wait for pods and namespaces to be gone.
    #[arg(long, default_value_t = 180, value_name = "SECONDS")]
    wait: u64,
    #[command(flatten)]
    host: Host,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

/// The cluster that Flotilla is in.
#[derive(Args)]
struct Host {
    /// Kubeconfig of the cluster; $KUBECONFIG or ~/.kube/config by default.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in that kubeconfig; the current one by default.
    #[arg(long, value_name = "CONTEXT")]
    context: Option<String>,
}

impl Host {
    fn connect(self, tasks: &Tasks) -> anyhow::Result<Arc<dyn Api>> {
        let source = match self.kubeconfig {
            Some(path) => Source::file(path),
            None => Source::environment(),
        };
        let context = self.context;
        let config = Source { context, ..source }.load()?;
        Ok(Arc::new(Remote::new(config, tasks)?))
    }
}

pub(crate) async fn install(arguments: InstallArguments) -> anyhow::Result<()> {
    let choices = Choices {
        namespace: arguments.namespace,
        image: arguments.image,
        replicas: arguments.replicas,
        etcd_servers: arguments.etcd_servers,
        etcd_prefix: arguments.etcd_prefix,
        etcd_secret: arguments.etcd_secret,
        host_workloads: arguments.host_workloads,
    };
    let objects = manifests::objects(&choices)?;
    if !arguments.apply {
        let json = matches!(arguments.output, Format::Json);
        output::line(manifests::text(&objects, json)?);
        return Ok(());
    }
    let tasks = Tasks::new(Shutdown::new());
    let host = arguments.host.connect(&tasks)?;
    let wait = Duration::from_secs(arguments.wait);
    let outcome = async {
        apply::all(&*host, objects, arguments.dry_run).await?;
        if arguments.dry_run {
            return Ok("Flotilla can be installed (dry run)".to_owned());
        }
        if !wait.is_zero() {
            apply::available(&*host, &choices.namespace, wait).await?;
        }
        Ok(format!(
            "Flotilla is installed in namespace {}",
            choices.namespace
        ))
    };
    let outcome: anyhow::Result<String> = Box::pin(outcome).await;
    tasks.stop().await;
    output::line(outcome?);
    Ok(())
}

pub(crate) async fn uninstall(arguments: UninstallArguments) -> anyhow::Result<()> {
    let tasks = Tasks::new(Shutdown::new());
    let host = arguments.host.connect(&tasks)?;
    let wait = Duration::from_secs(arguments.wait);
    let gone = Box::pin(remove::all(&*host, &arguments.namespace, wait)).await;
    tasks.stop().await;
    gone?;
    output::line(format!(
        "Flotilla is gone from namespace {}; members keep what they have",
        arguments.namespace
    ));
    Ok(())
}
