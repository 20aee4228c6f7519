//! The garbage collector: deletes objects whose owners are all gone, and carries out
//! foreground deletion and orphaning (Kubernetes' `pkg/controller/garbagecollector`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, DeleteOptions, DeletionPropagation, Error, Informer, InformerEvent, InformerFactory,
    InvolvedObject, ListWatchSelector, Patch, ResourcePath, TaskGroup, WriteOptions,
    ignore_not_found,
};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, RestMapper, RestMapping, Workqueue,
    remove_finalizers, run_workers,
};
use machinery::object::OwnerReference;
use machinery::{Gvr, Object};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::deletable_resources::{deletable_resource_of_kind, deletable_resources};
use crate::owner_graph::{ObjectIdentity, OwnerGraph};
use crate::shutdown_waits::wait_for_cache_sync;

const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
const ORPHAN_FINALIZER: &str = "orphan";
const WORKERS: usize = 4;
/// When to check again an object whose owner exists but was not delivered by an informer.
const UNSEEN_OWNER_RECHECK: Duration = Duration::from_secs(1);

/// A running garbage collector.
pub(crate) struct GarbageCollector {
    api: Arc<dyn Api>,
    rest_mapper: Arc<RestMapper>,
    recorder: EventRecorder,
    graph: Mutex<OwnerGraph>,
    queue: Workqueue<ObjectIdentity>,
    /// Objects with an owner of a kind that the server does not serve yet.
    unknown_owner_kind: Mutex<HashSet<ObjectIdentity>>,
    monitors: Mutex<HashMap<Gvr, ResourceMonitor>>,
}

struct ResourceMonitor {
    mapping: Arc<RestMapping>,
    informer: Informer,
    /// Set for custom resources, so that the informer can end with its definition.
    own_informers: Option<InformerFactory>,
}

/// The state of an owner.
enum OwnerState {
    Solid,
    /// Its kind is not served, or may not own this object: this proves nothing.
    Unknown,
    Absent,
    /// The owner is being deleted in the foreground and waits for its dependents.
    WaitingForDependents,
}

impl GarbageCollector {
    pub(crate) fn new(context: &ControllerContext, rest_mapper: Arc<RestMapper>) -> Arc<Self> {
        let recorder = EventRecorder::new(
            Arc::clone(&context.control_plane),
            "garbage-collector-controller",
            Arc::clone(&context.clock),
            &context.tasks,
        );
        Arc::new(Self {
            recorder,
            api: Arc::clone(&context.control_plane),
            rest_mapper,
            graph: Mutex::default(),
            queue: Workqueue::new(),
            unknown_owner_kind: Mutex::default(),
            monitors: Mutex::default(),
        })
    }

    /// Starts to collect once all present monitors have listed their objects: until then an
    /// owner may exist without being in the graph.
    pub(crate) fn run(self: &Arc<Self>, tasks: &TaskGroup) {
        let collector = Arc::clone(self);
        let workers = tasks.clone();
        tasks.spawn(async move {
            let all: Vec<Informer> = {
                let followed = collector.monitors.lock();
                followed.values().map(|f| f.informer.clone()).collect()
            };
            if !wait_for_cache_sync(&workers, &all).await {
                return;
            }
            let queue = collector.queue.clone();
            run_workers(
                &workers,
                "garbage-collector",
                &queue,
                WORKERS,
                move |identity| {
                    let collector = Arc::clone(&collector);
                    async move { collector.attempt_to_delete(&identity).await }
                },
            );
        });
    }

    /// Monitors exactly the resources that are served now. `custom` returns true for resources
    /// of a definition, which can be removed again: these have their own informer.
    pub(crate) async fn sync_monitors(
        self: &Arc<Self>,
        informers: &InformerFactory,
        custom: impl Fn(&Gvr) -> bool,
        tasks: &TaskGroup,
    ) {
        let all = deletable_resources(&self.rest_mapper);
        let served: HashSet<&Gvr> = all.iter().map(|r| &r.mapping.gvr).collect();
        let gone: Vec<(Gvr, ResourceMonitor)> = {
            let mut followed = self.monitors.lock();
            followed
                .extract_if(|gvr, f| f.own_informers.is_some() && !served.contains(gvr))
                .collect()
        };
        for (_, left) in gone {
            if let Some(own) = left.own_informers {
                own.stop_server(&self.api).await;
            }
            // The resource is no longer served, so no events report the deletion of its objects.
            for object in left.informer.list() {
                let end = InformerEvent {
                    old: Some(&object),
                    new: None,
                    in_initial_list: false,
                };
                self.on_event(&left.mapping, &end);
            }
        }
        let mut grown = false;
        for mapping in all.iter().map(|r| &r.mapping) {
            if !self.monitors.lock().contains_key(&mapping.gvr) {
                let own = custom(&mapping.gvr).then(|| InformerFactory::new(tasks));
                self.start_monitor(informers, mapping, own);
                grown = true;
            }
        }
        if grown {
            for identity in std::mem::take(&mut *self.unknown_owner_kind.lock()) {
                self.queue.add_low(identity);
            }
        }
    }

