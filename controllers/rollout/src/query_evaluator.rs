//! Asks the queries of gates, apart from the decision, which gets the latest results.
//!
//! status of the Rollout ──[`query_demands`]──► queries ──[`QueryEvaluator`]──► results ──► next step
//!
//! Invariants: a result belongs to one phase of a cluster and is forgotten with it; a slow member
//! delays no other, since each has its own few requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::TaskGroup;
use controller_context::PropagationContext;
use flotilla_runtime::Workqueue;
use jiff::{SignedDuration, Timestamp};
use karmada_api::rollout::{RolloutPolicySpec, RolloutStage, RolloutStatus};
use machinery::duration;
use machinery::time::Clock;
use parking_lot::Mutex;

use crate::decision::{ObservedTarget, QueryObservation, awaits_query};
use crate::prometheus::{QueryRequest, QuerySource};
use crate::query_servers::{QueryClient, QueryServers};

/// The shortest interval, whatever a policy says.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
/// Most requests to one server at once, for all rollouts together.
const MAX_REQUESTS_PER_SERVER: usize = 4;
/// How long a slot is kept for a namespace that was refused one: it asks again before.
const WAITING_NAMESPACE_TTL: SignedDuration = SignedDuration::from_secs(3);
/// How long a query waits for other requests to its server.
const BUSY_SERVER_DELAY: Duration = Duration::from_secs(1);

/// A query whose result a cluster awaits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueryDemand {
    request: QueryRequest,
    /// The phase of the cluster, with its revision and since when.
    phase: String,
    interval: Duration,
}

/// The queries that the clusters of a status await. `namespace`: that of the template;
/// `is_confined`: whether the policy may name Services of no other one.
pub(crate) fn query_demands(
    policy: &RolloutPolicySpec,
    status: Option<&RolloutStatus>,
    namespace: &str,
    is_confined: bool,
) -> HashMap<String, QueryDemand> {
    let mut demands = HashMap::new();
    if policy
        .stages
        .iter()
        .all(|stage| stage.gates.query.is_none())
    {
        return demands;
    }
    for stage in status.map(|status| &*status.stages).unwrap_or_default() {
        let by_name = |other: &&RolloutStage| other.name == stage.name;
        let gates = policy.stages.iter().find(by_name).map(|stage| &stage.gates);
        let Some(gate) = gates.and_then(|gates| gates.query.as_ref()) else {
            continue;
        };
        let interval = duration::parse(&gate.interval).unwrap_or(DEFAULT_INTERVAL);
        for cluster in stage.clusters.iter().filter(|c| awaits_query(c)) {
            let phase = cluster.phase.as_str();
            let demand = QueryDemand {
                request: QueryRequest::new(gate, &cluster.name, namespace, is_confined),
                phase: format!("{} {phase} {}", cluster.revision, cluster.since),
                interval: interval.max(MIN_INTERVAL),
            };
            demands.insert(cluster.name.clone(), demand);
        }
    }
    demands
}

impl QueryDemand {
    /// Which server answers it, of a cluster: the name of the member, empty for the Prometheus of the
    /// control plane.
    fn server<'a>(&self, cluster: &'a str) -> &'a str {
        match self.request.source {
            QuerySource::Member => cluster,
            QuerySource::ControlPlane => "",
        }
    }
}

struct QueryState {
    demand: QueryDemand,
    asked_at: Option<Timestamp>,
    is_running: bool,
    latest: Option<QueryObservation>,
}

#[derive(Default)]
struct EvaluatorState {
    /// By the key of the rollout, then by cluster.
    rollouts: HashMap<String, HashMap<String, QueryState>>,
    /// By [`QueryDemand::server`].
    servers: HashMap<String, ServerQueries>,
}

/// The requests to a server.
#[derive(Default)]
struct ServerQueries {
    /// How many of each namespace have no answer yet.
    running: HashMap<String, usize>,
    /// When each namespace was refused one last.
    waiting: HashMap<String, Timestamp>,
}

