//! The command `flotilla agent`, which runs beside a member in pull mode: it executes the
//! member's Works, reports their status and that of the cluster, and renews the cluster's
//! lease. It connects to the control plane, and nothing connects to it: the control plane
//! reaches the member through tunnels that the agent opens.
//!
//! The controllers are those of the control plane, over the remote `client::Api`. They watch
//! the agent's Cluster and execution space only, as the agent may read nothing else.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use client::remote::in_cluster::InClusterEnvironment;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::remote::{RemoteApi, RestConfig};
use client::{Api, Informer, InformerFactory, ListWatchSelector, ShutdownToken, TaskGroup};
use clusters::register::{AGENT_NAMESPACE, run_certificate_rotation};
use clusters::{
    AgentCertificateValidity, AgentTunnelReporter, ClusterControllersOptions,
    ClusterControllersSettings,
};
use controller_context::PropagationContext;
use flotilla_cli::{feature_gate_flags, output};
use flotilla_runtime::{
    ClusterLister, ControllerContext, EventRecorder, HostWorkloadFilter, LeaderElector, LeaderFence,
};
use interpreter::{ResourceInterpreter, WebhookInterpreterOptions};
use karmada_api::names::execution_space_name;
use karmada_api::resources::{CLUSTERS, WORKS};
use machinery::Object;
use machinery::time::{Clock, SystemClock};
use members::{MemberClusterManager, MemberEndpoint, run_agent_tunnels};
use services::ServiceControllersOptions;
use tokio::sync::Notify;
use webhook_client::{ServiceRouting, WebhookClientManager};

use crate::agent_endpoints::{AgentEndpointArgs, AgentReadiness};
use crate::agent_flags::{AgentClusterArgs, CertificateRotationArgs};
use crate::agent_leader_election::AgentLeaderElectionArgs;
use crate::file_changes::watch_files;
use crate::leader_election::run_elected_terms;
use crate::signals::TerminationSignals;
use crate::{logs, script_flags};

const COMPONENT: &str = "karmada-agent";
/// How long the agent waits before it asks an unreachable server again.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Run the agent of a cluster in pull mode beside that cluster.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla agent --cluster-name m1 --karmada-kubeconfig agent.kubeconfig --kubeconfig m1.kubeconfig"
)]
#[command(next_help_heading = "Connection flags")]
pub(crate) struct AgentArgs {
    /// Path to the kubeconfig of the control plane, which `flotilla register` creates. The
    /// agent reads it again when it changes.
    #[arg(long, value_name = "FILE")]
    karmada_kubeconfig: PathBuf,
    /// Name of the context in that kubeconfig; the current context by default.
    #[arg(long, value_name = "CONTEXT")]
    karmada_context: Option<String>,
    /// Path to the kubeconfig of the member; that of the pod by default.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Keep a connection to each replica of the control plane open, over which users reach the
    /// member with clusters/NAME/proxy as they reach members in push mode.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    enable_tunnel: bool,
    /// The namespace of the agent and its Secret in the member.
    #[arg(long, value_name = "NAMESPACE", default_value = AGENT_NAMESPACE)]
    agent_namespace: String,
    #[command(flatten)]
    cluster: AgentClusterArgs,
    #[command(flatten)]
    rotation: CertificateRotationArgs,
    #[command(flatten)]
    election: AgentLeaderElectionArgs,
    #[command(flatten)]
    endpoints: AgentEndpointArgs,
    #[command(flatten)]
    scripts: script_flags::ScriptLimitArgs,
    #[command(flatten)]
    gates: feature_gate_flags::FeatureGateArgs,
    #[command(flatten)]
    pub(crate) logs: logs::LoggingArgs,
}

