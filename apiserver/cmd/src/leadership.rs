//! Which of several processes runs the controllers.
//!
//! flags ──► [`Election`] ──wins──► [`Base`] with a fence ──► controllers, until the term ends
//!
//! Invariants: the controllers of a term are over, or cut off, before its lease ends;
//! what they wrote late is kept back by the fence, on the control plane and in
//! members alike. The process serves all the while, and competes again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use client::Api;
use client::remote::Gate;
use machinery::time::Clock;
use members::{Connector, Endpoint, RemoteConnector};
use flotilla_runtime::{Election, Fence, Informers, Tasks, Term};
use scheduler::Decisions;

use crate::control::Base;
use crate::duration;
use crate::plane::Plane;

const HOSTNAME: &str = "/proc/sys/kernel/hostname";
/// What the controllers may take of the rest of a lease to end; then they are cut off.
const PATIENCE: f64 = 0.8;

/// The flags that every component of Kubernetes has for it, with their defaults.
#[derive(Args, Clone, Debug)]
pub(crate) struct Flags {
    /// Run the controllers only while holding a lease that one process at a time can
    /// hold [default: false where the store is this process's own].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// How long the others wait for a leader that is silent; whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse)]
    leader_elect_lease_duration: Duration,
    /// How long a leader tries to renew its lease before it gives up.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    leader_elect_renew_deadline: Duration,
    /// How long to wait between attempts to take or renew the lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    leader_elect_retry_period: Duration,
    /// The namespace of the lease; by default kube-system, or Flotilla's own behind
    /// another API server.
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect_resource_namespace: Option<String>,
    /// The name of the lease.
    #[arg(long, value_name = "NAME", default_value = "flotilla")]
    leader_elect_resource_name: String,
}

impl Flags {
    /// Whether the controllers run on an elected leader alone. `shared` is whether
    /// other processes may use the same store.
    pub(crate) fn is_elected(&self, shared: bool) -> bool {
        self.leader_elect.unwrap_or(shared)
    }

    /// What to compete for; nothing where the controllers just run. `shared` is
    /// whether other processes may use the same store, `here` where the lease is by
    /// default.
    pub(crate) fn election(&self, shared: bool, here: &str) -> anyhow::Result<Option<Election>> {
        if !self.is_elected(shared) {
            return Ok(None);
        }
        let (lease, renew, retry) = (
            self.leader_elect_lease_duration,
            self.leader_elect_renew_deadline,
            self.leader_elect_retry_period,
        );
        if lease < Duration::from_secs(1) || lease.subsec_nanos() != 0 {
            bail!("--leader-elect-lease-duration must be whole seconds, at least one");
        }
        if lease <= renew {
            bail!(
                "--leader-elect-lease-duration must be greater than --leader-elect-renew-deadline"
            );
        }
        if retry.is_zero() || renew <= retry.mul_f64(1.2) {
            bail!(
                "--leader-elect-renew-deadline must be greater than 1.2 times --leader-elect-retry-period, which must not be zero"
            );
        }
        Ok(Some(Election {
            lease,
            renew,
            retry,
            ..Election::new(
                self.leader_elect_resource_namespace
                    .as_deref()
                    .unwrap_or(here),
                &self.leader_elect_resource_name,
                identity(),
            )
        }))
    }
}

/// The host, for people, and what makes the process unique.
fn identity() -> String {
    let host = std::fs::read_to_string(HOSTNAME).unwrap_or_default();
    format!("{}_{}", host.trim(), uuid::Uuid::new_v4())
}

/// Competes until the plane's controllers are stopped, and calls `start` each time the lease is won; what it
/// starts ends with the tasks of the base it is given. A start that fails gives
/// the lease up.
pub(crate) fn compete<F, Fut>(election: Election, plane: &Plane, start: F)
where
    F: Fn(Base) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<()>> + Send,
{
    let (api, clock) = (Arc::clone(&plane.api), Arc::clone(&plane.clock));
    let decisions = plane.decisions.clone();
    let shutdown = plane.controllers.shutdown().clone();
    plane.controllers.spawn(async move {
        let lead = |term| {
            Box::pin(async {
                serve_term(&api, &clock, &decisions, term, &start).await;
                decisions.clear();
            })
        };
        election.run(&api, &*clock, &shutdown, lead).await;
    });
}

async fn serve_term<F, Fut>(
    api: &Arc<dyn Api>,
    clock: &Arc<dyn Clock>,
    decisions: &Decisions,
    term: Term,
    start: &F,
) where
    F: Fn(Base) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let tasks = Tasks::new(term.shutdown.clone());
    let base = Base {
        api: term.fence.around(Arc::clone(api)),
        clock: Arc::clone(clock),
        informers: Informers::new(&tasks),
        tasks: tasks.clone(),
        decisions: decisions.clone(),
        connector: Arc::new(Fenced(term.fence.clone())),
    };
    match term.shutdown.unless(start(base)).await {
        Some(Ok(())) => term.shutdown.wait().await,
        Some(Err(error)) => tracing::error!(%error, "the controllers cannot be started"),
        None => {}
    }
    let patience = term.fence.remaining().mul_f64(PATIENCE);
    if !tasks.stop_within(patience).await {
        tracing::warn!("controllers were cut off at the end of the lease");
    }
}

/// Reaches members behind the fence, which is looked at before a call begins, and
/// again when its bytes leave: the process may be stopped in between.
struct Fenced(Fence);

impl Connector for Fenced {
    fn connect(&self, endpoint: &Endpoint, tasks: &Tasks) -> Result<Arc<dyn Api>, String> {
        let fence = self.0.clone();
        let remote = RemoteConnector {
            gate: Some(Gate::new(move || !fence.remaining().is_zero())),
        };
        Ok(self.0.around(remote.connect(endpoint, tasks)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn election(arguments: &[&str], shared: bool) -> Result<Option<Election>, String> {
        let line = ["x"].iter().chain(arguments);
        let parsed = Line::try_parse_from(line).map_err(|e| e.to_string())?;
        parsed
            .flags
            .election(shared, "here")
            .map_err(|e| e.to_string())
    }

    #[test]
    fn who_shares_a_store_competes_for_it() {
        let is_elected = |arguments, shared| election(arguments, shared).unwrap().is_some();
        assert!(!is_elected(&[], false));
        assert!(is_elected(&[], true));
        assert!(is_elected(&["--leader-elect"], false));
        assert!(!is_elected(&["--leader-elect=false"], true));
    }

    #[test]
    fn durations_must_fit_each_other() {
        let usual = election(&[], true).unwrap().unwrap();
        assert_eq!(usual.namespace, "here");
        let seconds = [usual.lease, usual.renew, usual.retry].map(|d| d.as_secs());
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
            let made = election(&arguments, true);
            assert_eq!(made.is_ok(), fits, "{lease} {renew} {retry}");
        }
    }
}
