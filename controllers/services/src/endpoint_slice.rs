//! The controller endpointSlice: makes the EndpointSlices that members report those of the derived
//! Service in the control plane.
//!
//! Source: Karmada's `pkg/controllers/mcs/endpointslice_controller.go`. Karmada keeps the endpoints of
//! a cluster that is not Ready; here they are withdrawn until it is Ready again.

use std::collections::BTreeSet;
use std::sync::Arc;

use client::{
    Api, DeleteOptions, Error, Informer, InformerFactory, InvolvedObject, ListWatchSelector,
    ResourcePath, WriteOptions, ignore_not_found,
};
use flotilla_runtime::{
    ControllerContext, ControllerName, EventRecorder, ReconcileAction, Workqueue,
    remove_finalizers, run_workers_after,
};
use karmada_api::Cluster;
use karmada_api::names::{
    cluster_of_execution_space, derived_service_name, execution_space_name,
    imported_endpoint_slice_name,
};
use karmada_api::resources::{CLUSTERS, WORKS};
use karmada_api::well_known_keys::{
    ENDPOINT_SLICE_FINALIZER, ENDPOINT_SLICE_SERVICE_NAME, ENDPOINT_SLICE_SERVICE_NAMESPACE,
    WORK_ID, WORK_NAME, WORK_NAMESPACE,
};
use machinery::Object;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ENDPOINT_SLICES;
use crate::exported_services::{MemberNamespace, exported_services};
use crate::slice_content::rebuild_slice;
use crate::slice_fields::{IMPORTED_VALUE, MANAGED_BY, MAX_SLICES, SERVICE_NAME};

const WORKERS: usize = 3;
/// Works with a slice, by execution namespace.
const SPACE_INDEX: &str = "endpoint-slice-works";
/// Works with ServiceExports, by execution namespace, namespace and name of the Service.
const EXPORT_INDEX: &str = "exported-services";
/// Works with a slice, by execution namespace, namespace and name of the Service.
const REPORT_INDEX: &str = "endpoint-slices-of-service";
/// The event about a slice that is not imported.
const REFUSED: &str = "EndpointSliceRefused";
/// Imported slices, by the key of their Work.
const WORK_INDEX: &str = "work";
/// The fields of a slice besides its metadata.
const SLICE_FIELDS: [&str; 3] = ["addressType", "endpoints", "ports"];

#[derive(Deserialize)]
struct WorkWithManifests {
    spec: karmada_api::work::WorkSpec,
}

/// Whether a Work has a slice that is exported, or was.
fn reports_slice(work: &Object) -> bool {
    work.meta().label(ENDPOINT_SLICE_SERVICE_NAME).is_some()
}

/// The key of the Work of an imported slice.
fn work_key(slice: &Object) -> Option<String> {
    let annotations = slice.annotations();
    let (namespace, name) = (
        annotations.get(WORK_NAMESPACE)?,
        annotations.get(WORK_NAME)?,
    );
    Some(format!("{namespace}/{name}"))
}

/// The Service whose slice a Work has, as the key of [`EXPORT_INDEX`].
fn reported_service_key(work: &Object) -> String {
    let label = |key| work.meta().label(key).unwrap_or_default();
    let (namespace, name) = (
        label(ENDPOINT_SLICE_SERVICE_NAMESPACE),
        label(ENDPOINT_SLICE_SERVICE_NAME),
    );
    format!("{}/{namespace}/{name}", work.namespace())
}

/// The keys of the Services whose ServiceExports a Work has.
fn exported_service_keys(work: &Object) -> Vec<String> {
    let services = exported_services(work).into_iter();
    services
        .map(|(MemberNamespace { namespace, .. }, name)| {
            format!("{}/{namespace}/{name}", work.namespace())
        })
        .collect()
}

