//! The certificate of a console, which is read again while the console serves.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use auth::pki::CertKeyPair;
use auth::tls::{ReplaceableServingCertificate, ServingCertificates};
use client::TaskGroup;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use tokio_rustls::TlsAcceptor;

/// How often the files are read.
const RELOAD_INTERVAL: Duration = Duration::from_mins(1);

/// A certificate chain and its key, in PEM.
pub(crate) struct CertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The certificate that is served, as its files had it.
struct ServedCertificate {
    files: CertificateFiles,
    pair: CertKeyPair,
    serving: Arc<ReplaceableServingCertificate>,
}

impl CertificateFiles {
    /// Reads the files, and again until the tasks are stopped. Clients are not asked for certificates.
    pub(crate) async fn acceptor(self, tasks: &TaskGroup) -> anyhow::Result<TlsAcceptor> {
        let served = ServedCertificate::read(self).await?;
        let acceptor = served.acceptor()?;
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            shutdown.run_until_triggered(served.keep_reading()).await;
        });
        Ok(acceptor)
    }

    async fn read(&self) -> anyhow::Result<CertKeyPair> {
        let read = async |file: &PathBuf| {
            let text = tokio::fs::read_to_string(file).await;
            text.with_context(|| format!("cannot read {}", file.display()))
        };
        Ok(CertKeyPair {
            certificate_pem: read(&self.certificate).await?,
            key_pem: read(&self.key).await?,
        })
    }

    fn parse(&self, pair: &CertKeyPair) -> anyhow::Result<ServingCertificates> {
        let certificates = ServingCertificates::new(pair, &[]);
        certificates.map_err(|reason| {
            let (certificate, key) = (self.certificate.display(), self.key.display());
            anyhow!("{certificate}, {key}: {reason}")
        })
    }
}

impl ServedCertificate {
    async fn read(files: CertificateFiles) -> anyhow::Result<Self> {
        let pair = files.read().await?;
        let certificates = files.parse(&pair)?;
        let serving = ReplaceableServingCertificate::with_certificates(certificates);
        Ok(Self {
            files,
            pair,
            serving,
        })
    }

    fn acceptor(&self) -> anyhow::Result<TlsAcceptor> {
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth();
        let mut config = config.with_cert_resolver(Arc::clone(&self.serving) as _);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    async fn keep_reading(mut self) {
        loop {
            tokio::time::sleep(RELOAD_INTERVAL).await;
            if let Err(error) = self.reload().await {
                let error = format!("{error:#}");
                tracing::warn!(error, "the last certificate is still served");
            }
        }
    }

    async fn reload(&mut self) -> anyhow::Result<()> {
        let pair = self.files.read().await?;
        if pair != self.pair {
            self.serving.replace_all(self.files.parse(&pair)?);
            self.pair = pair;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use auth::pki::Pki;
    use client::remote::{RestConfig, server_name, tls_client};
    use tokio_rustls::TlsConnector;

    use super::*;

    const NAME: &str = "console.example.com";

    fn write_pair(dir: &Path, name: &str) -> Pki {
        let pki = Pki::open(&dir.join(name), &[NAME.to_owned()], jiff::Timestamp::now()).unwrap();
        std::fs::write(dir.join("tls.crt"), &pki.serving.certificate_pem).unwrap();
        std::fs::write(dir.join("tls.key"), &pki.serving.key_pem).unwrap();
        pki
    }

    /// Whether a client that trusts the authority can connect.
    async fn is_trusted(acceptor: &TlsAcceptor, authority: &Pki) -> bool {
        let mut config = RestConfig::new("https://console.example.com").unwrap();
        config.ca = Some(authority.ca_pem.clone().into_bytes());
        let config = tls_client(&config, None, &[b"h2", b"http/1.1"]).unwrap();
        let (client, server) = tokio::io::duplex(64 << 10);
        let connector = TlsConnector::from(Arc::new(config));
        let connected = connector.connect(server_name(NAME).unwrap(), client);
        let (connected, _) = tokio::join!(connected, acceptor.accept(server));
        connected.is_ok_and(|stream| {
            let (_, session) = stream.get_ref();
            assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));
            true
        })
    }

    // proves: CON-server-tls
    #[tokio::test]
    async fn a_certificate_is_served_as_its_files_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = write_pair(dir.path(), "first");
        let files = CertificateFiles {
            certificate: dir.path().join("tls.crt"),
            key: dir.path().join("tls.key"),
        };
        let mut served = ServedCertificate::read(files).await.unwrap();
        let acceptor = served.acceptor().unwrap();
        assert!(is_trusted(&acceptor, &first).await);
        let second = write_pair(dir.path(), "second");
        served.reload().await.unwrap();
        assert!(is_trusted(&acceptor, &second).await);
        assert!(!is_trusted(&acceptor, &first).await);
        // A pair that is half written is not served, and read again.
        std::fs::write(dir.path().join("tls.key"), &first.serving.key_pem).unwrap();
        let error = served.reload().await.unwrap_err().to_string();
        assert!(error.contains("tls.crt"), "{error}");
        assert!(is_trusted(&acceptor, &second).await);
        std::fs::write(dir.path().join("tls.crt"), &first.serving.certificate_pem).unwrap();
        served.reload().await.unwrap();
        assert!(is_trusted(&acceptor, &first).await);
    }
}
