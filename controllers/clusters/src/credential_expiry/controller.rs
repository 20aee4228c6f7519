//! The controller: reacts to Clusters and their Secrets, and at the times when a credential
//! comes near its end; writes a condition and an event.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{
    Api, Informer, InformerFactory, ListWatchSelector, ResourcePath, Result, ignore_not_found,
};
use flotilla_runtime::{
    ControllerContext, EventRecorder, ReconcileAction, Workqueue, run_workers_after,
};
use karmada_api::Cluster;
use karmada_api::cluster::{ClusterSpec, LocalSecretReference};
use karmada_api::resources::CLUSTERS;
use machinery::Object;
use machinery::time::Clock;
use parking_lot::Mutex;

use super::condition_writer::{ConditionWriter, check_again};
use super::expiry::{CREDENTIALS_VALID, ExpiringCredential, expiring_credentials};
use super::metrics::{ExpiringCredentials, report_credentials};
use crate::join::objects::SECRETS;

const WORKERS: usize = 1;

struct CredentialExpiryController {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
    recorder: EventRecorder,
    informers: InformerFactory,
    clusters: Informer,
    /// The Secrets by namespace.
    secrets: Mutex<BTreeMap<String, Informer>>,
    expiring: ExpiringCredentials,
    queue: Workqueue<String>,
}

pub(crate) fn start(context: &ControllerContext) {
    let select = ListWatchSelector::all(&CLUSTERS);
    let controller = Arc::new(CredentialExpiryController {
        api: Arc::clone(&context.control_plane),
        clock: Arc::clone(&context.clock),
        recorder: context.recorder.with_component("cluster-controller"),
        informers: context.informers.clone(),
        clusters: context.informers.get(&context.control_plane, &select),
        secrets: Mutex::default(),
        expiring: ExpiringCredentials::default(),
        queue: Workqueue::new(),
    });
    report_credentials(&controller.expiring, context.tasks.shutdown());
    let queue = controller.queue.clone();
    controller.clusters.add_event_handler(move |change| {
        let references = |cluster: &Object| {
            let spec = cluster.decode::<Cluster>().ok()?;
            Some((
                spec.spec.secret_ref.clone(),
                spec.spec.impersonator_secret_ref.clone(),
            ))
        };
        let same = |old: &Object, new: &Object| references(old) == references(new);
        if !matches!((change.old, change.new), (Some(old), Some(new)) if same(old, new)) {
            queue.add_event(change.key(), change);
        }
    });
    let (waiting, queue) = (Arc::clone(&controller), controller.queue.clone());
    run_workers_after(
        &context.tasks,
        async move { waiting.clusters.wait_for_cache_sync().await },
        "cluster-credential-expiry",
        &queue,
        WORKERS,
        move |name: String| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&name).await }
        },
    );
}

fn references(spec: &ClusterSpec) -> impl Iterator<Item = &LocalSecretReference> {
    let both = [&spec.secret_ref, &spec.impersonator_secret_ref];
    both.into_iter().filter_map(Option::as_ref)
}

impl CredentialExpiryController {
    /// The Secrets of a namespace; a change enqueues the clusters that refer to it.
    fn secrets_of(self: &Arc<Self>, namespace: &str) -> Informer {
        let mut all = self.secrets.lock();
        if let Some(existing) = all.get(namespace) {
            return existing.clone();
        }
        let select = ListWatchSelector::all(&SECRETS).namespace(namespace);
        let informer = self.informers.get(&self.api, &select);
        all.insert(namespace.to_owned(), informer.clone());
        drop(all);
        let controller = Arc::downgrade(self);
        informer.add_event_handler(move |change| {
            if let Some(controller) = controller.upgrade() {
                controller.secret_changed(change.object());
            }
        });
        informer
    }

    fn secret_changed(&self, secret: &Object) {
        for cluster in self.clusters.list() {
            let Ok(view) = cluster.decode::<Cluster>() else {
                continue;
            };
            let refers = |r: &LocalSecretReference| {
                r.name == secret.name() && r.namespace == secret.namespace()
            };
            if references(&view.spec).any(refers) {
                self.queue.add(cluster.name().to_owned());
            }
        }
    }

    async fn reconcile(self: &Arc<Self>, name: &str) -> Result<ReconcileAction> {
        // The cached copy may lack the condition of a moment ago, which a new Secret ends now.
        let at = ResourcePath::object(&CLUSTERS, "", name);
        let cluster = ignore_not_found(self.api.get(at).await)?;
        let Some(object) = cluster.filter(|cluster| !cluster.meta().deleting) else {
            self.expiring.lock().remove(name);
            return Ok(ReconcileAction::Done);
        };
        let view = object.decode::<Cluster>()?;
        let mut expiring: Vec<ExpiringCredential> = Vec::new();
        for reference in references(&view.spec) {
            let secrets = self.secrets_of(&reference.namespace);
            // One that is not listed yet enqueues the cluster again.
            if let Some(secret) = secrets.get(&reference.namespace, &reference.name) {
                expiring.extend(expiring_credentials(&secret));
            }
        }
        let first = expiring.iter().min_by_key(|c| c.expires).cloned();
        self.expiring.lock().insert(name.to_owned(), expiring);
        let now = self.clock.now();
        let writer = ConditionWriter {
            api: &*self.api,
            recorder: &self.recorder,
            kind: CREDENTIALS_VALID,
        };
        let written = writer.write_if_changed(&object, first.as_ref(), now).await;
        ReconcileAction::after_write(written, check_again(first.as_ref(), now))
    }
}
