//! Watches the templates of the load, and counts those whose status says that all replicas in all
//! clusters are ready.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use client::{Error, ListWatchSelector, ReflectorSink, run_reflector};
use machinery::Object;
use parking_lot::Mutex;
use serde::Deserialize;

use super::client::LoadClient;
use super::objects::{DEPLOYMENTS, LOAD_ROUND, NAMESPACE};
use crate::members::ROUND_LABEL;

const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Deserialize)]
struct TemplateFields {
    #[serde(default)]
    status: TemplateStatusFields,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TemplateStatusFields {
    ready_replicas: usize,
}

/// The templates that are ready, and when the last one became it.
struct ReadyTemplates {
    names: BTreeSet<String>,
    last_change: Instant,
}

struct TemplateSink {
    ready: Arc<Mutex<ReadyTemplates>>,
    expected_replicas: usize,
}

impl ReflectorSink for TemplateSink {
    fn begin_list(&mut self) {}

    fn list_item(&mut self, object: Object) {
        self.upsert(object);
    }

    fn end_list(&mut self) {}

    fn upsert(&mut self, object: Object) {
        let fields = machinery::json::from_slice::<TemplateFields>(&object.bytes());
        let replicas = fields.map_or(0, |fields| fields.status.ready_replicas);
        let mut ready = self.ready.lock();
        let is_changed = if replicas == self.expected_replicas {
            ready.names.insert(object.name().to_owned())
        } else {
            ready.names.remove(object.name())
        };
        if is_changed {
            ready.last_change = Instant::now();
        }
    }

    fn delete(&mut self, object: Object) {
        self.ready.lock().names.remove(object.name());
    }

    fn report_health(&mut self, _error: Option<&Error>) {}
}

/// The statuses of the templates, as a client sees them.
pub(crate) struct TemplateStatuses {
    ready: Arc<Mutex<ReadyTemplates>>,
}

impl TemplateStatuses {
    /// Watches from now on; a template is ready with this many replicas.
    pub(crate) fn watch(client: &LoadClient, expected_replicas: usize) -> Self {
        let ready = Arc::new(Mutex::new(ReadyTemplates {
            names: BTreeSet::new(),
            last_change: Instant::now(),
        }));
        let mut sink = TemplateSink {
            ready: Arc::clone(&ready),
            expected_replicas,
        };
        let (api, tasks) = (Arc::clone(client.api()), client.tasks());
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            let selector = ListWatchSelector::all(&DEPLOYMENTS)
                .namespace(NAMESPACE)
                .labels(format!("{ROUND_LABEL}={LOAD_ROUND}"));
            run_reflector(&*api, &selector, &mut sink, &shutdown).await;
        });
        Self { ready }
    }

    /// Waits until `count` templates are ready; returns when the last one became it.
    pub(crate) async fn wait_for_ready(
        &self,
        count: usize,
        limit: Duration,
    ) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + limit;
        loop {
            let ready_templates = {
                let ready = self.ready.lock();
                if ready.names.len() >= count {
                    return Ok(ready.last_change);
                }
                ready.names.len()
            };
            ensure!(
                Instant::now() < deadline,
                "{ready_templates} of {count} templates are ready within {limit:?}"
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
