//! Renews the certificates of a standalone server while it runs: its own, the
//! administrator's, and the authority that signs both.
//!
//! Open connections are kept; new ones use the new serving certificate. Clients that trust
//! an earlier certificate of the authority still trust the server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use auth::LocalAuthenticator;
use auth::certificate_signing::ClusterSigner;
use auth::pki::Pki;
use auth::tls::{ReplaceableServingCertificate, ServingCertificates};
use client::TaskGroup;
use machinery::time::Clock;
use parking_lot::Mutex;
use server_certificates::{
    CertificateUse, ClientAuthorities, ClientAuthorityBundle, ServerKeysLocation,
    report_certificate, run_renewal_loop,
};
use tokio::sync::{Notify, watch};

use crate::certificate_files::{CertificateFiles, CertificatesOfFiles};

/// The users of the certificates, which a renewal updates.
pub(crate) struct RenewedCertificateTargets {
    /// The serving certificate of the listener.
    pub(crate) certificate: Arc<ReplaceableServingCertificate>,
    /// Signs certificates that clients request.
    pub(crate) certificate_signer: Arc<ClusterSigner>,
    /// The authorities of client certificates.
    pub(crate) client_authorities: ClientAuthorities,
    /// The certificates that the operator provides.
    pub(crate) files: CertificateFiles,
    /// Verifies client certificates.
    pub(crate) authenticator: Arc<LocalAuthenticator>,
    /// The CA bundle for clients.
    pub(crate) root_ca: watch::Sender<String>,
    /// The authorities of client certificates, as PEM.
    pub(crate) client_ca: watch::Sender<String>,
    /// The administrator's kubeconfig file.
    pub(crate) kubeconfig: PathBuf,
    /// The server URL in the kubeconfig.
    pub(crate) url: String,
    /// Whether the kubeconfig has a context for the fleet view.
    pub(crate) has_fleet_view: bool,
}

impl RenewedCertificateTargets {
    /// The files whose content is used again when it changes.
    pub(crate) fn watched_files(&self) -> Vec<PathBuf> {
        let mut files = self.files.paths();
        files.extend(self.client_authorities.path().map(Path::to_path_buf));
        files
    }
}

/// The certificates in use, as PEM.
#[derive(Default)]
struct CertificatesInUse {
    /// The certificates to serve and sign with; `None` before the first.
    certificates: Option<CertificatesOfFiles>,
    /// The content of the kubeconfig file.
    kubeconfig: String,
}

/// Keeps the certificates of a standalone server valid.
pub(crate) struct CertificateRenewal {
    server_keys: ServerKeysLocation,
    clock: Arc<dyn Clock>,
    targets: RenewedCertificateTargets,
    in_use: Mutex<CertificatesInUse>,
}

impl CertificateRenewal {
    /// Starts with the certificates in use, and writes the kubeconfig file.
    pub(crate) fn new(
        keys: ServerKeysLocation,
        clock: Arc<dyn Clock>,
        credentials: RenewedCertificateTargets,
        pki: &Pki,
        certificates: CertificatesOfFiles,
    ) -> anyhow::Result<Arc<Self>> {
        report_certificates(&certificates);
        let renewal = Self {
            server_keys: keys,
            clock,
            in_use: Mutex::new(CertificatesInUse {
                certificates: Some(certificates),
                ..CertificatesInUse::default()
            }),
            targets: credentials,
        };
        renewal.write_kubeconfig(pki)?;
        Ok(Arc::new(renewal))
    }

    /// The CA bundle for clients; the receiver is notified of changes.
    pub(crate) fn root_ca(&self) -> watch::Receiver<String> {
        self.targets.root_ca.subscribe()
    }

    /// The authorities of client certificates; the receiver is notified of changes.
    pub(crate) fn client_ca(&self) -> watch::Receiver<String> {
        self.targets.client_ca.subscribe()
    }

