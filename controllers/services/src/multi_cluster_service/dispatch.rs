//! The controller endpointsliceDispatch: brings the slices that are collected for a
//! MultiClusterService to its consumers.
//!
//! Source: Karmada's `pkg/controllers/multiclusterservice/endpointslice_dispatch_controller.go`. Karmada
//! keeps the endpoints of a provider that is not Ready; here they are withdrawn until it is Ready again.
//! Where slices of several providers have one name, only one has Karmada's name of a Work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::{Api, Error, Informer, ListWatchSelector};
use controller_context::WorkClient;
use flotilla_runtime::{
    ControllerContext, ControllerName, ReconcileAction, Workqueue, remove_finalizers, run_workers,
};
use karmada_api::names::{cluster_of_execution_space, execution_space_name};
use karmada_api::resources::{CLUSTERS, MULTI_CLUSTER_SERVICES, WORKS};
use karmada_api::well_known_keys::{
    ENDPOINT_SLICE_DISPATCH_FINALIZER, ENDPOINT_SLICE_WORK_MANAGED_BY,
    MULTI_CLUSTER_SERVICE_NAMESPACE,
};
use machinery::Object;

use super::dispatched_work::ProvidedSlice;
use super::object::{ClusterState, MultiClusterService, cluster_states};
use super::reports::{OutcomeCondition, ServiceReports};
use super::service_works::{ServiceWorks, WorkRole, service_key};
use crate::slice_fields::MAX_SLICES;
use crate::work_fields::{WorkWrite, delete_work, write_work};

const WORKERS: usize = 3;

const ENDPOINT_SLICE_DISPATCHED: OutcomeCondition = OutcomeCondition {
    condition_type: "EndpointSliceDispatched",
    success: (
        "EndpointSliceDispatchedSucceed",
        "EndpointSlice are dispatched successfully",
    ),
    success_event: "DispatchEndpointSliceSucceed",
    failure: "EndpointSliceDispatchedFailed",
    failure_event: "DispatchEndpointSliceFailed",
};

/// The key that is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum DispatchKey {
    /// The dispatched slices of a MultiClusterService.
    Service(String),
    /// The finalizer of a Work whose slice is no longer dispatched.
    Withdrawn(String),
}

/// A slice for a consumer.
struct DesiredSlice {
    slice: ProvidedSlice,
    /// Whether it is written; what a consumer that is not available has stays.
    available: bool,
}

/// By the namespace and the name of the Work.
type DesiredSlices = BTreeMap<(String, String), DesiredSlice>;

/// The controller endpointsliceDispatch.
pub(crate) struct EndpointSliceDispatchController {
    api: Arc<dyn Api>,
    reports: ServiceReports,
    owners: Informer,
    clusters: Informer,
    works: ServiceWorks,
}

/// The Works whose slice was collected for a MultiClusterService, and is not any more.
fn is_withdrawn(work: &Object) -> bool {
    let collected = WorkRole::of(work) == Some(WorkRole::Collected);
    let finalizer = ENDPOINT_SLICE_DISPATCH_FINALIZER.as_bytes();
    work.meta().label(ENDPOINT_SLICE_WORK_MANAGED_BY).is_some()
        && (work.meta().deleting || !collected)
        && work
            .bytes()
            .windows(finalizer.len())
            .any(|window| window == finalizer)
}

/// Whether a Work has a slice of the provider for the MultiClusterService.
fn is_dispatched_for(work: &Object, owner: &Object, provider: &str) -> bool {
    let provider = provider.to_owned();
    WorkRole::of(work) == Some(WorkRole::Dispatched { provider })
        && service_key(work).is_some_and(|key| key == owner.meta().key())
}

