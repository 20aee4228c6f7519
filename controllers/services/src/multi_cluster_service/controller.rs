//! The controller multiclusterservice: propagates MultiClusterServices to their providers, and binds
//! their Services to providers and consumers.

use std::collections::BTreeSet;
use std::sync::Arc;

use client::{
    Api, Error, Informer, ListWatchSelector, Patch, ResourcePath, WriteOptions, ignore_not_found,
};
use controller_context::WorkClient;
use flotilla_runtime::{
    ControllerContext, ReconcileAction, Workqueue, add_finalizer, remove_finalizers, run_workers,
};
use karmada_api::names::{
    binding_name, cluster_of_execution_space, execution_space_name, work_name,
};
use karmada_api::resources::{BINDINGS, CLUSTERS, MULTI_CLUSTER_SERVICES, WORKS};
use karmada_api::well_known_keys::{
    MULTI_CLUSTER_SERVICE_FINALIZER, MULTI_CLUSTER_SERVICE_ID, MULTI_CLUSTER_SERVICE_NAME,
    MULTI_CLUSTER_SERVICE_NAMESPACE,
};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::claimed_service::{
    desired_binding, permanent_id, released_binding, service_claim, service_release,
};
use super::object::{API_VERSION, ClusterState, MultiClusterService, cluster_states};
use super::reports::{OutcomeCondition, ServiceReports};
use super::service_works::{ServiceWorks, WorkRole, service_key};
use crate::SERVICES;
use crate::slice_fields::MULTI_CLUSTER_SERVICE_KIND;
use crate::work_fields::{WorkFields, WorkWrite, delete_work, work_manifest, write_work};

const WORKERS: usize = 3;

const SERVICE_APPLIED: OutcomeCondition = OutcomeCondition {
    condition_type: "ServiceApplied",
    success: (
        "ServiceAppliedSucceed",
        "Service is propagated to target clusters.",
    ),
    success_event: "SyncServiceSucceed",
    failure: "ServiceAppliedFailed",
    failure_event: "SyncServiceFailed",
};

/// The controller multiclusterservice.
pub(crate) struct MultiClusterServiceController {
    api: Arc<dyn Api>,
    reports: ServiceReports,
    owners: Informer,
    services: Informer,
    clusters: Informer,
    works: ServiceWorks,
}

