//! The metric of the certificates that this process serves, signs and authenticates with. Those
//! that Flotilla makes are renewed long before their end; those of the operator's files are not.

use std::sync::LazyLock;

use flotilla_metrics::{FloatGauge, MetricVec};
use machinery::certificate_request::certificate_expiry;

static EXPIRATIONS: LazyLock<MetricVec<FloatGauge, 1>> = LazyLock::new(|| {
    flotilla_metrics::process_registry().float_gauges(
        "flotilla_certificate_expiration_timestamp_seconds",
        "When a certificate that the process uses expires, in seconds since the epoch.",
        ["certificate"],
    )
});

/// The use of a certificate.
#[derive(Clone, Copy, Debug)]
pub enum CertificateUse {
    Serving,
    /// `--tls-sni-cert-key`, by its position.
    ServingByName(usize),
    /// Signs what clients request.
    Signing,
    EtcdClient,
    /// Our identity at the host.
    HostClient,
}

impl CertificateUse {
    fn label(self) -> String {
        match self {
            Self::Serving => "serving".to_owned(),
            Self::ServingByName(position) => format!("serving-by-name-{position}"),
            Self::Signing => "signing".to_owned(),
            Self::EtcdClient => "etcd-client".to_owned(),
            Self::HostClient => "host-client".to_owned(),
        }
    }
}

/// Reports the certificate that is in use from now on; the first one of a chain counts.
pub fn report_certificate(usage: CertificateUse, pem: &[u8]) {
    let text = String::from_utf8_lossy(pem);
    if let Some(expires) = certificate_expiry(&text) {
        let gauge = EXPIRATIONS.with_label_values([&usage.label()]);
        gauge.set(expires as f64);
    }
}
