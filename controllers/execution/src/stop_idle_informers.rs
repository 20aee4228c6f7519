//! Stops the informer of a kind in a member when no Work has objects of the kind any more.

use std::convert::Infallible;
use std::sync::Arc;

use client::TaskGroup;
use flotilla_runtime::{ReconcileAction, run_workers};
use machinery::Gvk;

use crate::controller::ExecutionController;
use crate::idle_informers::manifest_kinds;

impl ExecutionController {
    pub(crate) fn start_idle_worker(self: &Arc<Self>, tasks: &TaskGroup) {
        let controller = Arc::clone(self);
        let queue = self.idle_informers.queue.clone();
        run_workers(tasks, "watches", &queue, 1, move |(cluster, kind)| {
            controller.stop_informer_if_idle(&cluster, &kind);
            async { Ok::<_, Infallible>(ReconcileAction::Done) }
        });
    }

    fn stop_informer_if_idle(&self, cluster: &str, kind: &Gvk) {
        let works = self.list_works(cluster);
        if works.iter().any(|work| manifest_kinds(work).contains(kind)) {
            return;
        }
        let resource = self.idle_informers.watched_kinds.load().get(kind).cloned();
        if let Some(resource) = resource {
            self.members.stop_managed_informer(cluster, &resource);
        }
    }
}
