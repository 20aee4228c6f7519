//! The scheduler's controller: takes bindings from the queue, decides and writes results.

mod result;
mod triggers;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Api, Error};
use machinery::time::Clock;
use machinery::{Gvr, Object};
use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS};
use openapi::karmada::{Binding, FeatureGates, Gate, Placement};
use parking_lot::Mutex;
use flotilla_runtime::{Action, Informer, Informers, Name, Queue, Recorder, Select, Tasks, run_workers};

use crate::book::{Book, Entry};
use crate::clusters::Clusters;
use crate::core::peers::Peers;
use crate::core::{Answer, Answers, Failure, Rules, Snapshot, World, places_sets};
use crate::decide::{DEFAULT_SCHEDULER, Outcome, Verdict, judge, place};
use crate::decisions::Decisions;
use crate::estimators::{Candidate, Estimators, Question};
use crate::explain::Explanation;
use crate::figures::{self, Incoming, Kind};

pub use result::placement_text;

/// Index of bindings by their affinity and anti-affinity groups.
const BY_GROUP: &str = "affinity-group";
/// Base and maximum backoff of failed bindings while `PriorityBasedScheduling` is on.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Without priorities the queue has the backoff of Karmada's other queues.
const RETRY_PLAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1000));
const RETRY_UNSCHEDULABLE: Duration = Duration::from_secs(300);
const WORKERS: usize = 4;

/// Settings of the scheduler. The [`SchedulerClusterCache`] holds the rules of its decisions.
#[derive(Clone, Debug)]
pub struct Options {
    /// The scheduler's name; it ignores bindings that name another scheduler.
    pub name: String,
    /// Which feature gates are on.
    pub gates: FeatureGates,
    /// Caches the last decisions for explanations.
    pub decisions: Decisions,
    /// Asked for the available replicas of clusters, if set.
    pub estimators: Option<Arc<dyn Estimators>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: DEFAULT_SCHEDULER.into(),
            gates: FeatureGates::default(),
            decisions: Decisions::default(),
            estimators: None,
        }
    }
}

/// A binding: its resource and `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    cluster_scoped: bool,
    name: String,
}

/// A binding that is being scheduled, with its placement.
struct Case<'a> {
    key: &'a Key,
    object: &'a Object,
    binding: &'a Binding,
    placement: &'a Placement,
    /// A cluster that the binding selects or selected has changed since the last attempt.
    stirred: bool,
    /// The detector wrote this result together with the number of replicas; the scheduler
    /// has not recorded an event for it yet.
    placed_by_detector: bool,
}

/// A running scheduler.
pub struct Scheduler {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    clusters: Clusters,
    options: Options,
    rules: Rules,
    bindings: Informer,
    cluster_bindings: Informer,
    queue: Queue<Key>,
    book: Mutex<Book>,
    /// Bindings that a cluster change has enqueued.
    stirred: Mutex<HashSet<Key>>,
    /// Bindings that the detector scaled together with their clusters.
    placed_by_detector: Mutex<HashSet<Key>>,
    cluster_changes: triggers::ClusterChanges,
    /// Whether the workers have started.
    is_working: AtomicBool,
    /// Held from the call to an estimator until the decision is in the assume cache, if
    /// decisions depend on other bindings.
    turn: tokio::sync::Mutex<()>,
}

