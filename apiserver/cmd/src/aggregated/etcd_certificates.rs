//! Certificates for an etcd and for Flotilla, its client, stored in a Secret of the host
//! that all replicas share.
//!
//! The pods of etcd mount the server's part of the Secret; Flotilla reads its own part
//! through the host. Writes carry the resourceVersion that was read, so that only one of
//! several replicas succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use auth::etcd_certificates::EtcdCertificates;
use auth::pki::CertKeyPair;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, ResourcePath, TaskGroup, WriteOptions};
use machinery::time::Clock;
use machinery::{FailureLog, Gvr, Object};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use storage::etcd::{EtcdTls, EtcdTlsSource};

use super::api_services::labels;
use super::{HostService, retry_until_answered};

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
/// The interval at which the Secret is read and due certificates are renewed.
const CHECK_PERIOD: Duration = Duration::from_secs(60);
const MAX_ATTEMPTS: usize = 10;

/// The Secret and the client certificate of its last reading.
pub(super) struct EtcdSecret {
    host: Arc<dyn Api>,
    namespace: String,
    name: String,
    /// The names in the server certificate of etcd.
    names: BTreeSet<String>,
    clock: Arc<dyn Clock>,
    client: Arc<Mutex<EtcdTls>>,
    failures: FailureLog,
}

impl EtcdSecret {
    /// Reads the Secret, or creates it. Waits for the host.
    pub(super) async fn open(
        host: &Arc<dyn Api>,
        service: &HostService,
        name: &str,
        servers: &[String],
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Arc<Self>> {
        let secret = Self {
            host: Arc::clone(host),
            namespace: service.namespace.clone(),
            name: name.to_owned(),
            names: certificate_names(servers),
            clock: Arc::clone(clock),
            client: Arc::default(),
            failures: FailureLog::new(),
        };
        let opened = secret.renew().await;
        opened.with_context(|| {
            format!(
                "the certificates for etcd in Secret {}/{name} of the host",
                service.namespace
            )
        })?;
        Ok(Arc::new(secret))
    }

    /// The client certificate and CA for etcd, and a source of their later versions.
    pub(super) fn client(&self) -> (EtcdTls, EtcdTlsSource) {
        let client = Arc::clone(&self.client);
        let now = client.lock().clone();
        (
            now,
            EtcdTlsSource(Arc::new(move || Ok(client.lock().clone()))),
        )
    }

    /// Reads and renews the Secret until the tasks stop.
    pub(super) fn run(self: &Arc<Self>, tasks: &TaskGroup) {
        let (secret, stop) = (Arc::clone(self), tasks.shutdown().clone());
        tasks.spawn(async move {
            let next = || async {
                tokio::time::sleep(CHECK_PERIOD).await;
                secret.check().await;
            };
            while stop.run_until_triggered(next()).await.is_some() {}
        });
    }

    async fn check(&self) {
        match self.renew().await {
            Ok(()) => {
                if self.failures.record_success("renew") {
                    tracing::info!("certificates for etcd can be renewed again");
                }
            }
            Err(error) => {
                let error = format!("{error:#}");
                if self.failures.record_failure("renew", &error) {
                    tracing::warn!(error, "certificates for etcd cannot be renewed");
                }
            }
        }
    }

    /// Creates or renews the Secret until nothing is due, and uses its content.
    async fn renew(&self) -> anyhow::Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            let at = ResourcePath::object(&SECRETS, &self.namespace, &self.name);
            let found =
                match retry_until_answered("certificates for etcd", || self.host.get(at)).await {
                    Ok(found) => Some(found),
                    Err(error) if error.is_not_found() => None,
                    Err(error) => return Err(error.into()),
                };
            let kept = found.as_ref().map(parse);
            let next = EtcdCertificates::renew(kept.as_ref(), &self.names, self.clock.now())?;
            let Some(next) = next else {
                let kept = kept.context("the Secret has no certificates and none is due")?;
                *self.client.lock() = client_tls(&kept);
                return Ok(());
            };
            if self.write(found.as_ref(), &next).await? {
                *self.client.lock() = client_tls(&next);
                return Ok(());
            }
        }
        anyhow::bail!("it was changed by others at every attempt")
    }

    /// Returns false when another replica has written the Secret.
    async fn write(&self, found: Option<&Object>, next: &EtcdCertificates) -> anyhow::Result<bool> {
        let options = WriteOptions::default();
        let written = match found {
            None => {
                let body = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                    "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels()},
                    "data": encode(next)});
                let all = ResourcePath::collection(&SECRETS, &self.namespace);
                self.host.create(all, body, &options).await
            }
            Some(found) => {
                let mut body = found.value()?;
                body["data"] = encode(next);
                let at = ResourcePath::object(&SECRETS, &self.namespace, &self.name);
                self.host.update(at, body, &options).await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(error)
                if error.is_conflict()
                    || error.is_already_exists()
                    || error.is_not_found() && found.is_some() =>
            {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
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

fn client_tls(kept: &EtcdCertificates) -> EtcdTls {
    let CertKeyPair {
        certificate_pem,
        key_pem,
    } = kept.client.clone();
    EtcdTls {
        ca: Some(kept.ca.clone().into_bytes()),
        identity: Some((certificate_pem.into_bytes(), key_pem.into_bytes())),
    }
}

#[derive(Default, Deserialize)]
struct EtcdSecretData {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

/// Fields that cannot be decoded are empty, and are created again.
fn parse(secret: &Object) -> EtcdCertificates {
    let EtcdSecretData { data } = serde_json::from_slice(secret.bytes()).unwrap_or_default();
    let data = data.unwrap_or_default();
    let read = |key: &str| {
        let raw = data.get(key).and_then(|text| STANDARD.decode(text).ok());
        raw.and_then(|raw| String::from_utf8(raw).ok())
            .unwrap_or_default()
    };
    let identity = |name: &str| CertKeyPair {
        certificate_pem: read(&format!("{name}.crt")),
        key_pem: read(&format!("{name}.key")),
    };
    EtcdCertificates {
        ca: read("ca.crt"),
        ca_key: read("ca.key"),
        server: identity("server"),
        client: identity("client"),
    }
}

fn encode(kept: &EtcdCertificates) -> Value {
    json!({
        "ca.crt": STANDARD.encode(&kept.ca),
        "ca.key": STANDARD.encode(&kept.ca_key),
        "server.crt": STANDARD.encode(&kept.server.certificate_pem),
        "server.key": STANDARD.encode(&kept.server.key_pem),
        "client.crt": STANDARD.encode(&kept.client.certificate_pem),
        "client.key": STANDARD.encode(&kept.client.key_pem),
    })
}

#[cfg(test)]
mod tests {
    use client::fake::FakeApi;
    use jiff::{SignedDuration, Timestamp};
    use machinery::time::FakeClock;

    use super::*;

    fn service() -> HostService {
        HostService {
            namespace: "flotilla-system".into(),
            name: "flotilla".into(),
            port: 443,
        }
    }

    async fn open(host: &Arc<dyn Api>, clock: &Arc<dyn Clock>) -> Arc<EtcdSecret> {
        let servers = ["https://flotilla-etcd.flotilla-system.svc:2379".to_owned()];
        let service = service();
        let opened = EtcdSecret::open(host, &service, "flotilla-etcd-certs", &servers, clock);
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
        all[1].check().await;
        all[0].check().await;
        let EtcdTlsSource(read) = source;
        let renewed = read().unwrap();
        assert!(renewed != first && renewed == all[1].client().0);
        assert!(renewed.ca == first.ca, "the authority lasts longer");
    }
}
