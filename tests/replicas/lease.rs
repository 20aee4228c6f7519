//! The leader election lease: who holds it, and taking it over.

use std::time::{Duration, Instant};

use client::{Patch, ResourcePath, WriteOptions};
use harness::ApiServerClient;
use machinery::Gvr;
use serde_json::{Value, json};

pub(crate) static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
/// The lease's namespace in standalone mode.
pub(crate) const NAMESPACE: &str = "kube-system";
const NAME: &str = "flotilla";
const LEADER_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `matches` holds for the lease's holder; returns its spec.
pub(crate) async fn wait_until_held_by(
    server: &ApiServerClient,
    namespace: &str,
    matches: impl Fn(&str) -> bool,
) -> Value {
    let end = Instant::now() + LEADER_TIMEOUT;
    loop {
        let lease = server.get(&LEASES, namespace, NAME).await;
        let spec = lease.map(|l| l["spec"].clone()).unwrap_or_default();
        if spec["holderIdentity"].as_str().is_some_and(&matches) {
            return spec;
        }
        assert!(Instant::now() < end, "the lease has no such holder: {spec}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until the lease has a holder; returns its identity.
pub(crate) async fn wait_for_leader(server: &ApiServerClient, namespace: &str) -> String {
    let spec = wait_until_held_by(server, namespace, |holder| !holder.is_empty()).await;
    spec["holderIdentity"].as_str().unwrap().to_owned()
}

/// Makes `who` the holder of the lease for `seconds` from now.
pub(crate) async fn take_over(server: &ApiServerClient, who: &str, seconds: u64) {
    let now = jiff::Timestamp::now().to_string();
    let patch = json!({"spec": {
        "holderIdentity": who, "leaseDurationSeconds": seconds, "renewTime": now}});
    let at = ResourcePath::object(&LEASES, NAMESPACE, NAME);
    let options = WriteOptions::default();
    let patched = server.api.patch(at, Patch::Merge(patch), &options).await;
    patched.unwrap();
}
