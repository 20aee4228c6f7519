//! Starts and stops the informers of exporting namespaces, and writes the Works of their slices.

use std::collections::BTreeSet;
use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, DeleteOptions, Error, ResourcePath, WriteOptions, ignore_not_found};
use flotilla_runtime::{ListWatchSelector, ReconcileAction, TaskGroup, Workqueue, run_workers};
use machinery::Object;
use members::MemberAccess;
use openapi::karmada::names::execution_space_name;
use openapi::karmada::resources::WORKS;
use parking_lot::Mutex;

use super::collected_work::{collected_work_name, desired_work};
use super::export_works::{
    ExportState, ExportWorks, MemberNamespace, collected_service, exporting_namespaces,
};
use super::namespace_informers::NamespaceInformers;
use crate::ServicesContext;

const WORKERS: usize = 3;

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ExportKey {
    /// The informers of a namespace.
    Namespace(MemberNamespace),
    /// The slices of a Service.
    Service(MemberNamespace, String),
}

/// The controller serviceExport.
pub(crate) struct ServiceExportController {
    api: Arc<dyn Api>,
    members: Arc<dyn MemberAccess>,
    works: ExportWorks,
    running: Mutex<AHashMap<MemberNamespace, NamespaceInformers>>,
    queue: Workqueue<ExportKey>,
    tasks: TaskGroup,
}

impl ServiceExportController {
    pub(crate) async fn start(deps: &ServicesContext, tasks: &TaskGroup) {
        let works = deps
            .informers
            .get(&deps.control_plane, &ListWatchSelector::all(&WORKS));
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control_plane),
            members: Arc::clone(&deps.members),
            works: ExportWorks::new(works),
            running: Mutex::default(),
            queue: Workqueue::new(),
            tasks: tasks.clone(),
        });
        it.works.0.wait_for_cache_sync().await;
        let queue = it.queue.clone();
        it.works.0.add_event_handler(move |change| {
            let low = change.in_initial_list;
            for work in change.old.into_iter().chain(change.new) {
                for namespace in exporting_namespaces(work) {
                    queue.add_to_lane(ExportKey::Namespace(namespace), low);
                }
                if let Some((namespace, service)) = collected_service(work) {
                    queue.add_to_lane(ExportKey::Service(namespace.clone(), service), low);
                    queue.add_to_lane(ExportKey::Namespace(namespace), low);
                }
            }
        });
        let weak = Arc::downgrade(&it);
        let on_connection = move |cluster: &str, _connected: bool| {
            let Some(it) = weak.upgrade() else { return };
            for namespace in it.works.namespaces(cluster) {
                it.queue.add(ExportKey::Namespace(namespace));
            }
        };
        deps.members.on_connection_change(Box::new(on_connection));
        let queue = it.queue.clone();
        run_workers(tasks, "service-export", &queue, WORKERS, move |key| {
            let it = Arc::clone(&it);
            async move {
                match key {
                    ExportKey::Namespace(at) => it.reconcile_namespace(&at).await,
                    ExportKey::Service(at, service) => it.reconcile_service(&at, &service).await,
                }
            }
        });
    }

    async fn reconcile_namespace(&self, at: &MemberNamespace) -> Result<ReconcileAction, Error> {
        match self.works.state(at) {
            ExportState::None => {
                self.stop_informers(at);
                for work in self.works.collected(at, None) {
                    self.delete_work(&work).await?;
                }
            }
            // What was collected stays until it is known that nothing is exported.
            ExportState::NotApplied => {}
            ExportState::Applied => match self.members.api(&at.cluster) {
                Ok(api) => self.ensure_informers(at, &api),
                // The next connection enqueues the namespace.
                Err(_) => self.stop_informers(at),
            },
        }
        Ok(ReconcileAction::Done)
    }

    fn ensure_informers(&self, at: &MemberNamespace, api: &Arc<dyn Api>) {
        let mut running = self.running.lock();
        if running.get(at).is_some_and(|informers| informers.uses(api)) {
            return;
        }
        let (queue, namespace) = (self.queue.clone(), at.clone());
        let changed = move |service: &str| {
            queue.add(ExportKey::Service(namespace.clone(), service.to_owned()));
        };
        // A Service whose export and slices are all gone has only its Works left.
        let collected = self.works.collected(at, None);
        let collected: BTreeSet<String> = collected
            .iter()
            .filter_map(|work| Some(collected_service(work)?.1))
            .collect();
        let started =
            NamespaceInformers::start(api, &at.namespace, collected, changed, &self.tasks);
        if let Some(before) = running.insert(at.clone(), started) {
            self.tasks.spawn(before.stop());
        }
    }

    fn stop_informers(&self, at: &MemberNamespace) {
        let stopped = self.running.lock().remove(at);
        if let Some(informers) = stopped {
            self.tasks.spawn(informers.stop());
        }
    }

    async fn reconcile_service(
        &self,
        at: &MemberNamespace,
        service: &str,
    ) -> Result<ReconcileAction, Error> {
        let informers = self.running.lock().get(at).cloned();
        let Some(informers) = informers.filter(NamespaceInformers::has_synced) else {
            return Ok(ReconcileAction::Done);
        };
        let collected = self.works.collected(at, Some(service));
        let mut desired = BTreeSet::new();
        let mut conflict = false;
        for slice in informers.exported_slices(service) {
            conflict |= self.write_work(at, service, &slice).await?;
            desired.insert(collected_work_name(&slice));
        }
        for work in collected.iter().filter(|w| !desired.contains(w.name())) {
            self.delete_work(work).await?;
        }
        Ok(match conflict {
            true => ReconcileAction::AFTER_CONFLICT,
            false => ReconcileAction::Done,
        })
    }

    /// Returns whether the Work has changed meanwhile.
    async fn write_work(
        &self,
        at: &MemberNamespace,
        service: &str,
        slice: &Object,
    ) -> Result<bool, Error> {
        let space = execution_space_name(&at.cluster);
        let existing = self.works.0.get(&space, &collected_work_name(slice));
        if existing.as_ref().is_some_and(|work| work.meta().deleting) {
            // Its end enqueues the Service.
            return Ok(false);
        }
        let Some(work) = desired_work(&at.cluster, service, slice, existing.as_ref())? else {
            return Ok(false);
        };
        let options = WriteOptions::default();
        let written = match &existing {
            Some(existing) => {
                let at = ResourcePath::of_object(&WORKS, existing);
                self.api.update(at, work.into(), &options).await
            }
            None => {
                let at = ResourcePath::collection(&WORKS, &space);
                self.api.create(at, work.into(), &options).await
            }
        };
        match written {
            Ok(_) => Ok(false),
            Err(e) if e.is_conflict() || e.is_already_exists() => Ok(true),
            // The Work or the cluster is gone; an event follows.
            Err(e) if existing.is_some() && e.is_not_found() => Ok(false),
            Err(e) if e.is_namespace_terminating() => Ok(false),
            Err(e) => Err(e),
        }
    }

    async fn delete_work(&self, work: &Object) -> Result<(), Error> {
        if work.meta().deleting {
            return Ok(());
        }
        let options = DeleteOptions {
            uid: Some(work.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::of_object(&WORKS, work);
        match self.api.delete(at, &options).await {
            // Another Work of that name; its creation is an event.
            Err(e) if e.is_conflict() => Ok(()),
            other => ignore_not_found(other).map(drop),
        }
    }
}
