//! Builds the Work that reports an EndpointSlice of a member to the control plane. Pure.

use karmada_api::names::{execution_space_name, work_name};
use karmada_api::well_known_keys::{
    ENDPOINT_SLICE_DISPATCH_FINALIZER, ENDPOINT_SLICE_FINALIZER, ENDPOINT_SLICE_SERVICE_NAME,
    ENDPOINT_SLICE_SERVICE_NAMESPACE, ENDPOINT_SLICE_WORK_MANAGED_BY, MULTI_CLUSTER_SERVICE_NAME,
    MULTI_CLUSTER_SERVICE_NAMESPACE,
};
use machinery::Object;
use machinery::object::MalformedObject;
use serde_json::{Value, json};

use crate::slice_fields::{EXPORT_KIND, MULTI_CLUSTER_SERVICE_KIND};
use crate::work_fields::{WorkFields, work_manifest};

/// The kinds for which a slice is collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CollectingKinds {
    pub(super) export: bool,
    pub(super) multi_cluster_service: bool,
}

impl CollectingKinds {
    pub(super) fn of_work(work: &Object) -> Self {
        let managed_by = work.meta().label(ENDPOINT_SLICE_WORK_MANAGED_BY);
        let has = |kind| managed_by.unwrap_or_default().split('.').any(|k| k == kind);
        Self {
            export: has(EXPORT_KIND),
            multi_cluster_service: has(MULTI_CLUSTER_SERVICE_KIND),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        !self.export && !self.multi_cluster_service
    }

    /// The value of the label `endpointslice.karmada.io/managed-by`.
    fn label_value(self) -> &'static str {
        match (self.export, self.multi_cluster_service) {
            (true, true) => "MultiClusterService.ServiceExport",
            (true, false) => EXPORT_KIND,
            (false, true) => MULTI_CLUSTER_SERVICE_KIND,
            (false, false) => "",
        }
    }

    fn labels<'a>(
        self,
        namespace: &'a str,
        service: &'a str,
    ) -> [(&'static str, Option<&'a str>); 5] {
        let exported = |value| Some(value).filter(|_| self.export);
        let dispatched = |value| Some(value).filter(|_| self.multi_cluster_service);
        [
            (ENDPOINT_SLICE_SERVICE_NAMESPACE, exported(namespace)),
            (ENDPOINT_SLICE_SERVICE_NAME, exported(service)),
            (MULTI_CLUSTER_SERVICE_NAMESPACE, dispatched(namespace)),
            (MULTI_CLUSTER_SERVICE_NAME, dispatched(service)),
            (ENDPOINT_SLICE_WORK_MANAGED_BY, Some(self.label_value())),
        ]
    }

    fn finalizers(self) -> &'static [&'static str] {
        match (self.export, self.multi_cluster_service) {
            (true, true) => &[ENDPOINT_SLICE_FINALIZER, ENDPOINT_SLICE_DISPATCH_FINALIZER],
            (true, false) => &[ENDPOINT_SLICE_FINALIZER],
            (false, true) => &[ENDPOINT_SLICE_DISPATCH_FINALIZER],
            (false, false) => &[],
        }
    }
}

/// The name of the Work of a slice, in the execution namespace of its cluster.
pub(super) fn collected_work_name(slice: &Object) -> String {
    work_name("EndpointSlice", slice.name(), slice.namespace())
}

/// The Work of a slice of `service`, based on the existing one; `None` when nothing has to change.
/// The controllers of other kinds remove their finalizers themselves.
pub(super) fn desired_work(
    cluster: &str,
    service: &str,
    slice: &Object,
    kinds: CollectingKinds,
    existing: Option<&Object>,
) -> Result<Option<Value>, MalformedObject> {
    let (namespace, name) = (execution_space_name(cluster), collected_work_name(slice));
    let kind = ("discovery.k8s.io/v1", "EndpointSlice");
    let manifest = work_manifest(slice, kind, (&namespace, &name), existing)?;
    let fields = WorkFields {
        namespace: &namespace,
        name: &name,
        labels: &kinds.labels(slice.namespace(), service),
        annotations: &[],
        finalizers: kinds.finalizers(),
        // It is never dispatched: it comes from the member.
        spec: json!({"suspendDispatching": true, "workload": {"manifests": [manifest]}}),
    };
    fields.apply_to(existing)
}