impl ServerQueries {
    /// Whether another request of a namespace may begin: the last ones are for namespaces that have
    /// fewer and wait.
    fn admits(&mut self, namespace: &str, now: Timestamp) -> bool {
        let running = |namespace: &str| self.running.get(namespace).copied().unwrap_or_default();
        let is_waiting = |at: &Timestamp| now.duration_since(*at) <= WAITING_NAMESPACE_TTL;
        self.waiting.retain(|_, at| is_waiting(at));
        let mut others = self.waiting.keys();
        let is_next = others.all(|other| running(other) >= running(namespace));
        if is_next && self.running.values().sum::<usize>() < MAX_REQUESTS_PER_SERVER {
            *self.running.entry(namespace.to_owned()).or_default() += 1;
            self.waiting.remove(namespace);
            return true;
        }
        self.waiting.insert(namespace.to_owned(), now);
        false
    }

    /// A request of a namespace has ended.
    fn release(&mut self, namespace: &str) {
        if let Some(running) = self.running.get_mut(namespace) {
            *running = running.saturating_sub(1);
        }
        self.running.retain(|_, running| *running > 0);
    }
}

/// Clones share the results.
#[derive(Clone)]
pub(crate) struct QueryEvaluator {
    client: QueryClient,
    clock: Arc<dyn Clock>,
    tasks: TaskGroup,
    /// Rollouts with a new result.
    queue: Workqueue<String>,
    state: Arc<Mutex<EvaluatorState>>,
}

impl QueryEvaluator {
    pub(crate) fn new(
        context: &PropagationContext,
        servers: QueryServers,
        queue: Workqueue<String>,
    ) -> Self {
        Self {
            client: QueryClient {
                members: Arc::clone(&context.members),
                servers,
            },
            clock: Arc::clone(&context.controller.clock),
            tasks: context.controller.tasks.clone(),
            queue,
            state: Arc::default(),
        }
    }

    /// Whether the control plane has a Prometheus.
    pub(crate) fn has_prometheus(&self) -> bool {
        self.client.servers.prometheus.is_some()
    }

    /// Forgets the results of a rollout.
    pub(crate) fn forget(&self, rollout: &str) {
        self.state.lock().rollouts.remove(rollout);
    }

    /// Gives the targets of a rollout their latest results, and asks for those that are due.
    /// Returns after how long the next one is.
    pub(crate) fn observe(
        &self,
        rollout: &str,
        mut demands: HashMap<String, QueryDemand>,
        targets: &mut [ObservedTarget],
    ) -> Option<Duration> {
        demands.retain(|name, _| targets.iter().any(|t| t.name == *name && t.reachable));
        if demands.is_empty() {
            self.forget(rollout);
            return None;
        }
        let now = self.clock.now();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let queries = state.rollouts.entry(rollout.to_owned()).or_default();
        queries.retain(|name, query| demands.get(name) == Some(&query.demand));
        for (name, demand) in demands {
            queries.entry(name).or_insert(QueryState {
                demand,
                asked_at: None,
                is_running: false,
                latest: None,
            });
        }
        let mut next = None;
        for target in targets {
            let Some(query) = queries.get_mut(&target.name) else {
                continue;
            };
            target.query.clone_from(&query.latest);
            if query.is_running {
                continue;
            }
            let mut delay = query.delay(now);
            if delay.is_zero() {
                let name = query.demand.server(&target.name).to_owned();
                let server = state.servers.entry(name).or_default();
                if server.admits(namespace_of(rollout), now) {
                    query.is_running = true;
                    query.asked_at = Some(now);
                    self.start(rollout, &target.name, query.demand.clone());
                    continue;
                }
                delay = BUSY_SERVER_DELAY;
            }
            next = Some(next.map_or(delay, |next: Duration| next.min(delay)));
        }
        next
    }

    /// Asks a query on a task of its own.
    fn start(&self, rollout: &str, cluster: &str, demand: QueryDemand) {
        let this = self.clone();
        let (rollout, cluster) = (rollout.to_owned(), cluster.to_owned());
        self.tasks.spawn(async move {
            let shutdown = this.tasks.shutdown().clone();
            let asked_at = this.clock.now();
            let work = this.client.fetch_value(&cluster, &demand.request);
            if let Some(outcome) = shutdown.run_until_triggered(work).await {
                let observation = QueryObservation { asked_at, outcome };
                this.finish(&rollout, &cluster, &demand, observation);
            }
        });
    }

