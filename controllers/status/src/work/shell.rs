//! The controller of Work status: follows Works, the managed objects of members and
//! clusters that become ready; writes `status.manifestStatuses` of Works and events about
//! them.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use client::{Api, At, Error, Patch, WriteOptions};
use interpreter::{Changed, Interpreter, Operation};
use machinery::time::Clock;
use machinery::{Gvk, Object};
use openapi::karmada::names::{cluster_of_space, execution_space};
use openapi::karmada::resources::WORKS;
use flotilla_runtime::{Action, Change, Informer, Name, ObjectRef, Queue, Recorder, Select, run_workers};
use scheduler::Clusters;
use serde_json::json;

use super::reflect::{Told, read, reflect, settling, work_of};
use crate::access::MemberStatus;
use crate::deps::Deps;
use crate::facts::Facts;
use crate::failure::Failure;
use crate::mapper::Mapper;
use crate::written::{Turn, Written};

/// Many, because a worker mostly waits for its write, and stores commit in groups.
const WORKERS: usize = 16;
const BY_NAMESPACE: &str = "namespace";
/// The interpreter operations that determine the status of objects.
const READING: &[Operation] = &[Operation::InterpretStatus, Operation::InterpretHealth];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// `namespace/name`.
    Work(String),
    /// All Works of a cluster.
    Cluster(String),
    /// All Works in a namespace with objects of a kind.
    Kind(String, Gvk),
}

struct Shell {
    control: Arc<dyn Api>,
    members: Arc<dyn MemberStatus>,
    clusters: Clusters,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    interpreter: Interpreter,
    mapper: Arc<Mapper>,
    works: Informer,
    queue: Queue<Key>,
    written: Written<String>,
    /// The kinds of all objects that were reflected.
    kinds: ArcSwap<HashSet<Gvk>>,
}

/// Starts only the controller of Work status; it ends with the tasks.
pub fn start_alone(deps: &Deps) {
    start(deps, &Arc::new(Mapper::new(Arc::clone(&deps.control))));
}

pub(crate) fn start(deps: &Deps, mapper: &Arc<Mapper>) {
    let shell = Arc::new(Shell {
        control: Arc::clone(&deps.control),
        members: Arc::clone(&deps.members),
        clusters: deps.clusters.clone(),
        recorder: deps.recorder.named("work-status-controller"),
        clock: Arc::clone(&deps.clock),
        interpreter: deps.interpreter.clone(),
        mapper: Arc::clone(mapper),
        works: deps.informers.get(&deps.control, &Select::all(&WORKS)),
        queue: Queue::new(),
        written: Written::default(),
        kinds: ArcSwap::default(),
    });
    shell.listen();
    let tasks = deps.tasks.clone();
    deps.tasks.spawn(async move {
        let ready = async {
            shell.clusters.informer().wait_synced().await;
            shell.works.wait_synced().await;
            shell.interpreter.wait_synced().await;
        };
        if tasks.shutdown().unless(ready).await.is_none() {
            return;
        }
        let queue = shell.queue.clone();
        run_workers(
            &tasks,
            Name::stage("work-status", "reflected"),
            &queue,
            WORKERS,
            move |key| {
                let it = Arc::clone(&shell);
                async move { it.reconcile(key).await }
            },
        );
    });
}

