//! Leader election: of several processes on one store, the leader runs the controllers.
//!
//! flags ──► [`LeaderElector`] ──wins──► [`LeaderContext`] with a fence ──► controllers, until the term ends
//!
//! Invariants: the controllers of a term have stopped, or are aborted, before its lease
//! ends. The fence refuses every write that begins after the lease has ended; a write to a
//! member or a backend store is checked again before its bytes are sent. A write to the control plane that was
//! already on its way to the store when the process was suspended may still be committed;
//! the next leader corrects it. The process serves requests all the time, and competes for
//! the lease again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use addons::AddonSwitches;
use anyhow::bail;
use clap::Args;
use client::{Api, InformerFactory, TaskGroup, controller_client};
use flotilla_runtime::{LeaderElector, LeaderFence, LeaderTerm};
use machinery::time::{Clock, SystemClock};
use machinery::{UserInfo, duration};
use members::{ClusterProxyBackends, MemberConnector, MemberEndpoint, RemoteMemberConnector};
use scheduler::DecisionExplanationCache;
use search::MemberCaches;

use crate::controller_manager::{LeaderContext, controller_manager_context};
use crate::flag_modes::EffectiveMode;
use crate::running_server::RunningServer;

const HOSTNAME_FILE: &str = "/proc/sys/kernel/hostname";
/// The fraction of the remaining lease in which the controllers must stop; then they are
/// aborted.
const STOP_LEASE_FRACTION: f64 = 0.8;

/// The times of a leader election: flags of each component that elects a leader.
#[derive(Args, Clone, Debug)]
pub(crate) struct LeaseTimesArgs {
    /// The duration that non-leader candidates will wait after observing a leadership
    /// renewal until attempting to acquire leadership; whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse, add = EffectiveMode::LeaderElection)]
    leader_elect_lease_duration: Duration,
    /// The interval between attempts by the acting leader to renew a leadership slot
    /// before it stops leading.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, add = EffectiveMode::LeaderElection)]
    leader_elect_renew_deadline: Duration,
    /// The duration the clients should wait between attempting acquisition and renewal of
    /// a leadership.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse, add = EffectiveMode::LeaderElection)]
    leader_elect_retry_period: Duration,
}

/// The leader election flags of Kubernetes components, with their defaults.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election flags")]
pub(crate) struct LeaderElectionArgs {
    /// Start a leader election client and gain leadership before running the controllers
    /// [default: true with --etcd-servers, else false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,
    #[command(flatten)]
    times: LeaseTimesArgs,
    /// The namespace of resource object that is used for locking during leader election;
    /// by default kube-system, or Flotilla's own behind another API server.
    #[arg(long, value_name = "NAMESPACE", add = EffectiveMode::LeaderElection)]
    leader_elect_resource_namespace: Option<String>,
    /// The name of resource object that is used for locking during leader election.
    #[arg(long, value_name = "NAME", default_value = "flotilla", add = EffectiveMode::LeaderElection)]
    leader_elect_resource_name: String,
}

impl LeaderElectionArgs {
    /// Whether only an elected leader runs the controllers. `shared` is whether other
    /// processes may use the same store.
    pub(crate) fn is_elected(&self, shared: bool) -> bool {
        self.leader_elect.unwrap_or(shared)
    }

    /// The leader election; `None` without it. `shared` is whether other processes may use
    /// the same store, `default_namespace` the default namespace of the lease.
    pub(crate) fn election(
        &self,
        shared: bool,
        default_namespace: &str,
    ) -> anyhow::Result<Option<LeaderElector>> {
        if !self.is_elected(shared) {
            return Ok(None);
        }
        let namespace = self.leader_elect_resource_namespace.as_deref();
        let namespace = namespace.unwrap_or(default_namespace);
        leader_elector(&self.times, namespace, &self.leader_elect_resource_name).map(Some)
    }
}

/// The election with these times, if they make sense together.
pub(crate) fn leader_elector(
    times: &LeaseTimesArgs,
    namespace: &str,
    name: &str,
) -> anyhow::Result<LeaderElector> {
    let (lease, renew, retry) = (
        times.leader_elect_lease_duration,
        times.leader_elect_renew_deadline,
        times.leader_elect_retry_period,
    );
    if lease < Duration::from_secs(1) || lease.subsec_nanos() != 0 {
        bail!("--leader-elect-lease-duration must be whole seconds, at least one");
    }
    if lease <= renew {
        bail!("--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline");
    }
    if retry.is_zero() || renew <= retry.mul_f64(1.2) {
        bail!(
            "--leader-elect-renew-deadline must be greater than 1.2 times --leader-elect-retry-period, which must not be zero"
        );
    }
    Ok(LeaderElector {
        lease_duration: lease,
        renew_deadline: renew,
        retry_period: retry,
        ..LeaderElector::new(namespace, name, holder_identity())
    })
}

/// The holder identity: the host name and a unique id.
fn holder_identity() -> String {
    format!("{}_{}", host_name(), uuid::Uuid::new_v4())
}

/// The name of this host, empty if it is not known.
pub(crate) fn host_name() -> String {
    let host = std::fs::read_to_string(HOSTNAME_FILE).unwrap_or_default();
    host.trim().to_owned()
}

/// Competes for the lease until the server's controllers are stopped, and calls `start` in
/// each term. The controllers that it starts end with the tasks of its context. If the
/// start fails, the lease is released.
pub(crate) fn run_leader_election<F, Fut>(election: LeaderElector, server: &RunningServer, start: F)
where
    F: Fn(LeaderContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    let resources = TermResources::of(server);
    let shutdown = server.controller_tasks.shutdown().clone();
    server.controller_tasks.spawn(async move {
        let lead = |term| {
            Box::pin(async {
                run_term(&resources, term, &start).await;
                resources.decisions.clear();
            })
        };
        let (api, clock) = (&resources.api, &*resources.clock);
        election.run(api, clock, &shutdown, lead).await;
    });
}

