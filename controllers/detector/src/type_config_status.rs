//! Writes the status of FederatedTypeConfigs: whether their kinds are propagated, and whether the
//! status of their objects is collected.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, TaskGroup, ignore_not_found};
use controller_context::{Error, TemplateInformers};
use flotilla_runtime::{ReconcileAction, StatusWriter, Workqueue, run_workers};
use karmada_api::FederatedTypeConfig;
use karmada_api::resources::FEDERATED_TYPE_CONFIGS;
use machinery::{Gvk, Object};
use serde_json::{Value, json};

/// Whether a kind is served changes without an event of its configuration.
const RECHECK_INTERVAL: Duration = Duration::from_secs(30);

pub(crate) struct TypeConfigStatusController {
    api: Arc<dyn Api>,
    templates: Arc<TemplateInformers>,
    /// `namespace/name`.
    queue: Workqueue<String>,
}

impl TypeConfigStatusController {
    pub(crate) fn start(api: &Arc<dyn Api>, templates: &Arc<TemplateInformers>, tasks: &TaskGroup) {
        let controller = Arc::new(Self {
            api: Arc::clone(api),
            templates: Arc::clone(templates),
            queue: Workqueue::new(),
        });
        let queue = controller.queue.clone();
        let configs = templates.type_configs.informer();
        configs.add_event_handler(move |change| {
            let generation = |config: &Object| config.meta().generation;
            if let Some(new) = change.new
                && change
                    .old
                    .is_none_or(|old| generation(old) != generation(new))
            {
                queue.add_event(change.key(), change);
            }
        });
        let queue = controller.queue.clone();
        run_workers(tasks, "type-configs", &queue, 1, move |key| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&key).await }
        });
    }

    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let configs = &self.templates.type_configs;
        let Some(config) = configs.informer().get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        let view = config.decode::<FederatedTypeConfig>()?;
        let kind = Gvk::new(
            view.group().to_owned(),
            view.version().to_owned(),
            view.kind().to_owned(),
        );
        let is_served = self.templates.rest_mapper.get(&kind).is_some();
        let status = desired_status(
            config.meta().generation,
            is_served && configs.propagates(&kind),
            is_served && configs.collects_status(&kind),
        );
        let fields = (config.value()?["status"] != status).then_some(status);
        let writer = StatusWriter::new(&*self.api, "type-configs");
        let written = writer.patch(&FEDERATED_TYPE_CONFIGS, &config, fields).await;
        ignore_not_found(written)?;
        Ok(ReconcileAction::RequeueAfter(RECHECK_INTERVAL))
    }
}

fn desired_status(generation: i64, propagates: bool, collects_status: bool) -> Value {
    let state = |running: bool| if running { "Running" } else { "NotRunning" };
    json!({
        "observedGeneration": generation,
        "propagationController": state(propagates),
        "statusController": state(collects_status),
    })
}
