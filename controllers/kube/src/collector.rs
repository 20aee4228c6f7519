//! The garbage collector: deletes what belongs to nobody any more, and carries
//! out foreground deletion and orphaning (contract of
//! `pkg/controller/garbagecollector`).

use std::sync::Arc;

use client::{Api, At, DeleteOptions, Error, Patch, Propagation, WriteOptions};
use machinery::Object;
use machinery::object::Owner;
use parking_lot::Mutex;
use runtime::{Action, Change, Informers, Queue, Select, Tasks, run_workers};
use serde_json::{Value, json};

use crate::graph::{Graph, Place};
use crate::resources::Resources;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const WORKERS: usize = 4;

/// A running garbage collector.
pub(crate) struct Collector {
    api: Arc<dyn Api>,
    resources: Arc<Resources>,
    graph: Mutex<Graph>,
    queue: Queue<Place>,
}

/// What became of an owner.
enum Fate {
    Solid,
    Absent,
    /// It is being deleted in the foreground and waits for its dependents.
    Waiting,
}

impl Collector {
    pub(crate) fn start(
        api: Arc<dyn Api>,
        resources: Arc<Resources>,
        tasks: &Tasks,
        informers: &Informers,
    ) -> Arc<Self> {
        let collector = Arc::new(Self {
            api,
            resources,
            graph: Mutex::default(),
            queue: Queue::new(),
        });
        let (it, informers) = (Arc::clone(&collector), informers.clone());
        let workers = tasks.clone();
        tasks.spawn(async move {
            // Until every kind has been listed an owner may merely be unseen.
            informers.wait_synced().await;
            let queue = it.queue.clone();
            run_workers(
                &workers,
                "garbage-collector",
                &queue,
                WORKERS,
                move |place| {
                    let it = Arc::clone(&it);
                    async move { it.look_at(&place).await }
                },
            );
        });
        collector
    }

    /// Follows one more resource.
    pub(crate) fn follow(self: &Arc<Self>, informers: &Informers, resource: &client::ApiResource) {
        let informer = informers.get(&self.api, &Select::all(&resource.resource));
        let it = Arc::downgrade(self);
        let resource = resource.resource.clone();
        informer.on_change(move |change| {
            if let Some(it) = it.upgrade() {
                it.observe(&resource, change);
            }
        });
    }

    fn observe(&self, resource: &machinery::Gvr, change: &Change<'_>) {
        let mut graph = self.graph.lock();
        let replaced = change
            .old
            .filter(|old| change.new.is_none_or(|new| new.uid() != old.uid()));
        if let Some(old) = replaced {
            for place in graph.forget(old.uid()) {
                self.queue.add(place);
            }
        }
        let Some(object) = change.new else { return };
        let suspicious = graph.observe(resource, object);
        // A deletion in progress may wait for us, and so may its dependents.
        if (suspicious || object.head().deleting)
            && let Some(place) = graph.place(object.uid())
        {
            self.queue.add_lane(place, change.initial);
        }
    }

    async fn look_at(&self, place: &Place) -> Result<Action, Error> {
        let at = At::one(&place.resource, &place.namespace, &place.name);
        let object = match self.api.get(at).await {
            Ok(object) if object.uid() == &*place.uid => object,
            Ok(_) => return Ok(Action::Done),
            Err(e) if e.is_not_found() => return Ok(Action::Done),
            Err(e) => return Err(e),
        };
        if object.head().deleting {
            return self.finish_deletion(place, &object).await;
        }
        self.judge(place, &object).await
    }

