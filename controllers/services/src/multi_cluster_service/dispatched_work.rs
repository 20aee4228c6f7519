//! Builds the Work that brings an EndpointSlice of a provider to a consumer. Pure.

use controller_context::complete_manifest;
use karmada_api::names::work_name;
use karmada_api::well_known_keys::{
    ENDPOINT_SLICE_PROVISION_CLUSTER, MULTI_CLUSTER_SERVICE_NAME, MULTI_CLUSTER_SERVICE_NAMESPACE,
    WORK_FINALIZER,
};
use machinery::Object;
use machinery::object::MalformedObject;
use serde_json::{Value, json};

use crate::slice_content::{SliceContent, rebuild_slice};
use crate::slice_fields::{DISPATCHED_VALUE, MANAGED_BY, SERVICE_NAME};
use crate::work_fields::{WorkFields, work_id};

/// A slice of a provider.
#[derive(Clone, Debug)]
pub(super) struct ProvidedSlice {
    /// The name of its Work, in all execution namespaces.
    pub(super) work_name: String,
    pub(super) provider: String,
    /// The namespace of the MultiClusterService, which is that of the slice everywhere.
    namespace: String,
    /// Its name in the consumers.
    name: String,
    content: SliceContent,
}

impl ProvidedSlice {
    /// The slice that a provider reports for a MultiClusterService in `namespace`; the error says why it
    /// is refused.
    pub(super) fn of_work(provider: &str, work: &Object, namespace: &str) -> Result<Self, String> {
        let value = work.value().map_err(|e| e.to_string())?;
        let rebuilt = rebuild_slice(&value["spec"]["workload"]["manifests"][0], namespace)?;
        Ok(Self {
            work_name: work.name().to_owned(),
            provider: provider.to_owned(),
            namespace: namespace.to_owned(),
            name: format!("{provider}-{}", rebuilt.name),
            content: rebuilt.content,
        })
    }

    /// The name of its Work where slices of several providers have the same name.
    pub(super) fn own_work_name(&self) -> String {
        work_name("EndpointSlice", &self.name, &self.namespace)
    }

    /// Its Work for the MultiClusterService of this name; `None` if nothing has to change.
    pub(super) fn desired_work(
        &self,
        (namespace, name): (&str, &str),
        service: &str,
        existing: Option<&Object>,
    ) -> Result<Option<Value>, MalformedObject> {
        let provider = (ENDPOINT_SLICE_PROVISION_CLUSTER, self.provider.as_str());
        let mut manifest = json!(self.content);
        manifest["apiVersion"] = "discovery.k8s.io/v1".into();
        manifest["kind"] = "EndpointSlice".into();
        manifest["metadata"] = json!({
            "namespace": self.namespace, "name": self.name,
            "labels": {SERVICE_NAME: service, MANAGED_BY: DISPATCHED_VALUE},
            "annotations": {(provider.0): provider.1},
        });
        complete_manifest(&mut manifest, (namespace, name), work_id(existing));
        let fields = WorkFields {
            namespace,
            name,
            labels: &[
                (MULTI_CLUSTER_SERVICE_NAMESPACE, Some(&self.namespace)),
                (MULTI_CLUSTER_SERVICE_NAME, Some(service)),
            ],
            annotations: &[(provider.0, Some(provider.1))],
            finalizers: &[WORK_FINALIZER],
            spec: json!({"workload": {"manifests": [manifest]}}),
        };
        fields.apply_to(existing)
    }
}
