//! Starts and stops the informers of namespaces of members, and writes the Works of their slices.

use std::collections::BTreeSet;
use std::sync::Arc;

use ahash::AHashMap;
use client::{Api, Error, InvolvedObject, TaskGroup};
use controller_context::WorkClient;
use flotilla_runtime::{
    ControllerContext, ControllerName, EventRecorder, ReconcileAction, Workqueue, run_workers,
};
use karmada_api::names::execution_space_name;
use karmada_api::resources::WORKS;
use machinery::Object;
use members::MemberAccess;
use parking_lot::Mutex;

use super::collected_work::{CollectingKinds, collected_work_name, desired_work, relabeled_work};
use super::collection_works::{CollectionWorks, ExportState, collected_service, provided_service};
use super::namespace_informers::NamespaceInformers;
use crate::ServiceControllersOptions;
use crate::exported_services::{MemberNamespace, exported_services};
use crate::slice_fields::MAX_SLICES;
use crate::work_fields::{WorkWrite, delete_work, write_work};

const WORKERS: usize = 3;

/// The key that is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CollectionKey {
    /// The informers of a namespace.
    Namespace(MemberNamespace),
    /// The slices of a Service.
    Service(MemberNamespace, String),
}

/// The controllers serviceExport and endpointsliceCollect.
pub(crate) struct SliceCollectionController {
    members: Arc<dyn MemberAccess>,
    works: CollectionWorks,
    recorder: EventRecorder,
    /// The kinds whose controllers are enabled.
    enabled: CollectingKinds,
    running: Mutex<AHashMap<MemberNamespace, NamespaceInformers>>,
    queue: Workqueue<CollectionKey>,
    tasks: TaskGroup,
}

impl SliceCollectionController {
    pub(crate) async fn start(context: &ControllerContext, options: &ServiceControllersOptions) {
        let api = Arc::clone(&context.control_plane);
        let works = WorkClient::new(api, context.informer(&WORKS));
        let controller = Arc::new(Self {
            members: Arc::clone(&options.members),
            works: CollectionWorks::new(works),
            recorder: context.recorder.clone(),
            enabled: CollectingKinds {
                export: options.enabled.service_export,
                multi_cluster_service: options.enabled.endpoint_slice_collect,
            },
            running: Mutex::default(),
            queue: Workqueue::new(),
            tasks: context.tasks.clone(),
        });
        controller.works.0.informer.wait_for_cache_sync().await;
        let queue = controller.queue.clone();
        let informer = &controller.works.0.informer;
        informer.add_event_handler(move |change| {
            for work in change.old.into_iter().chain(change.new) {
                let mut services = exported_services(work);
                services.extend(collected_service(work));
                services.extend(provided_service(work));
                for (namespace, service) in services {
                    queue.add_event(CollectionKey::Service(namespace.clone(), service), change);
                    queue.add_event(CollectionKey::Namespace(namespace), change);
                }
            }
        });
        let weak = Arc::downgrade(&controller);
        let on_connection = move |cluster: &str, _connected: bool| {
            let Some(controller) = weak.upgrade() else {
                return;
            };
            for namespace in controller.works.namespaces(cluster) {
                controller.queue.add(CollectionKey::Namespace(namespace));
            }
        };
        options
            .members
            .on_connection_change(Box::new(on_connection));
        let queue = controller.queue.clone();
        let name = ControllerName::with_stage("service-export", "endpoints_collected");
        run_workers(&context.tasks, name, &queue, WORKERS, move |key| {
            let controller = Arc::clone(&controller);
            async move {
                match key {
                    CollectionKey::Namespace(at) => controller.reconcile_namespace(&at).await,
                    CollectionKey::Service(at, service) => {
                        controller.reconcile_service(&at, &service).await
                    }
                }
            }
        });
    }

    fn export_state(&self, at: &MemberNamespace) -> ExportState {
        match self.enabled.export {
            true => self.works.export_state(at),
            false => ExportState::None,
        }
    }

    async fn reconcile_namespace(&self, at: &MemberNamespace) -> Result<ReconcileAction, Error> {
        let provides = self.enabled.multi_cluster_service && !self.works.provided(at).is_empty();
        let watch_exports = match (self.export_state(at), provides) {
            (ExportState::None, false) => {
                self.stop_informers(at);
                return self.withdraw_all(at).await;
            }
            // The collected slices stay until it is known that nothing is exported.
            (ExportState::NotApplied, false) => return Ok(ReconcileAction::Done),
            (ExportState::NotApplied, true) => None,
            (ExportState::None, true) => Some(false),
            (ExportState::Applied, _) => Some(true),
        };
        match self.members.api(&at.cluster) {
            Ok(api) => self.ensure_informers(at, &api, watch_exports),
            // The next connection enqueues the namespace.
            Err(_) => self.stop_informers(at),
        }
        Ok(ReconcileAction::Done)
    }

