//! The controller of service account token Secrets: fills them with a token, the
//! certificate authority and the namespace, and deletes them with their account
//! (Kubernetes' `tokens_controller.go`).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, At, DeleteOptions, Error, WriteOptions};
use machinery::{Gvr, Object};
use flotilla_runtime::{Action, Informer, Informers, Queue, Select, Tasks, run_workers};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::start::{requeue_on_change, synced};

static ACCOUNTS: Gvr = Gvr::constant("", "v1", "serviceaccounts");
static SECRETS: Gvr = Gvr::constant("", "v1", "secrets");
const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

/// Issues a token for (namespace, account, account uid, secret). An error is logged and
/// the call retried.
pub type Issue = Arc<dyn Fn(&str, &str, &str, &str) -> Result<String, String> + Send + Sync>;

struct Tokens {
    api: Arc<dyn Api>,
    accounts: Informer,
    secrets: Informer,
    root_ca: watch::Receiver<String>,
    issue: Issue,
}

/// What to do about a token Secret.
#[derive(Debug, PartialEq)]
enum Verdict {
    Leave,
    Delete,
    Fill(Value),
}

pub(crate) fn start(
    api: Arc<dyn Api>,
    root_ca: watch::Receiver<String>,
    issue: Issue,
    informers: &Informers,
    tasks: &Tasks,
) {
    let accounts = informers.get(&api, &Select::all(&ACCOUNTS));
    let secrets = informers.get(&api, &Select::all(&SECRETS).fields(format!("type={TYPE}")));
    let it = Arc::new(Tokens {
        api,
        accounts,
        secrets,
        root_ca: root_ca.clone(),
        issue,
    });
    let queue: Queue<String> = Queue::new();
    let wake = queue.clone();
    it.secrets.on_change(move |change| {
        if change.new.is_some() {
            wake.add_lane(change.key(), change.initial);
        }
    });
    let (wake, of) = (queue.clone(), Arc::downgrade(&it));
    it.accounts.on_change(move |change| {
        let Some(it) = of.upgrade() else { return };
        for secret in it.secrets.list_namespace(change.object().namespace()) {
            wake.add_lane(secret.head().key(), change.initial);
        }
    });
    let secrets = it.secrets.clone();
    let all = move || secrets.list().iter().map(|s| s.head().key()).collect();
    requeue_on_change(root_ca, &queue, all, tasks);
    let workers = tasks.clone();
    tasks.spawn(async move {
        if !synced(&workers, [&it.accounts, &it.secrets]).await {
            return;
        }
        run_workers(&workers, "tokens", &queue, 1, move |key: String| {
            let it = Arc::clone(&it);
            async move { it.reconcile(&key).await }
        });
    });
}

impl Tokens {
    async fn reconcile(&self, key: &str) -> Result<Action, Error> {
        let Some(secret) = self.secrets.get_key(key) else {
            return Ok(Action::Done);
        };
        let value = secret.value()?;
        let name = value["metadata"]["annotations"][NAME]
            .as_str()
            .unwrap_or("")
            .to_owned();
        let account = self.accounts.get(secret.namespace(), &name);
        let at = At::of(&SECRETS, &secret);
        let root_ca = self.root_ca.borrow().clone();
        let done = match judge(value, account.as_ref(), &root_ca, &self.issue) {
            Ok(Verdict::Leave) => return Ok(Action::Done),
            Ok(Verdict::Delete) => {
                let options = DeleteOptions {
                    uid: Some(secret.uid().to_owned()),
                    ..DeleteOptions::default()
                };
                self.api.delete(at, &options).await.map(drop)
            }
            Ok(Verdict::Fill(value)) => self
                .api
                .update(at, value, &WriteOptions::default())
                .await
                .map(drop),
            Err(why) => return Err(Error::Protocol(why)),
        };
        match done {
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
            _ => Ok(Action::Done),
        }
    }
}

fn judge(
    mut secret: Value,
    account: Option<&Object>,
    root_ca: &str,
    issue: &Issue,
) -> Result<Verdict, String> {
    let metadata = &secret["metadata"];
    let known_uid = metadata["annotations"][UID]
        .as_str()
        .unwrap_or("")
        .to_owned();
    let Some(account) = account else {
        // A Secret may be created before its account; a filled one must not outlive it.
        return Ok(if known_uid.is_empty() {
            Verdict::Leave
        } else {
            Verdict::Delete
        });
    };
    if !known_uid.is_empty() && known_uid != account.uid() {
        return Ok(Verdict::Delete);
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
        return Ok(Verdict::Leave);
    }
    secret["data"] = data;
    secret["metadata"]["annotations"][UID] = json!(account.uid());
    Ok(Verdict::Fill(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(uid: &str) -> Value {
        let mut secret =
            json!({"metadata": {"name": "t", "namespace": "n", "annotations": {NAME: "a"}}});
        if !uid.is_empty() {
            secret["metadata"]["annotations"][UID] = uid.into();
        }
        secret
    }

    fn check(secret: Value, account: Option<&str>, expected: impl Fn(&Verdict) -> bool) {
        let account = account.map(|uid| {
            Object::from_value(&json!({"metadata": {"name": "a", "namespace": "n", "uid": uid}}))
                .unwrap()
        });
        let issue: Issue =
            Arc::new(|ns, name, uid, secret| Ok(format!("{ns}/{name}/{uid}/{secret}")));
        let verdict = judge(secret, account.as_ref(), "CA", &issue).unwrap();
        assert!(expected(&verdict), "{verdict:?}");
    }

    #[test]
    fn a_secret_is_filled_once_and_follows_its_account() {
        check(secret(""), None, |v| *v == Verdict::Leave);
        check(secret("1"), None, |v| *v == Verdict::Delete);
        check(secret("1"), Some("2"), |v| *v == Verdict::Delete);
        check(secret(""), Some("1"), |v| {
            matches!(v, Verdict::Fill(s)
            if s["data"]["token"] == STANDARD.encode("n/a/1/t") && s["metadata"]["annotations"][UID] == "1")
        });
        let issue: Issue = Arc::new(|_, _, _, _| Ok("x".into()));
        let account =
            Object::from_value(&json!({"metadata": {"name": "a", "namespace": "n", "uid": "1"}}))
                .unwrap();
        let Verdict::Fill(filled) = judge(secret(""), Some(&account), "CA", &issue).unwrap() else {
            panic!()
        };
        check(filled, Some("1"), |v| *v != Verdict::Delete);
    }
}
