//! The command `flotilla up`, which runs a control plane and simulated members in one
//! process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use auth::authenticator::LocalAuthenticatorOptions;
use clap::Args;
use client::{Error, Informer, ListWatchSelector, ResourcePath};
use clusters::JoinSpec;
use flotilla_cli::{feature_gate_flags, output, scheduler_flags};
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use machinery::Object;

use crate::cluster_flags;
use crate::controller_flags;
use crate::controller_manager::{self, LeaderContext, MultiClusterControllerOptions};
use crate::estimator_flags;
use crate::logs;
use crate::member::{self, HollowClusterArgs};
use crate::script_flags;
use crate::signals::TerminationSignals;
use crate::standalone::{StandaloneServer, StandaloneServerOptions};
use crate::startup::StartupLogFields;
use crate::storage_engine::StorageBackendConfig;

const STORE: StorageBackendConfig = StorageBackendConfig::Embedded { sync: true };
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Start a control plane in the foreground; with --members, simulated clusters join it.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla up --members 3\n  kubectl --kubeconfig ~/.local/share/flotilla/kubeconfig get clusters"
)]
pub(crate) struct UpArgs {
    /// The data directory; by default flotilla in the user's data directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The address to serve on; port 0 selects a free port.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// The number of simulated members that join, as member1, member2, ...
    #[arg(long, default_value_t = 0, value_name = "N")]
    members: usize,
    #[command(flatten)]
    size: HollowClusterArgs,
    #[command(flatten)]
    fleet: cluster_flags::ClusterControllersArgs,
    #[command(flatten)]
    controllers: controller_flags::ControllerArgs,
    #[command(flatten)]
    scheduling: scheduler_flags::SchedulerArgs,
    #[command(flatten)]
    estimators: estimator_flags::EstimatorArgs,
    #[command(flatten)]
    scripts: script_flags::ScriptLimitArgs,
    #[command(flatten)]
    gates: feature_gate_flags::FeatureGateArgs,
    #[command(flatten)]
    pub(crate) logs: logs::LoggingArgs,
}

/// A control plane with its simulated members.
pub(crate) struct LocalFleet {
    pub(crate) control_plane: StandaloneServer,
    pub(crate) members: Vec<StandaloneServer>,
}

pub(crate) async fn run(arguments: UpArgs) -> anyhow::Result<()> {
    let mut signals = TerminationSignals::listen()?;
    let dir = match arguments.dir {
        Some(dir) => dir,
        None => default_data_dir()?,
    };
    let gates = arguments.gates.feature_gates;
    let controllers = arguments.controllers.options()?;
    let estimators = arguments
        .estimators
        .options(gates, controllers.descheduler_enabled)?;
    let accurate_estimates = arguments.estimators.are_used_by_scheduler();
    let settings = MultiClusterControllerOptions {
        clusters: arguments.fleet.options(),
        controllers,
        allow_no_execute: arguments.fleet.allow_no_execute_taint_policy,
        scripts: arguments.scripts.limits(),
        scheduling: arguments.scheduling.options(gates)?,
        estimators,
        accurate_estimates,
        ..MultiClusterControllerOptions::with_gates(gates)
    };
    let (listen, members) = (arguments.listen, arguments.members);
    let starting = LocalFleet::start(&dir, listen, members, &arguments.size, &settings);
    let Some(fleet) = signals.run_unless_signaled(starting).await? else {
        return Ok(());
    };
    StartupLogFields {
        mode: "standalone",
        store: &STORE,
        address: fleet.control_plane.address,
        data: &dir,
        host: None,
        members,
    }
    .log();
    output::print_line(member::ready_line(&fleet.control_plane));
    output::print_line(next_steps(&fleet.control_plane.kubeconfig, members));
    let ended = tokio::select! {
        () = signals.wait() => Ok(()),
        error = fleet.wait_for_failure() => Err(error),
    };
    fleet.stop().await;
    ended
}

/// The next steps, for another terminal. Scripts read only the line before them.
fn next_steps(kubeconfig: &Path, members: usize) -> String {
    let workload = "kubectl create deployment hello --image=nginx:1.27 --replicas=4";
    let steps = if members == 0 {
        [
            "flotilla join member1 --cluster-kubeconfig FILE".to_owned(),
            format!("{workload} --dry-run=client -o yaml | flotilla apply -f - --all-clusters"),
            "flotilla why deployment/hello".to_owned(),
        ]
    } else {
        [
            format!("{workload} --dry-run=client -o yaml | flotilla apply -f - --all-clusters"),
            "flotilla get deployments -s all".to_owned(),
            "flotilla why deployment/hello".to_owned(),
        ]
    };
    format!(
        "Try next, in another terminal:\n  export KUBECONFIG={}\n  {}",
        kubeconfig.display(),
        steps.join("\n  ")
    )
}

/// `$XDG_DATA_HOME/flotilla`, by default `~/.local/share/flotilla`.
fn default_data_dir() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/share")));
    Ok(home
        .context("no home directory; choose the data directory with --dir")?
        .join("flotilla"))
}