pub(crate) async fn run(arguments: AgentArgs) -> anyhow::Result<()> {
    let arguments = Arc::new(arguments);
    let mut signals = TerminationSignals::listen()?;
    let changed = Arc::<Notify>::default();
    let _watch = watch_files([arguments.karmada_kubeconfig.as_path()], &changed);
    let endpoints = TaskGroup::new(ShutdownToken::new());
    let readiness = AgentReadiness::default();
    arguments.endpoints.serve(&readiness, &endpoints).await?;
    loop {
        let credentials = std::fs::read(&arguments.karmada_kubeconfig)
            .with_context(|| format!("cannot read {}", arguments.karmada_kubeconfig.display()))?;
        let tasks = TaskGroup::new(ShutdownToken::new());
        let election_tasks = TaskGroup::new(ShutdownToken::new());
        let running = async {
            match arguments
                .election
                .election(&arguments.cluster.cluster_name)?
            {
                None => Box::pin(start_until_connected(&arguments, None, &tasks)).await?,
                // An agent that waits for the lease is ready.
                Some(election) => start_election(&arguments, election, &tasks, &election_tasks)?,
            }
            readiness.set(true);
            wait_for_other_credentials(&arguments, &credentials, &changed).await;
            Ok(())
        };
        let ended = signals.run_unless_signaled(running).await;
        readiness.set(false);
        tasks.stop().await;
        election_tasks.stop().await;
        if ended?.is_none() {
            endpoints.stop().await;
            return Ok(());
        }
        tracing::info!("the kubeconfig of the control plane has changed");
    }
}

/// Competes with the other agents of the cluster; the connection for the lease belongs to
/// `election_tasks`.
fn start_election(
    arguments: &Arc<AgentArgs>,
    election: LeaderElector,
    tasks: &TaskGroup,
    election_tasks: &TaskGroup,
) -> anyhow::Result<()> {
    let control = RemoteApi::new(control_config(arguments)?, election_tasks)?;
    let arguments = Arc::clone(arguments);
    run_elected_terms(election, Arc::new(control), tasks, move |fence, tasks| {
        let arguments = Arc::clone(&arguments);
        async move { start_until_connected(&arguments, Some(&fence), &tasks).await }
    });
    Ok(())
}

/// Resolves when the kubeconfig has another content.
async fn wait_for_other_credentials(arguments: &AgentArgs, in_use: &[u8], changed: &Notify) {
    loop {
        changed.notified().await;
        // A file that is being replaced cannot be read for a moment.
        let read = std::fs::read(&arguments.karmada_kubeconfig);
        if read.is_ok_and(|content| !content.is_empty() && content != in_use) {
            return;
        }
    }
}

fn control_config(arguments: &AgentArgs) -> anyhow::Result<RestConfig> {
    let rules = KubeconfigLoadingRules {
        context: arguments.karmada_context.clone(),
        ..KubeconfigLoadingRules::from_file(&arguments.karmada_kubeconfig)
    };
    Ok(rules.load()?)
}

/// A client whose calls the fence refuses when the agent does not lead any more.
fn fenced_api(
    mut config: RestConfig,
    fence: Option<&LeaderFence>,
    tasks: &TaskGroup,
) -> anyhow::Result<Arc<dyn Api>> {
    let Some(fence) = fence else {
        return Ok(Arc::new(RemoteApi::new(config, tasks)?));
    };
    config.send_fence = Some(fence.network());
    Ok(fence.wrap(Arc::new(RemoteApi::new(config, tasks)?)))
}

