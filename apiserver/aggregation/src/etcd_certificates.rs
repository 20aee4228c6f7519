//! Certificates for an etcd and for Flotilla, its client, stored in a Secret of the host
//! that all replicas share.
//!
//! The pods of etcd mount the server's part of the Secret; Flotilla reads its own part
//! through the host.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use auth::etcd_certificates::EtcdCertificates;
use auth::pki::CertKeyPair;
use client::{Api, TaskGroup};
use machinery::time::Clock;
use parking_lot::Mutex;
use server_certificates::{CHECK_PERIOD, CertificateUse, report_certificate, run_renewal_loop};
use storage::etcd::{CurrentEtcdTlsFn, EtcdTls};

use super::host_objects::ApiServiceTarget;
use super::host_secret::{HostSecretClient, SecretDataCodec};

const DESCRIPTION: &str = "the certificates for etcd";

/// The Secret and the client certificate of its last reading.
pub struct EtcdCertificateSecretManager {
    secret: HostSecretClient,
    /// The names in the server certificate of etcd.
    names: BTreeSet<String>,
    clock: Arc<dyn Clock>,
    client_tls: Arc<Mutex<EtcdTls>>,
}

impl EtcdCertificateSecretManager {
    /// Reads the Secret, or creates it. Waits for the host.
    pub async fn open(
        host: &Arc<dyn Api>,
        service: &ApiServiceTarget,
        name: &str,
        servers: &[String],
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Arc<Self>> {
        let secret = Self {
            secret: HostSecretClient::new(host, service, name.to_owned(), DESCRIPTION),
            names: certificate_names(servers),
            clock: Arc::clone(clock),
            client_tls: Arc::default(),
        };
        let opened = secret.renew().await;
        opened.with_context(|| secret.secret.location())?;
        Ok(Arc::new(secret))
    }

    /// The client certificate and CA for etcd, and a source of their later versions.
    pub fn client(&self) -> (EtcdTls, CurrentEtcdTlsFn) {
        let client = Arc::clone(&self.client_tls);
        let now = client.lock().clone();
        (
            now,
            CurrentEtcdTlsFn(Arc::new(move || Ok(client.lock().clone()))),
        )
    }

    /// Reads and renews the Secret until the tasks stop.
    pub fn run(self: &Arc<Self>, tasks: &TaskGroup) {
        let secret = Arc::clone(self);
        run_renewal_loop(
            DESCRIPTION,
            CHECK_PERIOD,
            Arc::default(),
            tasks,
            move || {
                let secret = Arc::clone(&secret);
                async move { secret.renew().await }
            },
        );
    }

    /// Creates or renews the Secret until nothing is due, and uses its content.
    async fn renew(&self) -> anyhow::Result<()> {
        let next = |certificates: Option<&_>| {
            Ok(EtcdCertificates::renew(
                certificates,
                &self.names,
                self.clock.now(),
            )?)
        };
        let certificates = self.secret.ensure_secret(next).await?;
        let pem = certificates.client.certificate_pem.as_bytes();
        report_certificate(CertificateUse::EtcdClient, pem);
        *self.client_tls.lock() = client_tls(&certificates);
        Ok(())
    }
}

/// The hosts of the URLs, and the loopback names for processes in the pod of etcd.
fn certificate_names(servers: &[String]) -> BTreeSet<String> {
    let hosts = servers.iter().filter_map(|url| {
        let url: http::Uri = url.trim().parse().ok()?;
        let host = url.host()?.trim_start_matches('[').trim_end_matches(']');
        Some(host.to_ascii_lowercase())
    });
    let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    hosts.chain(loopback).collect()
}

fn client_tls(certificates: &EtcdCertificates) -> EtcdTls {
    let CertKeyPair {
        certificate_pem,
        key_pem,
    } = certificates.client.clone();
    EtcdTls {
        ca: Some(certificates.ca.clone().into_bytes()),
        identity: Some((certificate_pem.into_bytes(), key_pem.into_bytes())),
    }
}

impl SecretDataCodec for EtcdCertificates {
    const TYPE: &'static str = "Opaque";

    /// Fields that cannot be decoded are empty, and are created again.
    fn decode(get: impl Fn(&str) -> String) -> Self {
        let identity = |name: &str| CertKeyPair {
            certificate_pem: get(&format!("{name}.crt")),
            key_pem: get(&format!("{name}.key")),
        };
        Self {
            ca: get("ca.crt"),
            ca_key: get("ca.key"),
            server: identity("server"),
            client: identity("client"),
        }
    }

    fn encode(&self) -> Vec<(&'static str, &str)> {
        vec![
            ("ca.crt", &self.ca),
            ("ca.key", &self.ca_key),
            ("server.crt", &self.server.certificate_pem),
            ("server.key", &self.server.key_pem),
            ("client.crt", &self.client.certificate_pem),
            ("client.key", &self.client.key_pem),
        ]
    }
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;
    use jiff::{SignedDuration, Timestamp};
    use machinery::time::FakeClock;

    use super::super::host_secret::SECRETS;
    use super::super::testing::service;
    use super::*;

    async fn open(
        host: &Arc<dyn Api>,
        clock: &Arc<dyn Clock>,
    ) -> Arc<EtcdCertificateSecretManager> {
        let servers = ["https://flotilla-etcd.flotilla-system.svc:2379".to_owned()];
        let service = service();
        let opened = EtcdCertificateSecretManager::open(
            host,
            &service,
            "flotilla-etcd-certs",
            &servers,
            clock,
        );
        opened.await.unwrap()
    }

    #[test]
    fn the_certificate_has_the_names_of_the_servers() {
        let servers = [
            "https://Etcd.fleet.svc:2379".into(),
            "https://[fd00::1]:2379".into(),
        ];
        let names = certificate_names(&servers);
        for name in ["etcd.fleet.svc", "fd00::1", "localhost", "127.0.0.1", "::1"] {
            assert!(names.contains(name), "{name} in {names:?}");
        }
    }

    #[tokio::test]
    async fn replicas_agree_on_one_authority_and_renew_it_for_each_other() {
        let fake = FakeApi::new();
        let host: Arc<dyn Api> = fake.clone();
        let time = Arc::new(FakeClock::new(Timestamp::now()));
        let clock: Arc<dyn Clock> = time.clone();
        let opens = (0..5).map(|_| open(&host, &clock));
        let all = futures_util::future::join_all(opens).await;
        let (first, source) = all[0].client();
        assert!(all.iter().all(|s| s.client().0 == first));
        assert_eq!(fake.list_objects(&SECRETS).len(), 1);
        time.advance(SignedDuration::from_hours(24 * 300));
        all[1].renew().await.unwrap();
        all[0].renew().await.unwrap();
        let CurrentEtcdTlsFn(read) = source;
        let renewed = read().unwrap();
        assert!(renewed != first && renewed == all[1].client().0);
        assert!(renewed.ca == first.ca, "the authority lasts longer");
    }
}
