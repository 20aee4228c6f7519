//! The garbage collector: deletes objects whose owners are all gone, and carries out
//! foreground deletion and orphaning (Kubernetes' `pkg/controller/garbagecollector`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use client::{Api, At, DeleteOptions, Error, Patch, Propagation, WriteOptions};
use machinery::object::Owner;
use machinery::time::Clock;
use machinery::{Gvr, Object};
use parking_lot::Mutex;
use flotilla_runtime::{
    Action, Change, Informer, Informers, ObjectRef, Queue, Recorder, Select, Tasks, run_workers,
};
use serde_json::{Value, json};

use crate::graph::{Graph, Place};
use crate::resources::Resources;
use crate::start::synced;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const WORKERS: usize = 4;
/// When to check again an object whose owner exists but was not delivered by an informer.
const UNSEEN: Duration = Duration::from_secs(1);

/// A running garbage collector.
pub(crate) struct Collector {
    api: Arc<dyn Api>,
    resources: Arc<Resources>,
    recorder: Recorder,
    graph: Mutex<Graph>,
    queue: Queue<Place>,
    /// Objects with an owner of a kind that the server does not serve yet.
    puzzled: Mutex<HashSet<Place>>,
    followed: Mutex<HashMap<Gvr, Followed>>,
}

struct Followed {
    informer: Informer,
    /// Set for custom resources, so that the informer can end with its definition.
    custom: Option<Informers>,
}

/// The state of an owner.
enum Fate {
    Solid,
    /// Its kind is not served, or may not own this object: this proves nothing.
    Unknown,
    Absent,
    /// The owner is being deleted in the foreground and waits for its dependents.
    Waiting,
}

impl Collector {
    pub(crate) fn new(
        api: Arc<dyn Api>,
        resources: Arc<Resources>,
        clock: Arc<dyn Clock>,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let name = "garbage-collector-controller";
        Arc::new(Self {
            recorder: Recorder::new(Arc::clone(&api), name, clock, tasks),
            api,
            resources,
            graph: Mutex::default(),
            queue: Queue::new(),
            puzzled: Mutex::default(),
            followed: Mutex::default(),
        })
    }

    /// Starts to collect once all present monitors have listed their objects: until then an
    /// owner may exist without being in the graph.
    pub(crate) fn run(self: &Arc<Self>, tasks: &Tasks) {
        let it = Arc::clone(self);
        let workers = tasks.clone();
        tasks.spawn(async move {
            let all: Vec<Informer> = {
                let followed = it.followed.lock();
                followed.values().map(|f| f.informer.clone()).collect()
            };
            if !synced(&workers, &all).await {
                return;
            }
            let queue = it.queue.clone();
            run_workers(
                &workers,
                "garbage-collector",
                &queue,
                WORKERS,
                move |identity| {
                    let it = Arc::clone(&it);
                    async move { it.look_at(&identity).await }
                },
            );
        });
    }

