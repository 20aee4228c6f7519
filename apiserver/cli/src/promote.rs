//! The command `flotilla promote`, which makes an object of a member a template of the
//! control plane, with a policy that keeps it where it is. Source: Karmada's
//! `pkg/karmadactl/promote/promote.go`.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Args;
use client::remote::RemoteApi;
use client::{Api, ApiResource, ResourcePath, WriteOptions};
use flotilla_runtime::{ShutdownToken, TaskGroup};
use machinery::Gvr;
use openapi::karmada::names;
use openapi::karmada::resources::{CLUSTER_POLICIES, POLICIES};
use openapi::karmada::well_known_keys::CONFLICT_RESOLUTION;
use openapi::karmada_prune::prune;
use serde_json::{Value, json};

use crate::kubeconfig_flags::{context_namespace, load_cluster_config};
use crate::kubectl::ControlPlaneArgs;
use crate::member_clusters::{member_config, verify_clusters_exist};
use crate::output;
use crate::printers::{OutputFormat, encode_output};
use crate::resource_args::{find_resource, parse_resource_arg};

/// Promote a resource of a member to the control plane.
///
/// The object becomes a template, and a policy that selects it names the member, so that
/// the object is adopted where it is. If the template exists already, nothing is changed.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla promote configmap legacy -C member1 -o yaml\n  flotilla promote configmap legacy -C member1\n  flotilla promote configmap/legacy -n default -C member1"
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
    /// Print the template and the policy, and create neither.
    #[arg(short, long, value_enum)]
    output: Option<OutputFormat>,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

/// A template and the policy that adopts its object.
struct Promotion {
    resource: ApiResource,
    namespace: String,
    name: String,
    template: Value,
    policy: Value,
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
    let member = match &arguments.cluster_kubeconfig {
        None => member_config(&config, &arguments.cluster)?,
        Some(file) => {
            let context = arguments.cluster_context.as_ref();
            load_cluster_config(file, Some(context.unwrap_or(&arguments.cluster).clone()))?
        }
    };
    let member = RemoteApi::new(member, tasks)?;
    let namespace = match &arguments.namespace {
        Some(namespace) => namespace.clone(),
        None => context_namespace(&config),
    };
    let promotion = read(arguments, &member, namespace)
        .await
        .with_context(|| format!("failed to get resource in cluster({})", arguments.cluster))?;
    if arguments.output.is_some() {
        let mut documents = vec![&promotion.template];
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
    let line = promotion.create(&control, arguments).await?;
    output::print_line(line);
    Ok(())
}

/// Reads the object from the member and makes a template of it.
async fn read(
    arguments: &PromoteArgs,
    member: &RemoteApi,
    namespace: String,
) -> anyhow::Result<Promotion> {
    let (kind, name) = parse_resource_arg(&arguments.resource)?;
    let served = member.discover().await?.resources;
    let resource = find_resource(&served, kind)?.clone();
    let namespace = if resource.namespaced {
        namespace
    } else {
        String::new()
    };
    let at = ResourcePath::object(&resource.resource, &namespace, name);
    let mut template = member.get(at).await?.value()?;
    prune(&mut template, false);
    let annotations = &mut template["metadata"]["annotations"];
    if annotations[CONFLICT_RESOLUTION].is_null() {
        annotations[CONFLICT_RESOLUTION] = json!("overwrite");
    }
    Ok(Promotion {
        policy: policy(arguments, &resource, &namespace, name),
        name: name.to_owned(),
        resource,
        namespace,
        template,
    })
}

fn policy(arguments: &PromoteArgs, resource: &ApiResource, namespace: &str, name: &str) -> Value {
    let Gvr { group, version, .. } = &resource.resource;
    let gvk = format!("{group}/{version}, Kind={}", resource.kind);
    let generated = || names::policy_name(namespace, name, &gvk);
    let policy_name = arguments.policy_name.clone().unwrap_or_else(generated);
    let mut policy = json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "ClusterPropagationPolicy",
        "metadata": {"name": policy_name},
        "spec": {
            "resourceSelectors": [{
                "apiVersion": resource.resource.api_version(),
                "kind": resource.kind,
                "name": name,
            }],
            "placement": {"clusterAffinity": {"clusterNames": [arguments.cluster]}},
            "conflictResolution": "Overwrite",
            "preserveResourcesOnDeletion": true,
        },
    });
    if !namespace.is_empty() {
        policy["kind"] = json!("PropagationPolicy");
        policy["metadata"]["namespace"] = json!(namespace);
    }
    policy
}

impl Promotion {
    /// Creates template and policy unless the template exists; returns the line to print.
    async fn create(&self, control: &dyn Api, arguments: &PromoteArgs) -> anyhow::Result<String> {
        let Gvr {
            group,
            version,
            resource,
        } = &self.resource.resource;
        let key = match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        };
        let shown = format!("\"{group}/{version}, Resource={resource}\"({key})");
        let at = ResourcePath::object(&self.resource.resource, &self.namespace, &self.name);
        if client::api::ignore_not_found(control.get(at).await)?.is_some() {
            return Ok(format!(
                "Resource {shown} already exist in karmada control plane, you can edit PropagationPolicy and OverridePolicy to propagate it"
            ));
        }
        if arguments.dry_run {
            return Ok(format!(
                "Resource {shown} is promoted successfully (dry run)"
            ));
        }
        let at = ResourcePath { name: "", ..at };
        let options = WriteOptions::default();
        let created = control
            .create(at, self.template.clone().into(), &options)
            .await;
        created.with_context(|| format!("failed to create resource {shown} in control plane"))?;
        if arguments.auto_create_policy {
            self.create_policy(control).await?;
        }
        Ok(format!("Resource {shown} is promoted successfully"))
    }

    async fn create_policy(&self, control: &dyn Api) -> anyhow::Result<()> {
        let resource = match self.namespace.as_str() {
            "" => &CLUSTER_POLICIES,
            _ => &POLICIES,
        };
        let at = ResourcePath::collection(resource, &self.namespace);
        let options = WriteOptions::default();
        match control
            .create(at, self.policy.clone().into(), &options)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.is_already_exists() => {
                let kind = self.policy["kind"].as_str().unwrap_or_default();
                let name = self.policy["metadata"]["name"].as_str().unwrap_or_default();
                let slash = if self.namespace.is_empty() { "" } else { "/" };
                bail!(
                    "the {kind}({}{slash}{name}) already exist, please edit it to propagate resource",
                    self.namespace
                )
            }
            Err(error) => Err(error).context("the policy cannot be created"),
        }
    }
}
