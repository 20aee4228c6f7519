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
use auth::cert_rotation::RotatingCertificates;
use auth::tls::ReloadableCertificate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, InformerFactory, ListWatchSelector, ResourcePath, TaskGroup, WriteOptions};
use machinery::time::Clock;
use machinery::{FailureLog, Gvr, Object};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::api_services::labels;
use super::{HostService, retry_until_answered};

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
/// The interval at which the certificate is checked for renewal.
const CHECK_PERIOD: Duration = Duration::from_secs(60);
const MAX_ATTEMPTS: usize = 10;

struct ServingCertificateState {
    host: Arc<dyn Api>,
    namespace: String,
    name: String,
    names: BTreeSet<String>,
    clock: Arc<dyn Clock>,
    certificate: Arc<ReloadableCertificate>,
    bundle: watch::Sender<String>,
    failures: FailureLog,
}

/// The certificate in use. Clones share it.
#[derive(Clone)]
pub(super) struct ServingCertificateSecret(Arc<ServingCertificateState>);

/// The DNS names and addresses by which the host, pods and local clients reach the server.
fn certificate_names(service: &HostService) -> BTreeSet<String> {
    let HostService {
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
struct ServingSecretData {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

fn parse(secret: &Object) -> Option<RotatingCertificates> {
    let ServingSecretData { data } = serde_json::from_slice(secret.bytes()).ok()?;
    let data = data.unwrap_or_default();
    let read = |key: &str| {
        let raw = data.get(key).and_then(|text| STANDARD.decode(text).ok());
        raw.and_then(|raw| String::from_utf8(raw).ok())
            .unwrap_or_default()
    };
    Some(RotatingCertificates {
        ca_bundle: read("ca.crt"),
        ca_key: read("ca.key"),
        certificate: read("tls.crt"),
        key: read("tls.key"),
    })
}

fn encode(kept: &RotatingCertificates) -> Value {
    json!({
        "ca.crt": STANDARD.encode(&kept.ca_bundle),
        "ca.key": STANDARD.encode(&kept.ca_key),
        "tls.crt": STANDARD.encode(&kept.certificate),
        "tls.key": STANDARD.encode(&kept.key),
    })
}

impl ServingCertificateSecret {
    /// Reads the Secret, or creates it. Waits for the host.
    pub(super) async fn open(
        host: &Arc<dyn Api>,
        service: &HostService,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let secret = format!("{}-serving-cert", service.name);
        let names = certificate_names(service);
        let kept = ensure_secret(&**host, &service.namespace, &secret, &names, &**clock)
            .await
            .with_context(|| {
                format!(
                    "the serving certificate in Secret {}/{secret} of the host",
                    service.namespace
                )
            })?;
        let (chain, key) = kept.serving_der()?;
        Ok(Self(Arc::new(ServingCertificateState {
            host: Arc::clone(host),
            namespace: service.namespace.clone(),
            name: secret,
            names,
            clock: Arc::clone(clock),
            certificate: ReloadableCertificate::new(chain, key)?,
            bundle: watch::Sender::new(kept.ca_bundle),
            failures: FailureLog::new(),
        })))
    }

    pub(super) fn certificate(&self) -> &Arc<ReloadableCertificate> {
        &self.0.certificate
    }

    /// The CA bundle for the APIServices.
    pub(super) fn bundle(&self) -> watch::Receiver<String> {
        self.0.bundle.subscribe()
    }

    /// Watches the Secret and renews it when a certificate is due, until the tasks stop.
    pub(super) fn run(&self, informers: &InformerFactory, tasks: &TaskGroup) {
        let select = ListWatchSelector::all(&SECRETS)
            .namespace(&self.0.namespace)
            .fields(format!("metadata.name={}", self.0.name));
        let informer = informers.get(&self.0.host, &select);
        let changed = Arc::new(tokio::sync::Notify::new());
        let (shared, wake) = (Arc::clone(&self.0), Arc::clone(&changed));
        informer.add_event_handler(move |change| match change.new {
            Some(secret) => shared.apply_secret(secret),
            // It is created again, and the old CA stays trusted for a while.
            None => wake.notify_one(),
        });
        let (shared, stop) = (Arc::clone(&self.0), tasks.shutdown().clone());
        tasks.spawn(async move {
            loop {
                let next = async {
                    tokio::select! {
                        () = changed.notified() => {}
                        () = tokio::time::sleep(CHECK_PERIOD) => {}
                    }
                    shared.renew().await;
                };
                if stop.run_until_triggered(next).await.is_none() {
                    return;
                }
            }
        });
    }
}

impl ServingCertificateState {
    /// Uses the certificate of the Secret. One that cannot be used is replaced by
    /// [`Self::renew`].
    fn apply_secret(&self, secret: &Object) {
        let usable = parse(secret).and_then(|kept| {
            let due = RotatingCertificates::rotate(Some(&kept), &self.names, self.clock.now());
            // A certificate that is due for renewal is used until it is renewed.
            let (chain, key) = kept.serving_der().ok()?;
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
            let differs = *bundle != kept.ca_bundle;
            *bundle = kept.ca_bundle;
            differs
        });
    }

    fn log_unusable(&self, why: &str) {
        if self.failures.record_failure("take", why) {
            tracing::warn!(why, "the Secret of the serving certificate cannot be used");
        }
    }

    async fn renew(&self) {
        let ensured = ensure_secret(
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
async fn ensure_secret(
    host: &dyn Api,
    namespace: &str,
    name: &str,
    names: &BTreeSet<String>,
    clock: &dyn Clock,
) -> anyhow::Result<RotatingCertificates> {
    for _ in 0..MAX_ATTEMPTS {
        let at = ResourcePath::object(&SECRETS, namespace, name);
        let found = match retry_until_answered("serving certificate", || host.get(at)).await {
            Ok(found) => Some(found),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let kept = found.as_ref().and_then(parse);
        let Some(next) = RotatingCertificates::rotate(kept.as_ref(), names, clock.now())? else {
            return kept.context("the Secret has no certificate and none is due");
        };
        let options = WriteOptions::default();
        let written = match &found {
            None => {
                let body = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
                    "metadata": {"name": name, "namespace": namespace, "labels": labels()},
                    "data": encode(&next)});
                let all = ResourcePath::collection(&SECRETS, namespace);
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

    fn service() -> HostService {
        HostService {
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
        let opens = (0..5).map(|_| ServingCertificateSecret::open(&host, &service, &clock));
        let all: Vec<ServingCertificateSecret> =
            futures_util::future::try_join_all(opens).await.unwrap();
        let bundle = all[0].bundle().borrow().clone();
        assert!(all.iter().all(|s| *s.bundle().borrow() == bundle));
        assert_eq!(fake.list_objects(&SECRETS).len(), 1);
        let again = ServingCertificateSecret::open(&host, &service, &clock)
            .await
            .unwrap();
        assert_eq!(*again.bundle().borrow(), bundle, "a restart writes nothing");
    }

    #[tokio::test]
    async fn a_deleted_or_broken_secret_is_created_again() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let serving = ServingCertificateSecret::open(&host, &service(), &clock)
            .await
            .unwrap();
        let tasks = TaskGroup::new(client::ShutdownToken::new());
        let informers = InformerFactory::new(&tasks);
        serving.run(&informers, &tasks);
        informers.wait_for_cache_sync().await;
        let mut bundle = serving.bundle();
        let first = bundle.borrow_and_update().clone();
        fake.remove(&SECRETS, "flotilla-system", "flotilla-serving-cert");
        bundle.changed().await.unwrap();
        let second = bundle.borrow_and_update().clone();
        assert_ne!(first, second);
        let kept = fake.list_objects(&SECRETS).remove(0);
        let text = kept["data"]["ca.crt"].as_str().unwrap();
        assert_eq!(STANDARD.decode(text).unwrap(), second.as_bytes());
        tasks.stop().await;
    }
}