    /// Foreground: dependents go first. Orphan: they are let go.
    async fn finish_deletion(&self, place: &Place, object: &Object) -> Result<Action, Error> {
        let value = object.value()?;
        let has = |name: &str| {
            value["metadata"]["finalizers"]
                .as_array()
                .is_some_and(|f| f.iter().any(|x| x == name))
        };
        let dependents = self.graph.lock().dependents(&place.uid);
        if has(ORPHAN) {
            for dependent in &dependents {
                self.drop_owners(dependent, |uid| uid == &*place.uid)
                    .await?;
            }
            return self.drop_finalizer(place, object, &value, ORPHAN).await;
        }
        if has(FOREGROUND) {
            if !self.graph.lock().blocked(&place.uid) {
                return self.drop_finalizer(place, object, &value, FOREGROUND).await;
            }
            for dependent in dependents {
                self.queue.add(dependent);
            }
        }
        Ok(Action::Done)
    }

    async fn judge(&self, place: &Place, object: &Object) -> Result<Action, Error> {
        let owners = &object.head().owners;
        let (mut solid, mut gone, mut waiting) = (false, Vec::new(), false);
        for owner in owners {
            match self.fate(place, owner).await? {
                Fate::Solid => solid = true,
                Fate::Absent => gone.push(owner.uid.clone()),
                Fate::Waiting => {
                    waiting = true;
                    gone.push(owner.uid.clone());
                }
            }
        }
        if gone.is_empty() {
            return Ok(Action::Done);
        }
        if solid {
            self.drop_owners(place, |uid| gone.iter().any(|g| **g == *uid))
                .await?;
            return Ok(Action::Done);
        }
        let has_dependents = !self.graph.lock().dependents(&place.uid).is_empty();
        let foreground = waiting && has_dependents;
        let options = DeleteOptions {
            uid: Some(place.uid.to_string()),
            resource_version: Some(object.revision().to_string()),
            propagation: Some(if foreground {
                Propagation::Foreground
            } else {
                Propagation::Background
            }),
            ..DeleteOptions::default()
        };
        let at = At::one(&place.resource, &place.namespace, &place.name);
        match self.api.delete(at, &options).await {
            Ok(_) => Ok(Action::Done),
            Err(e) if e.is_not_found() => Ok(Action::Done),
            Err(e) => Err(e),
        }
    }

    /// Asks for the owner itself: only an authoritative "not found" counts.
    async fn fate(&self, place: &Place, owner: &Owner) -> Result<Fate, Error> {
        let Some(resource) = self.resources.of_kind(&owner.api_version, &owner.kind) else {
            // An unknown kind proves nothing.
            return Ok(Fate::Solid);
        };
        if resource.namespaced && place.namespace.is_empty() {
            return Ok(Fate::Absent);
        }
        let namespace = if resource.namespaced {
            &*place.namespace
        } else {
            ""
        };
        match self
            .api
            .get(At::one(&resource.resource, namespace, &owner.name))
            .await
        {
            Ok(found) if found.uid() != &*owner.uid => Ok(Fate::Absent),
            Ok(found) if found.head().deleting && owner.block_owner_deletion => {
                let foreground = found.value()?["metadata"]["finalizers"]
                    .as_array()
                    .is_some_and(|f| f.iter().any(|x| x == FOREGROUND));
                Ok(if foreground {
                    Fate::Waiting
                } else {
                    Fate::Solid
                })
            }
            Ok(_) => Ok(Fate::Solid),
            Err(e) if e.is_not_found() => Ok(Fate::Absent),
            Err(e) => Err(e),
        }
    }

    async fn drop_owners(&self, place: &Place, gone: impl Fn(&str) -> bool) -> Result<(), Error> {
        let at = At::one(&place.resource, &place.namespace, &place.name);
        let object = match self.api.get(at).await {
            Ok(object) => object,
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
        let patch = json!({"metadata": {"uid": place.uid, "resourceVersion": object.revision().to_string(), "ownerReferences": kept}});
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
        place: &Place,
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
        let patch = json!({"metadata": {"uid": place.uid, "resourceVersion": object.revision().to_string(), "finalizers": kept}});
        let at = At::one(&place.resource, &place.namespace, &place.name);
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
