//! The controller of service account token Secrets: fills them with a token, the
//! certificate authority and the namespace, and deletes them with their account
//! (Kubernetes' `tokens_controller.go`).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, DeleteOptions, Error, Informer, ListWatchSelector, ResourcePath, WriteOptions};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use machinery::{Gvr, Object};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::shutdown_waits::{requeue_on_change, wait_for_cache_sync};

static ACCOUNTS: Gvr = Gvr::from_static("", "v1", "serviceaccounts");
static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
const TOKEN_SECRET_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME_ANNOTATION: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID_ANNOTATION: &str = "kubernetes.io/service-account.uid";

/// Issues a token for (namespace, account, account uid, secret). An error is logged and
/// the call retried.
pub type TokenIssuer = Arc<dyn Fn(&str, &str, &str, &str) -> Result<String, String> + Send + Sync>;

struct ServiceAccountTokenController {
    api: Arc<dyn Api>,
    accounts: Informer,
    secrets: Informer,
    root_ca: watch::Receiver<String>,
    issue_token: TokenIssuer,
}

/// The action for a token Secret.
#[derive(Debug, PartialEq)]
enum TokenSecretAction {
    Keep,
    Delete,
    Fill(Value),
}

/// The options of the controller, beside its context.
pub(crate) struct ServiceAccountTokenOptions {
    /// PEM of the authorities that sign the serving certificate; it may change.
    pub(crate) root_ca: watch::Receiver<String>,
    pub(crate) issue_token: TokenIssuer,
}

pub(crate) fn start(context: &ControllerContext, options: ServiceAccountTokenOptions) {
    let accounts = context.informer(&ACCOUNTS);
    let secrets = context
        .select(&ListWatchSelector::all(&SECRETS).fields(format!("type={TOKEN_SECRET_TYPE}")));
    let controller = Arc::new(ServiceAccountTokenController {
        api: Arc::clone(&context.control_plane),
        accounts,
        secrets,
        root_ca: options.root_ca.clone(),
        issue_token: options.issue_token,
    });
    let queue: Workqueue<String> = Workqueue::new();
    let wake = queue.clone();
    controller.secrets.add_event_handler(move |change| {
        if change.new.is_some() {
            wake.add_event(change.key(), change);
        }
    });
    let (wake, of) = (queue.clone(), Arc::downgrade(&controller));
    controller.accounts.add_event_handler(move |change| {
        let Some(controller) = of.upgrade() else {
            return;
        };
        for secret in controller
            .secrets
            .list_namespace(change.object().namespace())
        {
            wake.add_event(secret.meta().key(), change);
        }
    });
    let secrets = controller.secrets.clone();
    let all = move || secrets.list().iter().map(|s| s.meta().key()).collect();
    requeue_on_change(options.root_ca, &queue, all, &context.tasks);
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.accounts, &controller.secrets]).await {
            return;
        }
        run_workers(&workers, "tokens", &queue, 1, move |key: String| {
            let controller = Arc::clone(&controller);
            async move { controller.reconcile(&key).await }
        });
    });
}

impl ServiceAccountTokenController {
    async fn reconcile(&self, key: &str) -> Result<ReconcileAction, Error> {
        let Some(secret) = self.secrets.get_by_key(key) else {
            return Ok(ReconcileAction::Done);
        };
        let value = secret.value()?;
        let name = value["metadata"]["annotations"][ACCOUNT_NAME_ANNOTATION]
            .as_str()
            .unwrap_or("")
            .to_owned();
        let account = self.accounts.get(secret.namespace(), &name);
        let at = ResourcePath::of_object(&SECRETS, &secret);
        let root_ca = self.root_ca.borrow().clone();
        let done = match token_secret_action(value, account.as_ref(), &root_ca, &self.issue_token) {
            Ok(TokenSecretAction::Keep) => return Ok(ReconcileAction::Done),
            Ok(TokenSecretAction::Delete) => {
                let options = DeleteOptions {
                    uid: Some(secret.uid().to_owned()),
                    ..DeleteOptions::default()
                };
                self.api.delete(at, &options).await.map(drop)
            }
            Ok(TokenSecretAction::Fill(value)) => self
                .api
                .update(at, value.into(), &WriteOptions::default())
                .await
                .map(drop),
            Err(reason) => return Err(Error::Protocol(reason)),
        };
        match done {
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
            _ => Ok(ReconcileAction::Done),
        }
    }
}