    /// Monitors exactly the resources that are served now. `custom` returns true for resources
    /// of a definition, which can be removed again: these have their own informer.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        informers: &Informers,
        custom: impl Fn(&Gvr) -> bool,
        tasks: &Tasks,
    ) {
        let all = self.resources.all();
        let served = |gvr: &Gvr| all.iter().any(|r| r.resource == *gvr);
        let gone: Vec<(Gvr, Followed)> = {
            let mut followed = self.followed.lock();
            followed
                .extract_if(|gvr, f| f.custom.is_some() && !served(gvr))
                .collect()
        };
        for (resource, left) in gone {
            let resource = Arc::new(resource);
            if let Some(own) = left.custom {
                own.stop(&self.api).await;
            }
            // The resource is no longer served, so no events report the deletion of its objects.
            for object in left.informer.list() {
                let end = Change {
                    old: Some(&object),
                    new: None,
                    initial: false,
                };
                self.observe(&resource, &end);
            }
        }
        let mut grown = false;
        for resource in all.iter().map(|r| &r.resource) {
            if !self.followed.lock().contains_key(resource) {
                let own = custom(resource).then(|| Informers::new(tasks));
                self.begin(informers, resource, own);
                grown = true;
            }
        }
        if grown {
            for identity in std::mem::take(&mut *self.puzzled.lock()) {
                self.queue.add_low(identity);
            }
        }
    }

    /// Whether a resource is monitored whose definition is gone.
    pub(crate) fn outlives(&self, custom: impl Fn(&Gvr) -> bool) -> bool {
        let followed = self.followed.lock();
        followed
            .iter()
            .any(|(gvr, f)| f.custom.is_some() && !custom(gvr))
    }

    fn begin(self: &Arc<Self>, informers: &Informers, resource: &Gvr, own: Option<Informers>) {
        let informers = own.as_ref().unwrap_or(informers);
        let informer = informers.get(&self.api, &Select::all(resource));
        let followed = Followed {
            informer: informer.clone(),
            custom: own,
        };
        self.followed.lock().insert(resource.clone(), followed);
        let (it, resource) = (Arc::downgrade(self), Arc::new(resource.clone()));
        informer.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.observe(&resource, change);
            }
        });
    }

    fn observe(&self, resource: &Arc<Gvr>, change: &Change<'_>) {
        let mut graph = self.graph.lock();
        let replaced = change
            .old
            .filter(|old| change.new.is_none_or(|new| new.uid() != old.uid()));
        if let Some(old) = replaced {
            for identity in graph.forget(old.uid()) {
                self.queue.add(identity);
            }
        }
        let Some(object) = change.new else { return };
        for owner in graph.observe(resource, object) {
            self.queue.add(owner);
        }
        if graph.suspicious(object.uid())
            && let Some(identity) = graph.place(object.uid())
        {
            self.queue.add_lane(identity, change.initial);
        }
    }

    async fn look_at(&self, identity: &Place) -> Result<Action, Error> {
        // An owner that was listed after its dependent may be known by now.
        if !self.graph.lock().suspicious(&identity.uid) {
            return Ok(Action::Done);
        }
        let at = At::one(&identity.resource, &identity.namespace, &identity.name);
        let object = match self.api.get(at).await {
            Ok(object) if object.uid() == &*identity.uid => object,
            Ok(_) => return Ok(Action::Done),
            Err(e) if e.is_not_found() => return Ok(Action::Done),
            Err(e) => return Err(e),
        };
        if object.head().deleting {
            return self.finish_deletion(identity, &object).await;
        }
        self.judge(identity, &object).await
    }

    /// Finishes a foreground deletion once no dependent blocks it, or orphans the dependents.
    async fn finish_deletion(&self, identity: &Place, object: &Object) -> Result<Action, Error> {
        let value = object.value()?;
        let dependents = self.graph.lock().dependents(&identity.uid);
        if has_finalizer(&value, ORPHAN) {
            for dependent in &dependents {
                self.drop_owners(dependent, |uid| uid == &*identity.uid)
                    .await?;
            }
            return self.drop_finalizer(identity, object, &value, ORPHAN).await;
        }
        if has_finalizer(&value, FOREGROUND) {
            if !self.graph.lock().blocked(&identity.uid) {
                return self
                    .drop_finalizer(identity, object, &value, FOREGROUND)
                    .await;
            }
            for dependent in dependents {
                self.queue.add(dependent);
            }
        }
        Ok(Action::Done)
    }

    async fn judge(&self, identity: &Place, object: &Object) -> Result<Action, Error> {
        let owners = &object.head().owners;
        let (mut solid, mut gone, mut waiting) = (false, Vec::new(), false);
        let mut unseen = false;
        for owner in owners {
            match self.fate(identity, object, owner).await? {
                Fate::Solid => {
                    solid = true;
                    unseen |= self.graph.lock().place(&owner.uid).is_none();
                }
                Fate::Unknown => {
                    self.puzzled.lock().insert(identity.clone());
                    solid = true;
                }
                Fate::Absent => gone.push(owner.uid.clone()),
                Fate::Waiting => {
                    waiting = true;
                    gone.push(owner.uid.clone());
                }
            }
        }
        if gone.is_empty() {
            // No event would report the deletion of an unseen owner either.
            return Ok(if unseen {
                Action::After(UNSEEN)
            } else {
                Action::Done
            });
        }
        if solid {
            self.drop_owners(identity, |uid| gone.iter().any(|g| **g == *uid))
                .await?;
            return Ok(Action::Done);
        }
        let has_dependents = !self.graph.lock().dependents(&identity.uid).is_empty();
        let value = object.value()?;
        let propagation = if waiting && has_dependents || has_finalizer(&value, FOREGROUND) {
            Propagation::Foreground
        } else if has_finalizer(&value, ORPHAN) {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
        let options = DeleteOptions {
            uid: Some(identity.uid.to_string()),
            resource_version: Some(object.revision().to_string()),
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        let at = At::one(&identity.resource, &identity.namespace, &identity.name);
        match self.api.delete(at, &options).await {
            Ok(_) => Ok(Action::Done),
            Err(e) if e.is_not_found() => Ok(Action::Done),
            Err(e) => Err(e),
        }
    }

    /// Reads the owner from the server: only an authoritative "not found" counts.
    async fn fate(&self, identity: &Place, object: &Object, owner: &Owner) -> Result<Fate, Error> {
        let Some(resource) = self.resources.of_kind(&owner.api_version, &owner.kind) else {
            return Ok(Fate::Unknown);
        };
        if resource.namespaced && identity.namespace.is_empty() {
            self.complain(object, owner);
            return Ok(Fate::Unknown);
        }
        let namespace = if resource.namespaced {
            &*identity.namespace
        } else {
            ""
        };
        match self
            .api
            .get(At::one(&resource.resource, namespace, &owner.name))
            .await
        {
            Ok(found) if found.uid() != &*owner.uid => Ok(Fate::Absent),
            Ok(found) if found.head().deleting => {
                let foreground = has_finalizer(&found.value()?, FOREGROUND);
                Ok(if foreground {
                    Fate::Waiting
                } else {
                    Fate::Solid
                })
            }
            Ok(_) => Ok(Fate::Solid),
            Err(e) if e.is_not_found() => {
                let known = self.graph.lock().place(&owner.uid);
                if known.is_some_and(|o| *o.namespace != *namespace) {
                    self.complain(object, owner);
                }
                Ok(Fate::Absent)
            }
            Err(e) => Err(e),
        }
    }

    /// Records an event: owners are looked up only in the object's own namespace.
    fn complain(&self, object: &Object, owner: &Owner) {
        let namespace = object.namespace();
        let text = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
            owner.api_version, owner.kind, owner.name, owner.uid
        );
        self.recorder
            .warning(&ObjectRef::of(object), "OwnerRefInvalidNamespace", text);
    }

    async fn drop_owners(
        &self,
        identity: &Place,
        gone: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        let at = At::one(&identity.resource, &identity.namespace, &identity.name);
        let object = match self.api.get(at).await {
            Ok(object) if object.uid() == &*identity.uid => object,
            Ok(_) => return Ok(()),
            Err(e) if e.is_not_found() => return Ok(()),
            Err(e) => return Err(e),
        };
        let value = object.value()?;
        let kept: Vec<&Value> = value["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|o| !gone(o["uid"].as_str().unwrap_or("")))
            .collect();
        let patch = json!({"metadata": {"uid": identity.uid, "resourceVersion": object.revision().to_string(), "ownerReferences": kept}});
        match self
            .api
            .patch(at, Patch::Merge(patch), &WriteOptions::default())
            .await
        {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(()),
        }
    }

    async fn drop_finalizer(
        &self,
        identity: &Place,
        object: &Object,
        value: &Value,
        finalizer: &str,
    ) -> Result<Action, Error> {
        let kept: Vec<&Value> = value["metadata"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|f| *f != finalizer)
            .collect();
        let patch = json!({"metadata": {"uid": identity.uid, "resourceVersion": object.revision().to_string(), "finalizers": kept}});
        let at = At::one(&identity.resource, &identity.namespace, &identity.name);
        match self
            .api
            .patch(at, Patch::Merge(patch), &WriteOptions::default())
            .await
        {
            Err(e) if !e.is_not_found() => Err(e),
            _ => Ok(Action::Done),
        }
    }
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|f| f.iter().any(|x| x == name))
}