    /// Whether a resource is monitored whose definition is gone.
    pub(crate) fn has_stale_monitor(&self, custom: impl Fn(&Gvr) -> bool) -> bool {
        let followed = self.monitors.lock();
        followed
            .iter()
            .any(|(gvr, f)| f.own_informers.is_some() && !custom(gvr))
    }

    fn start_monitor(
        self: &Arc<Self>,
        informers: &InformerFactory,
        mapping: &Arc<RestMapping>,
        own: Option<InformerFactory>,
    ) {
        let informers = own.as_ref().unwrap_or(informers);
        let informer = informers.get(&self.api, &ListWatchSelector::all(&mapping.gvr));
        let followed = ResourceMonitor {
            mapping: Arc::clone(mapping),
            informer: informer.clone(),
            own_informers: own,
        };
        self.monitors.lock().insert(mapping.gvr.clone(), followed);
        let (collector, mapping) = (Arc::downgrade(self), Arc::clone(mapping));
        informer.add_event_handler(move |change| {
            if let Some(collector) = collector.upgrade() {
                collector.on_event(&mapping, change);
            }
        });
    }

    fn on_event(&self, mapping: &Arc<RestMapping>, change: &InformerEvent<'_>) {
        let mut graph = self.graph.lock();
        let replaced = change
            .old
            .filter(|old| change.new.is_none_or(|new| new.uid() != old.uid()));
        if let Some(old) = replaced {
            for identity in graph.remove(old.uid()) {
                self.queue.add(identity);
            }
        }
        let Some(object) = change.new else { return };
        for owner in graph.observe(mapping, object) {
            self.queue.add(owner);
        }
        if graph.needs_processing(object.uid())
            && let Some(identity) = graph.identity(object.uid())
        {
            self.queue.add_event(identity, change);
        }
    }

    async fn attempt_to_delete(&self, identity: &ObjectIdentity) -> Result<ReconcileAction, Error> {
        // An owner that was listed after its dependent may be known by now.
        if !self.graph.lock().needs_processing(&identity.uid) {
            return Ok(ReconcileAction::Done);
        }
        let at = ResourcePath::object(&identity.resource, &identity.namespace, &identity.name);
        let object = ignore_not_found(self.api.get(at).await)?;
        let Some(object) = object.filter(|o| o.uid() == &*identity.uid) else {
            return Ok(ReconcileAction::Done);
        };
        if object.meta().deleting {
            return self.finish_deletion(identity, &object).await;
        }
        self.process_owners(identity, &object).await
    }

    /// Finishes a foreground deletion once no dependent blocks it, or orphans the dependents.
    async fn finish_deletion(
        &self,
        identity: &ObjectIdentity,
        object: &Object,
    ) -> Result<ReconcileAction, Error> {
        let value = object.value()?;
        let dependents = self.graph.lock().dependents(&identity.uid);
        if has_finalizer(&value, ORPHAN_FINALIZER) {
            for dependent in &dependents {
                self.remove_owner_references(dependent, |uid| uid == &*identity.uid)
                    .await?;
            }
            remove_finalizers(&*self.api, &identity.resource, object, &[ORPHAN_FINALIZER]).await?;
            return Ok(ReconcileAction::Done);
        }
        if has_finalizer(&value, FOREGROUND_FINALIZER) {
            let blocking = self.graph.lock().blocking_dependents(&identity.uid);
            if blocking.is_empty() {
                let finalizers = [FOREGROUND_FINALIZER];
                remove_finalizers(&*self.api, &identity.resource, object, &finalizers).await?;
                return Ok(ReconcileAction::Done);
            }
            // One that is being deleted already is processed by its own events.
            for dependent in blocking {
                if !self.graph.lock().is_deleting(&dependent.uid) {
                    self.queue.add(dependent);
                }
            }
        }
        Ok(ReconcileAction::Done)
    }

