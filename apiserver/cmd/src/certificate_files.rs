//! The certificates and authorities of a standalone server that come from files of the
//! operator, which may change while it runs.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use auth::pki::{CertKeyPair, Pki};
use auth::tls::SniCertificate;
use auth::x509::CertificateVerifier;
use clap::Args;

use crate::flag_modes::EffectiveMode;

/// The heading of the flags of serving certificates in the help.
pub(crate) const HELP_HEADING: &str = "Secure serving flags";

/// The flags of serving certificates and of the cluster's authority.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = HELP_HEADING)]
pub(crate) struct CertificateFiles {
    /// File containing the default x509 certificate for HTTPS, with intermediate certificates
    /// after it. By default the server signs a certificate by its own authority. The file is
    /// read again when it changes, as are those of the following flags.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    tls_cert_file: Option<PathBuf>,
    /// File containing the x509 private key matching --tls-cert-file.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    tls_private_key_file: Option<PathBuf>,
    /// A pair of x509 certificate and private key files, optionally suffixed with a list of
    /// domain patterns: CERT,KEY:*.example.com,example.com. Without patterns the names of the
    /// certificate are used. May be repeated.
    #[arg(long, value_name = "CERT,KEY[:NAMES]", add = EffectiveMode::Standalone)]
    tls_sni_cert_key: Vec<String>,
    /// The authorities that are published to clients in service account token Secrets, in the
    /// ConfigMaps kube-root-ca.crt and in the administrator's kubeconfig; by default the
    /// server's own. Required if the server's own authority does not sign --tls-cert-file.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    root_ca_file: Option<PathBuf>,
    /// The x509 certificate of the authority that signs CertificateSigningRequests; by default
    /// the server's own. Clients are authenticated by its certificates only if it is in
    /// --client-ca-file.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    cluster_signing_cert_file: Option<PathBuf>,
    /// The private key of --cluster-signing-cert-file.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    cluster_signing_key_file: Option<PathBuf>,
}

#[derive(Clone)]
struct SniCertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    names: Vec<String>,
}

fn parse_sni_pair(text: &str) -> Result<SniCertificateFiles, String> {
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let Some((certificate, key)) = files.split_once(',') else {
        return Err("expected comma separated certificate and key file paths".to_owned());
    };
    if certificate.is_empty() || key.is_empty() || key.contains(',') {
        return Err("expected comma separated certificate and key file paths".to_owned());
    }
    let names = names.split(',').filter(|name| !name.is_empty());
    Ok(SniCertificateFiles {
        certificate: certificate.into(),
        key: key.into(),
        names: names.map(str::to_owned).collect(),
    })
}

/// The content of the files, completed by the server's own certificates.
#[derive(PartialEq, Eq)]
pub(crate) struct CertificatesOfFiles {
    pub(crate) serving: CertKeyPair,
    pub(crate) by_name: Vec<SniCertificate>,
    /// The authorities that clients are told to trust.
    pub(crate) root_ca: String,
    /// The authority that signs what clients request.
    pub(crate) signing: CertKeyPair,
}

impl CertificateFiles {
    /// The files to watch for changes.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let single = [
            &self.tls_cert_file,
            &self.tls_private_key_file,
            &self.root_ca_file,
            &self.cluster_signing_cert_file,
            &self.cluster_signing_key_file,
        ];
        let pairs = self.tls_sni_cert_key.iter();
        let pairs = pairs.filter_map(|text| parse_sni_pair(text).ok());
        let pairs = pairs.flat_map(|sni| [sni.certificate, sni.key]);
        single.into_iter().flatten().cloned().chain(pairs).collect()
    }

    /// Reads and checks the files.
    pub(crate) async fn read(&self, pki: &Pki) -> anyhow::Result<CertificatesOfFiles> {
        let serving = both(
            ("--tls-cert-file", &self.tls_cert_file),
            ("--tls-private-key-file", &self.tls_private_key_file),
        )?;
        let serving = match serving {
            Some((certificate, key)) => read_pair("--tls-cert-file", certificate, key).await?,
            None => pki.serving.clone(),
        };
        let mut by_name = Vec::new();
        for text in &self.tls_sni_cert_key {
            let parsed = parse_sni_pair(text).map_err(|reason| anyhow!(reason));
            let sni = parsed.with_context(|| format!("--tls-sni-cert-key {text}"))?;
            by_name.push(SniCertificate {
                names: sni.names,
                pair: read_pair("--tls-sni-cert-key", &sni.certificate, &sni.key).await?,
            });
        }
        let authority = both(
            (
                "--cluster-signing-cert-file",
                &self.cluster_signing_cert_file,
            ),
            ("--cluster-signing-key-file", &self.cluster_signing_key_file),
        )?;
        let signing = match authority {
            Some((certificate, key)) => {
                read_pair("--cluster-signing-cert-file", certificate, key).await?
            }
            None => CertKeyPair {
                certificate_pem: pki.ca_pem.clone(),
                key_pem: pki.ca_key_pem().to_owned(),
            },
        };
        Ok(CertificatesOfFiles {
            root_ca: self.root_ca(pki).await?,
            serving,
            by_name,
            signing,
        })
    }

    async fn root_ca(&self, pki: &Pki) -> anyhow::Result<String> {
        let Some(file) = &self.root_ca_file else {
            return Ok(pki.ca_pem.clone());
        };
        let context = || format!("--root-ca-file {}", file.display());
        let pem = read(file).await.with_context(context)?;
        if let Err(reason) = CertificateVerifier::from_pem(&pem) {
            return Err(anyhow!(reason).context(context()));
        }
        Ok(pem)
    }
}

/// The files of two flags that are set together or not at all.
fn both<'a>(
    (first_flag, first): (&str, &'a Option<PathBuf>),
    (second_flag, second): (&str, &'a Option<PathBuf>),
) -> anyhow::Result<Option<(&'a PathBuf, &'a PathBuf)>> {
    match (first, second) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        (Some(_), None) => bail!("{first_flag} requires {second_flag}"),
        (None, Some(_)) => bail!("{second_flag} requires {first_flag}"),
    }
}

async fn read_pair(flag: &str, certificate: &Path, key: &Path) -> anyhow::Result<CertKeyPair> {
    let context = || format!("{flag} {}", certificate.display());
    let pair = CertKeyPair {
        certificate_pem: read(certificate).await.with_context(context)?,
        key_pem: read(key).await.with_context(context)?,
    };
    if let Err(reason) = auth::tls::ServingCertificates::new(&pair, &[]) {
        bail!("{}: {reason}", context());
    }
    Ok(pair)
}

async fn read(file: &Path) -> anyhow::Result<String> {
    let text = tokio::fs::read_to_string(file).await;
    text.with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_for_server_names_are_parsed() {
        let parsed = parse_sni_pair("a.crt,a.key:*.foo.com,foo.com").unwrap();
        assert_eq!(parsed.certificate, Path::new("a.crt"));
        assert_eq!(parsed.key, Path::new("a.key"));
        assert_eq!(parsed.names, ["*.foo.com", "foo.com"]);
        assert!(parse_sni_pair("a.crt,a.key").unwrap().names.is_empty());
        for bad in ["", "a.crt", "a.crt,", ",a.key", "a.crt:foo.com", "a,b,c"] {
            assert!(parse_sni_pair(bad).is_err(), "{bad}");
        }
    }
}
