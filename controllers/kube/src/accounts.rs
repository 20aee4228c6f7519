//! Creates in every namespace the service account `default` and the ConfigMap with the
//! API server's certificate authority (Kubernetes' `serviceaccounts_controller.go` and
//! `rootcacertpublisher`).

use std::sync::Arc;

use client::{Api, At, Error, WriteOptions};
use machinery::Gvr;
use flotilla_runtime::{Action, Informer, Informers, Queue, Select, Tasks, run_workers};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::start::{requeue_on_change, synced};

static NAMESPACES: Gvr = Gvr::constant("", "v1", "namespaces");
static ACCOUNTS: Gvr = Gvr::constant("", "v1", "serviceaccounts");
static CONFIG_MAPS: Gvr = Gvr::constant("", "v1", "configmaps");
const DEFAULT_ACCOUNT: &str = "default";
const ROOT_CA: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";

struct Accounts {
    api: Arc<dyn Api>,
    namespaces: Informer,
    accounts: Informer,
    config_maps: Informer,
    root_ca: watch::Receiver<String>,
}

pub(crate) fn start(
    api: Arc<dyn Api>,
    root_ca: watch::Receiver<String>,
    informers: &Informers,
    tasks: &Tasks,
) {
    let informer = |resource| informers.get(&api, &Select::all(resource));
    let it = Arc::new(Accounts {
        namespaces: informer(&NAMESPACES),
        accounts: informer(&ACCOUNTS),
        config_maps: informer(&CONFIG_MAPS),
        api,
        root_ca: root_ca.clone(),
    });
    let queue: Queue<String> = Queue::new();
    let wake = queue.clone();
    it.namespaces.on_change(move |change| {
        if change.new.is_some_and(|n| !n.head().deleting) {
            wake.add_lane(change.key(), change.initial);
        }
    });
    for (informer, name) in [(&it.accounts, DEFAULT_ACCOUNT), (&it.config_maps, ROOT_CA)] {
        let wake = queue.clone();
        informer.on_change(move |change| {
            let object = change.object();
            if object.name() == name && !change.initial {
                wake.add(object.namespace().to_owned());
            }
        });
    }
    let namespaces = it.namespaces.clone();
    let all = move || {
        namespaces
            .list()
            .iter()
            .map(|n| n.name().to_owned())
            .collect()
    };
    requeue_on_change(root_ca, &queue, all, tasks);
    let workers = tasks.clone();
    tasks.spawn(async move {
        if !synced(&workers, [&it.namespaces, &it.accounts, &it.config_maps]).await {
            return;
        }
        run_workers(&workers, "accounts", &queue, 1, move |name: String| {
            let it = Arc::clone(&it);
            async move { it.equip(&name).await }
        });
    });
}

impl Accounts {
    async fn equip(&self, namespace: &str) -> Result<Action, Error> {
        if self
            .namespaces
            .get("", namespace)
            .is_none_or(|n| n.head().deleting)
        {
            return Ok(Action::Done);
        }
        if self.accounts.get(namespace, DEFAULT_ACCOUNT).is_none() {
            let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": DEFAULT_ACCOUNT, "namespace": namespace}});
            self.create(&ACCOUNTS, namespace, account).await?;
        }
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": ROOT_CA, "namespace": namespace,
                         "annotations": {"kubernetes.io/description": "Contains a CA bundle that can be used to verify the API server."}},
            "data": {KEY: *self.root_ca.borrow()}});
        match self.config_maps.get(namespace, ROOT_CA) {
            None => self.create(&CONFIG_MAPS, namespace, map).await?,
            Some(present) => {
                let mut present = present.value()?;
                if present["data"] != map["data"] {
                    present["data"] = map["data"].clone();
                    self.api
                        .update(
                            At::one(&CONFIG_MAPS, namespace, ROOT_CA),
                            present,
                            &WriteOptions::default(),
                        )
                        .await?;
                }
            }
        }
        Ok(Action::Done)
    }

    async fn create(&self, resource: &Gvr, namespace: &str, object: Value) -> Result<(), Error> {
        match self
            .api
            .create(
                At::all(resource, namespace),
                object,
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
