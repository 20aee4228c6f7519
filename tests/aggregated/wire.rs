//! A client for direct requests to Flotilla, not through the host.

use auth::pki::Identity as Certificate;
use harness::wire::{Ask, Identity, Reply};

use crate::behind::NAME;

/// Flotilla's address, and the CA bundle of its serving certificate.
pub(crate) struct Caller {
    address: String,
    bundle: String,
}

impl Caller {
    pub(crate) fn new(port: u16, bundle: &str) -> Self {
        Self {
            address: format!("127.0.0.1:{port}"),
            bundle: bundle.to_owned(),
        }
    }

    /// Sends a GET request, with or without a client certificate.
    pub(crate) fn get(
        &self,
        path: &str,
        certificate: Option<&Certificate>,
        headers: &[(&str, &str)],
    ) -> Reply {
        self.ask("GET", path, certificate, headers, "")
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        certificate: Option<&Certificate>,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let own = certificate.map(|c| (c.certificate_pem.as_str(), c.key_pem.as_str()));
        let identity = Identity::new(&self.bundle, own);
        let mut request = Ask::new(&self.address, &identity, method, path).name(NAME);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.content(body).reply()
    }
}
