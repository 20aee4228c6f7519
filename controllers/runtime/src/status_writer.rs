//! Writes the status that a reconciliation has computed, and counts what became of it.
//!
//! reconcile ──status, or `None` if it is the same──► [`StatusWriter`] ──PUT or PATCH──► [`Api`] behind the [`LeaderFence`](crate::LeaderFence)
//!
//! The queue of a controller bounds and coalesces its writes: a key has one worker at a time, so
//! no more statuses are written at once than there are workers, and what changes during a write
//! becomes one later write. The fence refuses the writes of a process that no longer leads.

use std::sync::LazyLock;

use client::{Api, Patch, ResourcePath, Result, WriteOptions};
use flotilla_metrics::{Counter, MetricVec};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

static STATUS_WRITES: LazyLock<MetricVec<Counter, 2>> = LazyLock::new(|| {
    flotilla_metrics::process_registry().counters(
        "flotilla_status_writes_total",
        "Statuses that controllers computed: written, unchanged, refused by the server or by the fence of the leader, or dropped because the object is gone.",
        ["controller", "outcome"],
    )
});

/// Writes statuses for one controller. Each method returns the object as it was written, or `None`
/// if nothing had to change; a write fails with a conflict if the object has changed since it was
/// read.
#[derive(Clone, Copy)]
pub struct StatusWriter<'a> {
    api: &'a dyn Api,
    controller: &'static str,
    field_manager: &'static str,
}

impl<'a> StatusWriter<'a> {
    /// `controller` is a label of the metrics.
    pub fn new(api: &'a dyn Api, controller: &'static str) -> Self {
        Self {
            api,
            controller,
            field_manager: "",
        }
    }

    /// The writer under the name of this field manager.
    #[must_use]
    pub fn with_field_manager(self, field_manager: &'static str) -> Self {
        Self {
            field_manager,
            ..self
        }
    }

    /// Replaces the status by an update.
    pub async fn update(
        &self,
        resource: &Gvr,
        object: &Object,
        status: Option<Value>,
    ) -> Result<Option<Object>> {
        let Some(status) = status else {
            return Ok(self.unchanged());
        };
        let mut body = object.value()?;
        if body["status"] == status {
            return Ok(self.unchanged());
        }
        body["status"] = status;
        let at = ResourcePath::of_object(resource, object).subresource("status");
        self.count(self.api.update(at, body.into(), &self.options()).await)
    }

    /// Merges the fields that differ into the status.
    pub async fn patch(
        &self,
        resource: &Gvr,
        object: &Object,
        fields: Option<Value>,
    ) -> Result<Option<Object>> {
        let patch = fields.map(|fields| {
            let version = object.revision().to_string();
            Patch::Merge(json!({"metadata": {"resourceVersion": version}, "status": fields}))
        });
        self.send(resource, object, patch).await
    }

    /// Sends a patch, which has to name the version or the uid for which it was computed.
    pub async fn send(
        &self,
        resource: &Gvr,
        object: &Object,
        patch: Option<Patch>,
    ) -> Result<Option<Object>> {
        let Some(patch) = patch else {
            return Ok(self.unchanged());
        };
        let at = ResourcePath::of_object(resource, object).subresource("status");
        self.count(self.api.patch(at, patch, &self.options()).await)
    }

    fn options(&self) -> WriteOptions {
        WriteOptions {
            field_manager: self.field_manager.to_owned(),
            ..WriteOptions::default()
        }
    }

    fn unchanged(&self) -> Option<Object> {
        self.outcome("unchanged").inc();
        None
    }

    fn count(&self, written: Result<Object>) -> Result<Option<Object>> {
        let outcome = match &written {
            Ok(_) => "written",
            Err(error) if error.is_not_found() => "dropped",
            Err(_) => "refused",
        };
        self.outcome(outcome).inc();
        written.map(Some)
    }

    fn outcome(&self, outcome: &str) -> Counter {
        STATUS_WRITES.with_label_values([self.controller, outcome])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeaderFence;
    use client_fake::FakeApi;
    use tokio::time::Instant;

    static DEPLOYMENTS: Gvr = Gvr::from_static("apps", "v1", "deployments");

    #[tokio::test]
    async fn every_outcome_is_counted_and_what_is_the_same_is_not_written() {
        let fake = FakeApi::new();
        let body = json!({"metadata": {"name": "a", "namespace": "n"}, "status": {"replicas": 1}});
        let object = fake.seed(&DEPLOYMENTS, body);
        let writer = StatusWriter::new(&*fake, "status-writer-test");
        let replicas = |n: u32| Some(json!({"replicas": n}));
        let same = writer.update(&DEPLOYMENTS, &object, replicas(1)).await;
        assert!(same.unwrap().is_none());
        let same = writer.patch(&DEPLOYMENTS, &object, None).await;
        assert!(same.unwrap().is_none() && fake.writes().is_empty());
        let written = writer.patch(&DEPLOYMENTS, &object, replicas(2)).await;
        let newer = written.unwrap().unwrap();
        let conflict = writer.update(&DEPLOYMENTS, &object, replicas(3)).await;
        assert!(conflict.unwrap_err().is_conflict());
        let closed = LeaderFence::open_until(Instant::now()).wrap(fake.clone());
        let fenced = StatusWriter::new(&*closed, "status-writer-test");
        let result = fenced.update(&DEPLOYMENTS, &newer, replicas(3)).await;
        assert!(result.is_err());
        fake.remove(&DEPLOYMENTS, "n", "a");
        let gone = writer.update(&DEPLOYMENTS, &newer, replicas(3)).await;
        assert!(gone.unwrap_err().is_not_found());
        for (outcome, count) in [
            ("unchanged", 2),
            ("written", 1),
            ("refused", 2),
            ("dropped", 1),
        ] {
            assert_eq!(writer.outcome(outcome).get(), count, "{outcome}");
        }
    }
}
