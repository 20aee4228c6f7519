//! The serving certificate of an aggregated server, stored in a Secret of the host that
//! all replicas share.
//!
//! The listener uses the certificate of the Secret, and the APIServices get its CA bundle.
//! A replica renews the Secret when a certificate is due. Writes carry the
//! resourceVersion that was read, so that only one of several replicas succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use auth::rolling::Rolling;
use auth::tls::Certificate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, At, Informers, Select, Tasks, WriteOptions};
use machinery::time::Clock;
use machinery::{FailureLog, Gvr, Object};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::registration::labels;
use super::{Service, patiently};

static SECRETS: Gvr = Gvr::constant("", "v1", "secrets");
/// The interval at which the certificate is checked for renewal.
const LOOK: Duration = Duration::from_secs(60);
const TRIES: usize = 10;

struct Shared {
    host: Arc<dyn Api>,
    namespace: String,
    name: String,
    names: BTreeSet<String>,
    clock: Arc<dyn Clock>,
    certificate: Arc<Certificate>,
    bundle: watch::Sender<String>,
    failures: FailureLog,
}

/// The certificate in use. Clones share it.
#[derive(Clone)]
pub(super) struct Serving(Arc<Shared>);

/// The DNS names and addresses by which the host, pods and local clients reach the server.
fn names(service: &Service) -> BTreeSet<String> {
    let Service {
        namespace, name, ..
    } = service;
    BTreeSet::from([
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.cluster.local"),
        format!("{name}.{namespace}"),
        name.clone(),
        "localhost".into(),
        "127.0.0.1".into(),
        "::1".into(),
    ])
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

fn parse(secret: &Object) -> Option<Rolling> {
    let Data { data } = serde_json::from_slice(secret.bytes()).ok()?;
    let data = data.unwrap_or_default();
    let read = |key: &str| {
        let raw = data.get(key).and_then(|text| STANDARD.decode(text).ok());
        raw.and_then(|raw| String::from_utf8(raw).ok())
            .unwrap_or_default()
    };
    Some(Rolling {
        bundle: read("ca.crt"),
        authority_key: read("ca.key"),
        certificate: read("tls.crt"),
        key: read("tls.key"),
    })
}

fn encode(kept: &Rolling) -> Value {
    json!({
        "ca.crt": STANDARD.encode(&kept.bundle),
        "ca.key": STANDARD.encode(&kept.authority_key),
        "tls.crt": STANDARD.encode(&kept.certificate),
        "tls.key": STANDARD.encode(&kept.key),
    })
}

impl Serving {
    /// Reads the Secret, or creates it. Waits for the host.
    pub(super) async fn open(
        host: &Arc<dyn Api>,
        service: &Service,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let secret = format!("{}-serving-cert", service.name);
        let names = names(service);
        let kept = settle(&**host, &service.namespace, &secret, &names, &**clock)
            .await
            .with_context(|| {
                format!(
                    "the serving certificate in Secret {}/{secret} of the host",
                    service.namespace
                )
            })?;
        let (chain, key) = kept.der()?;
        Ok(Self(Arc::new(Shared {
            host: Arc::clone(host),
            namespace: service.namespace.clone(),
            name: secret,
            names,
            clock: Arc::clone(clock),
            certificate: Certificate::new(chain, key)?,
            bundle: watch::Sender::new(kept.bundle),
            failures: FailureLog::new(),
        })))
    }

    pub(super) fn certificate(&self) -> &Arc<Certificate> {
        &self.0.certificate
    }

    /// The CA bundle for the APIServices.
    pub(super) fn bundle(&self) -> watch::Receiver<String> {
        self.0.bundle.subscribe()
    }

    /// Watches the Secret and renews it when a certificate is due, until the tasks stop.
    pub(super) fn keep(&self, informers: &Informers, tasks: &Tasks) {
        let select = Select::all(&SECRETS)
            .namespace(&self.0.namespace)
            .fields(format!("metadata.name={}", self.0.name));
        let informer = informers.get(&self.0.host, &select);
        let changed = Arc::new(tokio::sync::Notify::new());
        let (shared, wake) = (Arc::clone(&self.0), Arc::clone(&changed));
        informer.on_change(move |change| match change.new {
            Some(secret) => shared.take(secret),
            // It is created again, and the old CA stays trusted for a while.
            None => wake.notify_one(),
        });
        let (shared, stop) = (Arc::clone(&self.0), tasks.shutdown().clone());
        tasks.spawn(async move {
            loop {
                let next = async {
                    tokio::select! {
                        () = changed.notified() => {}
                        () = tokio::time::sleep(LOOK) => {}
                    }
                    shared.renew().await;
                };
                if stop.unless(next).await.is_none() {
                    return;
                }
            }
        });
    }
}

impl Shared {
    /// Uses the certificate of the Secret. One that cannot be used is replaced by
    /// [`Self::renew`].
    fn take(&self, secret: &Object) {
        let usable = parse(secret).and_then(|kept| {
            let due = Rolling::next(Some(&kept), &self.names, self.clock.now());
            // A certificate that is due for renewal is used until it is renewed.
            let (chain, key) = kept.der().ok()?;
            due.ok()?;
            Some((kept, chain, key))
        });
        let Some((kept, chain, key)) = usable else {
            self.log_unusable("its keys are missing or malformed");
            return;
        };
        if let Err(error) = self.certificate.replace(chain, key) {
            self.log_unusable(&error.to_string());
            return;
        }
        self.failures.record_success("take");
        self.bundle.send_if_modified(|bundle| {
            let differs = *bundle != kept.bundle;
            *bundle = kept.bundle;
            differs
        });
    }

    fn log_unusable(&self, why: &str) {
        if self.failures.record_failure("take", why) {
            tracing::warn!(why, "the Secret of the serving certificate cannot be used");
        }
    }

    async fn renew(&self) {
        let ensured = settle(
            &*self.host,
            &self.namespace,
            &self.name,
            &self.names,
            &*self.clock,
        );
        match ensured.await {
            Ok(_) => {
                if self.failures.record_success("renew") {
                    tracing::info!("the serving certificate can be renewed again");
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                if self.failures.record_failure("renew", &error) {
                    tracing::warn!(error, "cannot renew the serving certificate");
                }
            }
        }
    }
}

/// Creates or renews the Secret until nothing is due, and returns its content.
async fn settle(
    host: &dyn Api,
    namespace: &str,
    name: &str,
    names: &BTreeSet<String>,
    clock: &dyn Clock,
) -> anyhow::Result<Rolling> {
    for _ in 0..TRIES {
        let at = At::one(&SECRETS, namespace, name);
        let found = match patiently("serving certificate", || host.get(at)).await {
            Ok(found) => Some(found),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let kept = found.as_ref().and_then(parse);
        let Some(next) = Rolling::next(kept.as_ref(), names, clock.now())? else {
            return kept.context("the Secret has no certificate and none is due");
        };
        let options = WriteOptions::default();
        let written = match &found {
            None => {
                let body = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                    "metadata": {"name": name, "namespace": namespace, "labels": labels()},
                    "data": encode(&next)});
                let all = At::all(&SECRETS, namespace);
                host.create(all, body, &options).await
            }
            Some(found) => {
                let mut body = found.value()?;
                body["data"] = encode(&next);
                host.update(at, body, &options).await
            }
        };
        match written {
            Ok(_) => return Ok(next),
            // Another replica has written it.
            Err(e)
                if e.is_conflict()
                    || e.is_already_exists()
                    || e.is_not_found() && found.is_some() => {}
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("it was changed by others at every attempt")
}

#[cfg(test)]
mod tests {
    use client::fake::FakeApi;
    use machinery::time::SystemClock;

    use super::*;

    fn service() -> Service {
        Service {
            namespace: "flotilla-system".into(),
            name: "flotilla".into(),
            port: 443,
        }
    }

    #[tokio::test]
    async fn replicas_agree_on_one_certificate() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let service = service();
        let opens = (0..5).map(|_| Serving::open(&host, &service, &clock));
        let all: Vec<Serving> = futures_util::future::try_join_all(opens).await.unwrap();
        let bundle = all[0].bundle().borrow().clone();
        assert!(all.iter().all(|s| *s.bundle().borrow() == bundle));
        assert_eq!(fake.objects(&SECRETS).len(), 1);
        let again = Serving::open(&host, &service, &clock).await.unwrap();
        assert_eq!(*again.bundle().borrow(), bundle, "a restart writes nothing");
    }

    #[tokio::test]
    async fn a_deleted_or_broken_secret_is_created_again() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let serving = Serving::open(&host, &service(), &clock).await.unwrap();
        let tasks = Tasks::new(client::Shutdown::new());
        let informers = Informers::new(&tasks);
        serving.keep(&informers, &tasks);
        informers.wait_synced().await;
        let mut bundle = serving.bundle();
        let first = bundle.borrow_and_update().clone();
        fake.remove(&SECRETS, "flotilla-system", "flotilla-serving-cert");
        bundle.changed().await.unwrap();
        let second = bundle.borrow_and_update().clone();
        assert_ne!(first, second);
        let kept = fake.objects(&SECRETS).remove(0);
        let text = kept["data"]["ca.crt"].as_str().unwrap();
        assert_eq!(STANDARD.decode(text).unwrap(), second.as_bytes());
        tasks.stop().await;
    }
}
