//! Leader election on a `coordination.k8s.io/v1` Lease.
//!
//! Follows client-go's `tools/leaderelection`: a candidate may take a lease that has not
//! changed for its whole duration on the candidate's *own* clock, and a leader that could
//! not renew within the renew deadline stops before the lease expires. A candidate also
//! watches the lease: it takes a released lease at once, and counts the expiry of a
//! silent leader's lease from its last write, not from the next retry.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, Error, ResourcePath, ShutdownToken, WatchEvent, WatchOptions, WatchStream, WriteOptions,
};
use futures_util::StreamExt;
use machinery::time::{Clock, rfc3339_micros};
use machinery::{FailureLogLimiter, Gvr, Object};
use rand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fence::LeaderFence;
use crate::metrics;

static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");

/// The lease to compete for and its timings. `renew_deadline` must be shorter than
/// `lease_duration`.
#[derive(Clone, Debug)]
pub struct LeaderElector {
    pub namespace: String,
    pub name: String,
    /// Unique among the candidates.
    pub identity: String,
    /// How long candidates wait for a silent leader.
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry_period: Duration,
}

/// One term as the leader.
pub struct LeaderTerm {
    /// Triggers when the leadership ends.
    pub shutdown: ShutdownToken,
    /// Closes before any other process can lead.
    pub fence: LeaderFence,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaderLeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<u64>,
}

impl LeaderLeaseSpec {
    fn is_free(&self) -> bool {
        self.holder_identity.as_deref().is_none_or(str::is_empty)
    }
}

#[derive(Deserialize)]
struct LeaderLease {
    #[serde(default)]
    spec: LeaderLeaseSpec,
}

/// The lease as last observed, and when it changed on our clock.
struct ObservedLease {
    spec: LeaderLeaseSpec,
    revision: u64,
    changed_at: Instant,
}

impl LeaderElector {
    /// Karmada's timings: lease duration 15 s, renew deadline 10 s, retry period 2 s.
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// Competes for the lease until `shutdown`. While leading, `lead` runs; it must return
    /// when its term ends, before the fence closes. The lease is released only after `lead`
    /// has returned. A `lead` that returns early also releases the lease.
    pub async fn run<F, Fut>(
        &self,
        api: &Arc<dyn Api>,
        clock: &dyn Clock,
        shutdown: &ShutdownToken,
        lead: F,
    ) where
        F: Fn(LeaderTerm) -> Fut,
        Fut: Future<Output = ()>,
    {
        metrics::record_candidate(&self.name);
        let mut candidate = LeaderElectionCandidate {
            elector: self,
            api: &**api,
            clock,
            observed: None,
        };
        while !shutdown.is_triggered() {
            let won = shutdown.run_until_triggered(candidate.acquire()).await;
            let Some(since) = won else { return };
            tracing::info!(lease = self.name, identity = self.identity, "leading");
            let _guard = metrics::record_leader(&self.name);
            let token = shutdown.child();
            let fence = LeaderFence::open_until(since + self.advertised_duration());
            let leading = lead(LeaderTerm {
                shutdown: token.clone(),
                fence: fence.clone(),
            });
            tokio::pin!(leading);
            let is_leader = tokio::select! {
                () = candidate.renew_until_lost(since, &fence) => false,
                () = shutdown.wait() => true,
                () = &mut leading => {
                    fence.close();
                    candidate.release().await;
                    // Another candidate may do better.
                    shutdown.run_until_triggered(tokio::time::sleep(self.retry_period)).await;
                    continue;
                }
            };
            tracing::info!(
                lease = self.name,
                identity = self.identity,
                "no longer leading"
            );
            token.trigger();
            leading.await;
            fence.close();
            if is_leader {
                candidate.release().await;
            }
        }
    }

    fn lease_ref(&self) -> ResourcePath<'_> {
        ResourcePath::object(&LEASES, &self.namespace, &self.name)
    }

    /// The lease duration in whole seconds, as written into the Lease.
    fn advertised_duration(&self) -> Duration {
        Duration::from_secs(self.lease_duration.as_secs().max(1))
    }
}

struct LeaderElectionCandidate<'a> {
    elector: &'a LeaderElector,
    api: &'a dyn Api,
    clock: &'a dyn Clock,
    observed: Option<ObservedLease>,
}

