//! The controller of CustomResourceDefinitions: accepts their names, sets their conditions
//! and deletes their instances with them.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, DeleteOptions, Error, Informer, ListOptions, ResourcePath};
use flotilla_runtime::{
    ControllerContext, ReconcileAction, StatusWriter, Workqueue, remove_finalizers, run_workers,
};
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use openapi::{
    DefinitionSummary, ResourceNames, desired_definition_status, is_established, shadows_built_in,
};
use serde_json::Value;

use crate::definition_index::DefinitionIndex;
use crate::shutdown_waits::wait_for_cache_sync;

pub(crate) static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const CONTENT_RECHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The groups of built-in kinds that this server serves.
#[derive(Clone, Copy)]
pub(crate) struct ServedBuiltInGroups {
    pub(crate) serves: fn(&str) -> bool,
}

impl ServedBuiltInGroups {
    /// The names of the built-in kinds of a group.
    fn names_in(self, group: &str) -> Vec<ResourceNames> {
        match (self.serves)(group) {
            true => openapi::catalog().names_in_group(group),
            false => Vec::new(),
        }
    }

    /// Whether a resource is a built-in one.
    pub(crate) fn contains(self, resource: &Gvr) -> bool {
        let all = self.names_in(&resource.group);
        all.iter().any(|names| *names.plural == *resource.resource)
    }
}

struct CustomResourceDefinitionController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    built_in: ServedBuiltInGroups,
    informer: Informer,
    index: Arc<DefinitionIndex>,
}

/// The options of the controller, beside its context.
pub(crate) struct DefinitionOptions {
    pub(crate) built_in: ServedBuiltInGroups,
    pub(crate) index: Arc<DefinitionIndex>,
}

/// `index` must follow the same informer already.
pub(crate) fn start(context: &ControllerContext, options: DefinitionOptions) {
    let informer = context.informer(&DEFINITIONS);
    let queue: Workqueue<String> = Workqueue::new();
    let (wake, all) = (queue.clone(), Arc::clone(&options.index));
    informer.add_event_handler(move |change| {
        if change.new.is_some() {
            wake.add_event(change.key(), change);
        }
        // A change may have freed names.
        if !change.in_initial_list {
            for other in all.with_name_conflict() {
                wake.add(other);
            }
        }
    });
    let controller = Arc::new(CustomResourceDefinitionController {
        api: Arc::clone(&context.control_plane),
        clock: Arc::clone(&context.clock),
        built_in: options.built_in,
        informer,
        index: options.index,
    });
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.informer]).await {
            return;
        }
        run_workers(&workers, "definitions", &queue, 1, move |key: String| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&key).await }
        });
    });
}

impl CustomResourceDefinitionController {
    async fn reconcile(&self, name: &str) -> Result<ReconcileAction, Error> {
        let Some(object) = self.informer.get("", name) else {
            return Ok(ReconcileAction::Done);
        };
        if object.meta().deleting {
            return self.finalize(&object).await;
        }
        let value = object.value()?;
        let group = value["spec"]["group"].as_str().unwrap_or_default();
        let taken_names = self.index.accepted_names(group, name);
        if value["status"] != self.desired_status(&value, &taken_names) {
            let taken_names = self.newest_accepted_names(group, name).await?;
            let status = self.desired_status(&value, &taken_names);
            let writer = StatusWriter::new(&*self.api, "definitions");
            writer.update(&DEFINITIONS, &object, Some(status)).await?;
        }
        Ok(ReconcileAction::Done)
    }

    fn desired_status(&self, definition: &Value, taken_names: &[ResourceNames]) -> Value {
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let built_in = self.built_in.names_in(group);
        let now = rfc3339_seconds(self.clock.now());
        desired_definition_status(definition, taken_names, &built_in, &now)
    }

    /// The accepted names of the other definitions of a group, from the server: the informer
    /// may not show a name yet that was accepted a moment ago.
    async fn newest_accepted_names(
        &self,
        group: &str,
        name: &str,
    ) -> Result<Vec<ResourceNames>, Error> {
        let all = ResourcePath::collection(&DEFINITIONS, "");
        let newest = self.api.list(all, &ListOptions::default()).await?;
        let mut taken_names = Vec::new();
        for other in newest.items.iter().filter(|other| other.name() != name) {
            let other = DefinitionSummary::decode(&other.bytes());
            let other = other.map_err(|e| Error::Protocol(e.to_string()))?;
            if other.group == group {
                taken_names.push(other.accepted);
            }
        }
        Ok(taken_names)
    }

    /// Deletes the instances of a definition before the definition itself. A definition that
    /// was never established has none, and objects stored under the name of a built-in kind
    /// are not its instances.
    async fn finalize(&self, object: &Object) -> Result<ReconcileAction, Error> {
        let value = object.value()?;
        let group = value["spec"]["group"].as_str().unwrap_or_default();
        let shadows = shadows_built_in(&value, &self.built_in.names_in(group));
        let resource = (is_established(&value) && !shadows).then(|| served_resource(&value));
        if let Some(resource) = resource.flatten() {
            let all = ResourcePath::collection(&resource, "");
            let options = DeleteOptions::default();
            let first = ListOptions {
                limit: 1,
                ..ListOptions::default()
            };
            let everything = ListOptions::default();
            let deleted = self.api.delete_collection(all, &options, &everything);
            match deleted.await {
                Err(e) if !e.is_not_found() => return Err(e),
                Err(_) => {}
                Ok(()) => {
                    if !self.api.list(all, &first).await?.items.is_empty() {
                        return Ok(ReconcileAction::RequeueAfter(CONTENT_RECHECK_INTERVAL));
                    }
                }
            }
        }
        remove_finalizers(&*self.api, &DEFINITIONS, object, &[FINALIZER]).await?;
        Ok(ReconcileAction::Done)
    }
}

/// The resource by which the instances of a definition are accessed: in the storage
/// version, or in another one if that is not served.
fn served_resource(definition: &Value) -> Option<Gvr> {
    let spec = &definition["spec"];
    let versions = spec["versions"].as_array()?;
    let mut served = versions.iter().filter(|v| v["served"] == true);
    let stored = served.clone().find(|v| v["storage"] == true);
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    Some(Gvr::new(
        text(&spec["group"]),
        text(&stored.or_else(|| served.next())?["name"]),
        text(&spec["names"]["plural"]),
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn instances_are_accessed_in_a_served_version() {
        let mut one = json!({"spec": {"group": "g.io", "names": {"plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true}]}});
        let version = |d: &Value| served_resource(d).map(|r| r.version.to_string());
        assert_eq!(version(&one).as_deref(), Some("v1"));
        one["spec"]["versions"][0]["served"] = json!(false);
        assert_eq!(version(&one), None);
        let second = json!({"name": "v2", "served": true, "storage": false});
        one["spec"]["versions"].as_array_mut().unwrap().push(second);
        assert_eq!(version(&one).as_deref(), Some("v2"));
    }
}