fn token_secret_action(
    mut secret: Value,
    account: Option<&Object>,
    root_ca: &str,
    issue: &TokenIssuer,
) -> Result<TokenSecretAction, String> {
    let metadata = &secret["metadata"];
    let known_uid = metadata["annotations"][ACCOUNT_UID_ANNOTATION]
        .as_str()
        .unwrap_or("")
        .to_owned();
    let Some(account) = account else {
        // A Secret may be created before its account; a filled one must not outlive it.
        return Ok(if known_uid.is_empty() {
            TokenSecretAction::Keep
        } else {
            TokenSecretAction::Delete
        });
    };
    if !known_uid.is_empty() && known_uid != account.uid() {
        return Ok(TokenSecretAction::Delete);
    }
    let namespace = account.namespace();
    let name = metadata["name"].as_str().unwrap_or("").to_owned();
    let mut data = secret["data"].as_object().cloned().unwrap_or_default();
    data.insert("ca.crt".into(), STANDARD.encode(root_ca).into());
    data.insert("namespace".into(), STANDARD.encode(namespace).into());
    if data
        .get("token")
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        let token = issue(namespace, account.name(), account.uid(), &name)?;
        data.insert("token".into(), STANDARD.encode(token).into());
    }
    let data = Value::Object(data);
    if known_uid == account.uid() && secret["data"] == data {
        return Ok(TokenSecretAction::Keep);
    }
    secret["data"] = data;
    secret["metadata"]["annotations"][ACCOUNT_UID_ANNOTATION] = json!(account.uid());
    Ok(TokenSecretAction::Fill(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(uid: &str) -> Value {
        let mut secret = json!({"metadata": {"name": "t", "namespace": "n", "annotations": {ACCOUNT_NAME_ANNOTATION: "a"}}});
        if !uid.is_empty() {
            secret["metadata"]["annotations"][ACCOUNT_UID_ANNOTATION] = uid.into();
        }
        secret
    }

    fn check(secret: Value, account: Option<&str>, expected: impl Fn(&TokenSecretAction) -> bool) {
        let account = account.map(|uid| {
            Object::from_value(&json!({"metadata": {"name": "a", "namespace": "n", "uid": uid}}))
                .unwrap()
        });
        let issue: TokenIssuer =
            Arc::new(|ns, name, uid, secret| Ok(format!("{ns}/{name}/{uid}/{secret}")));
        let verdict = token_secret_action(secret, account.as_ref(), "CA", &issue).unwrap();
        assert!(expected(&verdict), "{verdict:?}");
    }

    #[test]
    fn a_secret_is_filled_once_and_follows_its_account() {
        check(secret(""), None, |v| *v == TokenSecretAction::Keep);
        check(secret("1"), None, |v| *v == TokenSecretAction::Delete);
        check(secret("1"), Some("2"), |v| *v == TokenSecretAction::Delete);
        check(secret(""), Some("1"), |v| {
            matches!(v, TokenSecretAction::Fill(s)
            if s["data"]["token"] == STANDARD.encode("n/a/1/t") && s["metadata"]["annotations"][ACCOUNT_UID_ANNOTATION] == "1")
        });
        let issue: TokenIssuer = Arc::new(|_, _, _, _| Ok("x".into()));
        let account =
            Object::from_value(&json!({"metadata": {"name": "a", "namespace": "n", "uid": "1"}}))
                .unwrap();
        let TokenSecretAction::Fill(filled) =
            token_secret_action(secret(""), Some(&account), "CA", &issue).unwrap()
        else {
            panic!()
        };
        check(filled, Some("1"), |v| *v != TokenSecretAction::Delete);
    }
}
