//! The controller endpointSlice: makes the EndpointSlices that members report those of the derived
//! Service in the control plane.
//!
//! Source: Karmada's `pkg/controllers/mcs/endpointslice_controller.go`. Karmada keeps the endpoints of
//! a cluster that is not Ready; here they are withdrawn until it is Ready again.

use std::sync::Arc;

use client::{Api, DeleteOptions, Error, ResourcePath, WriteOptions, ignore_not_found};
use flotilla_runtime::{
    ControllerName, Informer, InformerFactory, ListWatchSelector, ReconcileAction, TaskGroup,
    Workqueue, remove_finalizers, run_workers_after,
};
use machinery::Object;
use openapi::karmada::Cluster;
use openapi::karmada::names::{
    cluster_of_execution_space, derived_service_name, execution_space_name,
    imported_endpoint_slice_name,
};
use openapi::karmada::resources::{CLUSTERS, WORKS};
use openapi::karmada::well_known_keys::{
    ENDPOINT_SLICE_FINALIZER, ENDPOINT_SLICE_SERVICE_NAME, WORK_ID, WORK_NAME, WORK_NAMESPACE,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::slice_fields::{IMPORTED_VALUE, MANAGED_BY, SERVICE_NAME};
use crate::{ENDPOINT_SLICES, ServicesContext};

const WORKERS: usize = 3;
/// Works with a slice, by execution namespace.
const SPACE_INDEX: &str = "endpoint-slice-works";
/// Imported slices, by the key of their Work.
const WORK_INDEX: &str = "work";
/// The fields of a slice besides its metadata.
const SLICE_FIELDS: [&str; 3] = ["addressType", "endpoints", "ports"];

#[derive(Deserialize)]
struct ObjectWithAnnotations {
    #[serde(default)]
    metadata: openapi::karmada::binding::AnnotationsFinalizersAndGeneration,
}

#[derive(Deserialize)]
struct WorkWithManifests {
    spec: openapi::karmada::work::WorkSpec,
}

/// Whether a Work has a slice that is exported, or was.
fn reports_slice(work: &Object) -> bool {
    work.meta().label(ENDPOINT_SLICE_SERVICE_NAME).is_some()
}

/// The key of the Work of an imported slice.
fn work_key(slice: &Object) -> Option<String> {
    let decoded: ObjectWithAnnotations = serde_json::from_slice(slice.bytes()).ok()?;
    let annotation = |key| decoded.metadata.annotations.get(key);
    Some(format!(
        "{}/{}",
        annotation(WORK_NAMESPACE)?,
        annotation(WORK_NAME)?
    ))
}

/// The slices in the control plane for a Work of `cluster`.
fn imported_slices(work: &Object, cluster: &str) -> Result<Vec<Value>, Error> {
    let decoded: WorkWithManifests =
        serde_json::from_slice(work.bytes()).map_err(|e| Error::Protocol(e.to_string()))?;
    let label = |key| work.meta().label(key).unwrap_or_default();
    let slices = decoded.spec.workload.manifests.into_iter().map(|manifest| {
        let text = |field| manifest["metadata"][field].as_str().unwrap_or_default();
        let mut slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "namespace": text("namespace"),
            "name": imported_endpoint_slice_name(cluster, text("name")),
            "labels": {
                WORK_ID: label(WORK_ID),
                SERVICE_NAME: derived_service_name(label(ENDPOINT_SLICE_SERVICE_NAME)),
                MANAGED_BY: IMPORTED_VALUE,
            },
            "annotations": {WORK_NAMESPACE: work.namespace(), WORK_NAME: work.name()},
        }});
        for field in SLICE_FIELDS {
            slice[field] = manifest[field].clone();
        }
        slice
    });
    Ok(slices.collect())
}

/// What to do about an existing slice.
#[derive(Debug, PartialEq)]
enum SliceWrite {
    Nothing,
    Update(Value),
    /// The type of addresses cannot be updated.
    Replace,
}

fn slice_write(desired: &Value, existing: Value) -> SliceWrite {
    if desired["addressType"] != existing["addressType"] {
        return SliceWrite::Replace;
    }
    // Absent, null and empty lists are the same.
    let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    let mut updated = existing;
    let mut changed = false;
    for field in SLICE_FIELDS {
        let (now, before) = (&desired[field], &updated[field]);
        if now != before && !(is_empty(now) && is_empty(before) && field != "addressType") {
            updated[field] = now.clone();
            changed = true;
        }
    }
    for field in ["labels", "annotations"] {
        for (key, value) in desired["metadata"][field].as_object().into_iter().flatten() {
            changed |= updated["metadata"][field][key] != *value;
            updated["metadata"][field][key] = value.clone();
        }
    }
    match changed {
        true => SliceWrite::Update(updated),
        false => SliceWrite::Nothing,
    }
}

