//! The remedy controller: reacts to conditions of Clusters and to Remedies, and writes
//! `status.remedyActions`.

use std::sync::Arc;

use client::{Api, Informer, InformerEvent, Result};
use flotilla_runtime::{
    ControllerContext, ReconcileAction, StatusWriter, Workqueue, run_workers_after,
};
use karmada_api::resources::{CLUSTERS, REMEDIES};
use karmada_api::{Cluster, Remedy};
use machinery::Object;
use serde_json::{Value, json};

use super::reconcile::{actions_in_effect, targets_cluster};

const WORKERS: usize = 1;

pub(crate) struct RemedyController {
    api: Arc<dyn Api>,
    clusters: Informer,
    remedies: Informer,
    queue: Workqueue<String>,
}

impl RemedyController {
    pub(crate) fn start(context: &ControllerContext) {
        let controller = Arc::new(Self {
            api: Arc::clone(&context.control_plane),
            clusters: context.informer(&CLUSTERS),
            remedies: context.informer(&REMEDIES),
            queue: Workqueue::new(),
        });
        controller.add_event_handlers();
        let (remedies, queue) = (controller.remedies.clone(), controller.queue.clone());
        run_workers_after(
            &context.tasks,
            // With some of the Remedies unknown, actions in effect would be taken away.
            async move { remedies.wait_for_cache_sync().await },
            "remedy",
            &queue,
            WORKERS,
            move |name: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&name).await }
            },
        );
    }

    fn add_event_handlers(self: &Arc<Self>) {
        let queue = self.queue.clone();
        self.clusters.add_event_handler(move |change| {
            let observed = |object: &Object| {
                let status = object.decode::<Cluster>().ok()?.status.clone();
                Some((status.conditions, status.remedy_actions))
            };
            let changed = |new| change.old.is_none_or(|old| observed(old) != observed(new));
            if change.new.is_some_and(changed) {
                queue.add_event(change.key(), change);
            }
        });
        let controller = Arc::downgrade(self);
        self.remedies.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.remedy_changed(change);
            }
        });
    }

    /// Enqueues the clusters to which the Remedy applies, or applied before.
    fn remedy_changed(&self, change: &InformerEvent<'_>) {
        let view = |object: &Object| object.decode::<Remedy>().ok();
        let (old, new) = (change.old.and_then(view), change.new.and_then(view));
        if let (Some(old), Some(new)) = (&old, &new)
            && old.spec == new.spec
        {
            return;
        }
        for cluster in self.clusters.list() {
            let mut versions = [&old, &new].into_iter().flatten();
            if versions.any(|remedy| targets_cluster(&remedy.spec, cluster.name())) {
                self.queue.add_event(cluster.meta().key(), change);
            }
        }
    }

    async fn reconcile(&self, name: &str) -> Result<ReconcileAction> {
        let Some(object) = self.clusters.get("", name) else {
            return Ok(ReconcileAction::Done);
        };
        if object.meta().deleting {
            return Ok(ReconcileAction::Done);
        }
        let cluster = object.decode::<Cluster>()?;
        let mut remedies = Vec::new();
        for remedy in self.remedies.list() {
            remedies.push(remedy.decode::<Remedy>()?);
        }
        let specs = remedies.iter().map(|remedy| &remedy.spec);
        let actions = actions_in_effect(specs, name, &cluster.status.conditions);
        // An empty list is an absent field, as with Go's `omitempty`.
        let list = match &*actions {
            [] => Value::Null,
            actions => json!(actions),
        };
        let changed = actions != cluster.status.remedy_actions;
        let fields = changed.then(|| json!({"remedyActions": list}));
        let writer = StatusWriter::new(&*self.api, "remedy");
        let written = writer.patch(&CLUSTERS, &object, fields).await;
        ReconcileAction::after_write(written, ReconcileAction::Done)
    }
}
