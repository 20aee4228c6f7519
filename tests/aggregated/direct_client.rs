//! A client for direct requests to Flotilla, not through the host.

use auth::pki::CertKeyPair as Certificate;
use harness::raw_http::{RawHttpRequest, RawHttpResponse, TestTlsClientConfig};

/// The DNS name in Flotilla's serving certificate.
pub(crate) const SERVING_NAME: &str = "flotilla.flotilla-system.svc";

/// Flotilla's address, and the CA bundle of its serving certificate.
pub(crate) struct DirectClient {
    address: String,
    ca_bundle: String,
}

impl DirectClient {
    pub(crate) fn new(port: u16, bundle: &str) -> Self {
        Self {
            address: format!("127.0.0.1:{port}"),
            ca_bundle: bundle.to_owned(),
        }
    }

    /// Sends a GET request, with or without a client certificate.
    pub(crate) fn get(
        &self,
        path: &str,
        certificate: Option<&Certificate>,
        headers: &[(&str, &str)],
    ) -> RawHttpResponse {
        self.request("GET", path, certificate, headers, "")
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        certificate: Option<&Certificate>,
        headers: &[(&str, &str)],
        body: &str,
    ) -> RawHttpResponse {
        let own = certificate.map(|c| (c.certificate_pem.as_str(), c.key_pem.as_str()));
        let identity = TestTlsClientConfig::new(&self.ca_bundle, own);
        let mut request =
            RawHttpRequest::new(&self.address, &identity, method, path).server_name(SERVING_NAME);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.body_without_type(body).send()
    }
}