/// The controller endpointSlice.
pub(crate) struct EndpointSliceController {
    api: Arc<dyn Api>,
    works: Informer,
    clusters: Informer,
    slices: Informer,
    /// Has `slices` alone: hosts before Kubernetes 1.21 do not serve them, and are ready without.
    _slice_informers: InformerFactory,
}

impl EndpointSliceController {
    pub(crate) async fn start(deps: &ServicesContext, tasks: &TaskGroup) {
        let informer = |select| deps.informers.get(&deps.control_plane, &select);
        let slice_informers = InformerFactory::new(tasks);
        let imported = format!("{MANAGED_BY}={IMPORTED_VALUE}");
        let imported = ListWatchSelector::all(&ENDPOINT_SLICES).labels(imported);
        let it = Arc::new(Self {
            api: Arc::clone(&deps.control_plane),
            works: informer(ListWatchSelector::all(&WORKS)),
            clusters: informer(ListWatchSelector::all(&CLUSTERS)),
            slices: slice_informers.get(&deps.control_plane, &imported),
            _slice_informers: slice_informers,
        });
        it.works.add_index(SPACE_INDEX, |work| {
            let space = Some(work).filter(|work| reports_slice(work));
            space
                .map(|w| w.namespace().to_owned())
                .into_iter()
                .collect()
        });
        it.slices
            .add_index(WORK_INDEX, |slice| work_key(slice).into_iter().collect());
        it.works.wait_for_cache_sync().await;
        it.clusters.wait_for_cache_sync().await;
        let queue = Workqueue::new();
        it.add_event_handlers(&queue);
        let slices = it.slices.clone();
        run_workers_after(
            tasks,
            async move { slices.wait_for_cache_sync().await },
            ControllerName::with_stage("endpointslice", "endpoints_imported"),
            &queue,
            WORKERS,
            move |key: String| {
                let it = Arc::clone(&it);
                async move { it.reconcile(&key).await }
            },
        );
    }

    fn add_event_handlers(&self, queue: &Workqueue<String>) {
        let changed = queue.clone();
        self.works.add_event_handler(move |change| {
            let versions = change.old.into_iter().chain(change.new);
            if versions.into_iter().any(reports_slice) {
                changed.add_to_lane(change.key(), change.in_initial_list);
            }
        });
        let changed = queue.clone();
        self.slices.add_event_handler(move |change| {
            if let Some(key) = work_key(change.object()) {
                changed.add_to_lane(key, change.in_initial_list);
            }
        });
        let (changed, works) = (queue.clone(), self.works.clone());
        self.clusters.add_event_handler(move |change| {
            let before = change.old.map(is_available);
            if change.in_initial_list || before == change.new.map(is_available) {
                return;
            }
            let space = execution_space_name(change.object().name());
            for work in works.by_index(SPACE_INDEX, &space) {
                changed.add(work.meta().key());
            }
        });
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let work = self.works.get_by_key(key);
        let desired = match &work {
            Some(work) => self.desired_slices(work)?,
            None => Vec::new(),
        };
        let name = |slice: &Value| slice["metadata"]["name"].as_str().map(str::to_owned);
        let names: Vec<_> = desired.iter().filter_map(name).collect();
        let mut conflict = false;
        for slice in self.slices.by_index(WORK_INDEX, key) {
            if !names.iter().any(|name| name == slice.name()) {
                self.delete(&slice).await?;
            }
        }
        for slice in desired {
            conflict |= self.write(slice).await?;
        }
        if let Some(work) = work.filter(|work| work.meta().deleting || !reports_slice(work)) {
            let finalizers = [ENDPOINT_SLICE_FINALIZER];
            match remove_finalizers(&*self.api, &WORKS, &work, &finalizers).await {
                Err(e) if e.is_conflict() => conflict = true,
                other => other?,
            }
        }
        Ok(ReconcileAction::after_writes(conflict))
    }

    /// None if the Work is being deleted or reports no slice, or its cluster is not available.
    fn desired_slices(&self, work: &Object) -> Result<Vec<Value>, Error> {
        let Some(cluster) = cluster_of_execution_space(work.namespace()) else {
            return Ok(Vec::new());
        };
        let available = self
            .clusters
            .get("", cluster)
            .as_ref()
            .is_some_and(is_available);
        if work.meta().deleting || !reports_slice(work) || !available {
            return Ok(Vec::new());
        }
        imported_slices(work, cluster)
    }

