//! The serving certificate of an aggregated server, stored in a Secret of the host that
//! all replicas share.
//!
//! The listener uses the certificate of the Secret, and the APIServices get its CA bundle.
//! A replica renews the Secret when a certificate is due.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use auth::cert_rotation::StoredServingCertificate;
use auth::tls::ReplaceableServingCertificate;
use client::{Api, InformerFactory, ListWatchSelector, TaskGroup};
use machinery::time::Clock;
use machinery::{FailureLogLimiter, Object};
use server_certificates::{CHECK_PERIOD, CertificateUse, report_certificate, run_renewal_loop};
use tokio::sync::{Notify, watch};

use super::host_objects::ApiServiceTarget;
use super::host_secret::{HostSecretClient, SECRETS, SecretDataCodec, decode_secret};

const DESCRIPTION: &str = "the serving certificate";

struct ServingCertificateSecretManagerInner {
    secret: HostSecretClient,
    names: BTreeSet<String>,
    clock: Arc<dyn Clock>,
    certificate: Arc<ReplaceableServingCertificate>,
    bundle: watch::Sender<String>,
    failures: FailureLogLimiter,
}

/// The certificate in use. Clones share it.
#[derive(Clone)]
pub struct ServingCertificateSecretManager(Arc<ServingCertificateSecretManagerInner>);

/// The DNS names and addresses by which the host, pods and local clients reach the server.
fn certificate_names(service: &ApiServiceTarget) -> BTreeSet<String> {
    let ApiServiceTarget {
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

impl SecretDataCodec for StoredServingCertificate {
    const TYPE: &'static str = "kubernetes.io/tls";

    fn decode(get: impl Fn(&str) -> String) -> Self {
        Self {
            ca_bundle: get("ca.crt"),
            ca_key: get("ca.key"),
            certificate: get("tls.crt"),
            key: get("tls.key"),
        }
    }

    fn encode(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("ca.crt", &self.ca_bundle),
            ("ca.key", &self.ca_key),
            ("tls.crt", &self.certificate),
            ("tls.key", &self.key),
        ]
    }
}

impl ServingCertificateSecretManager {
    /// Reads the Secret, or creates it. Waits for the host.
    pub async fn open(
        host: &Arc<dyn Api>,
        service: &ApiServiceTarget,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let name = format!("{}-serving-cert", service.name);
        let secret = HostSecretClient::new(host, service, name, DESCRIPTION);
        let names = certificate_names(service);
        let certificates = ensure_certificates(&secret, &names, &**clock).await;
        let certificates = certificates.with_context(|| secret.location())?;
        let (chain, key) = certificates.serving_der()?;
        report_certificate(CertificateUse::Serving, certificates.certificate.as_bytes());
        Ok(Self(Arc::new(ServingCertificateSecretManagerInner {
            secret,
            names,
            clock: Arc::clone(clock),
            certificate: ReplaceableServingCertificate::new(chain, key)?,
            bundle: watch::Sender::new(certificates.ca_bundle),
            failures: FailureLogLimiter::new(),
        })))
    }

    pub fn certificate(&self) -> &Arc<ReplaceableServingCertificate> {
        &self.0.certificate
    }

    /// The CA bundle for the APIServices.
    pub(super) fn bundle(&self) -> watch::Receiver<String> {
        self.0.bundle.subscribe()
    }

    /// Watches the Secret and renews it when a certificate is due, until the tasks stop.
    pub fn run(&self, informers: &InformerFactory, tasks: &TaskGroup) {
        let select = ListWatchSelector::all(&SECRETS)
            .namespace(&self.0.secret.namespace)
            .fields(format!("metadata.name={}", self.0.secret.name));
        let informer = informers.get(&self.0.secret.host, &select);
        let changed = Arc::new(Notify::new());
        let (shared, wake) = (Arc::clone(&self.0), Arc::clone(&changed));
        informer.add_event_handler(move |change| match change.new {
            Some(secret) => shared.apply_secret(secret),
            // It is created again, and the old CA stays trusted for a while.
            None => wake.notify_one(),
        });
        let shared = Arc::clone(&self.0);
        run_renewal_loop(DESCRIPTION, CHECK_PERIOD, changed, tasks, move || {
            let shared = Arc::clone(&shared);
            async move {
                let ensured = ensure_certificates(&shared.secret, &shared.names, &*shared.clock);
                ensured.await.map(drop)
            }
        });
    }
}

impl ServingCertificateSecretManagerInner {
    /// Uses the certificate of the Secret. One that cannot be used is replaced by the next
    /// renewal.
    fn apply_secret(&self, secret: &Object) {
        let usable = decode_secret(secret).and_then(|certificates: StoredServingCertificate| {
            let due = StoredServingCertificate::rotate(
                Some(&certificates),
                &self.names,
                self.clock.now(),
            );
            // A certificate that is due for renewal is used until it is renewed.
            let (chain, key) = certificates.serving_der().ok()?;
            due.ok()?;
            Some((certificates, chain, key))
        });
        let Some((certificates, chain, key)) = usable else {
            self.log_unusable("its keys are missing or malformed");
            return;
        };
        if let Err(error) = self.certificate.replace(chain, key) {
            self.log_unusable(&error.to_string());
            return;
        }
        report_certificate(CertificateUse::Serving, certificates.certificate.as_bytes());
        self.failures.record_success("take");
        self.bundle.send_if_modified(|bundle| {
            let differs = *bundle != certificates.ca_bundle;
            *bundle = certificates.ca_bundle;
            differs
        });
    }

    fn log_unusable(&self, why: &str) {
        if self.failures.record_failure("take", why) {
            tracing::warn!(why, "the Secret of the serving certificate cannot be used");
        }
    }
}

/// Creates or renews the Secret until nothing is due.
async fn ensure_certificates(
    secret: &HostSecretClient,
    names: &BTreeSet<String>,
    clock: &dyn Clock,
) -> anyhow::Result<StoredServingCertificate> {
    let next = |certificates: Option<&_>| {
        Ok(StoredServingCertificate::rotate(
            certificates,
            names,
            clock.now(),
        )?)
    };
    secret.ensure_secret(next).await
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use client_fake::FakeApi;
    use machinery::time::SystemClock;

    use super::super::testing::service;
    use super::*;

    #[tokio::test]
    async fn replicas_agree_on_one_certificate() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let service = service();
        let opens = (0..5).map(|_| ServingCertificateSecretManager::open(&host, &service, &clock));
        let all: Vec<ServingCertificateSecretManager> =
            futures_util::future::try_join_all(opens).await.unwrap();
        let bundle = all[0].bundle().borrow().clone();
        assert!(all.iter().all(|s| *s.bundle().borrow() == bundle));
        assert_eq!(fake.list_objects(&SECRETS).len(), 1);
        let again = ServingCertificateSecretManager::open(&host, &service, &clock)
            .await
            .unwrap();
        assert_eq!(*again.bundle().borrow(), bundle, "a restart writes nothing");
    }

    #[tokio::test]
    async fn a_deleted_or_broken_secret_is_created_again() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let serving = ServingCertificateSecretManager::open(&host, &service(), &clock)
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
        let stored = fake.list_objects(&SECRETS).remove(0);
        let text = stored["data"]["ca.crt"].as_str().unwrap();
        assert_eq!(STANDARD.decode(text).unwrap(), second.as_bytes());
        tasks.stop().await;
    }
}
