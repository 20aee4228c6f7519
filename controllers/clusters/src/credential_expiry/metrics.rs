//! The metric of the credentials that expire. A process that is no longer the leader reports
//! none.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use client::ShutdownToken;
use flotilla_metrics::{CallbackMetricDesc, CallbackMetricType};
use parking_lot::Mutex;

use super::expiry::ExpiringCredential;

const NAME: &str = "flotilla_cluster_credential_expiration_timestamp_seconds";
const DESCRIPTION: [CallbackMetricDesc; 1] = [CallbackMetricDesc::new(
    NAME,
    "When a credential of a cluster expires, in seconds since the epoch. The credential is the Secret and its key.",
    CallbackMetricType::Gauge,
    &["member_cluster", "credential"],
)];

/// The credentials by cluster.
pub(super) type ExpiringCredentials = Arc<Mutex<BTreeMap<String, Vec<ExpiringCredential>>>>;

static REPORTED: Mutex<Option<(ExpiringCredentials, ShutdownToken)>> = Mutex::new(None);

static REGISTERED: LazyLock<()> = LazyLock::new(|| {
    flotilla_metrics::process_registry().register_callback(&DESCRIPTION, |readings| {
        let shown = REPORTED.lock().clone();
        let Some((credentials, _)) = shown.filter(|(_, ended)| !ended.is_triggered()) else {
            return;
        };
        for (cluster, all) in &*credentials.lock() {
            for one in all {
                let seconds = one.expires.as_second() as f64;
                readings.set(NAME, &[cluster, &one.label], seconds);
            }
        }
    });
});

/// Reports these credentials until the token is triggered.
pub(super) fn report_credentials(credentials: &ExpiringCredentials, ends: &ShutdownToken) {
    LazyLock::force(&REGISTERED);
    *REPORTED.lock() = Some((Arc::clone(credentials), ends.clone()));
}