    /// `watch_exports` is `None` if it is not known whether something is exported.
    fn ensure_informers(
        &self,
        at: &MemberNamespace,
        api: &Arc<dyn Api>,
        watch_exports: Option<bool>,
    ) {
        let mut running = self.running.lock();
        let fits = |informers: &NamespaceInformers| {
            informers.uses(api) && watch_exports.is_none_or(|w| w == informers.watches_exports())
        };
        if running.get(at).is_some_and(fits) {
            return;
        }
        let (queue, namespace) = (self.queue.clone(), at.clone());
        let changed = move |service: &str| {
            let key = CollectionKey::Service(namespace.clone(), service.to_owned());
            queue.add(key);
        };
        // A Service whose export and slices are all gone has only its Works left.
        let collected = self.works.collected(at, None);
        let collected = collected.iter().filter_map(collected_service);
        let mut services: BTreeSet<String> = collected.map(|(_, service)| service).collect();
        services.extend(self.works.provided(at));
        let started = NamespaceInformers::start(
            api,
            &at.namespace,
            watch_exports == Some(true),
            services,
            changed,
            &self.tasks,
        );
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
        let exported = match self.export_state(at) {
            ExportState::None => Some(false),
            // It is not known whether the member has the export.
            ExportState::NotApplied => None,
            // The member alone exports nothing.
            ExportState::Applied => informers
                .is_exported(service)
                .map(|exported| exported && self.works.is_exported(at, service)),
        };
        let provided = self.works.is_provided(at, service);
        let collected = self.works.collected(at, Some(service));
        let mut desired = BTreeSet::new();
        let mut conflict = false;
        let mut slices = informers.slices(service);
        slices.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        self.warn_of_left_out(at, service, slices.len());
        for slice in slices.into_iter().take(MAX_SLICES) {
            let name = collected_work_name(&slice);
            let existing = self
                .works
                .0
                .informer
                .get(&execution_space_name(&at.cluster), &name);
            let before = existing.as_ref().map(CollectingKinds::of_work);
            let kinds = self.kinds(exported, provided, before.unwrap_or_default());
            if !kinds.is_empty() {
                conflict |= self
                    .write(at, service, &slice, kinds, existing.as_ref())
                    .await?;
                desired.insert(name);
            }
        }
        for work in collected.iter().filter(|w| !desired.contains(w.name())) {
            delete_work(&self.works.0, work).await?;
        }
        Ok(ReconcileAction::after_writes(conflict))
    }

    /// Records that a member has more slices of a Service than are collected, with the Work for which
    /// they are.
    fn warn_of_left_out(&self, at: &MemberNamespace, service: &str, count: usize) {
        let Some(work) = self
            .works
            .collecting(at, service)
            .filter(|_| count > MAX_SLICES)
        else {
            return;
        };
        let about = InvolvedObject::new("work.karmada.io/v1alpha1", "Work", &work);
        let message = format!(
            "the cluster {} has {count} EndpointSlices of the Service {}/{service}; the first {MAX_SLICES} by name are collected",
            at.cluster, at.namespace
        );
        self.recorder
            .warning(&about, "EndpointSlicesLeftOut", message);
    }

    /// The kinds for which a slice is collected; those of controllers that do not run stay.
    fn kinds(
        &self,
        exported: Option<bool>,
        provided: bool,
        before: CollectingKinds,
    ) -> CollectingKinds {
        let export = exported.filter(|_| self.enabled.export);
        CollectingKinds {
            export: export.unwrap_or(before.export),
            multi_cluster_service: match self.enabled.multi_cluster_service {
                true => provided,
                false => before.multi_cluster_service,
            },
        }
    }

    /// Returns whether the Work has changed meanwhile.
    async fn write(
        &self,
        at: &MemberNamespace,
        service: &str,
        slice: &Object,
        kinds: CollectingKinds,
        existing: Option<&Object>,
    ) -> Result<bool, Error> {
        if existing.is_some_and(|work| work.meta().deleting) {
            // Its end enqueues the Service.
            return Ok(false);
        }
        let Some(work) = desired_work(&at.cluster, service, slice, kinds, existing)? else {
            return Ok(false);
        };
        let space = execution_space_name(&at.cluster);
        let written = write_work(&self.works.0, &space, work, existing).await?;
        Ok(written == WorkWrite::Conflict)
    }

    /// Ends the collection in a namespace for the kinds whose controllers are enabled.
    async fn withdraw_all(&self, at: &MemberNamespace) -> Result<ReconcileAction, Error> {
        let mut conflict = false;
        for work in self.works.collected(at, None) {
            let kinds = self.kinds(Some(false), false, CollectingKinds::of_work(&work));
            let Some((_, service)) = collected_service(&work) else {
                continue;
            };
            if kinds.is_empty() {
                delete_work(&self.works.0, &work).await?;
            } else if let Some(left) = relabeled_work(&work, (&at.namespace, &service), kinds)? {
                let space = work.namespace();
                let written = write_work(&self.works.0, space, left, Some(&work)).await?;
                conflict |= written == WorkWrite::Conflict;
            }
        }
        Ok(ReconcileAction::after_writes(conflict))
    }
}