impl EndpointSliceDispatchController {
    pub(crate) async fn start(context: &ControllerContext) {
        let informer = |resource| {
            let select = ListWatchSelector::all(resource);
            context.select(&select)
        };
        let works = WorkClient::new(Arc::clone(&context.control_plane), informer(&WORKS));
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            reports: ServiceReports::new(context, ENDPOINT_SLICE_DISPATCHED),
            owners: informer(&MULTI_CLUSTER_SERVICES),
            clusters: informer(&CLUSTERS),
            works: ServiceWorks::new(works),
        });
        for informer in [
            &controller.owners,
            &controller.clusters,
            &controller.works.0.informer,
        ] {
            informer.wait_for_cache_sync().await;
        }
        let queue = Workqueue::new();
        controller.add_event_handlers(&queue);
        run_workers(
            &context.tasks,
            ControllerName::with_stage("endpointslice-dispatch", "endpoints_dispatched"),
            &queue,
            WORKERS,
            move |key| {
                let controller = Arc::clone(&controller);
                async move {
                    match key {
                        DispatchKey::Service(key) => controller.reconcile_service(&key).await,
                        DispatchKey::Withdrawn(key) => controller.reconcile_withdrawn(&key).await,
                    }
                }
            },
        );
    }

    fn add_event_handlers(&self, queue: &Workqueue<DispatchKey>) {
        let changed = queue.clone();
        self.owners.add_event_handler(move |change| {
            changed.add_event(DispatchKey::Service(change.key()), change);
        });
        let changed = queue.clone();
        self.works.0.informer.add_event_handler(move |change| {
            for work in change.old.into_iter().chain(change.new) {
                if let Some(key) = service_key(work) {
                    changed.add_event(DispatchKey::Service(key), change);
                }
            }
            if change.new.is_some_and(is_withdrawn) {
                changed.add_event(DispatchKey::Withdrawn(change.key()), change);
            }
        });
        let (changed, owners) = (queue.clone(), self.owners.clone());
        self.clusters.add_event_handler(move |change| {
            let before = ClusterState::of(change.old);
            if change.in_initial_list || before == ClusterState::of(change.new) {
                return;
            }
            for owner in owners.list() {
                changed.add(DispatchKey::Service(owner.meta().key()));
            }
        });
    }

    async fn reconcile_service(&self, key: &str) -> Result<ReconcileAction, Error> {
        let owner = self.owners.get_by_key(key);
        let owner = owner.filter(|owner| !owner.meta().deleting);
        let collected = self.works.list(key, |role| *role == WorkRole::Collected);
        let is_dispatched = |role: &WorkRole| matches!(role, WorkRole::Dispatched { .. });
        let dispatched = self.works.list(key, is_dispatched);
        if collected.is_empty() && dispatched.is_empty() {
            return Ok(ReconcileAction::Done);
        }
        let desired = match &owner {
            Some(owner) => self.desired(owner, &collected)?,
            None => {
                self.reports.forget(key);
                DesiredSlices::new()
            }
        };
        let synced = self.sync(&owner, &desired, &dispatched).await;
        let Some(owner) = owner else {
            return Ok(ReconcileAction::after_writes(synced?.is_none()));
        };
        let reported = match &synced {
            Ok(None) => return Ok(ReconcileAction::AFTER_CONFLICT),
            Ok(Some(written)) => self.reports.set(&owner, Ok(()), *written).await,
            Err(e) => self.reports.set(&owner, Err(e.to_string()), false).await,
        };
        synced?;
        match reported {
            Err(e) if e.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
            // It is gone; its event follows.
            Err(e) if e.is_not_found() => Ok(ReconcileAction::Done),
            other => other.map(|()| ReconcileAction::Done),
        }
    }

    /// The slices of available providers, for every other consumer.
    fn desired(&self, owner: &Object, collected: &[Object]) -> Result<DesiredSlices, Error> {
        let mut desired = DesiredSlices::new();
        let decoded = owner.decode::<MultiClusterService>()?;
        if !decoded.is_cross_cluster() {
            return Ok(desired);
        }
        let state = |cluster: &str| ClusterState::of(self.clusters.get("", cluster).as_ref());
        let providers = decoded.providers(&self.clusters);
        let mut slices = Vec::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut collected: Vec<&Object> = collected.iter().collect();
        collected.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        for work in collected.iter().filter(|work| !work.meta().deleting) {
            let provider = cluster_of_execution_space(work.namespace()).unwrap_or_default();
            if providers.contains(provider) && state(provider) == ClusterState::Available {
                let count = counts.entry(provider).or_default();
                *count += 1;
                if *count > MAX_SLICES {
                    continue;
                }
                match ProvidedSlice::of_work(provider, work, owner.namespace()) {
                    Ok(slice) => slices.push(slice),
                    Err(reason) => {
                        self.reports
                            .warn_of_slice(owner, provider, work.name(), &reason)
                    }
                }
            }
        }
        for (provider, count) in counts {
            self.reports.warn_of_left_out(owner, provider, count);
        }
        slices.sort_unstable_by(|a, b| a.provider.cmp(&b.provider));
        let own: BTreeSet<_> = collected
            .iter()
            .map(|work| (work.namespace(), work.name()))
            .collect();
        let consumers = cluster_states(&decoded.consumers(&self.clusters), &self.clusters);
        let what = ("Consumer", "EndpointSlice");
        self.reports
            .warn_of_clusters(owner, what, consumers.clone())?;
        for (consumer, state) in consumers {
            let available = state == ClusterState::Available;
            let space = execution_space_name(&consumer);
            for slice in slices.iter().filter(|slice| slice.provider != consumer) {
                let shared = (space.clone(), slice.work_name.clone());
                let is_taken = own.contains(&(shared.0.as_str(), shared.1.as_str()))
                    || desired.contains_key(&shared);
                let at = (space.clone(), self.dispatched_name(&space, slice, is_taken));
                let slice = DesiredSlice {
                    slice: slice.clone(),
                    available,
                };
                desired.insert(at, slice);
            }
        }
        Ok(desired)
    }

    /// The name of the Work with a slice in the execution namespace of a consumer. It stays as long as
    /// the Work: under another name the end of the former Work would delete what the next one brought.
    fn dispatched_name(&self, space: &str, slice: &ProvidedSlice, is_taken: bool) -> String {
        let own_name = slice.own_work_name();
        let is_other = |work: Object| {
            let provider = slice.provider.clone();
            WorkRole::of(&work) != Some(WorkRole::Dispatched { provider })
        };
        let has_own_name = self.works.0.informer.get(space, &own_name).is_some();
        let shared = self.works.0.informer.get(space, &slice.work_name);
        match is_taken || has_own_name || shared.is_some_and(is_other) {
            true => own_name,
            false => slice.work_name.clone(),
        }
    }

    /// Returns whether something was written; `None` if a Work has changed meanwhile.
    async fn sync(
        &self,
        owner: &Option<Object>,
        desired: &DesiredSlices,
        dispatched: &[Object],
    ) -> Result<Option<bool>, Error> {
        let mut written = false;
        for work in dispatched {
            let at = (work.namespace().to_owned(), work.name().to_owned());
            if !desired.contains_key(&at) {
                written |= delete_work(&self.works.0, work).await?;
            }
        }
        let service = owner.as_ref().map(Object::name).unwrap_or_default();
        for ((namespace, name), slice) in desired.iter().filter(|(_, slice)| slice.available) {
            let existing = self.works.0.informer.get(namespace, name);
            if existing.as_ref().is_some_and(|work| work.meta().deleting) {
                // Its end is an event.
                continue;
            }
            if let (Some(existing), Some(owner)) = (&existing, owner)
                && !is_dispatched_for(existing, owner, &slice.slice.provider)
            {
                let reason = format!("the Work {namespace}/{name} is that of somebody else");
                let provided = &slice.slice;
                self.reports
                    .warn_of_slice(owner, &provided.provider, &provided.work_name, &reason);
                continue;
            }
            let (at, slice) = ((namespace.as_str(), name.as_str()), &slice.slice);
            let Some(work) = slice.desired_work(at, service, existing.as_ref())? else {
                continue;
            };
            match write_work(&self.works.0, namespace, work, existing.as_ref()).await? {
                WorkWrite::Written => written = true,
                WorkWrite::Gone => {}
                WorkWrite::Conflict => return Ok(None),
            }
        }
        Ok(Some(written))
    }

    /// Deletes what was dispatched of a collected Work, then removes its finalizer.
    async fn reconcile_withdrawn(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(work) = self.works.0.informer.get_by_key(key).filter(is_withdrawn) else {
            return Ok(ReconcileAction::Done);
        };
        let provider = cluster_of_execution_space(work.namespace()).unwrap_or_default();
        let namespace = work.meta().label(MULTI_CLUSTER_SERVICE_NAMESPACE);
        let slice = ProvidedSlice::of_work(provider, &work, namespace.unwrap_or_default());
        let own_name = slice.ok().map(|slice| slice.own_work_name());
        for dispatched in self.works.dispatched_by(provider) {
            let name = dispatched.name();
            if name == work.name() || Some(name) == own_name.as_deref() {
                delete_work(&self.works.0, &dispatched).await?;
            }
        }
        let finalizers = [ENDPOINT_SLICE_DISPATCH_FINALIZER];
        match remove_finalizers(&*self.api, &WORKS, &work, &finalizers).await {
            Err(e) if e.is_conflict() => Ok(ReconcileAction::AFTER_CONFLICT),
            other => other.map(|()| ReconcileAction::Done),
        }
    }
}