    /// Returns whether the slice has changed meanwhile.
    async fn write(&self, desired: Value) -> Result<bool, Error> {
        let text = |field| desired["metadata"][field].as_str().unwrap_or_default();
        let (namespace, name) = (text("namespace").to_owned(), text("name").to_owned());
        let options = WriteOptions::default();
        let at = ResourcePath::object(&ENDPOINT_SLICES, &namespace, &name);
        let existing = match self.slices.get(&namespace, &name) {
            Some(slice) => Some(slice),
            None => {
                let at = ResourcePath::collection(&ENDPOINT_SLICES, &namespace);
                match self.api.create(at, desired.clone().into(), &options).await {
                    // A slice of somebody else, or one that the informer does not have yet.
                    Err(e) if e.is_already_exists() => None,
                    other => return other.map(|_| false),
                }
            }
        };
        let existing = match existing {
            Some(slice) => slice,
            None => self.api.get(at).await?,
        };
        match slice_write(&desired, existing.value()?) {
            SliceWrite::Nothing => Ok(false),
            SliceWrite::Replace => {
                self.delete(&existing).await?;
                Ok(true)
            }
            SliceWrite::Update(body) => match self.api.update(at, body.into(), &options).await {
                Err(e) if e.is_conflict() || e.is_not_found() => Ok(true),
                other => other.map(|_| false),
            },
        }
    }

    async fn delete(&self, slice: &Object) -> Result<(), Error> {
        let options = DeleteOptions {
            uid: Some(slice.uid().to_owned()),
            ..DeleteOptions::default()
        };
        let at = ResourcePath::of_object(&ENDPOINT_SLICES, slice);
        match self.api.delete(at, &options).await {
            // Another slice of that name; its creation is an event.
            Err(e) if e.is_conflict() => Ok(()),
            other => ignore_not_found(other).map(drop),
        }
    }
}

/// Whether the endpoints of a cluster are reachable, as far as the control plane knows.
fn is_available(cluster: &Object) -> bool {
    let decoded = cluster.decode::<Cluster>();
    !cluster.meta().deleting && decoded.is_ok_and(|c| c.is_ready())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Object {
        let manifest = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "n", "name": "web-x", "labels": {"app": "web"}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]});
        let value = json!({"metadata": {"namespace": "karmada-es-m", "name": "w",
                "labels": {WORK_ID: "id", ENDPOINT_SLICE_SERVICE_NAME: "web"}},
            "spec": {"workload": {"manifests": [manifest]}}});
        Object::from_value(&value).unwrap()
    }

    // proves: SVC-imported
    #[test]
    fn imported_slices_are_those_of_karmada() {
        let slices = imported_slices(&work(), "m").unwrap();
        assert_eq!(
            slices,
            [
                json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"namespace": "n", "name": "imported-m-web-x",
                    "labels": {"work.karmada.io/permanent-id": "id",
                        "kubernetes.io/service-name": "derived-web",
                        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.karmada.io"},
                    "annotations": {"work.karmada.io/namespace": "karmada-es-m", "work.karmada.io/name": "w"}},
                "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]})
            ]
        );
    }

    // proves: SVC-no-idle-write
    #[test]
    fn a_slice_is_written_only_when_it_differs() {
        let desired = imported_slices(&work(), "m").unwrap().remove(0);
        let with = |path: &str, value: Value| {
            let mut changed = desired.clone();
            *changed.pointer_mut(path).unwrap() = value;
            changed
        };
        let mut foreign = desired.clone();
        foreign["metadata"]["labels"]["theirs"] = "1".into();
        assert_eq!(slice_write(&desired, foreign), SliceWrite::Nothing);
        for (path, value) in [
            ("/endpoints", json!([])),
            ("/endpoints", Value::Null),
            ("/ports", json!([{"port": 81}])),
            ("/metadata/labels", json!({})),
            ("/metadata/annotations", Value::Null),
        ] {
            let existing = with(path, value);
            let SliceWrite::Update(updated) = slice_write(&desired, existing) else {
                panic!("{path}: no update");
            };
            assert_eq!(updated, desired, "{path}");
        }
        let empty = with("/endpoints", Value::Null);
        let also_empty = with("/endpoints", json!([]));
        assert_eq!(slice_write(&empty, also_empty), SliceWrite::Nothing);
        let other_type = with("/addressType", json!("IPv6"));
        assert_eq!(slice_write(&desired, other_type), SliceWrite::Replace);
    }
}
