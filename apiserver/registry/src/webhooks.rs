//! Calls the admission webhooks of a host cluster, with objects in the versions that they
//! support, and converts their results to the storage version.

use std::sync::Arc;

use admission::AdmissionOperation;
use admission::webhooks::{EquivalentVersionsAndConversions, WebhookDispatcher};
use machinery::Status;
use serde_json::Value;

use crate::registry::Registry;
use crate::resource_table::ResourceInfo;
use crate::write_pipeline::AdmissionContext;

/// Applies a JSON patch for [`WebhookDispatcher::new`].
pub fn apply_webhook_patch(doc: &Value, patch: &Value) -> Result<Value, String> {
    patch::apply_json_patch(doc, patch).map_err(|e| format!("its patch cannot be applied: {e}"))
}

impl Registry {
    /// The webhooks, if any matches the resource. They are not called for a scale: they
    /// would get its parent.
    pub(crate) fn matching_webhooks(
        &self,
        resource: &ResourceInfo,
        subresource: &str,
    ) -> Option<&Arc<WebhookDispatcher>> {
        let hooks = self.options.webhooks.as_ref()?;
        let gvr = &resource.storage.kind.gvr;
        (subresource != "scale" && hooks.has_webhook_for(gvr, subresource)).then_some(hooks)
    }

    /// A resource in all its versions, the requested one first.
    fn resource_versions(&self, resource: &ResourceInfo) -> Vec<Arc<ResourceInfo>> {
        let gvr = &resource.kind.gvr;
        let table = self.table();
        let same = table.resources().iter().filter(|other| {
            let other = &other.kind.gvr;
            other.group == gvr.group && other.resource == gvr.resource
        });
        let mut all: Vec<Arc<ResourceInfo>> = same.cloned().collect();
        all.sort_by_key(|other| other.kind.gvr.version != gvr.version);
        all
    }
}

impl AdmissionContext<'_> {
    /// Runs mutating webhooks. Returns whether one changed the object.
    pub(crate) async fn run_mutating_webhooks(
        &self,
        hooks: &WebhookDispatcher,
        new: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let resources = self.registry.resource_versions(self.resource);
        let (show, take) = (
            convert_to_version(&resources),
            convert_from_version(&resources),
        );
        let versions = webhook_versions(&resources, &show, &take);
        let at = self.attributes();
        hooks.mutate(&at, &versions, new, old, warnings).await
    }

    /// Reverts changes by webhooks that the request itself may not make: of the status,
    /// except through `status`, of anything else there, and of server-owned fields.
    pub(crate) fn revert_forbidden_changes(&self, mut before: Value, new: &mut Value) {
        if self.at.subresource == "status" {
            before["status"] = new["status"].take();
            *new = before;
            return;
        }
        if self.resource.storage.kind.status {
            set_field(new, "status", before.get("status"));
        }
        for field in ["generation", "resourceVersion"] {
            set_field(&mut new["metadata"], field, before["metadata"].get(field));
        }
    }

    /// Runs validating webhooks; for a deletion, mutating ones too.
    pub(crate) async fn run_validating_webhooks(
        &self,
        hooks: &WebhookDispatcher,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let resources = self.registry.resource_versions(self.resource);
        let (show, take) = (
            convert_to_version(&resources),
            convert_from_version(&resources),
        );
        let versions = webhook_versions(&resources, &show, &take);
        let at = self.attributes();
        if self.operation == AdmissionOperation::Delete {
            let mut deleted = Value::Null;
            hooks
                .mutate(&at, &versions, &mut deleted, old, warnings)
                .await?;
        }
        hooks.validate(&at, &versions, new, old, warnings).await
    }
}

fn set_field(object: &mut Value, field: &str, value: Option<&Value>) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => map.insert(field.into(), value.clone()),
        None => map.remove(field),
    };
}

type ConvertToWebhookVersionFn = Box<dyn Fn(usize, &Value) -> Value + Send + Sync>;
type ConvertFromWebhookVersionFn = Box<dyn Fn(usize, Value) -> Value + Send + Sync>;

fn convert_to_version(resources: &[Arc<ResourceInfo>]) -> ConvertToWebhookVersionFn {
    let resources = resources.to_vec();
    Box::new(move |version, object| {
        let mut converted = object.clone();
        if let Some(resource) = resources.get(version) {
            resource
                .conversion
                .convert_from_storage(&resource.kind.gvk, &mut converted);
        }
        converted
    })
}

fn convert_from_version(resources: &[Arc<ResourceInfo>]) -> ConvertFromWebhookVersionFn {
    let resources = resources.to_vec();
    Box::new(move |version, mut object| {
        if let Some(resource) = resources.get(version) {
            resource
                .conversion
                .convert_to_storage(&resource.storage.kind.gvk, &mut object);
        }
        object
    })
}

fn webhook_versions<'a>(
    resources: &[Arc<ResourceInfo>],
    show: &'a ConvertToWebhookVersionFn,
    take: &'a ConvertFromWebhookVersionFn,
) -> EquivalentVersionsAndConversions<'a> {
    EquivalentVersionsAndConversions {
        kinds: resources
            .iter()
            .map(|resource| (resource.kind.gvk.clone(), resource.kind.gvr.clone()))
            .collect(),
        to_version: &**show,
        from_version: &**take,
    }
}
