//! Reads address, CA and client certificate from a kubeconfig, as a TLS configuration for
//! TLS 1.3 only.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

/// The address and credentials of a server.
#[derive(Clone)]
pub(crate) struct Kubeconfig {
    /// `127.0.0.1:6443`
    pub(crate) address: String,
    tls: ClientConfig,
    roots: RootCertStore,
    /// The bearer token of requests, instead of a client certificate.
    pub(crate) token: Option<String>,
}

impl Kubeconfig {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let file: Value = serde_saphyr::from_str(&text)?;
        let cluster = &file["clusters"][0]["cluster"];
        let user = &file["users"][0]["user"];
        let server = cluster["server"].as_str().context("no server")?;
        let mut roots = RootCertStore::empty();
        for cert in
            CertificateDer::pem_slice_iter(&decode_field(cluster, "certificate-authority-data")?)
        {
            roots.add(cert?)?;
        }
        let chain = CertificateDer::pem_slice_iter(&decode_field(user, "client-certificate-data")?)
            .collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&decode_field(user, "client-key-data")?)?;
        let tls = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain, key)?;
        Ok(Self {
            address: server.trim_start_matches("https://").to_owned(),
            tls,
            roots,
            token: None,
        })
    }

    /// The same server with a token of another user.
    pub(crate) fn with_token(&self, token: &str) -> anyhow::Result<Self> {
        let tls = ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        Ok(Self {
            tls,
            token: Some(token.to_owned()),
            ..self.clone()
        })
    }

    /// `protocol` is the one offered by ALPN: `http/1.1` or `h2`.
    pub(crate) fn tls_config(&self, protocol: &str) -> Arc<ClientConfig> {
        let mut tls = self.tls.clone();
        tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        Arc::new(tls)
    }
}

fn decode_field(of: &Value, field: &str) -> anyhow::Result<Vec<u8>> {
    let text = of[field].as_str().with_context(|| format!("no {field}"))?;
    Ok(STANDARD.decode(text)?)
}