impl Scheduler {
    /// Starts the scheduler; it ends with `tasks`.
    pub fn start(
        api: Arc<dyn Api>,
        clock: Arc<dyn Clock>,
        recorder: Recorder,
        clusters: Clusters,
        options: Options,
        informers: &Informers,
        tasks: &Tasks,
    ) {
        let rules = clusters.snapshot().rules();
        let (base, most) = if options.gates.is_on(Gate::PriorityBasedScheduling) {
            RETRY
        } else {
            RETRY_PLAIN
        };
        let scheduler = Arc::new(Self {
            bindings: informers.get(&api, &Select::all(&BINDINGS)),
            cluster_bindings: informers.get(&api, &Select::all(&CLUSTER_BINDINGS)),
            queue: Queue::with_backoff(base, most),
            api,
            clock,
            recorder,
            clusters,
            options,
            rules,
            book: Mutex::default(),
            stirred: Mutex::default(),
            placed_by_detector: Mutex::default(),
            cluster_changes: triggers::ClusterChanges::default(),
            is_working: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
        });
        if rules.looks_at_peers() {
            scheduler.bindings.add_index(BY_GROUP, triggers::groups);
        }
        scheduler.listen();
        scheduler.follow_cluster_changes(tasks);
        let queue = scheduler.queue.clone();
        figures::show(move || queue.waiting());
        let workers = tasks.clone();
        tasks.spawn(async move {
            let synced = async {
                scheduler.clusters.informer().wait_synced().await;
                if let Some(estimators) = &scheduler.options.estimators {
                    estimators.ready().await;
                }
            };
            if workers.shutdown().unless(synced).await.is_none() {
                return;
            }
            scheduler.is_working.store(true, Ordering::Release);
            let queue = scheduler.queue.clone();
            run_workers(
                &workers,
                Name::stage("scheduler", "scheduled"),
                &queue,
                WORKERS,
                move |key: Key| {
                    let it = Arc::clone(&scheduler);
                    async move { it.reconcile(&key).await }
                },
            );
        });
    }

    /// Whether unschedulable bindings wait for a fixed interval instead of the backoff.
    fn keeps_unschedulable(&self) -> bool {
        self.options.gates.is_on(Gate::PriorityBasedScheduling)
    }

