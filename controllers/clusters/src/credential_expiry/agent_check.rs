//! The check of an agent: warns before the certificate expires with which it reaches the control
//! plane. It starts again with another certificate.

use std::sync::Arc;
use std::time::Duration;

use client::{Api, Informer, ListWatchSelector, Result};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, Workqueue, run_workers_after,
};
use karmada_api::resources::CLUSTERS;
use machinery::time::Clock;

use super::condition_writer::{ConditionWriter, check_again};
use super::expiry::{AGENT_CERTIFICATE_VALID, ExpiringCredential, agent_certificate};
use crate::options::{AgentCertificateValidity, ClusterControllersOptions};

/// How often the agent looks for its Cluster when that is gone.
const ABSENT_CLUSTER_INTERVAL: Duration = Duration::from_secs(60);

struct AgentCertificateCheck {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    clusters: Informer,
    certificate: ExpiringCredential,
}

/// Checks the certificate, if the agent has one.
pub(crate) fn start_agent_check(context: &ControllerContext, options: &ClusterControllersOptions) {
    let settings = &options.settings;
    let (Some(cluster), Some(validity)) = (&settings.agent_cluster, settings.agent_certificate)
    else {
        return;
    };
    let AgentCertificateValidity { from, until } = validity;
    let select = ListWatchSelector::all(&CLUSTERS);
    let check = Arc::new(AgentCertificateCheck {
        api: Arc::clone(&context.control_plane),
        clock: Arc::clone(&context.clock),
        recorder: context.recorder.clone(),
        clusters: context.informers.get(&context.control_plane, &select),
        certificate: agent_certificate(until, until.duration_since(from)),
    });
    let queue: Workqueue<String> = Workqueue::new();
    queue.add(cluster.clone());
    let waiting = check.clusters.clone();
    run_workers_after(
        &context.tasks,
        async move { waiting.wait_for_cache_sync().await },
        "agent-certificate-check",
        &queue,
        1,
        move |cluster: String| {
            let check = Arc::clone(&check);
            async move { check.reconcile(&cluster).await }
        },
    );
}

impl AgentCertificateCheck {
    async fn reconcile(&self, cluster: &str) -> Result<ReconcileAction> {
        let now = self.clock.now();
        let Some(object) = self.clusters.get("", cluster) else {
            return Ok(ReconcileAction::RequeueAfter(ABSENT_CLUSTER_INTERVAL));
        };
        let writer = ConditionWriter {
            api: &*self.api,
            recorder: &self.recorder,
            kind: AGENT_CERTIFICATE_VALID,
        };
        let written = writer.write_if_changed(&object, Some(&self.certificate), now);
        let next = check_again(Some(&self.certificate), now);
        ReconcileAction::after_write(written.await, next)
    }
}