/// The parts of a server that the controllers of all terms share.
struct TermResources {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    decisions: DecisionExplanationCache,
    member_caches: MemberCaches,
    addons: AddonSwitches,
    proxy_backends: Option<ClusterProxyBackends>,
}

impl TermResources {
    fn of(server: &RunningServer) -> Self {
        Self {
            api: Arc::clone(&server.api),
            clock: Arc::clone(&server.clock),
            decisions: server.decisions.clone(),
            member_caches: server.member_caches.clone(),
            addons: server.addons.clone(),
            proxy_backends: server.proxy_backends.clone(),
        }
    }
}

async fn run_term<F, Fut>(resources: &TermResources, term: LeaderTerm, start: &F)
where
    F: Fn(LeaderContext) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let tasks = TaskGroup::new(term.shutdown.clone());
    let client = controller_client(&resources.api, &UserInfo::karmada_controllers());
    let context = LeaderContext {
        controllers: controller_manager_context(
            term.fence.wrap(client),
            Arc::clone(&resources.clock),
            InformerFactory::new(&tasks),
            tasks.clone(),
        ),
        decisions: resources.decisions.clone(),
        connector: Arc::new(FencedMemberConnector(term.fence.clone())),
        member_caches: resources.member_caches.clone(),
        send_fence: Some(term.fence.network()),
        addons: resources.addons.clone(),
        proxy_backends: resources.proxy_backends.clone(),
    };
    match term.shutdown.run_until_triggered(start(context)).await {
        Some(Ok(())) => term.shutdown.wait().await,
        Some(Err(error)) => tracing::error!(%error, "the controllers cannot be started"),
        None => {}
    }
    stop_term(&term, &tasks).await;
}

/// Competes for a lease of `api` until `tasks` are stopped, and calls `start` in each term. What
/// it starts belongs to the tasks that it gets, and writes behind the fence. `api` must not end
/// with `tasks`: the lease is released at the end.
pub(crate) fn run_elected_terms<F, Fut>(
    election: LeaderElector,
    api: Arc<dyn Api>,
    tasks: &TaskGroup,
    start: F,
) where
    F: Fn(LeaderFence, TaskGroup) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    let shutdown = tasks.shutdown().clone();
    tasks.spawn(async move {
        let lead = |term| Box::pin(run_elected_term(term, &start));
        election.run(&api, &SystemClock, &shutdown, lead).await;
    });
}

async fn run_elected_term<F, Fut>(term: LeaderTerm, start: &F)
where
    F: Fn(LeaderFence, TaskGroup) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let tasks = TaskGroup::new(term.shutdown.clone());
    let started = start(term.fence.clone(), tasks.clone());
    match term.shutdown.run_until_triggered(started).await {
        Some(Ok(())) => term.shutdown.wait().await,
        Some(Err(error)) => tracing::error!(%error, "the work of the leader cannot be started"),
        None => {}
    }
    stop_term(&term, &tasks).await;
}

/// Stops what a term has started, before its lease ends.
async fn stop_term(term: &LeaderTerm, tasks: &TaskGroup) {
    let timeout = term.fence.remaining().mul_f64(STOP_LEASE_FRACTION);
    if !tasks.stop_with_timeout(timeout).await {
        tracing::warn!("controllers were aborted at the end of the lease");
    }
}

/// Connects to members behind both checks of the fence.
struct FencedMemberConnector(LeaderFence);

impl MemberConnector for FencedMemberConnector {
    fn connect(
        &self,
        endpoint: &MemberEndpoint,
        tasks: &TaskGroup,
    ) -> Result<Arc<dyn Api>, String> {
        let remote = RemoteMemberConnector {
            send_fence: Some(self.0.network()),
        };
        Ok(self.0.wrap(remote.connect(endpoint, tasks)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct LeaderElectionTestCli {
        #[command(flatten)]
        flags: LeaderElectionArgs,
    }

    fn election(arguments: &[&str], shared: bool) -> Result<Option<LeaderElector>, String> {
        let line = ["x"].iter().chain(arguments);
        let parsed = LeaderElectionTestCli::try_parse_from(line).map_err(|e| e.to_string())?;
        parsed
            .flags
            .election(shared, "here")
            .map_err(|e| e.to_string())
    }

    #[test]
    fn replicas_on_a_shared_store_elect_a_leader() {
        let is_elected = |arguments, shared| election(arguments, shared).unwrap().is_some();
        assert!(!is_elected(&[], false));
        assert!(is_elected(&[], true));
        assert!(is_elected(&["--leader-elect"], false));
        assert!(!is_elected(&["--leader-elect=false"], true));
    }

    #[test]
    fn durations_are_validated() {
        let usual = election(&[], true).unwrap().unwrap();
        assert_eq!(usual.namespace, "here");
        let seconds = [
            usual.lease_duration,
            usual.renew_deadline,
            usual.retry_period,
        ]
        .map(|d| d.as_secs());
        assert_eq!(seconds, [15, 10, 2]);
        for (lease, renew, retry, fits) in [
            ("3s", "2s", "1s", true),
            ("10s", "10s", "2s", false),
            ("15s", "10s", "9s", false),
            ("1500ms", "1s", "500ms", false),
            ("15s", "10s", "0", false),
        ] {
            let arguments = [
                format!("--leader-elect-lease-duration={lease}"),
                format!("--leader-elect-renew-deadline={renew}"),
                format!("--leader-elect-retry-period={retry}"),
            ];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let result = election(&arguments, true);
            assert_eq!(result.is_ok(), fits, "{lease} {renew} {retry}");
        }
    }
}