impl Shell {
    fn listen(self: &Arc<Self>) {
        let namespace = |work: &Object| vec![work.namespace().to_owned()];
        self.works.add_index(BY_NAMESPACE, namespace);
        let it = Arc::downgrade(self);
        self.works.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.work_changed(change);
            }
        });
        let it = Arc::downgrade(self);
        self.clusters.informer().on_change(move |change| {
            if let Some(it) = it.upgrade()
                && change.old.is_some()
                && !change.old.is_some_and(is_ready)
                && change.new.is_some_and(is_ready)
            {
                let name = change.object().name().to_owned();
                it.queue.add_low(Key::Cluster(name));
            }
        });
        let it = Arc::downgrade(self);
        self.interpreter.on_change(move |changed| {
            if let Some(it) = it.upgrade()
                && changed.touches(READING)
            {
                it.read_otherwise(changed);
            }
        });
        let queue = self.queue.clone();
        self.members.on_connect(Box::new(move |cluster, connected| {
            if connected {
                queue.add_low(Key::Cluster(cluster.to_owned()));
            }
        }));
        let queue = self.queue.clone();
        self.members.on_object(Box::new(move |cluster, _, change| {
            // A deleted object keeps its last status.
            if let Some(work) = change.new.and_then(|object| work_of(cluster, object)) {
                queue.add_lane(Key::Work(work), change.initial);
            }
        }));
    }

    /// Enqueues Works after the interpreter's rules for a kind changed.
    fn read_otherwise(&self, changed: &Changed<'_>) {
        let kinds = self.kinds.load();
        let concerned = kinds.iter().filter(|kind| changed.concerns(kind, READING));
        for kind in concerned {
            for space in self.works.index_keys(BY_NAMESPACE, |_| true) {
                self.queue.add_low(Key::Kind(space, kind.clone()));
            }
        }
    }

    async fn look_again(&self, namespace: &str, kind: Option<&Gvk>) {
        for work in self.works.by_index(BY_NAMESPACE, namespace) {
            let carries = |kind: &Gvk| {
                let facts = Facts::of(&work);
                facts.is_ok_and(|facts| facts.manifests().iter().any(|m| m.gvk() == *kind))
            };
            if kind.is_none_or(carries) {
                self.queue.add_low(Key::Work(work.head().key()));
            }
            tokio::task::consume_budget().await;
        }
    }

    fn work_changed(&self, change: &Change<'_>) {
        let key = change.key();
        let Some(work) = change.new else {
            self.written.forget(&key);
            return;
        };
        let awaited = self.written.is_news(&key, work);
        if !work.head().deleting && (awaited || !self.written.is_echo(&key, work)) {
            self.queue.add_lane(Key::Work(key), change.initial);
        }
    }

    async fn reconcile(&self, key: Key) -> Result<Action, Failure> {
        let key = match key {
            Key::Work(key) => key,
            Key::Cluster(cluster) => {
                self.look_again(&execution_space(&cluster), None).await;
                return Ok(Action::Done);
            }
            Key::Kind(namespace, kind) => {
                self.look_again(&namespace, Some(&kind)).await;
                return Ok(Action::Done);
            }
        };
        let work = match self.written.turn(&key, || self.works.get_key(&key)) {
            Turn::Now(work) if !work.head().deleting => work,
            Turn::In(rest) => return Ok(Action::After(rest)),
            Turn::Now(_) | Turn::Gone | Turn::Awaited => return Ok(Action::Done),
        };
        let Some(cluster) = cluster_of_space(work.namespace()) else {
            return Ok(Action::Done);
        };
        let ready = self
            .clusters
            .get(cluster)
            .is_some_and(|c| c.cluster.is_ready());
        let facts = Facts::of(&work)?;
        if !facts.is_tried() {
            return Ok(Action::Done);
        }
        // If applying failed or the cluster is not Ready, objects with a running informer are
        // still reflected.
        let follows = ready && facts.applied().is_ok();
        let observed = self.observe(cluster, &key, &facts, follows).await?;
        let readings = read(&self.interpreter, &facts, &observed).await;
        let outcome = reflect(&facts, &observed, readings);
        if let Some(rest) = settling(&facts, &outcome, &observed, self.clock.now()) {
            return Ok(Action::After(rest));
        }
        self.tell(&work, outcome.told);
        let end = match outcome.unanswered {
            None => Ok(Action::Done),
            Some(why) => Err(Failure::Unanswered(why)),
        };
        let Some(statuses) = outcome.statuses else {
            return end;
        };
        let patch = json!({
            "metadata": {"resourceVersion": work.revision().to_string()},
            "status": {"manifestStatuses": statuses},
        });
        let at = At::of(&WORKS, &work).sub("status");
        let options = WriteOptions::default();
        match self.control.patch(at, Patch::Merge(patch), &options).await {
            Ok(written) => {
                let look = || self.works.get_key(&key);
                self.written.note(&key, &written, look);
            }
            Err(e) if e.is_conflict() => return Ok(Action::AFTER_CONFLICT),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e.into()),
        }
        end
    }

    fn note_kind(&self, kind: &Gvk) {
        if !self.kinds.load().contains(kind) {
            self.kinds.rcu(|kinds| {
                let mut kinds = HashSet::clone(kinds);
                kinds.insert(kind.clone());
                kinds
            });
        }
    }

    /// The objects of the manifests, if they exist and belong to the Work. `follows`: starts
    /// informers where needed.
    async fn observe(
        &self,
        cluster: &str,
        key: &str,
        facts: &Facts,
        follows: bool,
    ) -> Result<Vec<Option<Object>>, Error> {
        let mut observed = Vec::with_capacity(facts.manifests().len());
        for manifest in facts.manifests() {
            self.note_kind(&manifest.gvk());
            let resource = match self.mapper.find(&manifest.gvk()).await {
                Ok(resource) => Some(resource),
                Err(error) if follows => return Err(error),
                Err(_) => None,
            };
            // If the member is not connected, its next connection enqueues the Work again.
            let informer = resource.and_then(|resource| {
                let followed = || self.members.followed(cluster, &resource);
                let managed = || self.members.managed(cluster, &resource).ok();
                if follows { managed() } else { followed() }
            });
            let name = &manifest.metadata;
            let found = informer.and_then(|i| i.get(&name.namespace, &name.name));
            observed.push(found.filter(|o| work_of(cluster, o).is_some_and(|w| w == key)));
        }
        Ok(observed)
    }

    fn tell(&self, work: &Object, events: Vec<Told>) {
        if events.is_empty() {
            return;
        }
        let about = ObjectRef::new("work.karmada.io/v1alpha1", "Work", work);
        for event in events {
            if event.warning {
                self.recorder.warning(&about, event.reason, event.message);
            } else {
                self.recorder.normal(&about, event.reason, event.message);
            }
        }
    }
}

fn is_ready(cluster: &Object) -> bool {
    let view = cluster.view::<openapi::karmada::Cluster>();
    view.is_ok_and(|c| c.is_ready())
}
