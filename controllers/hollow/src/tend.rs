//! The kubelet's controller: binds pods and writes their status through `client::Api`.

use client::{At, DeleteOptions, Error, WriteOptions};
use machinery::Object;
use flotilla_runtime::{Action, Change};
use serde_json::json;

use crate::act::ignore_gone;
use crate::kubelet::{self, Next};
use crate::pods::PodView;
use crate::run::{Hollow, PODS};

impl Hollow {
    /// Updates the capacity of nodes before the workload controllers handle the change.
    pub(crate) fn pod_changed(&self, change: &Change<'_>) {
        let key = change.key();
        let replaced = |new: &Object| change.old.is_some_and(|old| old.uid() != new.uid());
        if change.new.is_none_or(replaced) {
            self.give_back(&key);
        }
        let Some(object) = change.new else { return };
        let Ok(pod) = object.view::<PodView>() else {
            return;
        };
        if pod.finished() {
            self.give_back(&key);
        } else if !pod.spec.node_name.is_empty() {
            let node = &pod.spec.node_name;
            self.capacity.lock().observe(&key, node, pod.room());
        }
        match kubelet::next(&pod, owned_by_job(object)) {
            Next::Nothing => {}
            Next::Start | Next::Finish => self.kubelet.add_after(key, self.options.ready_after),
            Next::Place | Next::Fail | Next::End => self.kubelet.add_lane(key, change.initial),
        }
    }

    /// Frees the capacity of a pod, and retries the unschedulable pods.
    pub(crate) fn give_back(&self, key: &str) {
        if self.capacity.lock().release(key) {
            for waiting in std::mem::take(&mut *self.waiting.lock()) {
                self.kubelet.add(waiting);
            }
        }
    }

    /// Carries out the next transition of a pod.
    pub(crate) async fn tend(&self, key: &str) -> Result<Action, Error> {
        let Some(object) = self.pods.get_key(key) else {
            return Ok(Action::Done);
        };
        let pod = object.view::<PodView>()?;
        let now = self.clock.now();
        let status = match kubelet::next(&pod, owned_by_job(&object)) {
            Next::Nothing => return Ok(Action::Done),
            Next::End => return self.end(&object).await,
            Next::Place => match self.bind(key, &object, &pod).await? {
                true => return Ok(Action::Done),
                false if pod.status.told() => return Ok(Action::Done),
                false => kubelet::unschedulable(now),
            },
            Next::Start => kubelet::running(&pod, &address(object.uid()), now),
            Next::Finish => kubelet::succeeded(&pod, now),
            Next::Fail => kubelet::broken(&pod, now),
        };
        self.write_status(&PODS, &object, status).await?;
        Ok(Action::Done)
    }

    async fn end(&self, pod: &Object) -> Result<Action, Error> {
        let options = DeleteOptions {
            uid: Some(pod.uid().to_owned()),
            grace_period_seconds: Some(0),
            ..DeleteOptions::default()
        };
        let ended = self.api.delete(At::of(&PODS, pod), &options).await;
        ignore_gone(ended.map(drop))?;
        Ok(Action::Done)
    }

    /// Binds a pod without a node; false if no node has enough capacity.
    async fn bind(&self, key: &str, object: &Object, pod: &PodView) -> Result<bool, Error> {
        // Recorded first, so that capacity released meanwhile causes a retry.
        self.waiting.lock().insert(key.to_owned());
        let requests = pod.room();
        let node = self.capacity.lock().place(key, requests).map(str::to_owned);
        let Some(node) = node else {
            return Ok(false);
        };
        self.waiting.lock().remove(key);
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": object.name(), "namespace": object.namespace()},
                             "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let at = At::of(&PODS, object).sub("binding");
        let bound = self.api.create(at, binding, &WriteOptions::default()).await;
        ignore_gone(bound.map(drop))?;
        Ok(true)
    }
}

fn owned_by_job(pod: &Object) -> bool {
    pod.head().controller().is_some_and(|c| &*c.kind == "Job")
}

/// An address in 10.0.0.0/8 derived from the uid.
fn address(uid: &str) -> String {
    let sum = uid
        .bytes()
        .fold(7_u32, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
    let (high, low) = (sum >> 16 & 255, sum >> 8 & 255);
    format!("10.{high}.{low}.{}", 1 + sum % 254)
}
