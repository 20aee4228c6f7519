//! Deletes the content of namespaces that are being deleted (Kubernetes'
//! `pkg/controller/namespace`).

use std::sync::Arc;
use std::time::Duration;

use client::{
    Api, ApiResource, DeleteOptions, DeletionPropagation, Error, ListOptions, ResourcePath,
    WriteOptions, ignore_not_found,
};
use flotilla_runtime::{
    ControllerContext, ReconcileAction, RestMapper, StatusWriter, Workqueue, run_workers,
};
use machinery::conditions::set_json_condition;
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use crate::deletable_resources::deletable_resources;

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
const FINALIZER: &str = "kubernetes";
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

struct NamespaceDeletionController {
    api: Arc<dyn Api>,
    rest_mapper: Arc<RestMapper>,
    clock: Arc<dyn Clock>,
}

pub(crate) fn start(context: &ControllerContext, rest_mapper: Arc<RestMapper>) {
    let queue: Workqueue<String> = Workqueue::new();
    let informer = context.informer(&NAMESPACES);
    let wake = queue.clone();
    informer.add_event_handler(move |change| {
        if change.new.is_some_and(|n| n.meta().deleting) {
            wake.add_event(change.key(), change);
        }
    });
    let controller = Arc::new(NamespaceDeletionController {
        api: Arc::clone(&context.control_plane),
        rest_mapper,
        clock: Arc::clone(&context.clock),
    });
    run_workers(
        &context.tasks,
        "namespaces",
        &queue,
        2,
        move |name: String| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&name).await }
        },
    );
}

/// Remaining objects: counts by resource, and counts by finalizer; and the errors of the
/// resources that could not be deleted.
#[derive(Default)]
struct RemainingContent {
    resources: Vec<(String, usize)>,
    finalizers: Vec<(String, usize)>,
    failures: Vec<String>,
}

impl RemainingContent {
    fn add(&mut self, resource: &Gvr, objects: &[Object]) {
        if objects.is_empty() {
            return;
        }
        self.resources
            .push((resource.group_resource(), objects.len()));
        for object in objects {
            let finalizers = object
                .value()
                .map(|v| v["metadata"]["finalizers"].clone())
                .unwrap_or_default();
            for name in finalizers
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                match self.finalizers.iter_mut().find(|(f, _)| f == name) {
                    Some((_, count)) => *count += 1,
                    None => self.finalizers.push((name.to_owned(), 1)),
                }
            }
        }
    }

    fn conditions(&self, now: &str) -> [Value; 5] {
        let one = |kind: &str, bad: bool, reasons: (&str, &str), texts: (String, &str)| {
            json!({"type": kind, "status": if bad { "True" } else { "False" }, "lastTransitionTime": now,
                   "reason": if bad { reasons.0 } else { reasons.1 }, "message": if bad { texts.0 } else { texts.1.to_owned() }})
        };
        let failed = format!(
            "Failed to delete all resource types, {} remaining: {}",
            self.failures.len(),
            self.failures.join(", ")
        );
        let remaining = format!(
            "Some resources are remaining: {}",
            list_counts(&self.resources, "has")
        );
        let kept = format!(
            "Some content in the namespace has finalizers remaining: {}",
            list_counts(&self.finalizers, "in")
        );
        [
            one(
                "NamespaceDeletionDiscoveryFailure",
                false,
                ("DiscoveryFailed", "ResourcesDiscovered"),
                (String::new(), "All resources successfully discovered"),
            ),
            one(
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                ("GroupVersionParsingFailed", "ParsedGroupVersions"),
                (String::new(), "All legacy kube types successfully parsed"),
            ),
            one(
                "NamespaceDeletionContentFailure",
                !self.failures.is_empty(),
                ("ContentDeletionFailed", "ContentDeleted"),
                (
                    failed,
                    "All content successfully deleted, may be waiting on finalization",
                ),
            ),
            one(
                "NamespaceContentRemaining",
                !self.resources.is_empty(),
                ("SomeResourcesRemain", "ContentRemoved"),
                (remaining, "All content successfully removed"),
            ),
            one(
                "NamespaceFinalizersRemaining",
                !self.finalizers.is_empty(),
                ("SomeFinalizersRemain", "ContentHasNoFinalizers"),
                (kept, "All content-preserving finalizers finished"),
            ),
        ]
    }
}

/// Lists how many instances each name has, or is in.
fn list_counts<N: std::fmt::Display>(counts: &[(String, N)], verb: &str) -> String {
    let texts = counts
        .iter()
        .map(|(name, count)| format!("{name} {verb} {count} resource instances"));
    texts.collect::<Vec<_>>().join(", ")
}