impl LeaderElectionCandidate<'_> {
    /// Tries until the lease is acquired. Returns when the successful attempt began.
    async fn acquire(&mut self) -> Instant {
        let mut changes = None;
        loop {
            let began = Instant::now();
            match self.try_acquire_or_renew().await {
                Ok(true) => return began,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "lease not acquired"),
            }
            // Jitter separates candidates that started together.
            let jitter = rand::rng().random_range(1.0..1.2);
            let next = Instant::now() + self.elector.retry_period.mul_f64(jitter);
            self.wait_for_retry(next, &mut changes).await;
        }
    }

    /// Waits until `next`, or shorter if the lease becomes free. If the watch fails, `next`
    /// is still the bound.
    async fn wait_for_retry(&mut self, next: Instant, changes: &mut Option<WatchStream>) {
        let lapse = self.lease_expiry().filter(|end| *end > Instant::now());
        if changes.is_none() {
            let opened = tokio::time::timeout_at(next, self.watch_lease()).await;
            *changes = opened.ok().flatten();
        }
        let mut until = lapse.map_or(next, |end| end.min(next));
        loop {
            let change = async {
                match changes {
                    Some(stream) => stream.next().await,
                    None => std::future::pending().await,
                }
            };
            let change = match tokio::time::timeout_at(until, change).await {
                Err(_) => return,
                Ok(change) => change,
            };
            match change {
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    let observed_revision = self.observed.as_ref().map_or(0, |o| o.revision);
                    if lease.revision() <= observed_revision {
                        continue;
                    }
                    let Ok(spec) = self.observe(&lease) else {
                        continue;
                    };
                    if spec.is_free() {
                        return;
                    }
                    until = self.lease_expiry().map_or(next, |end| end.min(next));
                }
                Some(Ok(WatchEvent::Deleted(_))) => return,
                Some(Ok(WatchEvent::Bookmark { .. })) => {}
                Some(Err(_)) | None => *changes = None,
            }
        }
    }

    /// Watches the lease from the last observed revision.
    async fn watch_lease(&self) -> Option<WatchStream> {
        let revision = self.observed.as_ref()?.revision;
        let options = WatchOptions {
            field_selector: format!("metadata.name={}", self.elector.name),
            resource_version: revision.to_string(),
            ..WatchOptions::default()
        };
        let at = ResourcePath::collection(&LEASES, &self.elector.namespace);
        self.api.watch(at, &options).await.ok()
    }

    /// Renews the lease; returns when it is lost or could not be renewed in time.
    async fn renew_until_lost(&mut self, since: Instant, fence: &LeaderFence) {
        let (mut renewed, failures) = (since, FailureLogLimiter::new());
        loop {
            let deadline = renewed + self.elector.renew_deadline;
            let next = Instant::now() + self.elector.retry_period;
            tokio::time::sleep_until(next.min(deadline)).await;
            let began = Instant::now();
            let attempt = tokio::time::timeout_at(deadline, self.try_acquire_or_renew()).await;
            match attempt {
                Ok(Ok(true)) => {
                    renewed = began;
                    if failures.record_success("renew") {
                        tracing::info!(lease = self.elector.name, "lease renewed again");
                    }
                    fence.extend(began + self.elector.advertised_duration());
                }
                Ok(Ok(false)) | Err(_) => return,
                Ok(Err(error)) => {
                    if failures.record_failure("renew", &error.to_string()) {
                        tracing::warn!(%error, lease = self.elector.name, "lease not renewed");
                    }
                    if Instant::now() >= deadline {
                        return;
                    }
                }
            }
        }
    }

    /// Tries once to acquire or renew. `false`: another candidate holds the lease.
    async fn try_acquire_or_renew(&mut self) -> Result<bool, Error> {
        let lease = match self.api.get(self.elector.lease_ref()).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => return self.create().await,
            Err(error) => return Err(error),
        };
        let spec = self.observe(&lease)?;
        let is_holder = spec.holder_identity.as_deref() == Some(&self.elector.identity);
        let lapsed = self.lease_expiry().is_some_and(|end| end <= Instant::now());
        if !is_holder && !spec.is_free() && !lapsed {
            return Ok(false);
        }
        let mut next = self.new_lease_spec();
        if is_holder {
            next["acquireTime"] = json!(spec.acquire_time);
            next["leaseTransitions"] = json!(spec.lease_transitions.unwrap_or(0));
        } else {
            next["leaseTransitions"] = json!(spec.lease_transitions.unwrap_or(0) + 1);
        }
        self.update(&lease, next).await
    }

    fn observe(&mut self, lease: &Object) -> Result<LeaderLeaseSpec, Error> {
        let spec = lease.decode::<LeaderLease>()?.spec.clone();
        if self.observed.as_ref().is_none_or(|o| o.spec != spec) {
            self.observed = Some(ObservedLease {
                spec: spec.clone(),
                revision: lease.revision(),
                changed_at: Instant::now(),
            });
        }
        Ok(spec)
    }

    /// When the lease expires if its holder stays silent.
    fn lease_expiry(&self) -> Option<Instant> {
        let observed = self.observed.as_ref()?;
        let duration = observed.spec.lease_duration_seconds;
        Some(
            observed.changed_at + duration.map_or(self.elector.lease_duration, Duration::from_secs),
        )
    }

    fn new_lease_spec(&self) -> Value {
        let now = rfc3339_micros(self.clock.now());
        json!({
            "holderIdentity": self.elector.identity,
            "leaseDurationSeconds": self.elector.advertised_duration().as_secs(),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        })
    }

    async fn create(&mut self) -> Result<bool, Error> {
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.elector.name, "namespace": self.elector.namespace},
            "spec": self.new_lease_spec(),
        });
        let at = ResourcePath::collection(&LEASES, &self.elector.namespace);
        let created = self
            .api
            .create(at, body.into(), &WriteOptions::default())
            .await;
        match created {
            Ok(created) => self.observe(&created).map(|_| true),
            Err(error) if error.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes on top of the version that was read: of two concurrent writers, one fails.
    async fn update(&mut self, lease: &Object, spec: Value) -> Result<bool, Error> {
        let mut body = lease.value()?;
        body["spec"] = spec;
        let options = WriteOptions::default();
        match self
            .api
            .update(self.elector.lease_ref(), body.into(), &options)
            .await
        {
            Ok(written) => self.observe(&written).map(|_| true),
            // Another candidate wrote first: the next attempt reads who. A leader has not lost yet.
            Err(error) => Err(error),
        }
    }

    /// Releases the lease so that other candidates need not wait for its expiry.
    async fn release(&mut self) {
        let timeout = self.elector.renew_deadline;
        let attempts = async {
            loop {
                match self.try_release().await {
                    // The last renewal was on its way.
                    Err(error) if error.is_conflict() => {}
                    result => return result,
                }
            }
        };
        match tokio::time::timeout(timeout, attempts).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "lease not released"),
            Err(_) => tracing::debug!("lease not released in time"),
        }
    }

    /// `false`: another candidate holds the lease.
    async fn try_release(&mut self) -> Result<bool, Error> {
        let lease = self.api.get(self.elector.lease_ref()).await?;
        let spec = self.observe(&lease)?;
        if spec.holder_identity.as_deref() != Some(&self.elector.identity) {
            return Ok(false);
        }
        let mut next = self.new_lease_spec();
        next["holderIdentity"] = json!("");
        next["leaseDurationSeconds"] = json!(1);
        next["leaseTransitions"] = json!(spec.lease_transitions.unwrap_or(0));
        self.update(&lease, next).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::TaskGroup;
    use client_fake::FakeApi;
    use machinery::Status;
    use machinery::time::SystemClock;
    use parking_lot::Mutex;

    type LeadershipLog = Arc<Mutex<Vec<(String, u64)>>>;

    struct LeaderElectionFixture {
        fake: Arc<FakeApi>,
        started_at: Instant,
        log: LeadershipLog,
    }

    impl LeaderElectionFixture {
        fn new() -> Self {
            Self {
                fake: FakeApi::new(),
                started_at: Instant::now(),
                log: LeadershipLog::default(),
            }
        }

        fn candidate(&self, identity: &str) -> TaskGroup {
            let tasks = TaskGroup::new(ShutdownToken::new());
            let election = LeaderElector::new("ns", "l", identity);
            let (api, shutdown) = (self.fake.clone() as Arc<dyn Api>, tasks.shutdown().clone());
            let (log, began) = (Arc::clone(&self.log), self.started_at);
            tasks.spawn(async move {
                let lead = |term: LeaderTerm| {
                    let (log, who) = (Arc::clone(&log), election.identity.clone());
                    async move {
                        log.lock()
                            .push((format!("+{who}"), began.elapsed().as_secs()));
                        term.shutdown.wait().await;
                        assert!(!term.fence.remaining().is_zero(), "stopped in time");
                        log.lock()
                            .push((format!("-{who}"), began.elapsed().as_secs()));
                    }
                };
                election.run(&api, &SystemClock, &shutdown, lead).await;
            });
            tasks
        }

        fn events(&self) -> Vec<String> {
            self.log.lock().iter().map(|(e, _)| e.clone()).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_leads_and_hands_over_on_shutdown() {
        let s = LeaderElectionFixture::new();
        let a = s.candidate("a");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let b = s.candidate("b");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(s.events(), ["+a"]);
        let lease = s.fake.get_object(&LEASES, "ns", "l").unwrap();
        assert_eq!(
            (
                &lease["spec"]["holderIdentity"],
                &lease["spec"]["leaseTransitions"]
            ),
            (&json!("a"), &json!(0))
        );
        a.stop().await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(s.events(), ["+a", "-a", "+b"]);
        b.stop().await;
        let lease = s.fake.get_object(&LEASES, "ns", "l").unwrap();
        assert_eq!(
            (
                &lease["spec"]["holderIdentity"],
                &lease["spec"]["leaseTransitions"]
            ),
            (&json!(""), &json!(1))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_cannot_renew_stops_before_another_starts() {
        let s = LeaderElectionFixture::new();
        let a = s.candidate("a");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let b = s.candidate("b");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let holder = |f: &FakeApi| {
            f.get_object(&LEASES, "ns", "l").unwrap()["spec"]["holderIdentity"].clone()
        };
        let down = Arc::new(Mutex::new(true));
        let refuse = Arc::clone(&down);
        s.fake
            .on_call(move |_| refuse.lock().then(|| Status::unavailable("down").into()));
        tokio::time::sleep(Duration::from_secs(13)).await;
        assert_eq!(s.events(), ["+a", "-a"]);
        let lost = s.log.lock()[1].1;
        assert!(
            (14..=17).contains(&lost),
            "given up after the renew deadline: {lost}"
        );
        assert_eq!(holder(&s.fake), "a");
        *down.lock() = false;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(s.events().len(), 3, "one of them leads again");
        a.stop().await;
        b.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lease_is_taken_at_once_and_a_silent_one_when_it_expires() {
        let s = LeaderElectionFixture::new();
        let a = s.candidate("a");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let b = s.candidate("b");
        tokio::time::sleep(Duration::from_secs(60)).await;
        a.stop().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(s.events(), ["+a", "-a", "+b"]);
        let c = s.candidate("c");
        tokio::time::sleep(Duration::from_secs(9)).await;
        // As `kill -9`: nothing is released.
        drop(b);
        let killed = Instant::now();
        while s.events().len() < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let waited = killed.elapsed().as_millis();
        assert!((12_900..=15_050).contains(&waited), "{waited} ms");
        c.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_on_its_way_does_not_keep_the_lease_from_being_released() {
        let s = LeaderElectionFixture::new();
        let a = s.candidate("a");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let conflicts = Mutex::new(1);
        s.fake.on_call(move |call| {
            let mut left = conflicts.lock();
            let fails = call.verb == "update" && *left > 0;
            *left -= i32::from(fails);
            fails.then(|| Status::conflict(&LEASES, "l", "it has changed").into())
        });
        a.stop().await;
        let lease = s.fake.get_object(&LEASES, "ns", "l").unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_gives_up_at_once_lets_others_try() {
        let fake = FakeApi::new();
        let tasks = TaskGroup::new(ShutdownToken::new());
        let count = Arc::new(Mutex::new(0));
        let (api, shutdown) = (fake.clone() as Arc<dyn Api>, tasks.shutdown().clone());
        let tries = Arc::clone(&count);
        tasks.spawn(async move {
            let election = LeaderElector::new("ns", "l", "a");
            let lead = |_| {
                *tries.lock() += 1;
                std::future::ready(())
            };
            election.run(&api, &SystemClock, &shutdown, lead).await;
        });
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(*count.lock(), 5, "one try in each retry period");
        let lease = fake.get_object(&LEASES, "ns", "l").unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], "");
        tasks.stop().await;
    }
}
