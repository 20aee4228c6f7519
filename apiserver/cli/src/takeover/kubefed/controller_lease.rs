//! Waits until no controller manager of KubeFed holds its lock any more. The lock is a Lease, or
//! the annotation of a ConfigMap or of Endpoints, as `leaderElect.resourceLock` says.

use std::time::Duration;

use anyhow::bail;
use client::{Api, ResourcePath, ignore_not_found};
use machinery::{Gvr, Object};
use serde_json::Value;
use tokio::time::Instant;

use crate::output;

static LEASES: Gvr = Gvr::from_static("coordination.k8s.io", "v1", "leases");
static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
static ENDPOINTS: Gvr = Gvr::from_static("", "v1", "endpoints");
const LOCK_NAME: &str = "kubefed-controller-manager";
const LEADER_ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
/// The duration of a lock that does not name its own, which is KubeFed's default.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A holder of the lock, as its object says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LockRecord {
    pub(super) holder: String,
    renewed: String,
    duration: Duration,
}

impl LockRecord {
    fn of_object(object: &Object) -> Option<Self> {
        let value = object.value().ok()?;
        let record = match object.annotation(LEADER_ANNOTATION) {
            Some(text) => machinery::json::from_str::<Value>(&text).ok()?,
            None => value["spec"].clone(),
        };
        let holder = record["holderIdentity"].as_str().unwrap_or_default();
        let seconds = record["leaseDurationSeconds"].as_u64();
        (!holder.is_empty()).then(|| Self {
            holder: holder.to_owned(),
            renewed: record["renewTime"].as_str().unwrap_or_default().to_owned(),
            duration: seconds.map_or(DEFAULT_LEASE_DURATION, Duration::from_secs),
        })
    }
}

/// The holders of the lock. One that does not renew it any more is among them.
pub(super) async fn read_holders(
    host: &dyn Api,
    namespace: &str,
) -> client::Result<Vec<LockRecord>> {
    let mut records = Vec::new();
    for resource in [&LEASES, &CONFIG_MAPS, &ENDPOINTS] {
        let at = ResourcePath::object(resource, namespace, LOCK_NAME);
        let lock = ignore_not_found(host.get(at).await)?;
        records.extend(lock.as_ref().and_then(LockRecord::of_object));
    }
    Ok(records)
}

/// Waits until the locks are free, or were not renewed for as long as they last. The clock of the
/// holder is not compared with ours.
pub(super) async fn wait_until_released(
    host: &dyn Api,
    namespace: &str,
    timeout: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    let mut records = read_holders(host, namespace).await?;
    let mut unchanged_since = Instant::now();
    let mut last_holder = String::new();
    loop {
        let Some(longest) = records.iter().max_by_key(|record| record.duration) else {
            return Ok(());
        };
        if unchanged_since.elapsed() > longest.duration {
            return Ok(());
        }
        let holder = &longest.holder;
        if Instant::now() >= deadline {
            bail!(
                "KubeFed's controller manager {holder} holds its lock; stop it: kubectl -n {namespace} scale deployment kubefed-controller-manager --replicas=0"
            );
        }
        if last_holder != *holder {
            output::print_progress(format!(
                "waiting until {holder} does not renew the lock of KubeFed's controller manager any more (kubectl -n {namespace} scale deployment kubefed-controller-manager --replicas=0)"
            ));
            last_holder.clone_from(holder);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        let now = read_holders(host, namespace).await?;
        if now != records {
            unchanged_since = Instant::now();
            records = now;
        }
    }
}
