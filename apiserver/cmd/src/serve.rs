//! The command `flotilla serve`, which runs the API server and its controllers, standalone
//! or behind another API server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use auth::authenticate;
use clap::Args;
use client::remote::Config;
use client::remote::incluster::Pod;
use client::remote::kubeconfig::Source;
use flotilla_runtime::Election;

use crate::aggregated::{self, Aggregated, Service};
use crate::control::{self, Base, Settings};
use crate::controllers;
use crate::encryption::Scope;
use crate::engine;
use crate::flag_modes::{CommandLineFlags, Mode};
use crate::gates;
use crate::leadership;
use crate::logs;
use crate::plane::Plane;
use crate::signals::Signals;
use crate::standalone::{Setup, Standalone};
use crate::startup::Startup;
use crate::templates::{self, Templates};
use crate::{duration, estimators, fleet, member, output, scheduling, scripts};

/// The namespace of the lease of a standalone server.
const LEASES: &str = "kube-system";
/// The default namespace of the installation and name of its Service.
const NAMESPACE: &str = "flotilla-system";
const SERVICE: &str = "flotilla";
/// How long the start waits for informers; later /readyz reports those that are missing.
const SYNC_TIMEOUT: Duration = Duration::from_secs(20);

/// Run the API server and its controllers.
///
/// With --kubeconfig or --in-cluster Flotilla serves its own groups behind that API
/// server, which authenticates and authorizes requests, proxies them to Flotilla, and
/// stores the templates. Without these flags, Flotilla serves the whole Kubernetes API
/// itself.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla serve --data-dir /var/lib/flotilla --listen 0.0.0.0:6443\n  flotilla serve --data-dir /var/lib/flotilla --listen 0.0.0.0:6443 --in-cluster\n  flotilla serve --data-dir /var/lib/flotilla --etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379 \\\n    --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    given: CommandLineFlags,
    /// The directory of the store, keys and certificates; a standalone server also writes
    /// a kubeconfig there.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The address to serve on.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// An additional DNS name or address for the serving certificate of a standalone
    /// server; may be repeated.
    #[arg(long, value_name = "NAME")]
    tls_san: Vec<String>,
    /// Time to delay the termination. During that time the server keeps serving requests
    /// normally, but /readyz fails, so that load balancers stop sending requests.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    shutdown_delay_duration: Duration,
    #[command(flatten)]
    store: engine::Flags,
    #[command(flatten)]
    host: Host,
    #[command(flatten)]
    leadership: leadership::Flags,
    #[command(flatten)]
    templates: templates::Flags,
    #[command(flatten)]
    fleet: fleet::Flags,
    #[command(flatten)]
    scheduling: scheduling::Flags,
    #[command(flatten)]
    estimators: estimators::Flags,
    #[command(flatten)]
    controllers: controllers::Flags,
    #[command(flatten)]
    scripts: scripts::Flags,
    #[command(flatten)]
    gates: gates::Flags,
    #[command(flatten)]
    pub(crate) logs: logs::Flags,
}

impl Arguments {
    fn mode(&self) -> Mode {
        Mode {
            behind_host: self.host.kubeconfig.is_some() || self.host.in_cluster,
            elected: self.leadership.is_elected(self.store.is_shared()),
        }
    }

    fn settings(&self, templates: Templates) -> anyhow::Result<Settings> {
        let scheduling = self.scheduling.under(self.gates.feature_gates)?;
        Ok(Settings {
            clusters: self.fleet.options(),
            templates,
            scheduling: scheduling.asking(self.estimators.under(self.gates.feature_gates)?),
            controllers: self.controllers.settle()?,
            scripts: self.scripts.limits(),
            gates: self.gates.feature_gates,
            allow_no_execute: self.fleet.allow_no_execute_taint_policy,
        })
    }
}

/// The flags of the aggregated mode.
#[derive(Args)]
struct Host {
    /// Serve behind the API server of this kubeconfig, with its current user.
    #[arg(long, value_name = "FILE", conflicts_with = "in_cluster")]
    kubeconfig: Option<PathBuf>,
    /// Serve behind the API server of the cluster that this process runs in.
    #[arg(long)]
    in_cluster: bool,
    /// The Service by which that API server reaches Flotilla.
    #[arg(long, value_name = "NAME", default_value = SERVICE)]
    service_name: String,
    /// The namespace of that Service and of Flotilla's own objects; by default the pod's
    /// namespace, else flotilla-system.
    #[arg(long, value_name = "NAMESPACE")]
    service_namespace: Option<String>,
    /// The port of that Service.
    #[arg(long, value_name = "PORT", default_value_t = 443)]
    service_port: u16,
    /// Enables anonymous requests to the secure port of the API server. Requests that are
    /// not rejected by another authentication method are treated as anonymous requests.
    /// Without it they are rejected, including probes.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    anonymous_auth: bool,
    /// Identifiers of the API: tokens must be for at least one of these audiences; by
    /// default those of the API server to serve behind, or the issuer of Flotilla's own
    /// tokens.
    #[arg(long, value_name = "AUDIENCE", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// The duration to cache responses from the TokenReview of the host.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    authentication_token_webhook_cache_ttl: Duration,
    /// The duration to cache 'authorized' responses from the SubjectAccessReview of the
    /// host.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    authorization_webhook_cache_authorized_ttl: Duration,
    /// The duration to cache 'unauthorized' responses from the SubjectAccessReview of the
    /// host.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    authorization_webhook_cache_unauthorized_ttl: Duration,
}

impl Host {
    /// The client configuration for the host, and the namespace of this pod; `None` in the
    /// standalone mode.
    fn config(&self) -> anyhow::Result<Option<(Config, Option<String>)>> {
        if let Some(file) = &self.kubeconfig {
            return Ok(Some((Source::file(file).load()?, None)));
        }
        if !self.in_cluster {
            return Ok(None);
        }
        let pod = Pod::environment()?;
        Ok(Some((pod.load()?, pod.namespace())))
    }

