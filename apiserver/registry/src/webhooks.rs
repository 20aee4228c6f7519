//! Calls the admission webhooks of a host cluster, with objects in the versions that they
//! support, and converts their results to the storage version.

use std::sync::Arc;

use admission::Operation;
use admission::webhooks::{Versions, Webhooks};
use machinery::Status;
use serde_json::Value;

use crate::accept::Admit;
use crate::registry::Registry;
use crate::table::Row;

/// Applies a JSON patch for [`WebhookDispatcher::new`].
pub fn apply_patch(doc: &Value, patch: &Value) -> Result<Value, String> {
    patch::json(doc, patch).map_err(|e| format!("its patch cannot be applied: {e}"))
}

impl Registry {
    /// The webhooks, if any matches the resource. They are not called for a scale: they
    /// would get its parent.
    pub(crate) fn hooks(&self, resource: &Row, subresource: &str) -> Option<&Arc<Webhooks>> {
        let hooks = self.options.webhooks.as_ref()?;
        let gvr = &resource.stored.kind.gvr;
        (subresource != "scale" && hooks.concern(gvr, subresource)).then_some(hooks)
    }

    /// A resource in all its versions, the requested one first.
    fn versions(&self, resource: &Row) -> Vec<Arc<Row>> {
        let gvr = &resource.kind.gvr;
        let table = self.table();
        let same = table.rows().iter().filter(|other| {
            let other = &other.kind.gvr;
            other.group == gvr.group && other.resource == gvr.resource
        });
        let mut all: Vec<Arc<Row>> = same.cloned().collect();
        all.sort_by_key(|other| other.kind.gvr.version != gvr.version);
        all
    }
}

impl Admit<'_> {
    /// Runs mutating webhooks. Returns whether one changed the object.
    pub(crate) async fn hooked(
        &self,
        hooks: &Webhooks,
        new: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let resources = self.registry.versions(self.resource);
        let (show, take) = (show(&resources), take(&resources));
        let versions = versions(&resources, &show, &take);
        let at = self.attributes();
        hooks.mutate(&at, &versions, new, old, warnings).await
    }

    /// Reverts changes by webhooks that the request itself may not make: of the status,
    /// except through `status`, of anything else there, and of server-owned fields.
    pub(crate) fn keep_apart(&self, mut before: Value, new: &mut Value) {
        if self.at.subresource == "status" {
            before["status"] = new["status"].take();
            *new = before;
            return;
        }
        if self.resource.stored.kind.status {
            put(new, "status", before.get("status"));
        }
        for field in ["generation", "resourceVersion"] {
            put(&mut new["metadata"], field, before["metadata"].get(field));
        }
    }

    /// Runs validating webhooks; for a deletion, mutating ones too.
    pub(crate) async fn judged(
        &self,
        hooks: &Webhooks,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let resources = self.registry.versions(self.resource);
        let (show, take) = (show(&resources), take(&resources));
        let versions = versions(&resources, &show, &take);
        let at = self.attributes();
        if self.operation == Operation::Delete {
            let mut deleted = Value::Null;
            hooks
                .mutate(&at, &versions, &mut deleted, old, warnings)
                .await?;
        }
        hooks.validate(&at, &versions, new, old, warnings).await
    }
}

fn put(object: &mut Value, field: &str, value: Option<&Value>) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    match value {
        Some(value) => map.insert(field.into(), value.clone()),
        None => map.remove(field),
    };
}

type Show = Box<dyn Fn(usize, &Value) -> Value + Send + Sync>;
type Take = Box<dyn Fn(usize, Value) -> Value + Send + Sync>;

fn show(resources: &[Arc<Row>]) -> Show {
    let resources = resources.to_vec();
    Box::new(move |version, object| {
        let mut converted = object.clone();
        if let Some(resource) = resources.get(version) {
            resource.view.read(&resource.kind.gvk, &mut converted);
        }
        converted
    })
}

fn take(resources: &[Arc<Row>]) -> Take {
    let resources = resources.to_vec();
    Box::new(move |version, mut object| {
        if let Some(resource) = resources.get(version) {
            resource.view.write(&resource.stored.kind.gvk, &mut object);
        }
        object
    })
}

fn versions<'a>(resources: &[Arc<Row>], show: &'a Show, take: &'a Take) -> Versions<'a> {
    Versions {
        kinds: resources
            .iter()
            .map(|resource| (resource.kind.gvk.clone(), resource.kind.gvr.clone()))
            .collect(),
        show: &**show,
        take: &**take,
    }
}