    async fn process_owners(
        &self,
        identity: &ObjectIdentity,
        object: &Object,
    ) -> Result<ReconcileAction, Error> {
        let owners = object.owner_references();
        let (mut solid, mut gone, mut waiting) = (false, Vec::new(), false);
        let mut unseen = false;
        for owner in owners {
            match self.owner_state(identity, object, owner).await? {
                OwnerState::Solid => {
                    solid = true;
                    unseen |= self.graph.lock().identity(&owner.uid).is_none();
                }
                OwnerState::Unknown => {
                    self.unknown_owner_kind.lock().insert(identity.clone());
                    solid = true;
                }
                OwnerState::Absent => gone.push(owner.uid.clone()),
                OwnerState::WaitingForDependents => {
                    waiting = true;
                    gone.push(owner.uid.clone());
                }
            }
        }
        if gone.is_empty() {
            // No event would report the deletion of an unseen owner either.
            return Ok(if unseen {
                ReconcileAction::RequeueAfter(UNSEEN_OWNER_RECHECK)
            } else {
                ReconcileAction::Done
            });
        }
        if solid {
            self.remove_owner_references(identity, |uid| gone.iter().any(|g| **g == *uid))
                .await?;
            return Ok(ReconcileAction::Done);
        }
        let has_dependents = !self.graph.lock().dependents(&identity.uid).is_empty();
        let value = object.value()?;
        let propagation =
            if waiting && has_dependents || has_finalizer(&value, FOREGROUND_FINALIZER) {
                DeletionPropagation::Foreground
            } else if has_finalizer(&value, ORPHAN_FINALIZER) {
                DeletionPropagation::Orphan
            } else {
                DeletionPropagation::Background
            };
        let options = DeleteOptions {
            uid: Some(identity.uid.to_string()),
            resource_version: Some(object.revision().to_string()),
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::object(&identity.resource, &identity.namespace, &identity.name);
        ignore_not_found(self.api.delete(at, &options).await)?;
        Ok(ReconcileAction::Done)
    }

    /// Reads the owner from the server: only an authoritative "not found" counts.
    async fn owner_state(
        &self,
        identity: &ObjectIdentity,
        object: &Object,
        owner: &OwnerReference,
    ) -> Result<OwnerState, Error> {
        let (version, kind) = (&owner.api_version, &owner.kind);
        let resource = deletable_resource_of_kind(&self.rest_mapper, version, kind);
        let Some(mapping) = resource.map(|resource| Arc::clone(&resource.mapping)) else {
            return Ok(OwnerState::Unknown);
        };
        if mapping.namespaced && identity.namespace.is_empty() {
            self.record_invalid_owner(object, owner);
            return Ok(OwnerState::Unknown);
        }
        let namespace = if mapping.namespaced {
            &*identity.namespace
        } else {
            ""
        };
        match self
            .api
            .get(ResourcePath::object(&mapping.gvr, namespace, &owner.name))
            .await
        {
            Ok(resource) if resource.uid() != &*owner.uid => Ok(OwnerState::Absent),
            Ok(resource) if resource.meta().deleting => {
                let foreground = has_finalizer(&resource.value()?, FOREGROUND_FINALIZER);
                Ok(if foreground {
                    OwnerState::WaitingForDependents
                } else {
                    OwnerState::Solid
                })
            }
            Ok(_) => Ok(OwnerState::Solid),
            Err(e) if e.is_not_found() => {
                let known_owner = self.graph.lock().identity(&owner.uid);
                if known_owner.is_some_and(|o| *o.namespace != *namespace) {
                    self.record_invalid_owner(object, owner);
                }
                Ok(OwnerState::Absent)
            }
            Err(e) => Err(e),
        }
    }

    /// Records an event: owners are looked up only in the object's own namespace.
    fn record_invalid_owner(&self, object: &Object, owner: &OwnerReference) {
        let namespace = object.namespace();
        let text = format!(
            "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace {namespace:?}",
            owner.api_version, owner.kind, owner.name, owner.uid
        );
        self.recorder.warning(
            &InvolvedObject::from_object(object),
            "OwnerRefInvalidNamespace",
            text,
        );
    }

    async fn remove_owner_references(
        &self,
        identity: &ObjectIdentity,
        gone: impl Fn(&str) -> bool,
    ) -> Result<(), Error> {
        let at = ResourcePath::object(&identity.resource, &identity.namespace, &identity.name);
        let object = ignore_not_found(self.api.get(at).await)?;
        let Some(object) = object.filter(|o| o.uid() == &*identity.uid) else {
            return Ok(());
        };
        let value = object.value()?;
        let kept: Vec<&Value> = value["metadata"]["ownerReferences"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|o| !gone(o["uid"].as_str().unwrap_or("")))
            .collect();
        let patch = json!({"metadata": {"uid": identity.uid, "resourceVersion": object.revision().to_string(), "ownerReferences": kept}});
        let options = WriteOptions::default();
        let patched = self.api.patch(at, Patch::Merge(patch), &options).await;
        ignore_not_found(patched).map(drop)
    }
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    finalizers.is_some_and(|f| f.iter().any(|x| x == name))
}
