//! The command `flotilla up`, which runs a control plane and simulated members in one
//! process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use client::{At, Error};
use clusters::JoinSpec;
use machinery::Object;
use openapi::karmada::Cluster;
use openapi::karmada::resources::CLUSTERS;
use flotilla_runtime::{Informer, Select};

use crate::control::{self, Base, Settings};
use crate::controllers;
use crate::engine::Choice;
use crate::estimators;
use crate::fleet;
use crate::gates;
use crate::logs;
use crate::member::{self, Size};
use crate::scripts;
use crate::signals::Signals;
use crate::standalone::{Setup, Standalone};
use crate::startup::Startup;
use crate::{output, scheduling};

const STORE: Choice = Choice::Embedded { sync: true };
const PATIENCE: Duration = Duration::from_secs(60);

/// Start a control plane in the foreground; with --members, simulated clusters join it.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla up --members 3\n  kubectl --kubeconfig ~/.local/share/flotilla/kubeconfig get clusters"
)]
pub(crate) struct Arguments {
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
    size: Size,
    #[command(flatten)]
    fleet: fleet::Flags,
    #[command(flatten)]
    controllers: controllers::Flags,
    #[command(flatten)]
    scheduling: scheduling::Flags,
    #[command(flatten)]
    estimators: estimators::Flags,
    #[command(flatten)]
    scripts: scripts::Flags,
    #[command(flatten)]
    gates: gates::Flags,
    #[command(flatten)]
    pub(crate) logs: logs::Flags,
}

/// A control plane with its simulated members.
pub(crate) struct Fleet {
    pub(crate) control: Standalone,
    pub(crate) members: Vec<Standalone>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let dir = match arguments.dir {
        Some(dir) => dir,
        None => default_dir()?,
    };
    let gates = arguments.gates.feature_gates;
    let estimators = arguments.estimators.under(gates)?;
    let settings = Settings {
        clusters: arguments.fleet.options(),
        controllers: arguments.controllers.settle()?,
        allow_no_execute: arguments.fleet.allow_no_execute_taint_policy,
        scripts: arguments.scripts.limits(),
        scheduling: arguments.scheduling.under(gates)?.asking(estimators),
        ..Settings::with(gates)
    };
    let (listen, members) = (arguments.listen, arguments.members);
    let starting = Fleet::start(&dir, listen, members, &arguments.size, &settings);
    let Some(fleet) = signals.unless(starting).await? else {
        return Ok(());
    };
    Startup {
        mode: "standalone",
        store: &STORE,
        address: fleet.control.address,
        data: &dir,
        host: None,
        members,
    }
    .log();
    output::line(member::ready(&fleet.control));
    let ended = tokio::select! {
        () = signals.wait() => Ok(()),
        error = fleet.failed() => Err(error),
    };
    fleet.stop().await;
    ended
}

/// `$XDG_DATA_HOME/flotilla`, by default `~/.local/share/flotilla`.
fn default_dir() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/share")));
    Ok(home
        .context("no home directory; choose the data directory with --dir")?
        .join("flotilla"))
}

impl Fleet {
    /// Starts everything and waits until every Cluster is Ready.
    pub(crate) async fn start(
        dir: &Path,
        listen: SocketAddr,
        members: usize,
        size: &Size,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let setup = Setup {
            dir,
            listen,
            engine: STORE,
            encryption: None,
            keep_port: false,
            federation: true,
            rules: settings.scheduling.rules,
            names: &[],
            authentication: Default::default(),
            shutdown_delay: Duration::ZERO,
            allow_no_execute: settings.allow_no_execute,
            scripts: settings.scripts,
            gates: settings.gates,
        };
        let control = async {
            let server = Standalone::start(setup).await?;
            let context = Base::alone(&server);
            control::housekeeping(&context, &server.identity()).await?;
            Box::pin(control::federation(&context, settings)).await?;
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
        let fleet = Self { control, members };
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
                    ca_pem: Some(member.root_ca()),
                    ..JoinSpec::default()
                };
                if self.is_joined(&spec).await? {
                    return Ok(());
                }
                Box::pin(clusters::join(
                    &*self.control.api,
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
            .control
            .api
            .get(At::one(&CLUSTERS, "", &spec.name))
            .await
        {
            Ok(object) => Ok(object.view::<Cluster>()?.spec.api_endpoint == spec.endpoint),
            Err(Error::Status(status)) if status.code == 404 => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    async fn wait_ready(&self) -> anyhow::Result<()> {
        let clusters = self
            .control
            .informers
            .get(&self.control.api, &Select::all(&CLUSTERS));
        let names: Vec<String> = (1..=self.members.len())
            .map(|n| format!("member{n}"))
            .collect();
        let changed = Arc::new(tokio::sync::Notify::new());
        let wake = Arc::clone(&changed);
        clusters.on_change(move |_| wake.notify_one());
        let all_ready = async {
            while !names.iter().all(|name| is_ready(&clusters, name)) {
                changed.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, all_ready)
            .await
            .map_err(|_| {
                let missing: Vec<&str> = names
                    .iter()
                    .filter(|n| !is_ready(&clusters, n))
                    .map(String::as_str)
                    .collect();
                anyhow!(
                    "not ready after {} s: {}; see kubectl describe clusters",
                    PATIENCE.as_secs(),
                    missing.join(", ")
                )
            })
    }

    /// Resolves with the error when a store has failed permanently.
    pub(crate) async fn failed(&self) -> anyhow::Error {
        let members = self.members.iter().map(|m| Box::pin(m.failed()));
        let mut all: Vec<_> = members.collect();
        all.push(Box::pin(self.control.failed()));
        futures_util::future::select_all(all).await.0
    }

    pub(crate) async fn stop(&self) {
        self.control.stop().await;
        futures_util::future::join_all(self.members.iter().map(|m| m.stop())).await;
    }
}

fn is_ready(clusters: &Informer, name: &str) -> bool {
    let complete = |c: &Object| {
        c.view::<Cluster>().is_ok_and(|c| {
            c.is_ready()
                && c.condition("CompleteAPIEnablements")
                    .is_some_and(|c| c.status == "True")
        })
    };
    clusters.get("", name).is_some_and(|c| complete(&c))
}
