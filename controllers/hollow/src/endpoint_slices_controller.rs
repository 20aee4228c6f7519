//! The controller of EndpointSlices: writes those of each Service with a selector.

use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, DeleteOptions, Error, Informer, ListWatchSelector, ResourcePath, WriteOptions,
    ignore_not_found,
};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use machinery::{Gvr, Object};
use serde_json::Value;

use crate::endpoint_slices::{
    MANAGED_BY, MANAGED_BY_VALUE, SERVICE_NAME, ServiceFields, desired_slices, updated_slice,
};
use crate::pods::HollowPodFields;

static SERVICES: Gvr = Gvr::from_static("", "v1", "services");
static ENDPOINT_SLICES: Gvr = Gvr::from_static("discovery.k8s.io", "v1", "endpointslices");

const NAMESPACE_INDEX: &str = "namespace";
const SERVICE_INDEX: &str = "service";
const WORKERS: usize = 2;
/// Changes of pods within this time cause one reconciliation.
const POD_BATCH_WINDOW: Duration = Duration::from_millis(100);

pub(crate) struct HollowEndpointSliceController {
    api: Arc<dyn Api>,
    services: Informer,
    slices: Informer,
    pods: Informer,
}

impl HollowEndpointSliceController {
    /// Starts the controller over the informer of pods; it ends with the tasks of the context.
    pub(crate) async fn start(context: &ControllerContext, pods: Informer) {
        let own = format!("{MANAGED_BY}={MANAGED_BY_VALUE}");
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            services: context.informer(&SERVICES),
            slices: context.select(&ListWatchSelector::all(&ENDPOINT_SLICES).labels(own)),
            pods,
        });
        for informer in [&controller.services, &controller.pods] {
            informer.add_index(NAMESPACE_INDEX, |o| vec![o.namespace().to_owned()]);
        }
        controller
            .slices
            .add_index(SERVICE_INDEX, |s| service_key(s).into_iter().collect());
        let listed = async {
            controller.services.wait_for_cache_sync().await;
            controller.slices.wait_for_cache_sync().await;
        };
        // After a shutdown the first list may never arrive.
        let shutdown = context.tasks.shutdown();
        if shutdown.run_until_triggered(listed).await.is_none() {
            return;
        }
        let queue = Workqueue::new();
        controller.add_event_handlers(&queue);
        run_workers(
            &context.tasks,
            "hollow-endpoint-slices",
            &queue,
            WORKERS,
            move |key| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(key).await }
            },
        );
    }

    fn add_event_handlers(&self, queue: &Workqueue<String>) {
        let changed = queue.clone();
        self.services.add_event_handler(move |change| {
            changed.add_event(change.key(), change);
        });
        let changed = queue.clone();
        self.slices.add_event_handler(move |change| {
            if let Some(key) = service_key(change.object()) {
                changed.add_event(key, change);
            }
        });
        let (changed, services) = (queue.clone(), self.services.clone());
        self.pods.add_event_handler(move |change| {
            // The Services of the initial list count their pods themselves.
            if change.in_initial_list {
                return;
            }
            for service in services.by_index(NAMESPACE_INDEX, change.object().namespace()) {
                let Ok(fields) = service.decode::<ServiceFields>() else {
                    continue;
                };
                let mut versions = change.old.into_iter().chain(change.new);
                if versions.any(|pod| fields.spec.selects(|key| pod.meta().label(key))) {
                    changed.add_after(service.meta().key(), POD_BATCH_WINDOW);
                }
            }
        });
    }

    async fn reconcile(&self, key: String) -> Result<ReconcileAction, Error> {
        let existing = self.slices.by_index(SERVICE_INDEX, &key);
        let desired = match self.services.get_by_key(&key) {
            Some(service) if !service.meta().deleting => self.slices_of(&service)?,
            _ => Vec::new(),
        };
        let name = |slice: &Value| slice["metadata"]["name"].as_str().map(str::to_owned);
        let names: Vec<_> = desired.iter().filter_map(name).collect();
        for slice in existing
            .iter()
            .filter(|e| !names.iter().any(|n| n == e.name()))
        {
            let options = DeleteOptions {
                uid: Some(slice.uid().to_owned()),
                ..DeleteOptions::default()
            };
            let at = ResourcePath::of_object(&ENDPOINT_SLICES, slice);
            match self.api.delete(at, &options).await {
                // Another slice of that name; its creation is an event.
                Err(e) if e.is_conflict() => {}
                other => ignore_not_found(other).map(drop)?,
            }
        }
        let mut action = ReconcileAction::Done;
        for slice in desired {
            let before = existing
                .iter()
                .find(|e| slice["metadata"]["name"] == e.name());
            match self.write(slice, before).await {
                Err(e) if e.is_conflict() || e.is_already_exists() => {
                    action = ReconcileAction::AFTER_CONFLICT;
                }
                // The namespace is going.
                Err(e) if e.is_namespace_terminating() => {}
                other => ignore_not_found(other).map(drop)?,
            }
        }
        Ok(action)
    }

    fn slices_of(&self, service: &Object) -> Result<Vec<Value>, Error> {
        let fields = service.decode::<ServiceFields>()?;
        if !fields.spec.selects_pods() {
            return Ok(Vec::new());
        }
        let pods = self.pods.by_index(NAMESPACE_INDEX, service.namespace());
        let selected = pods
            .iter()
            .filter(|pod| fields.spec.selects(|key| pod.meta().label(key)));
        let pods: Vec<Arc<HollowPodFields>> =
            selected.filter_map(|pod| pod.decode().ok()).collect();
        let pods: Vec<&HollowPodFields> = pods.iter().map(|pod| &**pod).collect();
        Ok(desired_slices(service, &fields.spec, &pods))
    }

    async fn write(&self, desired: Value, existing: Option<&Object>) -> Result<(), Error> {
        let options = WriteOptions::default();
        let Some(existing) = existing else {
            let namespace = desired["metadata"]["namespace"]
                .as_str()
                .unwrap_or_default();
            let namespace = namespace.to_owned();
            let at = ResourcePath::collection(&ENDPOINT_SLICES, &namespace);
            return self
                .api
                .create(at, desired.into(), &options)
                .await
                .map(drop);
        };
        let Some(updated) = updated_slice(&desired, existing.value()?) else {
            return Ok(());
        };
        let at = ResourcePath::of_object(&ENDPOINT_SLICES, existing);
        self.api
            .update(at, updated.into(), &options)
            .await
            .map(drop)
    }
}

/// The key of the Service of a slice.
fn service_key(slice: &Object) -> Option<String> {
    let name = slice.meta().label(SERVICE_NAME)?;
    Some(format!("{}/{name}", slice.namespace()))
}
