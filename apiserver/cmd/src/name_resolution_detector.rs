//! The command `flotilla service-name-resolution-detector`, which runs on the nodes of a member and
//! reports whether the names of Services are resolved there, as Karmada's detector of that name.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use client::remote::in_cluster::InClusterEnvironment;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::remote::{RemoteApi, RestConfig};
use client::{Api, ShutdownToken, TaskGroup};
use clusters::{
    ClusterNameResolutionReporter, NameLookup, NameResolutionOptions, NodeNameResolutionDetector,
};
use flotilla_cli::output;
use flotilla_http::{BindAddress, ProbeEndpoint, serve_probes};
use flotilla_runtime::LeaderElector;
use futures_util::FutureExt;
use machinery::duration;
use machinery::time::{Clock, SystemClock};

use crate::leader_election::{LeaseTimesArgs, host_name, leader_elector, run_elected_terms};
use crate::logs;
use crate::signals::TerminationSignals;

/// The only detector.
const COREDNS_DETECTOR: &str = "coredns-detector";
/// Any port: the resolver of the system wants one.
const LOOKUP_PORT: u16 = 443;

/// Run the service name resolution detector on a node of a member cluster.
///
/// It looks the name of a Service up, as the Pods of the node would, and reports the outcome as
/// the condition ServiceDomainNameResolutionReady of the Node. An elected detector of the cluster
/// reports the conditions of all nodes as that of the Cluster in the control plane.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla service-name-resolution-detector --cluster-name m1 --host-name node-1 \\\n    --host-kubeconfig plane.kubeconfig --kubeconfig m1.kubeconfig"
)]
pub(crate) struct NameResolutionDetectorArgs {
    /// Path to the kubeconfig of the control plane.
    #[arg(long, value_name = "FILE", alias = "karmada-kubeconfig")]
    host_kubeconfig: PathBuf,
    /// Name of the context in that kubeconfig; the current context by default.
    #[arg(long, value_name = "CONTEXT", alias = "host-context")]
    karmada_context: Option<String>,
    /// Path to the kubeconfig of the member; that of the pod by default.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of the member cluster that the detector serves for.
    #[arg(long, value_name = "NAME")]
    cluster_name: String,
    /// Name of the node that the detector runs on, used as lock holder identity; the name of the
    /// host by default.
    #[arg(long, value_name = "NAME")]
    host_name: Option<String>,
    /// The IP address on which to listen.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind_address: IpAddr,
    /// The port on which to serve health checks; 0 serves none.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    healthz_port: u16,
    /// A list of detectors to enable. '*' enables all detectors, of which there is one:
    /// coredns-detector.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    detectors: Vec<String>,
    /// Specifies how often the detector looks the name up.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    coredns_detect_period: Duration,
    /// The duration of successes for the name resolution to be considered healthy after recovery.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    coredns_success_threshold: Duration,
    /// The duration of failure for the name resolution to be considered unhealthy.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    coredns_failure_threshold: Duration,
    /// If the condition of a node has not been updated for this time, it is considered unknown.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    coredns_stale_threshold: Duration,
    /// The name to look up.
    #[arg(long, value_name = "NAME", default_value = "kubernetes.default")]
    coredns_lookup_name: String,
    #[command(flatten)]
    election: DetectorLeaderElectionArgs,
    #[command(flatten)]
    pub(crate) logs: logs::LoggingArgs,
}

/// The leader election flags of Kubernetes components, with the defaults of Karmada's detector.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election flags")]
struct DetectorLeaderElectionArgs {
    /// Start a leader election client and gain leadership before reporting on the cluster.
    /// Without it, each detector reports.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// The namespace of resource object in the member that is used for locking during leader
    /// election.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
    /// The name of resource object that is used for locking during leader election; the name of
    /// the detector follows.
    #[arg(long, value_name = "NAME", default_value = "cluster-problem-detector")]
    leader_elect_resource_name: String,
    #[command(flatten)]
    times: LeaseTimesArgs,
}