    fn informer(&self, key: &Key) -> &Informer {
        if key.cluster_scoped {
            &self.cluster_bindings
        } else {
            &self.bindings
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        // Taken before the binding is read, so that the mark never concerns a newer version.
        let placed_by_detector = self.placed_by_detector.lock().remove(key);
        let Some(object) = self.informer(key).get_key(&key.name) else {
            return Ok(Action::Done);
        };
        let binding = object.view::<Binding>()?;
        if object.head().deleting {
            let text = format!("skip schedule deleting {}: {}", key.kind(), key.name);
            self.tell(&object, &binding, Err(&text));
            return Ok(Action::Done);
        }
        let Some(placement) = &binding.spec.placement else {
            let text = format!("failed to get placement from {}({})", key.kind(), key.name);
            return Err(Error::Protocol(text));
        };
        let case = Case {
            key,
            object: &object,
            binding: &binding,
            placement,
            stirred: self.stirred.lock().remove(key),
            placed_by_detector,
        };
        let snapshot = self.clusters.snapshot();
        let is_ending = |cluster: &str| snapshot.get(cluster).is_some_and(|m| m.is_terminating());
        let done = match judge(&binding, placement, self.rules, is_ending) {
            Verdict::Note => self.note(&case).await,
            Verdict::Schedule { fresh, scale } => self.schedule(&case, fresh, scale).await,
        };
        match done {
            Err(e) if e.is_not_found() || e.is_namespace_terminating() => Ok(Action::Done),
            Err(e) if e.is_conflict() => {
                if case.stirred {
                    self.stirred.lock().insert(key.clone());
                }
                self.mark_again(&case);
                Ok(Action::AFTER_CONFLICT)
            }
            Err(e) => {
                self.mark_again(&case);
                Err(e)
            }
            other => other,
        }
    }

    fn mark_again(&self, case: &Case<'_>) {
        if case.placed_by_detector {
            self.placed_by_detector.lock().insert(case.key.clone());
        }
    }

    async fn schedule(&self, case: &Case<'_>, fresh: bool, scale: bool) -> Result<Action, Error> {
        let began = Instant::now();
        let (mut outcome, entry) = self.decide(case, fresh).await?;
        // Cached before the write, so that whoever sees the result finds its explanation.
        let generation = case.object.head().generation;
        let explanation = Explanation::of(&mut outcome, generation, fresh);
        self.options.decisions.put(&case.key.name, explanation);
        let done = self.settle(case, &outcome, entry, fresh).await;
        let success = outcome.failure.is_none() && done.is_ok();
        figures::attempted(success, Kind::of(scale), began.elapsed());
        let again = matches!(
            outcome.failure,
            Some(Failure::Error(_) | Failure::Unschedulable(_))
        );
        if again || done.is_err() {
            figures::came(Incoming::Failure);
        }
        done
    }

    /// Whether decisions depend on the results of other bindings.
    fn is_bound(&self) -> bool {
        self.rules.reserve || self.rules.looks_at_peers()
    }

    /// Decides after all estimators that are needed have answered.
    async fn decide(
        &self,
        case: &Case<'_>,
        fresh: bool,
    ) -> Result<(Outcome, Option<Entry>), Error> {
        let Some(estimators) = &self.options.estimators else {
            return self.attempt(case, fresh, &self.clusters.snapshot(), None);
        };
        let _turn = if self.is_bound() {
            Some(self.turn.lock().await)
        } else {
            None
        };
        let snapshot = self.clusters.snapshot();
        let spec = &case.binding.spec;
        let question = Question::of(spec, places_sets(spec, case.placement, self.rules));
        let mut answers = Answers::default();
        loop {
            let (outcome, entry) = self.attempt(case, fresh, &snapshot, Some(&answers))?;
            if outcome.lacking.is_empty() {
                return Ok((outcome, entry));
            }
            let clusters = self.with_assumed(outcome.lacking);
            let estimates = estimators.ask(&question, &clusters).await;
            let estimates = estimates
                .into_iter()
                .chain(std::iter::repeat(Answer::Unknown));
            for (candidate, answer) in clusters.into_iter().zip(estimates) {
                answers.put(candidate.cluster, answer);
            }
        }
    }

    fn with_assumed(&self, clusters: Vec<String>) -> Vec<Candidate> {
        let mut book = self.book.lock();
        let assumed = book.ledger.at(Instant::now());
        let candidate = |cluster: String| Candidate {
            assumed: assumed.workloads(&cluster),
            cluster,
        };
        clusters.into_iter().map(candidate).collect()
    }

    /// Decides with the estimates gathered so far. Decisions that depend on each other are
    /// made one by one, and each is in the assume cache before the next.
    fn attempt(
        &self,
        case: &Case<'_>,
        fresh: bool,
        snapshot: &Snapshot,
        answers: Option<&Answers>,
    ) -> Result<(Outcome, Option<Entry>), Error> {
        let Case {
            key,
            object,
            binding,
            placement,
            ..
        } = case;
        let mut ended = figures::steps();
        let mut world = World {
            answers,
            ..World::of(snapshot)
        };
        if !self.is_bound() {
            let outcome = place(binding, placement, fresh, &world, &mut ended);
            return Ok((outcome, None));
        }
        let now = Instant::now();
        let mut book = self.book.lock();
        let peers = if key.cluster_scoped {
            Peers::default()
        } else {
            let others: Vec<Object> = triggers::groups(object)
                .iter()
                .flat_map(|group| self.bindings.by_index(BY_GROUP, group))
                .collect();
            let groups = binding.spec.workload_affinity_groups.as_ref();
            book.peers(object, groups, &others)
        };
        world.peers = &peers;
        world.assumed = book.ledger.at(now);
        let outcome = place(binding, placement, fresh, &world, &mut ended);
        if !outcome.lacking.is_empty() {
            return Ok((outcome, None));
        }
        let is_news = outcome.is_result() && case.differs(&outcome.targets)?;
        let entry = (is_news && !key.cluster_scoped).then(|| {
            let targets = &outcome.targets;
            book.enter(&key.name, &binding.spec, targets, self.rules, now)
        });
        Ok((outcome, entry))
    }
}

impl Key {
    /// The kind as messages spell it.
    fn kind(&self) -> &'static str {
        if self.cluster_scoped {
            "clusterResourceBinding"
        } else {
            "resourceBinding"
        }
    }

    fn resource(&self) -> &'static Gvr {
        if self.cluster_scoped {
            &CLUSTER_BINDINGS
        } else {
            &BINDINGS
        }
    }
}

#[cfg(test)]
mod tests;
