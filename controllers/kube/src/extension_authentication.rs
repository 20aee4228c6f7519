//! Publishes the authorities of client certificates in the ConfigMap that extension API servers
//! read (Kubernetes' `pkg/controlplane/controller/clusterauthenticationtrust`). A server without
//! a front proxy publishes no settings of request headers, as a kube-apiserver without
//! `--requestheader-client-ca-file`.

use std::sync::Arc;

use client::{Api, Error, Informer, ResourcePath, WriteOptions};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use machinery::Gvr;
use serde_json::json;
use tokio::sync::watch;

use crate::shutdown_waits::{requeue_on_change, wait_for_cache_sync};

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";

struct ExtensionAuthenticationController {
    api: Arc<dyn Api>,
    config_maps: Informer,
    client_ca: watch::Receiver<String>,
}

/// Starts the controller. `client_ca` is the PEM of the authorities, which may change.
pub(crate) fn start(context: &ControllerContext, client_ca: watch::Receiver<String>) {
    let controller = Arc::new(ExtensionAuthenticationController {
        config_maps: context.informer(&CONFIG_MAPS),
        api: Arc::clone(&context.control_plane),
        client_ca: client_ca.clone(),
    });
    let queue: Workqueue<String> = Workqueue::new();
    let wake = queue.clone();
    controller.config_maps.add_event_handler(move |change| {
        let object = change.object();
        if object.name() == CONFIG_MAP && object.namespace() == NAMESPACE {
            wake.add(CONFIG_MAP.to_owned());
        }
    });
    let keys = || vec![CONFIG_MAP.to_owned()];
    requeue_on_change(client_ca, &queue, keys, &context.tasks);
    queue.add(CONFIG_MAP.to_owned());
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.config_maps]).await {
            return;
        }
        run_workers(&workers, "extension-authentication", &queue, 1, move |_| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile().await }
        });
    });
}

impl ExtensionAuthenticationController {
    async fn reconcile(&self) -> Result<ReconcileAction, Error> {
        let data = json!({"client-ca-file": *self.client_ca.borrow()});
        let options = WriteOptions::default();
        let Some(present) = self.config_maps.get(NAMESPACE, CONFIG_MAP) else {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE}, "data": data});
            let at = ResourcePath::collection(&CONFIG_MAPS, NAMESPACE);
            self.api.create(at, map.into(), &options).await?;
            return Ok(ReconcileAction::Done);
        };
        let mut map = present.value()?;
        if map["data"] != data {
            map["data"] = data;
            let at = ResourcePath::object(&CONFIG_MAPS, NAMESPACE, CONFIG_MAP);
            self.api.update(at, map.into(), &options).await?;
        }
        Ok(ReconcileAction::Done)
    }
}
