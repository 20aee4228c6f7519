//! The command `flotilla promote`, which makes an object of a member a template of the
//! control plane, with a policy that keeps it where it is. Source: Karmada's
//! `pkg/karmadactl/promote/promote.go`.

mod dependencies;
pub(crate) mod promotion;

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use client::remote::RemoteApi;
use client::{Api, ApiResource, ShutdownToken, TaskGroup};
use promotion::{Promotion, PromotionOptions};
use serde_json::Value;

use crate::kubeconfig_flags::namespace_or_context;
use crate::kubectl::ControlPlaneArgs;
use crate::member_clusters::{load_member_config, verify_clusters_exist};
use crate::output;
use crate::printers::{OutputFormat, encode_output};
use crate::resource_args::{ObjectArg, parse_resource_arg};

/// Promote a resource of a member to the control plane.
///
/// The object becomes a template, and a policy that selects it names the member, so that
/// the object is adopted where it is. If the template exists already, nothing is changed.
/// With --dependencies the objects that it depends on become templates too.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla promote configmap legacy -C member1 -o yaml\n  flotilla promote configmap legacy -C member1\n  flotilla promote configmap/legacy -n default -C member1\n  flotilla promote deployment legacy -C member1 --dependencies"
)]
pub struct PromoteArgs {
    /// TYPE NAME or TYPE/NAME, as for kubectl get.
    #[arg(value_name = "RESOURCE")]
    resource: Vec<String>,
    /// The member that has the resource.
    #[arg(short = 'C', long, value_name = "NAME", default_value = "")]
    cluster: String,
    /// The namespace; by default that of the kubeconfig's context.
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Path of the cluster's kubeconfig; by default the cluster is reached through the
    /// cluster proxy.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Context name of the cluster's kubeconfig; the name of the cluster by default.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    /// Create a PropagationPolicy, or for a cluster-scoped resource a
    /// ClusterPropagationPolicy.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    auto_create_policy: bool,
    /// The name of the policy; made of the resource's by default.
    #[arg(long, value_name = "NAME")]
    policy_name: Option<String>,
    /// Promote also the objects that the resource depends on, which then follow it. If one
    /// cannot be promoted, those before it are released.
    #[arg(short, long)]
    dependencies: bool,
    /// Print the template and the policy, and create neither.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

pub async fn run(arguments: PromoteArgs) -> anyhow::Result<()> {
    ensure!(!arguments.cluster.is_empty(), "the cluster cannot be empty");
    ensure!(
        arguments.output != Some(OutputFormat::Wide),
        "output format is only one of json and yaml"
    );
    let tasks = TaskGroup::new(ShutdownToken::new());
    let done = Box::pin(promote(&arguments, &tasks)).await;
    tasks.stop().await;
    done
}

async fn promote(arguments: &PromoteArgs, tasks: &TaskGroup) -> anyhow::Result<()> {
    let config = arguments.control.load_config()?;
    let control = RemoteApi::new(config.clone(), tasks)?;
    verify_clusters_exist(&control, std::slice::from_ref(&arguments.cluster)).await?;
    let member = load_member_config(
        &config,
        &arguments.cluster,
        arguments.cluster_kubeconfig.as_deref(),
        arguments.cluster_context.as_deref(),
    )?;
    let member = RemoteApi::new(member, tasks)?;
    let namespace = namespace_or_context(arguments.namespace.as_ref(), &config);
    let cannot_read = || format!("failed to get resource in cluster({})", arguments.cluster);
    let served = member.discover().await.with_context(cannot_read)?.resources;
    let options = PromotionOptions {
        cluster: arguments.cluster.clone(),
        policy_name: arguments.policy_name.clone(),
        propagate_dependencies: arguments.dependencies,
        dry_run: arguments.dry_run,
    };
    let resource = &arguments.resource;
    let promotion = read(&options, resource, &member, &served, namespace)
        .await
        .with_context(cannot_read)?;
    let depended_on = if arguments.dependencies {
        let read = dependencies::read(&options, &control, &member, &served, &promotion);
        Box::pin(read).await?
    } else {
        Vec::new()
    };
    if arguments.output.is_some() {
        let mut documents: Vec<&Value> = depended_on.iter().map(|d| &d.template).collect();
        documents.push(&promotion.template);
        documents.extend(arguments.auto_create_policy.then_some(&promotion.policy));
        let separator = match arguments.output {
            Some(OutputFormat::Yaml) => "---\n",
            _ => "",
        };
        for document in documents {
            let text = encode_output(arguments.output, document)?.unwrap_or_default();
            output::print_line(format!("{separator}{text}"));
        }
        return Ok(());
    }
    dependencies::create(&options, &control, &member, &depended_on).await?;
    let line = promotion
        .create(&control, &options, arguments.auto_create_policy)
        .await?;
    output::print_line(line);
    Ok(())
}

/// Reads the object of the arguments from the member and makes a template of it.
async fn read(
    options: &PromotionOptions,
    resource: &[String],
    member: &RemoteApi,
    served: &[ApiResource],
    namespace: String,
) -> anyhow::Result<Promotion> {
    let object = ObjectArg::find(served, parse_resource_arg(resource)?, namespace)?;
    let existing = member.get(object.path()).await?;
    Promotion::new(options, &object.resource, &existing)
}
