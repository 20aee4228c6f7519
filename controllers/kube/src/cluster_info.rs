//! Publishes the ConfigMap `kube-public/cluster-info`: the address and the authority of this
//! server, with a signature by each bootstrap token (`kubeadm init`, Kubernetes'
//! `bootstrapsigner.go`). A client that holds a token trusts the server by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, Error, Informer, ListWatchSelector, ResourcePath, WriteOptions};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use jiff::Timestamp;
use machinery::bootstrap_token::{
    CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, KUBECONFIG_KEY, SIGNATURE_KEY_PREFIX,
    StoredBootstrapToken,
};
use machinery::time::{self, Clock};
use machinery::{Gvr, Object};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::shutdown_waits::{requeue_on_change, wait_for_cache_sync};
use crate::token_cleaner::token_informer;

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
/// The only key of the queue.
const KEY: &str = CLUSTER_INFO;

struct ClusterInfoController {
    api: Arc<dyn Api>,
    secrets: Informer,
    config_maps: Informer,
    server_url: String,
    root_ca: watch::Receiver<String>,
    clock: Arc<dyn Clock>,
}

/// The options of the controller, beside its context.
pub(crate) struct ClusterInfoOptions {
    pub(crate) server_url: String,
    /// PEM of the authorities that sign the serving certificate; it may change.
    pub(crate) root_ca: watch::Receiver<String>,
}

pub(crate) fn start(context: &ControllerContext, options: ClusterInfoOptions) {
    let cluster_info = ListWatchSelector::all(&CONFIG_MAPS)
        .namespace(CLUSTER_INFO_NAMESPACE)
        .fields(format!("metadata.name={CLUSTER_INFO}"));
    let controller = Arc::new(ClusterInfoController {
        secrets: token_informer(context),
        config_maps: context.select(&cluster_info),
        api: Arc::clone(&context.control_plane),
        server_url: options.server_url,
        root_ca: options.root_ca.clone(),
        clock: Arc::clone(&context.clock),
    });
    let queue: Workqueue<String> = Workqueue::new();
    queue.add(KEY.to_owned());
    for informer in [&controller.secrets, &controller.config_maps] {
        let wake = queue.clone();
        informer.add_event_handler(move |_| wake.add(KEY.to_owned()));
    }
    requeue_on_change(
        options.root_ca,
        &queue,
        || vec![KEY.to_owned()],
        &context.tasks,
    );
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.secrets, &controller.config_maps]).await {
            return;
        }
        run_workers(&workers, "bootstrap_signer_queue", &queue, 1, move |_| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile().await }
        });
    });
}

impl ClusterInfoController {
    async fn reconcile(&self) -> Result<ReconcileAction, Error> {
        let kubeconfig = cluster_kubeconfig(&self.server_url, &self.root_ca.borrow());
        let now = self.clock.now();
        let mut tokens = Vec::new();
        for secret in self.secrets.list() {
            tokens.extend(signing_token(&secret, now)?);
        }
        let current = self.config_maps.get(CLUSTER_INFO_NAMESPACE, CLUSTER_INFO);
        let written = match current {
            None => {
                self.create(signed_data(&json!({}), &kubeconfig, &tokens))
                    .await
            }
            Some(object) => {
                let mut value = object.value()?;
                let data = signed_data(&value["data"], &kubeconfig, &tokens);
                match value["data"] == data {
                    true => Ok(()),
                    false => {
                        value["data"] = data;
                        self.update(&object, value).await
                    }
                }
            }
        };
        match written {
            // The event of the other write, or of the deletion, comes.
            Err(e) if !e.is_not_found() && !e.is_conflict() && !e.is_already_exists() => Err(e),
            _ => Ok(next_expiration(&tokens, now)),
        }
    }

    async fn create(&self, data: Value) -> Result<(), Error> {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": CLUSTER_INFO, "namespace": CLUSTER_INFO_NAMESPACE}});
        let at = ResourcePath::collection(&CONFIG_MAPS, CLUSTER_INFO_NAMESPACE);
        let options = WriteOptions::default();
        self.api.create(at, body.into(), &options).await.map(drop)
    }

    async fn update(&self, object: &Object, value: Value) -> Result<(), Error> {
        let at = ResourcePath::of_object(&CONFIG_MAPS, object);
        let options = WriteOptions::default();
        self.api.update(at, value.into(), &options).await.map(drop)
    }
}

/// The kubeconfig with the address and the authority, and without a user.
fn cluster_kubeconfig(server_url: &str, root_ca: &str) -> String {
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {server_url}\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {{}}\nusers: null\n",
        STANDARD.encode(root_ca)
    )
}

/// The token of a Secret if it may sign.
fn signing_token(secret: &Object, now: Timestamp) -> Result<Option<StoredBootstrapToken>, Error> {
    if secret.meta().deleting {
        return Ok(None);
    }
    Ok(StoredBootstrapToken::from_secret(&secret.value()?)
        .ok()
        .filter(|stored| stored.has_usage("signing") && !stored.is_expired(now)))
}

/// The data of the ConfigMap: what others have added stays, besides signatures of tokens that
/// are gone.
fn signed_data(current: &Value, kubeconfig: &str, tokens: &[StoredBootstrapToken]) -> Value {
    let others = current.as_object().into_iter().flatten();
    let others = others.filter(|(key, _)| !key.starts_with(SIGNATURE_KEY_PREFIX));
    let mut data: BTreeMap<String, Value> = others.map(|(k, v)| (k.clone(), v.clone())).collect();
    data.insert(KUBECONFIG_KEY.to_owned(), kubeconfig.into());
    for stored in tokens {
        let key = format!("{SIGNATURE_KEY_PREFIX}{}", stored.token.id);
        data.insert(key, stored.token.sign(kubeconfig).into());
    }
    json!(data)
}

/// When the next signature has to go.
fn next_expiration(tokens: &[StoredBootstrapToken], now: Timestamp) -> ReconcileAction {
    let expirations = tokens
        .iter()
        .filter_map(|t| time::parse(&t.expiration).ok());
    match expirations.min() {
        Some(at) => ReconcileAction::RequeueAfter(at.duration_since(now).unsigned_abs()),
        None => ReconcileAction::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::bootstrap_token::BootstrapToken;

    fn stored(id: &str, expiration: &str, usage: &str) -> StoredBootstrapToken {
        StoredBootstrapToken {
            token: BootstrapToken::parse(&format!("{id}.0123456789abcdef")).unwrap(),
            description: String::new(),
            expiration: expiration.into(),
            usages: vec![usage.into()],
            groups: Vec::new(),
        }
    }

    #[test]
    fn only_tokens_that_may_sign_do() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        for (expiration, usage, signs) in [
            ("", "signing", true),
            ("2026-01-01T00:00:01Z", "signing", true),
            ("2026-01-01T00:00:00Z", "signing", false),
            ("", "authentication", false),
        ] {
            let secret = stored("abcdef", expiration, usage).to_secret();
            let secret = Object::from_value(&secret).unwrap();
            let token = signing_token(&secret, now).unwrap();
            assert_eq!(token.is_some(), signs, "{expiration} {usage}");
        }
    }

    #[test]
    fn signatures_of_gone_tokens_go_and_other_keys_stay() {
        let current = json!({"kubeconfig": "old", "jws-kubeconfig-aaaaaa": "x", "note": "y"});
        let token = stored("abcdef", "", "signing");
        let data = signed_data(&current, "new", std::slice::from_ref(&token));
        let expected = json!({"kubeconfig": "new", "note": "y",
            "jws-kubeconfig-abcdef": token.token.sign("new")});
        assert_eq!(data, expected);
    }
}
