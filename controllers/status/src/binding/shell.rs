//! The controller of binding status: aggregates Works on changes of Works and bindings and
//! writes `status.aggregatedStatus` and the FullyApplied condition of bindings, the status
//! of templates, and events about both.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, Error, Patch, WriteOptions};
use interpreter::{Interpreter, Operation};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvk, Gvr, Object};
use openapi::karmada::binding::{AggregatedItem, ObjectReference};
use openapi::karmada::resource_group::{BY_RESOURCE_GROUP, ResourceGroup};
use openapi::karmada::resources::{BINDINGS, CLUSTER_BINDINGS, WORKS};
use openapi::karmada::{Binding, labels, resource_group};
use flotilla_runtime::{
    Action, Change, HostWorkloads, IndexSweep, Informer, Informers, Name, ObjectRef, Queue,
    Recorder, Select, ShardedMap, Tasks, run_workers,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::aggregate::{aggregate, conditions, is_settling, is_told, says_the_same};
use crate::deps::Deps;
use crate::failure::Failure;
use crate::mapper::Mapper;
use crate::written::{Turn, Written};

/// Many, because a worker mostly waits for its write, and stores commit in groups.
const WORKERS: usize = 16;
/// Time in which reports of several clusters are batched; each alone would cost a write of
/// the binding and of the template.
const GATHER: Duration = Duration::from_millis(50);
/// How long a status is delayed at most while objects become applied or healthy.
const HOLD: Duration = Duration::from_millis(250);
/// Index of Works and of bindings by permanent id.
const BY_BINDING: &str = "binding";
const BY_ID: &str = "permanent-id";

const SUCCEEDED: &str = "AggregateStatusSucceed";
const FAILED: &str = "AggregateStatusFailed";
/// The interpreter operations that determine the status of templates.
const AGGREGATION: &[Operation] = &[Operation::AggregateStatus];

/// A binding: its scope and `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    cluster_scoped: bool,
    name: String,
}

impl Key {
    fn resource(&self) -> &'static Gvr {
        if self.cluster_scoped {
            &CLUSTER_BINDINGS
        } else {
            &BINDINGS
        }
    }

    fn kind(&self) -> &'static str {
        if self.cluster_scoped {
            "ClusterResourceBinding"
        } else {
            "ResourceBinding"
        }
    }
}

struct Shell {
    control: Arc<dyn Api>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    interpreter: Interpreter,
    mapper: Arc<Mapper>,
    informers: Informers,
    host: HostWorkloads,
    works: Informer,
    bindings: Informer,
    cluster_bindings: Informer,
    queue: Queue<Key>,
    written: Written<Key>,
    /// The last own write of each binding's template.
    templates: Written<Key>,
    /// Until when the status of a binding that is still progressing is delayed.
    held: ShardedMap<Key, Instant>,
}

/// Starts only the controller of binding status; it ends with the tasks.
pub fn start_alone(deps: &Deps) {
    start(deps, &Arc::new(Mapper::new(Arc::clone(&deps.control))));
}

pub(crate) fn start(deps: &Deps, mapper: &Arc<Mapper>) {
    let follow = |resource: &Gvr| deps.informers.get(&deps.control, &Select::all(resource));
    let shell = Arc::new(Shell {
        control: Arc::clone(&deps.control),
        recorder: deps.recorder.clone(),
        clock: Arc::clone(&deps.clock),
        interpreter: deps.interpreter.clone(),
        mapper: Arc::clone(mapper),
        informers: deps.informers.clone(),
        host: deps.host.clone(),
        works: follow(&WORKS),
        bindings: follow(&BINDINGS),
        cluster_bindings: follow(&CLUSTER_BINDINGS),
        queue: Queue::new(),
        written: Written::default(),
        templates: Written::default(),
        held: ShardedMap::default(),
    });
    shell.listen(&deps.tasks);
    let tasks = deps.tasks.clone();
    deps.tasks.spawn(async move {
        let synced = async {
            shell.works.wait_synced().await;
            shell.interpreter.wait_synced().await;
            shell.bindings.wait_synced().await;
            shell.cluster_bindings.wait_synced().await;
            shell.host.wait_synced().await;
        };
        if tasks.shutdown().unless(synced).await.is_none() {
            return;
        }
        let queue = shell.queue.clone();
        run_workers(
            &tasks,
            Name::stage("binding-status", "aggregated"),
            &queue,
            WORKERS,
            move |key| {
                let it = Arc::clone(&shell);
                async move { it.reconcile(&key).await }
            },
        );
    });
}