impl MultiClusterServiceController {
    pub(crate) async fn start(context: &ControllerContext) {
        let informer = |resource| {
            let select = ListWatchSelector::all(resource);
            context.select(&select)
        };
        let works = WorkClient::new(Arc::clone(&context.control_plane), informer(&WORKS));
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            reports: ServiceReports::new(context, SERVICE_APPLIED),
            owners: informer(&MULTI_CLUSTER_SERVICES),
            services: informer(&SERVICES),
            clusters: informer(&CLUSTERS),
            works: ServiceWorks::new(works),
        });
        for informer in [
            &controller.owners,
            &controller.services,
            &controller.clusters,
            &controller.works.0.informer,
        ] {
            informer.wait_for_cache_sync().await;
        }
        let queue = Workqueue::new();
        controller.add_event_handlers(&queue);
        run_workers(
            &context.tasks,
            "multiclusterservice",
            &queue,
            WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    fn add_event_handlers(&self, queue: &Workqueue<String>) {
        let changed = queue.clone();
        self.owners.add_event_handler(move |change| {
            changed.add_event(change.key(), change);
        });
        let (changed, owners) = (queue.clone(), self.owners.clone());
        self.services.add_event_handler(move |change| {
            if !change.in_initial_list && owners.get_by_key(&change.key()).is_some() {
                changed.add(change.key());
            }
        });
        let changed = queue.clone();
        self.works.0.informer.add_event_handler(move |change| {
            let versions = change.old.into_iter().chain(change.new);
            for work in versions.filter(|w| WorkRole::of(w) == Some(WorkRole::Service)) {
                if let Some(key) = service_key(work) {
                    changed.add_event(key, change);
                }
            }
        });
        let (changed, owners) = (queue.clone(), self.owners.clone());
        self.clusters.add_event_handler(move |change| {
            let before = ClusterState::of(change.old);
            if !change.in_initial_list && before != ClusterState::of(change.new) {
                owners
                    .list()
                    .iter()
                    .for_each(|o| changed.add(o.meta().key()));
            }
        });
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let reconciled = match self.owners.get_by_key(key) {
            Some(owner) => self.reconcile_owner(key, owner).await,
            None => {
                self.reports.forget(key);
                self.delete_works(key, &BTreeSet::new()).await.map(drop)
            }
        };
        match reconciled {
            Err(e) if e.is_conflict() || e.is_already_exists() => {
                Ok(ReconcileAction::AFTER_CONFLICT)
            }
            other => other.map(|()| ReconcileAction::Done),
        }
    }

    async fn reconcile_owner(&self, key: &str, owner: Object) -> Result<(), Error> {
        let decoded = owner.decode::<MultiClusterService>()?;
        if owner.meta().deleting || !decoded.is_cross_cluster() {
            return self.release(key, &owner).await;
        }
        let (api, resource) = (&*self.api, &MULTI_CLUSTER_SERVICES);
        let owner = add_finalizer(api, resource, &owner, MULTI_CLUSTER_SERVICE_FINALIZER).await?;
        match self.apply(key, &owner, &decoded).await {
            Err(e) if e.is_conflict() || e.is_already_exists() => Err(e),
            Err(e) => {
                let missing = self.services.get_by_key(key).is_none();
                self.reports.set(&owner, Err(e.to_string()), true).await?;
                // The creation of the Service is an event.
                if missing { Ok(()) } else { Err(e) }
            }
            Ok(written) => self.reports.set(&owner, Ok(()), written).await,
        }
    }

    /// Returns whether something was written.
    async fn apply(
        &self,
        key: &str,
        owner: &Object,
        decoded: &MultiClusterService,
    ) -> Result<bool, Error> {
        let providers = decoded.providers(&self.clusters);
        let states = cluster_states(&providers, &self.clusters);
        let what = ("Provider", MULTI_CLUSTER_SERVICE_KIND);
        self.reports.warn_of_clusters(owner, what, states.clone())?;
        let mut written = false;
        for (provider, state) in &states {
            if *state == ClusterState::Available {
                written |= self.propagate(owner, provider).await?;
            }
        }
        written |= self.delete_works(key, &providers).await?;
        let Some(service) = self.services.get_by_key(key) else {
            let name = owner.name();
            let status = machinery::Status::failure(
                404,
                "NotFound",
                format!("services \"{name}\" not found"),
            );
            return Err(status.into());
        };
        let service = match service_claim(&service, owner)? {
            Some(patch) => {
                written = true;
                self.patch_service(&service, patch).await?
            }
            None => service,
        };
        let mut clusters = providers;
        clusters.extend(decoded.consumers(&self.clusters));
        let name = binding_name("Service", owner.name());
        let existing = self.read(&BINDINGS, owner, &name).await?;
        let foreign = existing.as_ref().and_then(|b| b.meta().controller());
        if foreign.is_some_and(|owner| *owner.uid != *service.uid()) {
            return Err(Error::Protocol(format!(
                "binding {name} belongs to another Service until it is garbage collected"
            )));
        }
        let Some(binding) = desired_binding(&service, owner, &clusters, existing.as_ref())? else {
            return Ok(written);
        };
        match existing {
            Some(existing) => {
                let at = ResourcePath::of_object(&BINDINGS, &existing);
                self.update(at, binding).await?;
            }
            None => {
                let at = ResourcePath::collection(&BINDINGS, owner.namespace());
                let options = WriteOptions::default();
                self.api.create(at, binding.into(), &options).await?;
            }
        }
        Ok(true)
    }

    /// Reads an object of the namespace from the server: a cached copy may lack what was written a
    /// moment ago, and no event of the object leads here again.
    async fn read(
        &self,
        resource: &Gvr,
        owner: &Object,
        name: &str,
    ) -> Result<Option<Object>, Error> {
        let at = ResourcePath::object(resource, owner.namespace(), name);
        ignore_not_found(self.api.get(at).await)
    }

    async fn patch_service(&self, service: &Object, patch: Value) -> Result<Object, Error> {
        let at = ResourcePath::of_object(&SERVICES, service);
        let options = WriteOptions::default();
        self.api.patch(at, Patch::Merge(patch), &options).await
    }

    async fn update(&self, at: ResourcePath<'_>, body: Value) -> Result<Object, Error> {
        let options = WriteOptions::default();
        self.api.update(at, body.into(), &options).await
    }

    /// Writes the Work with the MultiClusterService for a provider.
    async fn propagate(&self, owner: &Object, provider: &str) -> Result<bool, Error> {
        let namespace = execution_space_name(provider);
        let name = work_name(MULTI_CLUSTER_SERVICE_KIND, owner.name(), owner.namespace());
        let existing = self.works.0.informer.get(&namespace, &name);
        if existing.as_ref().is_some_and(|work| work.meta().deleting) {
            // Its end is an event.
            return Ok(false);
        }
        let kind = (API_VERSION, MULTI_CLUSTER_SERVICE_KIND);
        let manifest = work_manifest(owner, kind, (&namespace, &name), existing.as_ref())?;
        let fields = WorkFields {
            namespace: &namespace,
            name: &name,
            labels: &[
                (MULTI_CLUSTER_SERVICE_ID, Some(permanent_id(owner))),
                (MULTI_CLUSTER_SERVICE_NAMESPACE, Some(owner.namespace())),
                (MULTI_CLUSTER_SERVICE_NAME, Some(owner.name())),
            ],
            annotations: &[],
            finalizers: &[],
            // It only says what the provider's slices are collected for.
            spec: json!({"suspendDispatching": true, "workload": {"manifests": [manifest]}}),
        };
        let Some(work) = fields.apply_to(existing.as_ref())? else {
            return Ok(false);
        };
        match write_work(&self.works.0, &namespace, work, existing.as_ref()).await? {
            WorkWrite::Written => Ok(true),
            WorkWrite::Gone => Ok(false),
            WorkWrite::Conflict => {
                let message = format!("Work {namespace}/{name} has changed");
                Err(machinery::Status::failure(409, "Conflict", message).into())
            }
        }
    }

    /// Deletes the Works with the MultiClusterService of other clusters than `providers`; the
    /// collection of their slices ends with them.
    async fn delete_works(&self, key: &str, providers: &BTreeSet<String>) -> Result<bool, Error> {
        let mut deleted = false;
        for work in self.works.list(key, |role| *role == WorkRole::Service) {
            let cluster = cluster_of_execution_space(work.namespace());
            if !cluster.is_some_and(|cluster| providers.contains(cluster)) {
                deleted |= delete_work(&self.works.0, &work).await?;
            }
        }
        Ok(deleted)
    }

    async fn release(&self, key: &str, owner: &Object) -> Result<(), Error> {
        self.reports.forget(key);
        if let Some(service) = self.read(&SERVICES, owner, owner.name()).await?
            && let Some(patch) = service_release(&service, owner)?
        {
            ignore_not_found(self.patch_service(&service, patch).await)?;
        }
        let name = binding_name("Service", owner.name());
        if let Some(binding) = self.read(&BINDINGS, owner, &name).await?
            && let Some(released) = released_binding(&binding, owner)?
        {
            let at = ResourcePath::of_object(&BINDINGS, &binding);
            ignore_not_found(self.update(at, released).await)?;
        }
        self.delete_works(key, &BTreeSet::new()).await?;
        let finalizers = [MULTI_CLUSTER_SERVICE_FINALIZER];
        remove_finalizers(&*self.api, &MULTI_CLUSTER_SERVICES, owner, &finalizers).await
    }
}
