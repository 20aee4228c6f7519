//! The kubelet's controller: binds pods and writes their status through `client::Api`.

use client::{DeleteOptions, Error, InformerEvent, ResourcePath, WriteOptions};
use flotilla_runtime::ReconcileAction;
use machinery::Object;
use serde_json::json;

use crate::apply_plan::ignore_not_found_or_conflict;
use crate::controller::{HollowCluster, PODS};
use crate::kubelet::{self, PodTransition};
use crate::pods::HollowPodFields;

impl HollowCluster {
    /// Updates the capacity of nodes before the workload controllers handle the change.
    pub(crate) fn on_pod_event(&self, change: &InformerEvent<'_>) {
        let key = change.key();
        let replaced = |new: &Object| change.old.is_some_and(|old| old.uid() != new.uid());
        if change.new.is_none_or(replaced) {
            self.release_capacity(&key);
        }
        let Some(object) = change.new else { return };
        let Ok(pod) = object.decode::<HollowPodFields>() else {
            return;
        };
        if pod.is_finished() {
            self.release_capacity(&key);
        } else if !pod.spec.node_name.is_empty() {
            let node = &pod.spec.node_name;
            self.capacity.lock().observe(&key, node, pod.requests());
        }
        match kubelet::next_transition(&pod, is_owned_by_job(object)) {
            PodTransition::Nothing => {}
            PodTransition::Start | PodTransition::Finish => {
                self.kubelet.add_after(key, self.options.ready_after)
            }
            PodTransition::AssignNode
            | PodTransition::ReportImageFailure
            | PodTransition::ConfirmDeletion => self.kubelet.add_event(key, change),
        }
    }

    /// Frees the capacity of a pod, and retries the unschedulable pods.
    pub(crate) fn release_capacity(&self, key: &str) {
        if self.capacity.lock().release(key) {
            for waiting in std::mem::take(&mut *self.unschedulable.lock()) {
                self.kubelet.add(waiting);
            }
        }
    }

    /// Carries out the next transition of a pod.
    pub(crate) async fn reconcile_pod(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(object) = self.pods.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        let pod = object.decode::<HollowPodFields>()?;
        let now = self.clock.now();
        let status = match kubelet::next_transition(&pod, is_owned_by_job(&object)) {
            PodTransition::Nothing => return Ok(ReconcileAction::Done),
            PodTransition::ConfirmDeletion => return self.confirm_deletion(&object).await,
            PodTransition::AssignNode => match self.bind_pod(key, &object, &pod).await? {
                true => return Ok(ReconcileAction::Done),
                false if pod.status.has_conditions() => return Ok(ReconcileAction::Done),
                false => kubelet::unschedulable_status(now),
            },
            PodTransition::Start => kubelet::running_status(&pod, &pod_ip(object.uid()), now),
            PodTransition::Finish => kubelet::succeeded_status(&pod, now),
            PodTransition::ReportImageFailure => kubelet::image_failure_status(&pod, now),
        };
        self.write_status(&PODS, &object, status).await?;
        Ok(ReconcileAction::Done)
    }

    async fn confirm_deletion(&self, pod: &Object) -> Result<ReconcileAction, Error> {
        let options = DeleteOptions {
            uid: Some(pod.uid().to_owned()),
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let ended = self
            .api
            .delete(ResourcePath::of_object(&PODS, pod), &options)
            .await;
        ignore_not_found_or_conflict(ended.map(drop))?;
        Ok(ReconcileAction::Done)
    }

    /// Binds a pod without a node; false if no node has enough capacity.
    async fn bind_pod(
        &self,
        key: &str,
        object: &Object,
        pod: &HollowPodFields,
    ) -> Result<bool, Error> {
        // Recorded first, so that capacity released meanwhile causes a retry.
        self.unschedulable.lock().insert(key.to_owned());
        let requests = pod.requests();
        let node = self
            .capacity
            .lock()
            .assign_node(key, requests)
            .map(str::to_owned);
        let Some(node) = node else {
            return Ok(false);
        };
        self.unschedulable.lock().remove(key);
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": object.name(), "namespace": object.namespace()},
                             "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let at = ResourcePath::of_object(&PODS, object).subresource("binding");
        let bound = self
            .api
            .create(at, binding.into(), &WriteOptions::default())
            .await;
        ignore_not_found_or_conflict(bound.map(drop))?;
        Ok(true)
    }
}

fn is_owned_by_job(pod: &Object) -> bool {
    pod.meta().controller().is_some_and(|c| &*c.kind == "Job")
}

/// An address in 10.0.0.0/8 derived from the uid.
fn pod_ip(uid: &str) -> String {
    let sum = uid
        .bytes()
        .fold(7_u32, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
    let (high, low) = (sum >> 16 & 255, sum >> 8 & 255);
    format!("10.{high}.{low}.{}", 1 + sum % 254)
}