impl DetectorLeaderElectionArgs {
    /// The election between the detectors of a cluster; `None` without it.
    fn election(&self, node: &str) -> anyhow::Result<Option<LeaderElector>> {
        if !self.leader_elect {
            return Ok(None);
        }
        let name = format!("{}-{COREDNS_DETECTOR}", self.leader_elect_resource_name);
        let namespace = &self.leader_elect_resource_namespace;
        let elector = leader_elector(&self.times, namespace, &name)?;
        Ok(Some(LeaderElector {
            identity: format!("{node}_{}", elector.identity),
            ..elector
        }))
    }
}

impl NameResolutionDetectorArgs {
    fn options(&self) -> anyhow::Result<NameResolutionOptions> {
        let mut is_enabled = false;
        for name in &self.detectors {
            let (name, on) = match name.strip_prefix('-') {
                Some(name) => (name, false),
                None => (name.as_str(), true),
            };
            match name {
                "*" | COREDNS_DETECTOR => is_enabled = on,
                _ => bail!(
                    "--detectors: {name:?} is not in the list of known detectors: {COREDNS_DETECTOR}"
                ),
            }
        }
        if !is_enabled {
            bail!("--detectors: no detector would run");
        }
        if self.coredns_detect_period.is_zero() {
            bail!("--coredns-detect-period must be greater than 0");
        }
        if self.coredns_stale_threshold <= self.coredns_detect_period {
            bail!("--coredns-stale-threshold must be greater than --coredns-detect-period");
        }
        Ok(NameResolutionOptions {
            period: self.coredns_detect_period,
            success_threshold: self.coredns_success_threshold,
            failure_threshold: self.coredns_failure_threshold,
            stale_threshold: self.coredns_stale_threshold,
        })
    }

    /// How the member is reached.
    fn member(&self) -> anyhow::Result<RestConfig> {
        let Some(file) = &self.kubeconfig else {
            return Ok(InClusterEnvironment::from_environment()?.load()?);
        };
        let rules = KubeconfigLoadingRules::from_file(file);
        rules.load().context("the cluster's kubeconfig")
    }

    /// How the control plane is reached.
    fn control_plane(&self) -> anyhow::Result<RestConfig> {
        let rules = KubeconfigLoadingRules {
            context: self.karmada_context.clone(),
            ..KubeconfigLoadingRules::from_file(&self.host_kubeconfig)
        };
        rules.load().context("the kubeconfig of the control plane")
    }

    /// Serves `/healthz`, unless the port is 0.
    async fn serve_health(&self, tasks: &TaskGroup) -> anyhow::Result<()> {
        if self.healthz_port == 0 {
            return Ok(());
        }
        let address = SocketAddr::new(self.bind_address, self.healthz_port);
        if let Some(listener) = BindAddress::Address(address).bind().await? {
            let ready = Arc::new(AtomicBool::new(true));
            serve_probes(listener, ProbeEndpoint::Health(ready), tasks);
        }
        Ok(())
    }

    /// Looks the name up with the resolver of the system, on a thread for blocking calls.
    fn lookup(&self) -> NameLookup {
        let name: Arc<str> = self.coredns_lookup_name.as_str().into();
        Box::new(move || {
            let name = Arc::clone(&name);
            async move {
                let answer = tokio::net::lookup_host((&*name, LOOKUP_PORT)).await;
                match answer.map(|mut addresses| addresses.next()) {
                    Ok(Some(_)) => Ok(()),
                    Ok(None) => Err(format!("lookup {name}: no such host")),
                    Err(error) => Err(format!("lookup {name}: {error}")),
                }
            }
            .boxed()
        })
    }
}