/// Starts the controllers as soon as both servers answer. A configuration that cannot be used
/// is an error.
async fn start_until_connected(
    arguments: &AgentArgs,
    fence: Option<&LeaderFence>,
    tasks: &TaskGroup,
) -> anyhow::Result<()> {
    let control = control_config(arguments)?;
    let identity = control.auth.client_certificate.as_ref();
    let certificate = identity.and_then(|i| AgentCertificateValidity::from_pem(&i.certificate));
    let control_config = control.clone();
    let control = fenced_api(control, fence, tasks)?;
    let member_config = member_config(arguments)?;
    let member_url = member_config.server.to_string();
    let member = fenced_api(member_config.clone(), fence, tasks)?;
    let spec = arguments.cluster.spec();
    let cluster = loop {
        match clusters::register_agent_cluster(&*control, &*member, &spec).await {
            Ok(cluster) => break cluster,
            Err(error) => {
                tracing::warn!(%error, "the cluster cannot be registered yet");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    };
    let servers = (&control, &member);
    let clusters = start_controllers(arguments, servers, &cluster, certificate, tasks).await?;
    let tunnels = match arguments.enable_tunnel {
        true => {
            let handle = run_agent_tunnels(cluster.name(), control_config, member_config, tasks);
            let handle = handle.map_err(anyhow::Error::msg)?;
            let state = handle.state.clone();
            handle.follow_requests(&clusters);
            Some(state)
        }
        false => None,
    };
    tunnel_reporter(&control, cluster.name(), tasks).run(tunnels, tasks);
    let url = member_url.trim_end_matches('/');
    output::print_line(format!("ready {url} cluster={}", cluster.name()));
    Ok(())
}

fn tunnel_reporter(
    control: &Arc<dyn Api>,
    cluster: &str,
    tasks: &TaskGroup,
) -> AgentTunnelReporter {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    AgentTunnelReporter {
        control: Arc::clone(control),
        cluster: cluster.to_owned(),
        recorder: EventRecorder::new(Arc::clone(control), COMPONENT, Arc::clone(&clock), tasks),
        clock,
    }
}

fn member_config(arguments: &AgentArgs) -> anyhow::Result<RestConfig> {
    Ok(match &arguments.kubeconfig {
        Some(file) => KubeconfigLoadingRules::from_file(file)
            .load()
            .context("the cluster's kubeconfig")?,
        None => InClusterEnvironment::from_environment()?.load()?,
    })
}

/// Restricts informers of Clusters and Works to what the agent may read.
fn agent_scope(
    cluster: &str,
) -> impl Fn(&ListWatchSelector) -> ListWatchSelector + Send + Sync + 'static {
    let (own, space) = (
        format!("metadata.name={cluster}"),
        execution_space_name(cluster),
    );
    move |select| {
        let select = select.clone();
        match &select.resource {
            clusters if *clusters == CLUSTERS => select.fields(own.clone()),
            works if *works == WORKS => select.namespace(space.clone()),
            _ => select,
        }
    }
}

/// Starts the controllers; returns the informer of the agent's Cluster.
async fn start_controllers(
    arguments: &AgentArgs,
    (control, member): (&Arc<dyn Api>, &Arc<dyn Api>),
    cluster: &Object,
    certificate: Option<AgentCertificateValidity>,
    tasks: &TaskGroup,
) -> anyhow::Result<Informer> {
    let name = cluster.name();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let informers = InformerFactory::with_scope(tasks, agent_scope(name));
    let connected = Arc::clone(member);
    let connector = Arc::new(move |_: &MemberEndpoint, _: &TaskGroup| Ok(Arc::clone(&connected)));
    let members = MemberClusterManager::start_for_agent(
        name,
        Arc::clone(control),
        &informers,
        connector,
        tasks,
    );
    members.wait_for_cache_sync().await;
    let clusters = ClusterLister::watch(control, &informers);
    let webhooks = WebhookInterpreterOptions {
        caller: WebhookClientManager::new(control, ServiceRouting::ClusterIpOrDns, tasks),
        apply_json_patch: registry::apply_webhook_patch,
    };
    let scripts = arguments.scripts.limits();
    let context = PropagationContext {
        interpreter: ResourceInterpreter::watch(&informers, control, scripts, webhooks),
        members: Arc::new(members.clone()),
        clusters,
        host: HostWorkloadFilter::default(),
        feature_gates: arguments.gates.feature_gates,
        controller: ControllerContext {
            control_plane: Arc::clone(control),
            informers,
            clock: Arc::clone(&clock),
            recorder: EventRecorder::new(Arc::clone(control), COMPONENT, Arc::clone(&clock), tasks),
            tasks: tasks.clone(),
        },
    };
    let own = ClusterControllersOptions {
        members: members.clone(),
        interpreter: context.interpreter.clone(),
        settings: ClusterControllersSettings {
            agent_cluster: Some(name.to_owned()),
            agent_certificate: certificate,
            gates: arguments.gates.feature_gates,
            ..arguments.cluster.settings()
        },
    };
    clusters::start_agent(&context.controller, &own);
    let lease = arguments.cluster.lease();
    clusters::run_agent_lease(control, cluster, lease, &clock, tasks);
    let namespace = &arguments.agent_namespace;
    if let Some(rotation) = arguments.rotation.options(name, namespace) {
        run_certificate_rotation(control, member, rotation, &clock, tasks);
    }
    flotilla_status::start_agent(&context);
    let exports = ServiceControllersOptions {
        members: Arc::new(members),
        enabled: services::EnabledServiceControllers::of_agent().gated(context.feature_gates),
    };
    services::start(&context.controller, &exports).await;
    let started = Box::pin(propagation::start_agent(&context, name)).await;
    started.map_err(anyhow::Error::msg)?;
    Ok(context.clusters.informer().clone())
}
