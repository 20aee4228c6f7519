//! Reloads the TLS certificates for etcd while the store is open.

use std::time::Duration;

use machinery::FailureLogLimiter;

use super::client::EtcdClient;
use super::endpoints::{CurrentEtcdTlsFn, EtcdTls};

/// The interval at which the source is read.
const CHECK_PERIOD: Duration = Duration::from_secs(5);

/// Reads the source at each interval and uses changed certificates; never returns.
pub(super) async fn run(inner: &EtcdClient, source: CurrentEtcdTlsFn, in_use: Option<EtcdTls>) {
    let (mut in_use, failures) = (in_use, FailureLogLimiter::new());
    loop {
        tokio::time::sleep(CHECK_PERIOD).await;
        match check(inner, &source, in_use.as_ref()).await {
            Ok(renewed) => {
                if renewed.is_some() {
                    tracing::info!("the certificates for etcd were renewed");
                    in_use = renewed;
                }
                failures.record_success("renew");
            }
            Err(e) => {
                if failures.record_failure("renew", &e) {
                    tracing::warn!(why = e, "renewed certificates for etcd cannot be used");
                }
            }
        }
    }
}

/// Uses the certificates of the source when they differ, and returns them then.
async fn check(
    inner: &EtcdClient,
    source: &CurrentEtcdTlsFn,
    in_use: Option<&EtcdTls>,
) -> Result<Option<EtcdTls>, String> {
    let CurrentEtcdTlsFn(read) = source.clone();
    let read = tokio::task::spawn_blocking(move || read());
    let tls = read.await.map_err(|error| error.to_string())??;
    if in_use == Some(&tls) {
        return Ok(None);
    }
    inner.endpoints.renew(&tls).await?;
    Ok(Some(tls))
}