/// The slice in the control plane for the first manifest of a Work of `cluster`, the only one of a Work
/// that reports a slice; the error says why it is refused.
fn imported_slice(work: &Object, cluster: &str) -> Result<Value, String> {
    let decoded: WorkWithManifests =
        machinery::json::from_slice(&work.bytes()).map_err(|e| e.to_string())?;
    let label = |key| work.meta().label(key).unwrap_or_default();
    let namespace = label(ENDPOINT_SLICE_SERVICE_NAMESPACE);
    let manifests = decoded.spec.workload.manifests;
    let manifest = manifests.first().unwrap_or(&Value::Null);
    let rebuilt = rebuild_slice(manifest, namespace)?;
    let mut slice = json!(rebuilt.content);
    slice["apiVersion"] = "discovery.k8s.io/v1".into();
    slice["kind"] = "EndpointSlice".into();
    slice["metadata"] = json!({
        "namespace": namespace,
        "name": imported_endpoint_slice_name(cluster, &rebuilt.name),
        "labels": {
            WORK_ID: label(WORK_ID),
            SERVICE_NAME: derived_service_name(label(ENDPOINT_SLICE_SERVICE_NAME)),
            MANAGED_BY: IMPORTED_VALUE,
        },
        "annotations": {WORK_NAMESPACE: work.namespace(), WORK_NAME: work.name()},
    });
    Ok(slice)
}

/// The action for an existing slice.
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
    recorder: EventRecorder,
    works: Informer,
    clusters: Informer,
    slices: Informer,
    /// Has `slices` alone: hosts before Kubernetes 1.21 do not serve them, and are ready without.
    _slice_informers: InformerFactory,
}