/// A collected Work for fewer kinds; `None` when nothing has to change.
pub(super) fn relabeled_work(
    work: &Object,
    (namespace, service): (&str, &str),
    kinds: CollectingKinds,
) -> Result<Option<Value>, MalformedObject> {
    let fields = WorkFields {
        namespace: work.namespace(),
        name: work.name(),
        labels: &kinds.labels(namespace, service),
        annotations: &[],
        finalizers: &[],
        spec: work.value()?["spec"].take(),
    };
    fields.apply_to(Some(work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use karmada_api::prune::record_managed_keys;
    use karmada_api::well_known_keys::WORK_ID;

    const EXPORT: CollectingKinds = CollectingKinds {
        export: true,
        multi_cluster_service: false,
    };
    const BOTH: CollectingKinds = CollectingKinds {
        export: true,
        multi_cluster_service: true,
    };

    fn slice(address: &str) -> Object {
        let value = json!({"metadata": {"name": "web-x", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": {"kubernetes.io/service-name": "web"}, "ownerReferences": [{"kind": "Service", "name": "web"}]},
            "addressType": "IPv4", "endpoints": [{"addresses": [address]}]});
        Object::from_value(&value).unwrap()
    }

    // proves: SVC-collected
    #[test]
    fn works_of_slices_are_those_of_karmada() {
        let work = desired_work("m", "web", &slice("10.0.0.1"), EXPORT, None);
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
        let mut work = desired_work("m", "web", &slice("10.0.0.1"), EXPORT, None)
            .unwrap()
            .unwrap();
        // As the admission of Works does.
        work["metadata"]["labels"][WORK_ID] = "id".into();
        let manifest = &mut work["spec"]["workload"]["manifests"][0];
        manifest["metadata"]["labels"][WORK_ID] = "id".into();
        record_managed_keys(manifest);
        let existing = Object::from_value(&work).unwrap();
        let again = desired_work("m", "web", &slice("10.0.0.1"), EXPORT, Some(&existing));
        assert_eq!(again.unwrap(), None);
        let moved = desired_work("m", "web", &slice("10.0.0.2"), EXPORT, Some(&existing));
        let moved = moved.unwrap().unwrap();
        assert_eq!(moved["metadata"], work["metadata"]);
        work["metadata"]["finalizers"] = json!(["other/finalizer"]);
        work["metadata"]["labels"][ENDPOINT_SLICE_WORK_MANAGED_BY] = "".into();
        let edited = Object::from_value(&work).unwrap();
        let repaired = desired_work("m", "web", &slice("10.0.0.1"), EXPORT, Some(&edited));
        let repaired = repaired.unwrap().unwrap();
        assert_eq!(
            repaired["metadata"]["finalizers"],
            json!(["other/finalizer", ENDPOINT_SLICE_FINALIZER])
        );
    }

    // proves: MCS-shared-work
    #[test]
    fn a_work_is_shared_by_both_kinds() {
        let slice = slice("10.0.0.1");
        let work = desired_work("m", "web", &slice, BOTH, None)
            .unwrap()
            .unwrap();
        let labels = json!({"endpointslice.karmada.io/namespace": "n", "endpointslice.karmada.io/name": "web",
            "multiclusterservice.karmada.io/namespace": "n", "multiclusterservice.karmada.io/name": "web",
            "endpointslice.karmada.io/managed-by": "MultiClusterService.ServiceExport"});
        assert_eq!(work["metadata"]["labels"], labels);
        assert_eq!(
            work["metadata"]["finalizers"],
            json!([
                "karmada.io/endpointslice-controller",
                "karmada.io/mcs-endpointslice-dispatch-controller"
            ])
        );
        let existing = Object::from_value(&work).unwrap();
        assert_eq!(CollectingKinds::of_work(&existing), BOTH);
        let left = relabeled_work(&existing, ("n", "web"), EXPORT)
            .unwrap()
            .unwrap();
        assert_eq!(
            left["metadata"]["labels"],
            json!({"endpointslice.karmada.io/namespace": "n", "endpointslice.karmada.io/name": "web",
                "endpointslice.karmada.io/managed-by": "ServiceExport"})
        );
        assert_eq!(left["spec"], work["spec"]);
    }
}