    fn delegated(&self) -> auth::delegated::Options {
        auth::delegated::Options {
            anonymous: self.anonymous_auth,
            audiences: self.api_audiences.clone(),
            token_ttl: self.authentication_token_webhook_cache_ttl,
            allowed_ttl: self.authorization_webhook_cache_authorized_ttl,
            refused_ttl: self.authorization_webhook_cache_unauthorized_ttl,
        }
    }

    fn authentication(&self) -> authenticate::Options {
        authenticate::Options {
            anonymous: self.anonymous_auth,
            audiences: self.api_audiences.clone(),
        }
    }

    fn service(&self, pod_namespace: Option<String>) -> Service {
        let namespace = self.service_namespace.clone().or(pod_namespace);
        Service {
            namespace: namespace.unwrap_or_else(|| NAMESPACE.into()),
            name: self.service_name.clone(),
            port: self.service_port,
        }
    }
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    arguments.given.check(arguments.mode())?;
    match arguments.host.config()? {
        None => Box::pin(alone(&arguments)).await,
        Some((host, pod_namespace)) => {
            let settings = arguments.settings(arguments.templates.behind())?;
            let setup = aggregated::Setup {
                dir: &arguments.data_dir,
                listen: arguments.listen,
                engine: arguments.store.choice()?,
                encryption: arguments.store.encryption(Scope::OwnGroups)?,
                host,
                service: arguments.host.service(pod_namespace),
                etcd_secret: arguments.store.certificates_secret().map(str::to_owned),
                delegated: arguments.host.delegated(),
                rules: settings.scheduling.rules,
                shutdown_delay: arguments.shutdown_delay_duration,
                allow_no_execute: settings.allow_no_execute,
                scripts: settings.scripts,
                gates: arguments.gates.feature_gates,
            };
            Box::pin(behind(setup, &arguments.leadership, settings)).await
        }
    }
}

async fn alone(arguments: &Arguments) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let Some(server) = signals.unless(start(arguments)).await? else {
        return Ok(());
    };
    output::line(member::ready(&server));
    let ended = tokio::select! {
        () = signals.wait() => Ok(()),
        error = server.failed() => Err(error),
    };
    server.stop().await;
    ended
}

async fn start(arguments: &Arguments) -> anyhow::Result<Standalone> {
    let settings = arguments.settings(arguments.templates.alone())?;
    let setup = Setup {
        dir: &arguments.data_dir,
        listen: arguments.listen,
        engine: arguments.store.choice()?,
        encryption: arguments.store.encryption(Scope::All)?,
        keep_port: false,
        federation: true,
        rules: settings.scheduling.rules,
        scripts: settings.scripts,
        names: &arguments.tls_san,
        authentication: arguments.host.authentication(),
        shutdown_delay: arguments.shutdown_delay_duration,
        allow_no_execute: settings.allow_no_execute,
        gates: arguments.gates.feature_gates,
    };
    let store = setup.engine.clone();
    let election = arguments.leadership.election(store.is_shared(), LEASES)?;
    let server = Standalone::start(setup).await?;
    Startup {
        mode: "standalone",
        store: &store,
        address: server.address,
        data: &arguments.data_dir,
        host: None,
        members: 0,
    }
    .log();
    let identity = server.identity();
    let controllers = move |context: Base| {
        let (identity, settings) = (identity.clone(), settings.clone());
        async move {
            control::housekeeping(&context, &identity).await?;
            Box::pin(control::federation(&context, &settings)).await
        }
    };
    run_controllers(&server, election, controllers).await?;
    Ok(server)
}

/// Starts the controllers now, or with leader election in each term.
async fn run_controllers<F, Fut>(
    server: &Plane,
    election: Option<Election>,
    controllers: F,
) -> anyhow::Result<()>
where
    F: Fn(Base) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    match election {
        None => {
            controllers(Base::alone(server)).await?;
            let synced = server.informers.wait_synced();
            if tokio::time::timeout(SYNC_TIMEOUT, synced).await.is_err() {
                // Such as when one stored object cannot be decrypted: the others are served.
                let missing = server.informers.unsynced();
                tracing::warn!(?missing, "serving before every informer has synced");
            }
        }
        Some(election) => leadership::compete(election, server, controllers),
    }
    Ok(())
}

async fn behind(
    setup: aggregated::Setup<'_>,
    flags: &leadership::Flags,
    settings: Settings,
) -> anyhow::Result<()> {
    let election = flags.election(setup.engine.is_shared(), &setup.service.namespace)?;
    let mut signals = Signals::listen()?;
    let starting = async {
        let (store, data) = (setup.engine.clone(), setup.dir);
        let aggregated = Aggregated::start(setup).await?;
        Startup {
            mode: "aggregated",
            store: &store,
            address: aggregated.plane.address,
            data,
            host: Some(&aggregated.host),
            members: 0,
        }
        .log();
        aggregated.register().await?;
        let controllers = move |context: Base| {
            let settings = settings.clone();
            async move { Box::pin(control::federation(&context, &settings)).await }
        };
        run_controllers(&aggregated.plane, election, controllers).await?;
        Ok(aggregated)
    };
    let Some(aggregated) = signals.unless(Box::pin(starting)).await? else {
        return Ok(());
    };
    let server = &aggregated.plane;
    output::line(format!("ready {} behind {}", server.url, aggregated.host));
    let ended = tokio::select! {
        () = signals.wait() => Ok(()),
        error = server.failed() => Err(error),
    };
    aggregated.stop().await;
    ended
}