impl NamespaceDeletionController {
    async fn reconcile(&self, name: &str) -> Result<ReconcileAction, Error> {
        let at = ResourcePath::object(&NAMESPACES, "", name);
        let namespace = ignore_not_found(self.api.get(at).await)?;
        let Some(namespace) = namespace.filter(|n| n.meta().deleting) else {
            return Ok(ReconcileAction::Done);
        };
        let value = namespace.value()?;
        let finalizers = value["spec"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        if !finalizers.iter().any(|f| f == FINALIZER) {
            return Ok(ReconcileAction::Done);
        }
        // A recently added kind may have objects in the namespace.
        self.rest_mapper.refresh().await?;
        let mut remains = RemainingContent::default();
        let all = deletable_resources(&self.rest_mapper);
        for resource in all.iter().map(|r| &r.resource).filter(|r| r.namespaced) {
            match self.delete_all_of(resource, name).await {
                Ok(left) => remains.add(&resource.resource, &left),
                Err(e) => remains.failures.push(e.to_string()),
            }
        }
        remains.failures.sort();
        if remains.failures.is_empty() && remains.resources.is_empty() {
            return self.finalize(name, value, &finalizers).await;
        }
        self.update_conditions(&namespace, &remains).await?;
        Ok(ReconcileAction::RequeueAfter(self.retry_delay(&value)))
    }

    /// Retries become rarer the longer the deletion takes.
    fn retry_delay(&self, namespace: &Value) -> Duration {
        let since = namespace["metadata"]["deletionTimestamp"].as_str();
        let since = since.and_then(|t| t.parse::<jiff::Timestamp>().ok());
        let age = since.map(|t| self.clock.now().duration_since(t));
        let age = age.and_then(|a| Duration::try_from(a).ok());
        (age.unwrap_or_default() / 4).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY)
    }

    /// Deletes all objects of one resource; returns those that still exist.
    async fn delete_all_of(
        &self,
        resource: &ApiResource,
        namespace: &str,
    ) -> Result<Vec<Object>, Error> {
        let at = ResourcePath::collection(&resource.resource, namespace);
        let present = self.api.list(at, &ListOptions::default()).await?.items;
        if present.is_empty() {
            return Ok(present);
        }
        let options = DeleteOptions {
            propagation: Some(DeletionPropagation::Background),
            ..DeleteOptions::default()
        };
        if resource.allows("deletecollection") {
            self.api
                .delete_collection(at, &options, &ListOptions::default())
                .await?;
        } else {
            for object in present.iter().filter(|o| !o.meta().deleting) {
                let at = ResourcePath::of_object(&resource.resource, object);
                ignore_not_found(self.api.delete(at, &options).await)?;
            }
        }
        Ok(self.api.list(at, &ListOptions::default()).await?.items)
    }

    async fn finalize(
        &self,
        name: &str,
        mut value: Value,
        finalizers: &[Value],
    ) -> Result<ReconcileAction, Error> {
        value["spec"]["finalizers"] = finalizers
            .iter()
            .filter(|f| *f != FINALIZER)
            .cloned()
            .collect();
        let at = ResourcePath::object(&NAMESPACES, "", name).subresource("finalize");
        let options = WriteOptions::default();
        ignore_not_found(self.api.update(at, value.into(), &options).await)?;
        Ok(ReconcileAction::Done)
    }

    async fn update_conditions(
        &self,
        namespace: &Object,
        remains: &RemainingContent,
    ) -> Result<(), Error> {
        let mut status = namespace.value()?["status"].take();
        let mut conditions = status["conditions"].clone();
        for condition in remains.conditions(&rfc3339_seconds(self.clock.now())) {
            set_json_condition(&mut conditions, condition);
        }
        let messages = |all: &Value| -> Vec<(String, String)> {
            let pick = |c: &Value| (c["type"].to_string(), c["message"].to_string());
            all.as_array().into_iter().flatten().map(pick).collect()
        };
        let is_changed = messages(&status["conditions"]) != messages(&conditions);
        status["conditions"] = conditions;
        let writer = StatusWriter::new(&*self.api, "namespace");
        let changed = is_changed.then_some(status);
        match writer.update(&NAMESPACES, namespace, changed).await {
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_that_could_not_be_deleted_is_reported() {
        let remains = RemainingContent {
            failures: vec!["first".into(), "second".into()],
            ..RemainingContent::default()
        };
        let all = remains.conditions("t");
        let failed = all
            .iter()
            .find(|c| c["type"] == "NamespaceDeletionContentFailure")
            .unwrap();
        assert_eq!(failed["status"], "True");
        assert_eq!(
            failed["message"],
            "Failed to delete all resource types, 2 remaining: first, second"
        );
    }
}
