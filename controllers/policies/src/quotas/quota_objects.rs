//! The parts that the controllers of FederatedResourceQuotas share: the Works of a quota, and its status.

use client::{Informer, InvolvedObject, Result};
use flotilla_runtime::StatusWriter;
use karmada_api::quota::FederatedResourceQuotaStatus;
use karmada_api::resources::QUOTAS;
use karmada_api::well_known_keys::{QUOTA_NAME, QUOTA_NAMESPACE};
use machinery::Object;
use serde_json::json;

/// The index of Works by the FederatedResourceQuota they belong to.
pub(super) const BY_QUOTA: &str = "works/quota";
pub(super) const QUOTA_WORKERS: usize = 1;

/// The key of the FederatedResourceQuota that a Work belongs to.
pub(super) fn quota_key_of_work(work: &Object) -> Option<String> {
    let label = |key| work.meta().label(key);
    Some(format!(
        "{}/{}",
        label(QUOTA_NAMESPACE)?,
        label(QUOTA_NAME)?
    ))
}

pub(super) fn list_quota_works(works: &Informer, key: &str) -> Vec<Object> {
    works.by_index(BY_QUOTA, key)
}

pub(super) fn quota_reference(quota: &Object) -> InvolvedObject {
    InvolvedObject::new(
        "policy.karmada.io/v1alpha1",
        "FederatedResourceQuota",
        quota,
    )
}

/// Updates the status if it differs from that of the quota as it was read; returns whether it did.
pub(super) async fn write_status(
    writer: StatusWriter<'_>,
    (quota, read): (&Object, &FederatedResourceQuotaStatus),
    status: &FederatedResourceQuotaStatus,
) -> Result<bool> {
    let changed = (status != read).then(|| json!(status));
    Ok(writer.update(&QUOTAS, quota, changed).await?.is_some())
}
