//! Our serving certificate, kept in a Secret of the host that all replicas share.
//!
//! Enters: the Secret. Leaves: the certificate that the listener shows, the bundle
//! that the host is to trust, and writes of the Secret when something has to be
//! renewed. A write is bound to what was read, so that of several replicas one
//! decides.

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
/// How often is looked whether something is due.
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

/// The certificate in use. Clones are the same.
#[derive(Clone)]
pub(super) struct Serving(Arc<Shared>);

/// The names by which the host, a pod and a person on this machine reach us.
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
    /// Reads the Secret, made when it is not there. Waits for the host.
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

    /// What the host is to trust.
    pub(super) fn bundle(&self) -> watch::Receiver<String> {
        self.0.bundle.subscribe()
    }

    /// Follows the Secret, and renews what is due.
    pub(super) fn keep(&self, informers: &Informers, tasks: &Tasks) {
        let select = Select::all(&SECRETS)
            .namespace(&self.0.namespace)
            .fields(format!("metadata.name={}", self.0.name));
        let informer = informers.get(&self.0.host, &select);
        let changed = Arc::new(tokio::sync::Notify::new());
        let (shared, wake) = (Arc::clone(&self.0), Arc::clone(&changed));
        informer.on_change(move |change| match change.new {
            Some(secret) => shared.take(secret),
            // It is made again, and trust in the old one kept for a while.
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
    /// Shows what stands in the Secret from now on; what cannot be used is left for
    /// [`Self::renew`].
    fn take(&self, secret: &Object) {
        let usable = parse(secret).and_then(|kept| {
            let due = Rolling::next(Some(&kept), &self.names, self.clock.now());
            // A certificate that is merely old serves until it is renewed.
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
        let settled = settle(
            &*self.host,
            &self.namespace,
            &self.name,
            &self.names,
            &*self.clock,
        );
        match settled.await {
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

/// Brings the Secret to where nothing is due, and gives what stands in it then.
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
            return kept.context("nothing is kept and nothing is due");
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
            // Another replica was faster.
            Err(e)
                if e.is_conflict()
                    || e.is_already_exists()
                    || e.is_not_found() && found.is_some() => {}
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::bail!("others change it all the time")
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
        assert_eq!(*again.bundle().borrow(), bundle, "a restart makes nothing");
    }

    #[tokio::test]
    async fn a_secret_that_is_deleted_or_broken_is_made_again() {
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