/// The permanent ids of the bindings that an object is or belongs to.
fn ids(object: &Object) -> Vec<String> {
    [labels::BINDING_ID, labels::CLUSTER_BINDING_ID]
        .iter()
        .filter_map(|label| object.head().label(label))
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Whether a scheduled binding must be aggregated: it is new, its template has a new
/// version, or its clusters changed.
fn is_due(old: Option<&Object>, new: &Object) -> bool {
    let same_spec = |old: &Object| old.head().generation == new.head().generation;
    if old.is_some_and(same_spec) {
        return false;
    }
    let Ok(now) = new.view::<Binding>() else {
        return false;
    };
    if now.status.last_scheduled_time.is_none() {
        return false;
    }
    let Some(before) = old.and_then(|old| old.view::<Binding>().ok()) else {
        return true;
    };
    let version = |b: &Binding| b.spec.resource.resource_version.clone();
    version(&before) != version(&now)
        || is_told(&now.status.conditions)
            && before.spec.existing_clusters() != now.spec.existing_clusters()
}

impl Shell {
    fn informer(&self, cluster_scoped: bool) -> &Informer {
        if cluster_scoped {
            &self.cluster_bindings
        } else {
            &self.bindings
        }
    }

    fn listen(self: &Arc<Self>, tasks: &Tasks) {
        self.works.add_index(BY_BINDING, ids);
        for cluster_scoped in [false, true] {
            let informer = self.informer(cluster_scoped);
            informer.add_index(BY_ID, ids);
            informer.add_index(BY_RESOURCE_GROUP, resource_group::index_keys);
            let it = Arc::downgrade(self);
            informer.on_change(move |change| {
                if let Some(it) = it.upgrade() {
                    it.binding_changed(cluster_scoped, change);
                }
            });
        }
        // The interpreter's rules for a kind changed.
        let queue = self.queue.clone();
        let visit = move |binding: &Object| {
            queue.add_low(Key {
                cluster_scoped: binding.namespace().is_empty(),
                name: binding.head().key(),
            });
        };
        let informers = [&self.bindings, &self.cluster_bindings];
        let name = "aggregated-kinds";
        let sweep = IndexSweep::start(tasks, name, &informers, BY_RESOURCE_GROUP, visit);
        self.interpreter.on_change(move |changed| {
            if changed.touches(AGGREGATION) {
                let concerns =
                    |group: ResourceGroup<'_>| changed.concerns(&group.gvk(), AGGREGATION);
                sweep.add(|key| ResourceGroup::parse(key).is_some_and(concerns));
            }
        });
        let it = Arc::downgrade(self);
        self.works.on_change(move |change| {
            // A new Work has nothing to report yet.
            if (change.old.is_some() || change.initial)
                && let Some(it) = it.upgrade()
            {
                it.work_changed(change);
            }
        });
    }

    fn work_changed(&self, change: &Change<'_>) {
        for id in ids(change.object()) {
            for cluster_scoped in [false, true] {
                for binding in self.informer(cluster_scoped).by_index(BY_ID, &id) {
                    let name = binding.head().key();
                    let key = Key {
                        cluster_scoped,
                        name,
                    };
                    if change.initial {
                        self.queue.add_low(key);
                    } else {
                        self.queue.add_after(key, GATHER);
                    }
                }
            }
        }
    }

    fn binding_changed(&self, cluster_scoped: bool, change: &Change<'_>) {
        let key = Key {
            cluster_scoped,
            name: change.key(),
        };
        match change.new {
            None => self.forget(&key),
            Some(new) => {
                if self.written.is_news(&key, new) || is_due(change.old, new) {
                    self.queue.add_lane(key, change.initial);
                }
            }
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<Action, Failure> {
        let informer = self.informer(key.cluster_scoped);
        let object = match self.written.turn(key, || informer.get_key(&key.name)) {
            Turn::Now(binding) if !binding.head().deleting => binding,
            Turn::In(rest) => return Ok(Action::After(rest)),
            Turn::Gone => {
                self.forget(key);
                return Ok(Action::Done);
            }
            Turn::Now(_) | Turn::Awaited => return Ok(Action::Done),
        };
        let Some(id) = ids(&object).into_iter().next() else {
            return Ok(Action::Done);
        };
        let binding = object.view::<Binding>()?;
        let works = self.works.by_index(BY_BINDING, &id);
        let items = match aggregate(&works, &binding.spec.resource) {
            Ok(items) => items,
            Err(failure) => {
                self.tell_failure(key, &object, &failure);
                // Only a change of the Work can fix this.
                return Ok(Action::Done);
            }
        };
        if let Some(rest) = self.hold(key, &binding, &items) {
            return Ok(Action::After(rest));
        }
        let (on_binding, on_template) = tokio::join!(
            self.write_binding(key, &object, &binding, &items),
            self.write_template(key, &binding.spec.resource, &items),
        );
        let conflict = [&on_binding, &on_template]
            .iter()
            .any(|r| r.as_ref().is_err_and(Failure::is_conflict));
        match on_binding.and(on_template) {
            Ok(action) => Ok(action),
            Err(_) if conflict => Ok(Action::AFTER_CONFLICT),
            Err(error) => Err(error),
        }
    }

    /// Drops everything remembered about a deleted binding.
    fn forget(&self, key: &Key) {
        self.written.forget(key);
        self.templates.forget(key);
        self.held.lock(key).remove(key);
    }

    fn note(&self, writes: &Written<Key>, key: &Key, written: &Object) {
        let informer = self.informer(key.cluster_scoped);
        writes.note(key, written, || informer.get_key(&key.name));
    }

    /// How much longer to delay a status that is about to change.
    fn hold(&self, key: &Key, binding: &Binding, items: &[AggregatedItem]) -> Option<Duration> {
        let old = &binding.status;
        let settling =
            old.aggregated_status != items && is_settling(&binding.spec, &old.conditions, items);
        let mut held = self.held.lock(key);
        if settling {
            let now = Instant::now();
            let until = *held.entry(key.clone()).or_insert(now + HOLD);
            if now < until {
                return Some(until - now);
            }
        }
        held.remove(key);
        None
    }

    fn recorder_for(&self, key: &Key) -> Recorder {
        self.recorder.named(if key.kind() == "ResourceBinding" {
            "resource-binding-status-controller"
        } else {
            "cluster-resource-binding-status-controller"
        })
    }

    fn tell_failure(&self, key: &Key, object: &Object, why: &dyn std::fmt::Display) {
        let about = ObjectRef::new("work.karmada.io/v1alpha2", key.kind(), object);
        self.recorder_for(key)
            .warning(&about, FAILED, why.to_string());
    }

    async fn write_binding(
        &self,
        key: &Key,
        object: &Object,
        binding: &Binding,
        items: &[AggregatedItem],
    ) -> Result<Action, Failure> {
        let now = rfc3339_seconds(self.clock.now());
        let old = &binding.status;
        let mut status = Map::new();
        if old.aggregated_status != items {
            // An empty list is removed.
            let aggregated = if items.is_empty() {
                Value::Null
            } else {
                json!(items)
            };
            status.insert("aggregatedStatus".into(), aggregated);
        }
        let updated = conditions(&binding.spec, &old.conditions, items, &now);
        let news = updated.is_some();
        if let Some(conditions) = updated {
            status.insert("conditions".into(), json!(conditions));
        }
        if status.is_empty() {
            return Ok(Action::Done);
        }
        let patch = json!({
            "metadata": {"resourceVersion": object.revision().to_string()},
            "status": status,
        });
        let at = At::of(key.resource(), object).sub("status");
        let options = WriteOptions::default();
        match self.control.patch(at, Patch::Merge(patch), &options).await {
            Ok(written) => {
                self.note(&self.written, key, &written);
                if news {
                    let about = ObjectRef::new("work.karmada.io/v1alpha2", key.kind(), object);
                    let name = format!("{}({})", key.kind(), key.name);
                    let text = format!("Update {name} with AggregatedStatus successfully.");
                    self.recorder_for(key).normal(&about, SUCCEEDED, text);
                }
            }
            Err(e) if e.is_not_found() => {}
            Err(e) => {
                if !e.is_conflict() {
                    self.tell_failure(key, object, &e);
                }
                return Err(e.into());
            }
        }
        Ok(Action::Done)
    }

    async fn write_template(
        &self,
        key: &Key,
        reference: &ObjectReference,
        items: &[AggregatedItem],
    ) -> Result<Action, Failure> {
        let kind = Gvk::from_api_version(&reference.api_version, &reference.kind);
        if self.host.keeps_status(&kind) {
            return Ok(Action::Done);
        }
        let resource = self.mapper.find(&kind).await?;
        let Some(template) = self.template(key, &resource, reference).await? else {
            return Ok(Action::Done);
        };
        let about = ObjectRef::new(&reference.api_version, &reference.kind, &template);
        let now = self.clock.now();
        let sum = self.interpreter.aggregate(&kind, &template, items, now);
        let status = match sum.await {
            Ok(Some(status)) => status,
            Ok(None) => return Ok(Action::Done),
            Err(error) => {
                let text = error.to_string();
                let recorder = self.recorder_for(key);
                recorder.warning(&about, FAILED, text.clone());
                if error.may_pass() {
                    return Err(Failure::Unanswered(text));
                }
                // Only a new report of a member or a new template can fix this.
                return Ok(Action::Done);
            }
        };
        let old = read(&template)?.status.unwrap_or_else(|| json!({}));
        if says_the_same(&old, &status) {
            return Ok(Action::Done);
        }
        let first = old == json!({});
        // Replaces the whole status without reading the rest; the revision is the guard.
        let patch = json!([
            {"op": "add", "path": "/metadata/resourceVersion", "value": template.revision().to_string()},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let at = At::of(&resource, &template).sub("status");
        let options = WriteOptions::default();
        match self.control.patch(at, Patch::Json(patch), &options).await {
            Ok(written) => {
                self.note(&self.templates, key, &written);
                if first {
                    let text = "Update Resource with AggregatedStatus successfully.";
                    self.recorder_for(key).normal(&about, SUCCEEDED, text);
                }
            }
            Err(e) if e.is_not_found() => {}
            Err(e) => {
                if !e.is_conflict() {
                    self.recorder_for(key)
                        .warning(&about, FAILED, e.to_string());
                }
                return Err(e.into());
            }
        }
        Ok(Action::Done)
    }

    /// The newest template: the informer's copy if it is new enough, else read from the server.
    async fn template(
        &self,
        key: &Key,
        resource: &Gvr,
        reference: &ObjectReference,
    ) -> Result<Option<Object>, Error> {
        let informer = self
            .informers
            .running(&self.control, &Select::all(resource));
        let copy = informer.and_then(|i| i.get(&reference.namespace, &reference.name));
        if let Some(copy) = copy {
            let referenced: u64 = reference.resource_version.parse().unwrap_or(0);
            if copy.revision() >= referenced && !self.templates.is_ahead_of(key, &copy) {
                return Ok(Some(copy));
            }
        }
        let at = At::one(resource, &reference.namespace, &reference.name);
        match self.control.get(at).await {
            Ok(template) => Ok(Some(template)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }
}

#[derive(Deserialize)]
struct Reported {
    status: Option<Value>,
}

fn read(template: &Object) -> Result<Reported, Error> {
    serde_json::from_slice(template.bytes()).map_err(|e| Error::Protocol(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: STA-binding-due
    #[test]
    fn a_binding_is_due_when_its_template_or_its_clusters_change() {
        let binding = |generation: i64, version: &str, cluster: &str, status: Value| {
            let metadata = json!({"name": "b", "namespace": "n", "generation": generation});
            let spec =
                json!({"resource": {"resourceVersion": version}, "clusters": [{"name": cluster}]});
            let binding = json!({"metadata": metadata, "spec": spec, "status": status});
            Object::from_value(&binding).unwrap()
        };
        let placed = || json!({"lastScheduledTime": "2026-01-01T00:00:00Z"});
        let aggregated = || {
            let mut status = placed();
            status["conditions"] = json!([{"type": "FullyApplied", "status": "True"}]);
            status
        };
        let first = binding(1, "1", "a", placed());
        let table = [
            (None, binding(1, "1", "a", json!({})), false),
            (None, first.clone(), true),
            (Some(&first), binding(1, "1", "a", aggregated()), false),
            (Some(&first), binding(2, "2", "a", json!({})), false),
            (Some(&first), binding(2, "2", "a", placed()), true),
            (Some(&first), binding(2, "1", "a", placed()), false),
            (Some(&first), binding(2, "1", "b", placed()), false),
            (Some(&first), binding(2, "1", "b", aggregated()), true),
        ];
        for (old, new, due) in table {
            assert_eq!(is_due(old, &new), due, "{old:?} {new:?}");
        }
    }
}