    fn finish(
        &self,
        rollout: &str,
        cluster: &str,
        demand: &QueryDemand,
        observation: QueryObservation,
    ) {
        {
            let mut state = self.state.lock();
            let name = demand.server(cluster);
            if let Some(server) = state.servers.get_mut(name) {
                server.release(namespace_of(rollout));
                if server.running.is_empty() {
                    state.servers.remove(name);
                }
            }
            let queries = state.rollouts.get_mut(rollout);
            let query = queries.and_then(|queries| queries.get_mut(cluster));
            if let Some(query) = query.filter(|query| query.demand == *demand) {
                query.is_running = false;
                query.latest = Some(observation);
            }
        }
        self.queue.add(rollout.to_owned());
    }
}

fn namespace_of(rollout: &str) -> &str {
    rollout
        .split_once('/')
        .map_or("", |(namespace, _)| namespace)
}

impl QueryState {
    /// How long until the query is asked again.
    fn delay(&self, now: Timestamp) -> Duration {
        let Some(asked_at) = self.asked_at else {
            return Duration::ZERO;
        };
        let interval = SignedDuration::try_from(self.demand.interval).unwrap_or_default();
        let rest = interval - now.duration_since(asked_at);
        // A clock that was set back does not delay a query by more than its interval.
        Duration::try_from(rest.min(interval)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use controller_testing::FederationFixture;
    use karmada_api::FeatureGates;
    use karmada_api::rollout::RolloutPhase;
    use machinery::time::FakeClock;
    use serde_json::{Value, json};

    fn policy(namespace: &str) -> RolloutPolicySpec {
        let query = json!({"prometheus": {"namespace": namespace, "name": "prom", "port": 9090, "scheme": "http"},
            "expression": "up", "threshold": 1, "interval": "1s"});
        let stages = json!([{"name": "a", "gates": {"query": query}}, {"name": "b"}]);
        decoded(json!({"stages": stages}))
    }

    fn decoded<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    // proves: ROL-query-service
    #[test]
    fn clusters_that_soak_are_asked_in_the_namespace_of_their_template() {
        let cluster = |name: &str, phase: RolloutPhase, reason: &str| json!({"name": name, "phase": phase, "reason": reason});
        let status: RolloutStatus = decoded(json!({"stages": [
            {"name": "a", "clusters": [
                cluster("done", RolloutPhase::Done, ""),
                cluster("soaking", RolloutPhase::Soaking, ""),
                cluster("failed", RolloutPhase::Failed, "QueryFailed"),
                cluster("late", RolloutPhase::Failed, "ProgressDeadlineExceeded"),
            ]},
            {"name": "b", "clusters": [cluster("other", RolloutPhase::Soaking, "")]},
        ]}));
        for (named, is_confined, expected) in [
            ("", true, "shop"),
            ("", false, "shop"),
            ("monitoring", false, "monitoring"),
            // A policy that was written past admission reaches no other namespace either.
            ("monitoring", true, "shop"),
        ] {
            let demands = query_demands(&policy(named), Some(&status), "shop", is_confined);
            let mut names: Vec<&str> = demands.keys().map(String::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, ["failed", "soaking"]);
            let start = format!("/api/v1/namespaces/{expected}/services/http:prom:9090/proxy/");
            let mut demands = demands.values();
            assert!(
                demands.all(|d| d.request.path.starts_with(&start) && d.interval == MIN_INTERVAL),
                "{named}"
            );
        }
    }

    /// The evaluator of a control plane with the members m1 and m2, and its clock.
    fn evaluator(federation: &mut FederationFixture) -> (QueryEvaluator, Arc<FakeClock>) {
        let clock = Arc::new(FakeClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        let mut context = federation.context(FeatureGates::default(), None);
        context.controller.clock = clock.clone();
        let servers = QueryServers::default();
        let evaluator = QueryEvaluator::new(&context, servers, Workqueue::new());
        (evaluator, clock)
    }

    fn target() -> Vec<ObservedTarget> {
        vec![ObservedTarget {
            name: "m1".into(),
            reachable: true,
            ..ObservedTarget::default()
        }]
    }

    fn demand(phase: &str) -> HashMap<String, QueryDemand> {
        let demand = QueryDemand {
            request: QueryRequest {
                source: QuerySource::Member,
                path: "/query".into(),
            },
            phase: phase.into(),
            interval: MIN_INTERVAL,
        };
        HashMap::from([("m1".to_owned(), demand)])
    }

    // proves: ROL-query
    #[tokio::test]
    async fn a_result_belongs_to_one_phase_and_is_renewed() {
        let mut federation = FederationFixture::new();
        let (queries, clock) = evaluator(&mut federation);
        let answer = |value: &str| {
            let result = json!({"status": "success", "data": {"resultType": "scalar", "result": [1, value]}});
            federation.members[0].set_raw_body("/query", result.to_string());
        };
        let observe = |phase: &str| {
            let mut targets = target();
            let next = queries.observe("n/r", demand(phase), &mut targets);
            let result = targets.remove(0).query;
            (result.and_then(|result| result.outcome.ok()), next)
        };
        let wait = || async {
            assert_eq!(queries.queue.get().await.as_deref(), Some("n/r"));
            queries.queue.done(&"n/r".to_owned());
        };
        answer("1");
        assert_eq!(observe("first"), (None, None));
        wait().await;
        assert_eq!(observe("first"), (Some(1.0), Some(MIN_INTERVAL)));
        answer("2");
        clock.advance(SignedDuration::from_secs(9));
        let second = Some(Duration::from_secs(1));
        assert_eq!(observe("first"), (Some(1.0), second));
        clock.advance(SignedDuration::from_secs(1));
        assert_eq!(observe("first"), (Some(1.0), None));
        wait().await;
        assert_eq!(observe("first"), (Some(2.0), Some(MIN_INTERVAL)));
        // Another phase has no result yet.
        assert_eq!(observe("second"), (None, None));
        wait().await;
        assert_eq!(observe("second").0, Some(2.0));
        // A cluster that is unreachable, or that no gate asks, has none, and none is kept.
        let mut targets = target();
        targets[0].reachable = false;
        assert_eq!(queries.observe("n/r", demand("second"), &mut targets), None);
        assert!(queries.state.lock().rollouts.is_empty());
        federation.tasks.stop().await;
    }

    // proves: ROL-query-fair
    #[test]
    fn a_namespace_that_waits_is_next() {
        let mut member = ServerQueries::default();
        let now = FakeClock::new("2026-01-01T00:00:00Z".parse().unwrap()).now();
        for _ in 0..MAX_REQUESTS_PER_SERVER {
            assert!(member.admits("greedy", now));
        }
        assert!(!member.admits("greedy", now));
        assert!(!member.admits("other", now));
        member.release("greedy");
        assert!(!member.admits("greedy", now));
        assert!(member.admits("other", now));
        // One that does not ask any more holds nobody.
        assert!(!member.admits("third", now));
        member.release("greedy");
        assert!(!member.admits("greedy", now));
        assert!(member.admits("greedy", now + SignedDuration::from_secs(4)));
    }

    // proves: ROL-query-bounded
    #[tokio::test]
    async fn a_member_has_few_queries_at_once() {
        let mut federation = FederationFixture::new();
        let (queries, _) = evaluator(&mut federation);
        let names = ["a", "b", "c", "d", "e"];
        let started = names.map(|rollout| {
            let next = queries.observe(rollout, demand("p"), &mut target());
            next.is_none()
        });
        assert_eq!(started, [true, true, true, true, false]);
        // They fail, since the member has no such path; the next one is asked then.
        let first = queries.queue.get().await.unwrap();
        let mut targets = target();
        queries.observe(&first, demand("p"), &mut targets);
        let outcome = targets.remove(0).query.unwrap().outcome;
        assert_eq!(
            outcome,
            Err("the Service answered with status code 404".to_owned())
        );
        assert_eq!(queries.observe("e", demand("p"), &mut target()), None);
        federation.tasks.stop().await;
    }
}
