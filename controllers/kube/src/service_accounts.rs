//! Creates in every namespace the service account `default` and the ConfigMap with the
//! API server's certificate authority (Kubernetes' `serviceaccounts_controller.go` and
//! `rootcacertpublisher`).

use std::sync::Arc;

use client::{Api, Error, Informer, ResourcePath, WriteOptions};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use machinery::Gvr;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::shutdown_waits::{requeue_on_change, wait_for_cache_sync};

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static ACCOUNTS: Gvr = Gvr::from_static("", "v1", "serviceaccounts");
static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
const DEFAULT_ACCOUNT: &str = "default";
const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";
const CA_CERT_KEY: &str = "ca.crt";

struct ServiceAccountController {
    api: Arc<dyn Api>,
    namespaces: Informer,
    accounts: Informer,
    config_maps: Informer,
    root_ca: watch::Receiver<String>,
}

pub(crate) fn start(context: &ControllerContext, root_ca: watch::Receiver<String>) {
    let controller = Arc::new(ServiceAccountController {
        namespaces: context.informer(&NAMESPACES),
        accounts: context.informer(&ACCOUNTS),
        config_maps: context.informer(&CONFIG_MAPS),
        api: Arc::clone(&context.control_plane),
        root_ca: root_ca.clone(),
    });
    let queue: Workqueue<String> = Workqueue::new();
    let wake = queue.clone();
    controller.namespaces.add_event_handler(move |change| {
        if change.new.is_some_and(|n| !n.meta().deleting) {
            wake.add_event(change.key(), change);
        }
    });
    for (informer, name) in [
        (&controller.accounts, DEFAULT_ACCOUNT),
        (&controller.config_maps, ROOT_CA_CONFIG_MAP),
    ] {
        let wake = queue.clone();
        informer.add_event_handler(move |change| {
            let object = change.object();
            if object.name() == name && !change.in_initial_list {
                wake.add(object.namespace().to_owned());
            }
        });
    }
    let namespaces = controller.namespaces.clone();
    let all = move || {
        namespaces
            .list()
            .iter()
            .map(|n| n.name().to_owned())
            .collect()
    };
    requeue_on_change(root_ca, &queue, all, &context.tasks);
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(
            &workers,
            [
                &controller.namespaces,
                &controller.accounts,
                &controller.config_maps,
            ],
        )
        .await
        {
            return;
        }
        run_workers(&workers, "accounts", &queue, 1, move |name: String| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&name).await }
        });
    });
}

impl ServiceAccountController {
    async fn reconcile(&self, namespace: &str) -> Result<ReconcileAction, Error> {
        if self
            .namespaces
            .get("", namespace)
            .is_none_or(|n| n.meta().deleting)
        {
            return Ok(ReconcileAction::Done);
        }
        if self.accounts.get(namespace, DEFAULT_ACCOUNT).is_none() {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT_ACCOUNT, "namespace": namespace}});
            self.create(&ACCOUNTS, namespace, account).await?;
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": ROOT_CA_CONFIG_MAP, "namespace": namespace,
                         "annotations": {"kubernetes.io/description": "Contains a CA bundle that can be used to verify the API server."}},
            "data": {CA_CERT_KEY: *self.root_ca.borrow()}});
        match self.config_maps.get(namespace, ROOT_CA_CONFIG_MAP) {
            None => self.create(&CONFIG_MAPS, namespace, map).await?,
            Some(present) => {
                let mut present = present.value()?;
                if present["data"] != map["data"] {
                    present["data"] = map["data"].clone();
                    self.api
                        .update(
                            ResourcePath::object(&CONFIG_MAPS, namespace, ROOT_CA_CONFIG_MAP),
                            present.into(),
                            &WriteOptions::default(),
                        )
                        .await?;
                }
            }
        }
        Ok(ReconcileAction::Done)
    }

    async fn create(&self, resource: &Gvr, namespace: &str, object: Value) -> Result<(), Error> {
        match self
            .api
            .create(
                ResourcePath::collection(resource, namespace),
                object.into(),
                &WriteOptions::default(),
            )
            .await
        {
            Err(e)
                if !e.is_already_exists() && !e.is_namespace_terminating() && !e.is_not_found() =>
            {
                Err(e)
            }
            _ => Ok(()),
        }
    }
}