    /// The signer of certificates that clients request.
    pub(crate) fn certificate_signer(&self) -> Arc<ClusterSigner> {
        Arc::clone(&self.targets.certificate_signer)
    }

    /// Checks once in each period, and when `changed` is notified, until the tasks stop.
    pub(crate) fn run(
        self: &Arc<Self>,
        period: Duration,
        changed: &Arc<Notify>,
        tasks: &TaskGroup,
    ) {
        let (renewal, changed) = (Arc::clone(self), Arc::clone(changed));
        run_renewal_loop("certificates", period, changed, tasks, move || {
            let renewal = Arc::clone(&renewal);
            async move { renewal.renew().await }
        });
    }

    /// Renews due certificates, and uses those that another replica has renewed.
    async fn renew(&self) -> anyhow::Result<()> {
        let pki = self.server_keys.open(self.clock.now()).await?;
        let clients = self.targets.client_authorities.verifier(&pki).await;
        // Trust is updated first, since certificates may be signed by a new authority. When
        // the file is bad, the last good authorities stay, and the rest is renewed.
        let trusted = clients.map(|clients| self.trust_clients(clients));
        self.apply(self.targets.files.read(&pki).await?)?;
        self.write_kubeconfig(&pki)?;
        trusted
    }

    /// Verifies client certificates with these authorities from now on.
    fn trust_clients(&self, clients: ClientAuthorityBundle) {
        let to = &self.targets;
        let changed = *to.client_ca.borrow() != clients.bundle_pem;
        if changed {
            to.authenticator.set_client_ca(clients.verifier);
            to.client_ca.send_replace(clients.bundle_pem);
            tracing::info!("the authorities of client certificates have changed");
        }
    }

    fn apply(&self, new: CertificatesOfFiles) -> anyhow::Result<()> {
        let (to, mut in_use) = (&self.targets, self.in_use.lock());
        let old = in_use.certificates.as_ref();
        if old.is_none_or(|old| old.signing != new.signing) {
            let signing = &new.signing;
            let replaced = to
                .certificate_signer
                .replace_authority(&signing.certificate_pem, &signing.key_pem);
            replaced.map_err(anyhow::Error::msg)?;
            tracing::info!("the certificate authority was renewed");
        }
        if old.is_none_or(|old| old.root_ca != new.root_ca) {
            to.root_ca.send_replace(new.root_ca.clone());
        }
        if old.is_none_or(|old| old.serving != new.serving || old.by_name != new.by_name) {
            let certificates = ServingCertificates::new(&new.serving, &new.by_name);
            to.certificate
                .replace_all(certificates.map_err(anyhow::Error::msg)?);
            tracing::info!("the serving certificate was renewed");
        }
        report_certificates(&new);
        in_use.certificates = Some(new);
        Ok(())
    }

    fn write_kubeconfig(&self, pki: &Pki) -> anyhow::Result<()> {
        let (to, mut in_use) = (&self.targets, self.in_use.lock());
        let root_ca = to.root_ca.borrow().clone();
        let kubeconfig = match to.has_fleet_view {
            true => pki.admin_kubeconfig_with_fleet(&to.url, &root_ca),
            false => pki.admin_kubeconfig(&to.url, &root_ca),
        };
        if in_use.kubeconfig != kubeconfig {
            auth::pki::write_file(&to.kubeconfig, &kubeconfig, 0o600)?;
            in_use.kubeconfig = kubeconfig;
        }
        Ok(())
    }
}

fn report_certificates(used: &CertificatesOfFiles) {
    report_certificate(
        CertificateUse::Serving,
        used.serving.certificate_pem.as_bytes(),
    );
    report_certificate(
        CertificateUse::Signing,
        used.signing.certificate_pem.as_bytes(),
    );
    for (position, sni) in used.by_name.iter().enumerate() {
        let pem = sni.pair.certificate_pem.as_bytes();
        report_certificate(CertificateUse::ServingByName(position), pem);
    }
}

#[cfg(test)]
mod tests;