pub(crate) async fn run(arguments: NameResolutionDetectorArgs) -> anyhow::Result<()> {
    let mut signals = TerminationSignals::listen()?;
    let tasks = TaskGroup::new(ShutdownToken::new());
    // The lease is released at the end, after the tasks.
    let connections = TaskGroup::new(ShutdownToken::new());
    let running = async {
        start(&arguments, &tasks, &connections).await?;
        std::future::pending().await
    };
    let ended: anyhow::Result<Option<()>> = signals.run_unless_signaled(running).await;
    tasks.stop().await;
    connections.stop().await;
    ended.map(drop)
}

async fn start(
    arguments: &NameResolutionDetectorArgs,
    tasks: &TaskGroup,
    connections: &TaskGroup,
) -> anyhow::Result<()> {
    let options = arguments.options()?;
    let node = arguments.host_name.clone().unwrap_or_else(host_name);
    let election = arguments.election.election(&node)?;
    let (member, control) = (arguments.member()?, arguments.control_plane()?);
    let control_plane = control.server.to_string();
    let member: Arc<dyn Api> = Arc::new(RemoteApi::new(member, connections)?);
    let control: Arc<dyn Api> = Arc::new(RemoteApi::new(control, connections)?);
    arguments.serve_health(tasks).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let detector = NodeNameResolutionDetector {
        member: Arc::clone(&member),
        node: node.clone(),
        lookup: arguments.lookup(),
        options,
        clock: Arc::clone(&clock),
    };
    detector.run(tasks);
    let cluster = arguments.cluster_name.clone();
    let reporter = {
        let member = Arc::clone(&member);
        move |control| ClusterNameResolutionReporter {
            control,
            member: Arc::clone(&member),
            cluster: cluster.clone(),
            options,
            clock: Arc::clone(&clock),
        }
    };
    match election {
        Some(election) => run_elected_terms(election, member, tasks, move |fence, tasks| {
            reporter(fence.wrap(Arc::clone(&control))).run(&tasks);
            async { Ok(()) }
        }),
        None => reporter(control).run(tasks),
    }
    let cluster = &arguments.cluster_name;
    output::print_line(format!(
        "ready {control_plane} cluster={cluster} node={node}"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct DetectorTestCli {
        #[command(flatten)]
        flags: NameResolutionDetectorArgs,
    }

    fn parse(more: &[&str]) -> Result<NameResolutionDetectorArgs, String> {
        let own = ["x", "--cluster-name=m", "--host-kubeconfig=k"];
        let parsed = DetectorTestCli::try_parse_from(own.iter().chain(more));
        parsed
            .map(|cli| cli.flags)
            .map_err(|error| error.to_string())
    }

    // proves: SND-flags
    #[test]
    fn flags_are_those_of_karmadas_detector() {
        let flags = parse(&[]).unwrap();
        assert_eq!(flags.options().unwrap(), NameResolutionOptions::default());
        let election = flags.election.election("n1").unwrap().unwrap();
        assert_eq!(
            (&*election.namespace, &*election.name),
            ("kube-system", "cluster-problem-detector-coredns-detector")
        );
        assert!(election.identity.starts_with("n1_"));
        let manifest = [
            "--karmada-kubeconfig=/tmp/config",
            "--host-context=c",
            "--host-name=n1",
            "--bind-address=10.0.0.1",
            "--healthz-port=8081",
            "--detectors=*",
            "--leader-elect=false",
        ];
        let line = ["x", "--cluster-name=m"];
        let parsed = DetectorTestCli::try_parse_from(line.iter().chain(&manifest));
        let flags = parsed.unwrap_or_else(|error| panic!("{error}")).flags;
        assert!(flags.election.election("n1").unwrap().is_none());
        for (flag, error) in [
            ("--detectors=-coredns-detector", "no detector would run"),
            ("--detectors=*,kernel", "\"kernel\" is not in the list"),
            ("--coredns-detect-period=0s", "must be greater than 0"),
            ("--coredns-stale-threshold=5s", "must be greater than"),
        ] {
            let message = parse(&[flag]).unwrap().options().unwrap_err().to_string();
            assert!(message.contains(error), "{flag}: {message}");
        }
    }
}
