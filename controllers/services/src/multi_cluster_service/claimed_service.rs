//! Builds what claims a Service for its MultiClusterService, and the binding of the Service. Pure.

use std::collections::BTreeSet;

use karmada_api::names::binding_name;
use karmada_api::well_known_keys::{
    BINDING_FINALIZER, BINDING_MANAGED_BY, CLAIMED_BY, CLUSTER_POLICY_ID, CLUSTER_POLICY_NAME,
    MULTI_CLUSTER_SERVICE_ID, MULTI_CLUSTER_SERVICE_NAME, MULTI_CLUSTER_SERVICE_NAMESPACE,
    POLICY_ID, POLICY_NAME, POLICY_NAMESPACE,
};
use machinery::Object;
use machinery::object::MalformedObject;
use serde_json::{Map, Value, json};

use crate::slice_fields::MULTI_CLUSTER_SERVICE_KIND;
use crate::work_fields::{Entries, set_entries};

/// The permanent id of a MultiClusterService, which the admission sets.
pub(super) fn permanent_id(service: &Object) -> &str {
    let id = service.meta().label(MULTI_CLUSTER_SERVICE_ID);
    id.unwrap_or_default()
}

/// The merge patch of an object's labels and annotations; `None` if nothing has to change. Behind a
/// kube-apiserver Services may be patched, but not updated.
fn metadata_patch(
    object: &Object,
    labels: &Entries<'_>,
    annotations: &Entries<'_>,
) -> Result<Option<Value>, MalformedObject> {
    let mut value = object.value()?;
    let labeled = set_entries(&mut value, "labels", labels);
    let annotated = set_entries(&mut value, "annotations", annotations);
    let map = |entries: &Entries<'_>| -> Map<String, Value> {
        let entries = entries.iter();
        entries.map(|&(k, v)| (k.to_owned(), v.into())).collect()
    };
    Ok((labeled || annotated).then(|| {
        json!({"metadata": {"resourceVersion": object.revision().to_string(),
            "labels": map(labels), "annotations": map(annotations)}})
    }))
}

/// The merge patch by which `owner` claims the Service; `None` if it does already.
pub(super) fn service_claim(
    service: &Object,
    owner: &Object,
) -> Result<Option<Value>, MalformedObject> {
    let labels = [
        (POLICY_ID, None),
        (CLUSTER_POLICY_ID, None),
        (CLAIMED_BY, Some(MULTI_CLUSTER_SERVICE_KIND)),
        (MULTI_CLUSTER_SERVICE_ID, Some(permanent_id(owner))),
    ];
    let annotations = [
        (POLICY_NAMESPACE, None),
        (POLICY_NAME, None),
        (CLUSTER_POLICY_NAME, None),
        (MULTI_CLUSTER_SERVICE_NAMESPACE, Some(owner.namespace())),
        (MULTI_CLUSTER_SERVICE_NAME, Some(owner.name())),
    ];
    metadata_patch(service, &labels, &annotations)
}

/// The merge patch that ends the claim of `owner`; `None` if that does not claim the Service. As in
/// Karmada the annotations stay.
pub(super) fn service_release(
    service: &Object,
    owner: &Object,
) -> Result<Option<Value>, MalformedObject> {
    if service.meta().label(MULTI_CLUSTER_SERVICE_ID) != Some(permanent_id(owner)) {
        return Ok(None);
    }
    let labels = [(CLAIMED_BY, None), (MULTI_CLUSTER_SERVICE_ID, None)];
    metadata_patch(service, &labels, &[])
}

/// The binding of a claimed Service, based on the existing one; `None` if nothing has to change.
/// The result of the scheduler stays.
pub(super) fn desired_binding(
    service: &Object,
    owner: &Object,
    clusters: &BTreeSet<String>,
    existing: Option<&Object>,
) -> Result<Option<Value>, MalformedObject> {
    let (namespace, name) = (service.namespace(), service.name());
    let mut binding = match existing {
        Some(existing) => existing.value()?,
        None => json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {"namespace": namespace, "name": binding_name("Service", name)}}),
    };
    let labels = [
        (BINDING_MANAGED_BY, Some(MULTI_CLUSTER_SERVICE_KIND)),
        (MULTI_CLUSTER_SERVICE_ID, Some(permanent_id(owner))),
    ];
    let annotations = [
        (MULTI_CLUSTER_SERVICE_NAMESPACE, Some(owner.namespace())),
        (MULTI_CLUSTER_SERVICE_NAME, Some(owner.name())),
    ];
    let mut changed = set_entries(&mut binding, "labels", &labels);
    changed |= set_entries(&mut binding, "annotations", &annotations);
    let fields = [
        (
            "/metadata/ownerReferences",
            json!([{"apiVersion": "v1", "kind": "Service", "name": name, "uid": service.uid()}]),
        ),
        (
            "/spec/placement",
            json!({"clusterAffinity": {"clusterNames": clusters}}),
        ),
        ("/spec/conflictResolution", "Overwrite".into()),
        (
            "/spec/resource",
            json!({"apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name,
                "uid": service.uid(), "resourceVersion": service.revision().to_string()}),
        ),
    ];
    for (pointer, desired) in fields {
        if binding.pointer(pointer) != Some(&desired) {
            changed = true;
            if let Some((_, path)) = pointer.split_once('/')
                && let Some((parent, field)) = path.split_once('/')
            {
                binding[parent][field] = desired;
            }
        }
    }
    let finalizers = &mut binding["metadata"]["finalizers"];
    if !finalizers.is_array() {
        *finalizers = json!([]);
    }
    if let Some(all) = finalizers.as_array_mut()
        && !all.iter().any(|f| f == BINDING_FINALIZER)
    {
        all.push(BINDING_FINALIZER.into());
        changed = true;
    }
    Ok(changed.then_some(binding))
}

/// The binding without its MultiClusterService; it keeps the Service where it is. `None` if it has
/// none.
pub(super) fn released_binding(
    binding: &Object,
    owner: &Object,
) -> Result<Option<Value>, MalformedObject> {
    if binding.meta().label(MULTI_CLUSTER_SERVICE_ID) != Some(permanent_id(owner)) {
        return Ok(None);
    }
    let mut value = binding.value()?;
    let labels = [(BINDING_MANAGED_BY, None), (MULTI_CLUSTER_SERVICE_ID, None)];
    let annotations = [
        (MULTI_CLUSTER_SERVICE_NAMESPACE, None),
        (MULTI_CLUSTER_SERVICE_NAME, None),
    ];
    let mut changed = set_entries(&mut value, "labels", &labels);
    changed |= set_entries(&mut value, "annotations", &annotations);
    Ok(changed.then_some(value))
}