impl LocalFleet {
    /// Starts everything and waits until every Cluster is Ready.
    pub(crate) async fn start(
        dir: &Path,
        listen: SocketAddr,
        members: usize,
        size: &HollowClusterArgs,
        settings: &MultiClusterControllerOptions,
    ) -> anyhow::Result<Self> {
        let setup = StandaloneServerOptions {
            scheduling_settings: settings.scheduling.scheduling_settings,
            authentication: LocalAuthenticatorOptions {
                bootstrap_tokens: true,
                ..Default::default()
            },
            profiling: true,
            allow_no_execute: settings.allow_no_execute,
            scripts: settings.scripts,
            gates: settings.gates,
            ..StandaloneServerOptions::new(dir, listen, STORE)
        };
        let control = async {
            let server = StandaloneServer::start(setup).await?;
            let context = LeaderContext::without_election(&server);
            controller_manager::start_kube_controllers(
                &context.controllers,
                &server.service_account_options(),
            )
            .await?;
            Box::pin(controller_manager::start_karmada_controllers(
                &context, settings,
            ))
            .await?;
            Ok::<_, anyhow::Error>(server)
        };
        let starts = (1..=members).map(|n| async move {
            let dir = dir.join(format!("member{n}"));
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            member::start(&dir, any, size).await
        });
        let (control, members) = tokio::try_join!(
            Box::pin(control),
            futures_util::future::try_join_all(starts)
        )?;
        let fleet = Self {
            control_plane: control,
            members,
        };
        fleet.join_members().await?;
        fleet.wait_ready().await?;
        Ok(fleet)
    }

    async fn join_members(&self) -> anyhow::Result<()> {
        let joins = self
            .members
            .iter()
            .enumerate()
            .map(|(n, member)| async move {
                let spec = JoinSpec {
                    name: format!("member{}", n + 1),
                    endpoint: member.url.clone(),
                    ca_bundle: Some(member.root_ca()),
                    ..JoinSpec::default()
                };
                if self.is_joined(&spec).await? {
                    return Ok(());
                }
                Box::pin(clusters::join(
                    &*self.control_plane.api,
                    &*member.api,
                    &spec,
                    &|_| {},
                ))
                .await
                .with_context(|| format!("joining {}", spec.name))?;
                Ok::<_, anyhow::Error>(())
            });
        futures_util::future::try_join_all(joins).await?;
        Ok(())
    }

    /// Whether the member has joined in an earlier run. It keeps its port and keys, so one
    /// join is enough.
    async fn is_joined(&self, spec: &JoinSpec) -> anyhow::Result<bool> {
        match self
            .control_plane
            .api
            .get(ResourcePath::object(&CLUSTERS, "", &spec.name))
            .await
        {
            Ok(object) => Ok(object.decode::<Cluster>()?.spec.api_endpoint == spec.endpoint),
            Err(Error::Status(status)) if status.code == 404 => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    async fn wait_ready(&self) -> anyhow::Result<()> {
        let clusters = self
            .control_plane
            .informers
            .get(&self.control_plane.api, &ListWatchSelector::all(&CLUSTERS));
        let names: Vec<String> = (1..=self.members.len())
            .map(|n| format!("member{n}"))
            .collect();
        let changed = Arc::new(tokio::sync::Notify::new());
        let wake = Arc::clone(&changed);
        clusters.add_event_handler(move |_| wake.notify_one());
        let all_ready = async {
            while !names.iter().all(|name| is_ready(&clusters, name)) {
                changed.notified().await;
            }
        };
        tokio::time::timeout(READY_TIMEOUT, all_ready)
            .await
            .map_err(|_| {
                let missing: Vec<&str> = names
                    .iter()
                    .filter(|n| !is_ready(&clusters, n))
                    .map(String::as_str)
                    .collect();
                anyhow!(
                    "not ready after {} s: {}; see kubectl describe clusters",
                    READY_TIMEOUT.as_secs(),
                    missing.join(", ")
                )
            })
    }

    /// Resolves with the error when a store has failed permanently.
    pub(crate) async fn wait_for_failure(&self) -> anyhow::Error {
        let members = self.members.iter().map(|m| Box::pin(m.wait_for_failure()));
        let mut all: Vec<_> = members.collect();
        all.push(Box::pin(self.control_plane.wait_for_failure()));
        futures_util::future::select_all(all).await.0
    }

    pub(crate) async fn stop(&self) {
        self.control_plane.stop().await;
        futures_util::future::join_all(self.members.iter().map(|m| m.stop())).await;
    }
}

fn is_ready(clusters: &Informer, name: &str) -> bool {
    let complete = |c: &Object| {
        c.decode::<Cluster>().is_ok_and(|c| {
            c.is_ready()
                && c.condition("CompleteAPIEnablements")
                    .is_some_and(|c| c.status == "True")
        })
    };
    clusters.get("", name).is_some_and(|c| complete(&c))
}