impl EndpointSliceController {
    pub(crate) async fn start(context: &ControllerContext) {
        let slice_informers = InformerFactory::new(&context.tasks);
        let imported = format!("{MANAGED_BY}={IMPORTED_VALUE}");
        let imported = ListWatchSelector::all(&ENDPOINT_SLICES).labels(imported);
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            recorder: context.recorder.clone(),
            works: context.informer(&WORKS),
            clusters: context.informer(&CLUSTERS),
            slices: slice_informers.get(&context.control_plane, &imported),
            _slice_informers: slice_informers,
        });
        controller.works.add_index(SPACE_INDEX, |work| {
            let space = Some(work).filter(|work| reports_slice(work));
            space
                .map(|w| w.namespace().to_owned())
                .into_iter()
                .collect()
        });
        controller
            .works
            .add_index(EXPORT_INDEX, exported_service_keys);
        controller.works.add_index(REPORT_INDEX, |work| {
            let reports = reports_slice(work).then(|| reported_service_key(work));
            reports.into_iter().collect()
        });
        controller
            .slices
            .add_index(WORK_INDEX, |slice| work_key(slice).into_iter().collect());
        controller.works.wait_for_cache_sync().await;
        controller.clusters.wait_for_cache_sync().await;
        let queue = Workqueue::new();
        controller.add_event_handlers(&queue);
        let slices = controller.slices.clone();
        run_workers_after(
            &context.tasks,
            async move { slices.wait_for_cache_sync().await },
            ControllerName::with_stage("endpointslice", "endpoints_imported"),
            &queue,
            WORKERS,
            move |key: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&key).await }
            },
        );
    }

    fn add_event_handlers(&self, queue: &Workqueue<String>) {
        let (changed, works) = (queue.clone(), self.works.clone());
        self.works.add_event_handler(move |change| {
            let mut exported = BTreeSet::new();
            for work in change.old.into_iter().chain(change.new) {
                if reports_slice(work) {
                    changed.add_event(change.key(), change);
                }
                exported.extend(exported_service_keys(work));
            }
            let exists = |work: Option<&Object>| work.is_some_and(|work| !work.meta().deleting);
            if reports_slice(change.object()) && exists(change.old) != exists(change.new) {
                let key = reported_service_key(change.object());
                let slices = works.by_index(REPORT_INDEX, &key);
                // Another one of them may be beyond the limit, or not any more.
                for work in slices.iter().filter(|_| slices.len() >= MAX_SLICES) {
                    changed.add_event(work.meta().key(), change);
                }
            }
            if exported.is_empty() {
                return;
            }
            for work in works.by_index(SPACE_INDEX, change.object().namespace()) {
                if exported.contains(&reported_service_key(&work)) {
                    changed.add_event(work.meta().key(), change);
                }
            }
        });
        let changed = queue.clone();
        self.slices.add_event_handler(move |change| {
            if let Some(key) = work_key(change.object()) {
                changed.add_event(key, change);
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
        let desired = work.as_ref().and_then(|work| self.desired_slice(work));
        let is_desired = |slice: &Object| {
            let metadata = desired.as_ref().map(|desired| &desired["metadata"]);
            metadata
                .is_some_and(|m| m["name"] == slice.name() && m["namespace"] == slice.namespace())
        };
        let mut conflict = false;
        for slice in self.slices.by_index(WORK_INDEX, key) {
            if !is_desired(&slice) {
                self.delete(&slice).await?;
            }
        }
        if let (Some(slice), Some(work)) = (desired, &work) {
            conflict |= self.write(work, slice).await?;
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

    /// `None` if the Work is being deleted or reports no slice, its cluster is not available, or the
    /// control plane has not exported the Service from there.
    fn desired_slice(&self, work: &Object) -> Option<Value> {
        let cluster = cluster_of_execution_space(work.namespace())?;
        let object = self.clusters.get("", cluster);
        let available = object.as_ref().is_some_and(is_available);
        if work.meta().deleting || !reports_slice(work) || !available {
            return None;
        }
        let exports = self
            .works
            .by_index(EXPORT_INDEX, &reported_service_key(work));
        if !exports.iter().any(|export| !export.meta().deleting) {
            return None;
        }
        let imported = match self.is_beyond_limit(work) {
            true => Err(format!("a cluster contributes {MAX_SLICES} to a Service")),
            false => imported_slice(work, cluster),
        };
        match imported {
            Ok(slice) => Some(slice),
            Err(reason) => {
                self.warn(
                    work,
                    format!("the EndpointSlice of the cluster is refused: {reason}"),
                );
                None
            }
        }
    }

    /// Whether as many slices of the Service as a cluster contributes come before that of the Work.
    fn is_beyond_limit(&self, work: &Object) -> bool {
        let slices = self
            .works
            .by_index(REPORT_INDEX, &reported_service_key(work));
        let before = |other: &&Object| !other.meta().deleting && other.name() < work.name();
        slices.iter().filter(before).count() >= MAX_SLICES
    }

    fn warn(&self, work: &Object, message: String) {
        let about = InvolvedObject::new("work.karmada.io/v1alpha1", "Work", work);
        self.recorder.warning(&about, REFUSED, message);
    }

    /// Returns whether the slice has changed meanwhile.
    async fn write(&self, work: &Object, desired: Value) -> Result<bool, Error> {
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
        if work_key(&existing).is_none_or(|key| key != work.meta().key()) {
            self.warn(
                work,
                format!("the EndpointSlice {namespace}/{name} is that of somebody else"),
            );
            return Ok(false);
        }
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
                "labels": {WORK_ID: "id", ENDPOINT_SLICE_SERVICE_NAMESPACE: "n", ENDPOINT_SLICE_SERVICE_NAME: "web"}},
            "spec": {"workload": {"manifests": [manifest]}}});
        Object::from_value(&value).unwrap()
    }

    // proves: SVC-imported
    #[test]
    fn imported_slices_are_those_of_karmada() {
        let slice = imported_slice(&work(), "m").unwrap();
        assert_eq!(
            slice,
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"namespace": "n", "name": "imported-m-web-x",
                    "labels": {"work.karmada.io/permanent-id": "id",
                        "kubernetes.io/service-name": "derived-web",
                        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.karmada.io"},
                    "annotations": {"work.karmada.io/namespace": "karmada-es-m", "work.karmada.io/name": "w"}},
                "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]})
        );
    }

    // proves: SVC-no-idle-write
    #[test]
    fn a_slice_is_written_only_when_it_differs() {
        let desired = imported_slice(&work(), "m").unwrap();
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
