//! Builds the Work that brings an EndpointSlice of a provider to a consumer. Pure.

use machinery::Object;
use machinery::object::MalformedObject;
use openapi::karmada::names::work_name;
use openapi::karmada::well_known_keys::{
    ENDPOINT_SLICE_PROVISION_CLUSTER, MULTI_CLUSTER_SERVICE_NAME, MULTI_CLUSTER_SERVICE_NAMESPACE,
    WORK_FINALIZER,
};
use serde_json::{Value, json};

use crate::slice_fields::{DISPATCHED_VALUE, MANAGED_BY, SERVICE_NAME};
use crate::work_fields::{WorkFields, complete_manifest};

/// A slice of a provider.
#[derive(Clone, Debug)]
pub(super) struct ProvidedSlice {
    /// The name of its Work, in all execution namespaces.
    pub(super) work_name: String,
    pub(super) provider: String,
    manifest: Value,
}

impl ProvidedSlice {
    /// `None` if the Work has no slice.
    pub(super) fn of_work(provider: &str, work: &Object) -> Result<Option<Self>, MalformedObject> {
        let mut manifest = work.value()?["spec"]["workload"]["manifests"][0].take();
        let text = |field| manifest["metadata"][field].as_str().map(str::to_owned);
        let (Some(namespace), Some(name)) = (text("namespace"), text("name")) else {
            return Ok(None);
        };
        manifest["metadata"] =
            json!({"namespace": namespace, "name": format!("{provider}-{name}")});
        Ok(Some(Self {
            work_name: work.name().to_owned(),
            provider: provider.to_owned(),
            manifest,
        }))
    }

    /// The name of its Work where slices of several providers have the same name.
    pub(super) fn own_work_name(&self) -> String {
        let text = |field| self.manifest["metadata"][field].as_str();
        let (namespace, name) = (text("namespace"), text("name"));
        work_name(
            "EndpointSlice",
            name.unwrap_or_default(),
            namespace.unwrap_or_default(),
        )
    }

    /// Its Work for the MultiClusterService of this name; `None` if nothing has to change.
    pub(super) fn desired_work(
        &self,
        (namespace, name): (&str, &str),
        service: &str,
        existing: Option<&Object>,
    ) -> Result<Option<Value>, MalformedObject> {
        let mut manifest = self.manifest.clone();
        let service_namespace = manifest["metadata"]["namespace"].as_str();
        let service_namespace = service_namespace.unwrap_or_default().to_owned();
        manifest["metadata"]["labels"] =
            json!({SERVICE_NAME: service, MANAGED_BY: DISPATCHED_VALUE});
        let provider = (ENDPOINT_SLICE_PROVISION_CLUSTER, self.provider.as_str());
        manifest["metadata"]["annotations"] = json!({(provider.0): provider.1});
        complete_manifest(&mut manifest, (namespace, name), existing);
        let fields = WorkFields {
            namespace,
            name,
            labels: &[
                (MULTI_CLUSTER_SERVICE_NAMESPACE, Some(&service_namespace)),
                (MULTI_CLUSTER_SERVICE_NAME, Some(service)),
            ],
            annotations: &[(provider.0, Some(provider.1))],
            finalizers: &[WORK_FINALIZER],
            spec: json!({"workload": {"manifests": [manifest]}}),
        };
        fields.apply_to(existing)
    }
}
