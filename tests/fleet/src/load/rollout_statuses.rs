//! Watches the Rollouts, and remembers which revision has gone through all stages of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use client::{Error, ListWatchSelector, ReflectorSink, run_reflector};
use machinery::{Gvr, Object};
use parking_lot::Mutex;
use serde::Deserialize;

use super::client::LoadClient;
use super::objects::NAMESPACE;

static ROLLOUTS: Gvr = Gvr::from_static("rollout.flotilla.io", "v1alpha1", "rollouts");
const COMPLETED: &str = "Completed";
const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Deserialize)]
struct RolloutFields {
    #[serde(default)]
    status: RolloutStatusFields,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RolloutStatusFields {
    state: String,
    target_revision: String,
}

/// The revision that has gone through all stages last, and when that was seen.
#[derive(Clone)]
pub(crate) struct CompletedRevision {
    pub(crate) revision: String,
    pub(crate) at: Instant,
}

/// By name of the Rollout.
pub(crate) type CompletedRevisions = BTreeMap<String, CompletedRevision>;

struct RolloutSink {
    completed: Arc<Mutex<CompletedRevisions>>,
}

impl ReflectorSink for RolloutSink {
    fn begin_list(&mut self) {}

    fn list_item(&mut self, object: Object) {
        self.upsert(object);
    }

    fn end_list(&mut self) {}

    fn upsert(&mut self, object: Object) {
        let Ok(fields) = machinery::json::from_slice::<RolloutFields>(&object.bytes()) else {
            return;
        };
        let status = fields.status;
        let mut completed = self.completed.lock();
        let last = completed.get(object.name());
        let is_new = last.is_none_or(|last| last.revision != status.target_revision);
        if status.state == COMPLETED && is_new {
            let revision = CompletedRevision {
                revision: status.target_revision,
                at: Instant::now(),
            };
            completed.insert(object.name().to_owned(), revision);
        }
    }

    fn delete(&mut self, _object: Object) {}

    fn report_health(&mut self, _error: Option<&Error>) {}
}

/// The Rollouts, as a client sees them.
pub(crate) struct RolloutStatuses {
    completed: Arc<Mutex<CompletedRevisions>>,
}

impl RolloutStatuses {
    /// Watches from now on.
    pub(crate) fn watch(client: &LoadClient) -> Self {
        let completed = Arc::<Mutex<CompletedRevisions>>::default();
        let mut sink = RolloutSink {
            completed: Arc::clone(&completed),
        };
        let (api, tasks) = (Arc::clone(client.api()), client.tasks());
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            let selector = ListWatchSelector::all(&ROLLOUTS).namespace(NAMESPACE);
            run_reflector(&*api, &selector, &mut sink, &shutdown).await;
        });
        Self { completed }
    }

    pub(crate) fn completed(&self) -> CompletedRevisions {
        self.completed.lock().clone()
    }

    /// Waits until `count` Rollouts have completed another revision than `before`; returns when the
    /// last one did.
    pub(crate) async fn wait_for_completed(
        &self,
        before: &CompletedRevisions,
        count: usize,
        limit: Duration,
    ) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + limit;
        loop {
            let ended: Vec<Instant> = {
                let completed = self.completed.lock();
                let has_changed = |name: &str, last: &CompletedRevision| {
                    before
                        .get(name)
                        .is_none_or(|before| before.revision != last.revision)
                };
                let changed = completed
                    .iter()
                    .filter(|(name, last)| has_changed(name, last));
                changed.map(|(_, last)| last.at).collect()
            };
            if ended.len() >= count
                && let Some(last) = ended.iter().max()
            {
                return Ok(*last);
            }
            ensure!(
                Instant::now() < deadline,
                "{} of {count} rollouts are completed within {limit:?}",
                ended.len()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
