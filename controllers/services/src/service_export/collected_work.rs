//! Builds the Work that reports an EndpointSlice of a member to the control plane. Pure.

use machinery::Object;
use machinery::object::MalformedObject;
use openapi::karmada::names::{execution_space_name, work_name};
use openapi::karmada::well_known_keys::{
    ENDPOINT_SLICE_FINALIZER, ENDPOINT_SLICE_SERVICE_NAME, ENDPOINT_SLICE_SERVICE_NAMESPACE,
    ENDPOINT_SLICE_WORK_MANAGED_BY, MANAGED, MANAGED_VALUE, TEMPLATE_UID, WORK_ID, WORK_NAME,
    WORK_NAMESPACE,
};
use openapi::karmada_prune::{prune, record_managed_keys};
use serde_json::{Value, json};

/// The value of the label that says for which kind a slice was collected.
pub(super) const EXPORT_KIND: &str = "ServiceExport";

/// The name of the Work of a slice, in the execution namespace of its cluster.
pub(super) fn collected_work_name(slice: &Object) -> String {
    work_name("EndpointSlice", slice.name(), slice.namespace())
}

/// The Work of a slice of `service`, based on the existing one; `None` when nothing has to change.
pub(super) fn desired_work(
    cluster: &str,
    service: &str,
    slice: &Object,
    existing: Option<&Object>,
) -> Result<Option<Value>, MalformedObject> {
    let (namespace, name) = (execution_space_name(cluster), collected_work_name(slice));
    let id = existing.and_then(|work| work.meta().label(WORK_ID));
    let manifest = manifest(slice, (&namespace, &name), id)?;
    // It is never dispatched: it comes from the member.
    let spec = json!({"suspendDispatching": true, "workload": {"manifests": [manifest]}});
    let labels = [
        (ENDPOINT_SLICE_SERVICE_NAMESPACE, slice.namespace()),
        (ENDPOINT_SLICE_SERVICE_NAME, service),
        (ENDPOINT_SLICE_WORK_MANAGED_BY, EXPORT_KIND),
    ];
    let mut work = match existing {
        Some(existing) => existing.value()?,
        None => json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"namespace": namespace, "name": name}}),
    };
    let mut changed = work["spec"] != spec;
    work["spec"] = spec;
    for (key, value) in labels {
        changed |= work["metadata"]["labels"][key] != value;
        work["metadata"]["labels"][key] = value.into();
    }
    let finalizers = &mut work["metadata"]["finalizers"];
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Some(all) = finalizers.as_array_mut()
        && !all.iter().any(|f| f == ENDPOINT_SLICE_FINALIZER)
    {
        all.push(ENDPOINT_SLICE_FINALIZER.into());
        changed = true;
    }
    Ok(changed.then_some(work))
}

/// The slice as the admission of Works leaves it, so that the same slice is the same manifest.
fn manifest(
    slice: &Object,
    (namespace, name): (&str, &str),
    work_id: Option<&str>,
) -> Result<Value, MalformedObject> {
    let mut manifest = slice.value()?;
    manifest["apiVersion"] = "discovery.k8s.io/v1".into();
    manifest["kind"] = "EndpointSlice".into();
    let labels = &mut manifest["metadata"]["labels"];
    labels[MANAGED] = MANAGED_VALUE.into();
    if let Some(id) = work_id {
        labels[WORK_ID] = id.into();
    }
    let annotations = &mut manifest["metadata"]["annotations"];
    annotations[TEMPLATE_UID] = slice.uid().into();
    annotations[WORK_NAME] = name.into();
    annotations[WORK_NAMESPACE] = namespace.into();
    prune(&mut manifest, true);
    record_managed_keys(&mut manifest);
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(address: &str) -> Object {
        let value = json!({"metadata": {"name": "web-x", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": {"kubernetes.io/service-name": "web"}, "ownerReferences": [{"kind": "Service", "name": "web"}]},
            "addressType": "IPv4", "endpoints": [{"addresses": [address]}]});
        Object::from_value(&value).unwrap()
    }

    // proves: SVC-collected
    #[test]
    fn works_of_slices_are_those_of_karmada() {
        let work = desired_work("m", "web", &slice("10.0.0.1"), None);
        let work = work.unwrap().unwrap();
        let name = work_name("EndpointSlice", "web-x", "n");
        assert_eq!(
            work["metadata"],
            json!({"namespace": "karmada-es-m", "name": name,
                "finalizers": ["karmada.io/endpointslice-controller"],
                "labels": {"endpointslice.karmada.io/namespace": "n", "endpointslice.karmada.io/name": "web",
                    "endpointslice.karmada.io/managed-by": "ServiceExport"}})
        );
        assert_eq!(work["spec"]["suspendDispatching"], true);
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert_eq!(manifest["kind"], "EndpointSlice");
        assert_eq!(manifest["endpoints"][0]["addresses"], json!(["10.0.0.1"]));
        assert_eq!(manifest["metadata"]["ownerReferences"], Value::Null);
    }

    // proves: SVC-no-idle-write
    #[test]
    fn a_work_is_written_only_when_it_differs() {
        let mut work = desired_work("m", "web", &slice("10.0.0.1"), None)
            .unwrap()
            .unwrap();
        // As the admission of Works does.
        work["metadata"]["labels"][WORK_ID] = "id".into();
        let manifest = &mut work["spec"]["workload"]["manifests"][0];
        manifest["metadata"]["labels"][WORK_ID] = "id".into();
        record_managed_keys(manifest);
        let existing = Object::from_value(&work).unwrap();
        let again = desired_work("m", "web", &slice("10.0.0.1"), Some(&existing));
        assert_eq!(again.unwrap(), None);
        let moved = desired_work("m", "web", &slice("10.0.0.2"), Some(&existing));
        let moved = moved.unwrap().unwrap();
        assert_eq!(moved["metadata"], work["metadata"]);
        work["metadata"]["finalizers"] = json!(["other/finalizer"]);
        work["metadata"]["labels"][ENDPOINT_SLICE_WORK_MANAGED_BY] = "".into();
        let edited = Object::from_value(&work).unwrap();
        let repaired = desired_work("m", "web", &slice("10.0.0.1"), Some(&edited));
        let repaired = repaired.unwrap().unwrap();
        assert_eq!(
            repaired["metadata"]["finalizers"],
            json!(["other/finalizer", ENDPOINT_SLICE_FINALIZER])
        );
    }
}
