//! Enforces FederatedResourceQuotas: charges a binding's usage to every quota of its
//! namespace before the binding is stored.
//!
//! Writes `status.overallUsed` of the quotas, or rejects the binding with the reason
//! `QuotaExceeded`. Decisions do no I/O; [`charge_quotas`] and [`refund_quotas`] carry
//! them out. Rules and texts of Karmada's `pkg/webhook/resourcebinding`; unlike
//! Karmada, which waits for the next recalculation, the charge of a failed write is
//! refunded.

use client::{Api, Error, ResourcePath, WriteOptions};
use karmada_api::quota::QuotaResourceList;
use karmada_api::resources::QUOTAS;
use karmada_api::{FederatedResourceQuota, ResourceBindingSpec};
use machinery::{Object, Quantity, Status};
use quota::federated_resource_quota::{
    add_amount, calculate_resource_usage, may_change_usage, requested_resource, retain_limited,
    usage_difference,
};
use serde::Deserialize;
use serde_json::Value;

use crate::attributes::{AdmissionAttributes, AdmissionOperation};
use crate::list_objects::list_objects;
use crate::unstructured::get;

const QUOTA_EXCEEDED_REASON: &str = "QuotaExceeded";
/// Bound on retries after conflicting writes of one quota.
const MAX_CONFLICT_RETRIES: usize = 16;

/// The charges of a write, by quota.
#[derive(Debug, Default)]
pub(crate) struct QuotaChargesOfWrite {
    namespace: String,
    charged: Vec<(String, QuotaResourceList)>,
}

impl QuotaChargesOfWrite {
    pub(crate) fn is_empty(&self) -> bool {
        self.charged.is_empty()
    }
}

/// The increase in usage by a binding; `None` when quotas do not apply.
pub(crate) fn usage_increase(
    operation: AdmissionOperation,
    new: &Value,
    old: Option<&Value>,
) -> Result<Option<QuotaResourceList>, Status> {
    let spec =
        |binding| ResourceBindingSpec::deserialize(get(binding, "/spec")).map_err(Status::internal);
    if old.is_some_and(|old| get(old, "/spec") == get(new, "/spec")) {
        return Ok(None);
    }
    let new = spec(new)?;
    let old = old.map(spec).transpose()?;
    let increase = match old {
        None if operation == AdmissionOperation::Create && new.clusters.is_empty() => {
            return Ok(None);
        }
        Some(old) if !may_change_usage(&old, &new) => return Ok(None),
        old => usage_difference(
            &calculate_resource_usage(&new),
            &old.map(|old| calculate_resource_usage(&old))
                .unwrap_or_default(),
        ),
    };
    Ok((!increase.is_empty()).then_some(increase))
}

/// The quota's usage after adding `increase`, or the message of a rejection. `None` when
/// the quota does not limit any of it. A decrease is never rejected, even above the
/// limit.
fn usage_after(
    quota: &FederatedResourceQuota,
    key: &str,
    increase: &QuotaResourceList,
) -> Result<Option<QuotaResourceList>, String> {
    let overall = &quota.spec.overall;
    let share = retain_limited(increase, overall);
    if share.is_empty() {
        return Ok(None);
    }
    let used = add_usage(&quota.status.overall_used, &share);
    for (name, _) in share.iter().filter(|(_, increase)| !increase.is_negative()) {
        if let (Some(sum), Some(limit)) = (used.get(name), overall.get(name))
            && sum > limit
        {
            return Err(format!(
                "FederatedResourceQuota({key}) exceeded for resource {name}: requested sum {sum}, limit {limit}."
            ));
        }
    }
    Ok(Some(used))
}

/// Adds two usages in the units of `util.Resource`; drops resources that are not
/// positive.
fn add_usage(used: &QuotaResourceList, increase: &QuotaResourceList) -> QuotaResourceList {
    let mut sum = used.clone();
    for (name, amount) in increase {
        add_amount(&mut sum, name.clone(), *amount);
    }
    let all = sum.into_iter().filter(|(_, q)| *q > Quantity::ZERO);
    all.map(|(name, q)| {
        let saturating = |q: i128| i64::try_from(q).unwrap_or(i64::MAX);
        let canonical = match requested_resource(&name) {
            "cpu" => Quantity::from_milli(saturating(q.milli_value())),
            "memory" | "ephemeral-storage" => Quantity::from_bytes(saturating(q.value())),
            n if n.starts_with("hugepages-") => Quantity::from_bytes(saturating(q.value())),
            _ => Quantity::from_units(saturating(q.value())),
        };
        (name, canonical)
    })
    .collect()
}

/// Charges all quotas of the namespace, or none.
pub(crate) async fn charge_quotas(
    api: &dyn Api,
    attributes: &AdmissionAttributes<'_>,
    increase: &QuotaResourceList,
) -> Result<QuotaChargesOfWrite, Status> {
    let mut charge = QuotaChargesOfWrite {
        namespace: attributes.namespace.to_owned(),
        charged: Vec::new(),
    };
    for quota in list_quotas(api, attributes.namespace).await? {
        let name = quota.name().to_owned();
        match charge_quota(api, attributes, quota, increase).await {
            Ok(None) => {}
            Ok(Some(share)) => charge.charged.push((name, share)),
            Err(rejection) => {
                refund_quotas(api, &charge).await;
                return Err(rejection);
            }
        }
    }
    Ok(charge)
}

async fn list_quotas(api: &dyn Api, namespace: &str) -> Result<Vec<Object>, Status> {
    let quotas = list_objects(api, &QUOTAS, namespace).await;
    quotas.map_err(|e| Status::internal(format!("failed to list FederatedResourceQuotas: {e}")))
}

/// Charges one quota. Returns the charged amounts; `None` when it does not apply or the
/// request is a dry run.
async fn charge_quota(
    api: &dyn Api,
    attributes: &AdmissionAttributes<'_>,
    mut quota: Object,
    increase: &QuotaResourceList,
) -> Result<Option<QuotaResourceList>, Status> {
    let mut attempts = 0..MAX_CONFLICT_RETRIES;
    loop {
        let current = quota.decode::<FederatedResourceQuota>();
        let current = current.map_err(Status::internal)?;
        let key = quota.meta().key();
        let new_usage = usage_after(&current, &key, increase);
        let Some(used) =
            new_usage.map_err(|message| quota_exceeded_status(attributes, &message))?
        else {
            return Ok(None);
        };
        if attributes.dry_run {
            return Ok(None);
        }
        match update_overall_used(api, &quota, &used).await {
            Ok(()) => return Ok(Some(retain_limited(increase, &current.spec.overall))),
            Err(e) if e.is_conflict() && attempts.next().is_some() => {
                match api.get(ResourcePath::of_object(&QUOTAS, &quota)).await {
                    Ok(newer) => quota = newer,
                    Err(e) if e.is_not_found() => return Ok(None),
                    Err(e) => return Err(update_failed_status(attributes, &e)),
                }
            }
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(update_failed_status(attributes, &e)),
        }
    }
}

fn quota_exceeded_status(attributes: &AdmissionAttributes<'_>, message: &str) -> Status {
    Status {
        reason: QUOTA_EXCEEDED_REASON.into(),
        ..Status::webhook_denied(&attributes.karmada_webhook_name(), message)
    }
}

fn update_failed_status(attributes: &AdmissionAttributes<'_>, error: &Error) -> Status {
    let (namespace, name) = (attributes.namespace, attributes.name);
    let failure = if error.is_conflict() {
        "failed to apply FederatedResourceQuota updates after multiple retries"
    } else {
        "permanent error updating FRQ statuses"
    };
    Status::internal(format!("{failure} for RB {namespace}/{name}: {error}"))
}

/// Updates the used amounts, unless the quota has changed since it was read.
async fn update_overall_used(
    api: &dyn Api,
    quota: &Object,
    used: &QuotaResourceList,
) -> Result<(), Error> {
    let mut body = quota.value()?;
    body["status"]["overallUsed"] =
        serde_json::to_value(used).map_err(|e| Error::Protocol(e.to_string()))?;
    let path = ResourcePath::of_object(&QUOTAS, quota).subresource("status");
    let written = api
        .update(path, body.into(), &WriteOptions::default())
        .await;
    written.map(drop)
}

/// Refunds the charge of a write that was not stored. What cannot be refunded is
/// corrected by the next recalculation.
pub(crate) async fn refund_quotas(api: &dyn Api, charge: &QuotaChargesOfWrite) {
    for (name, share) in &charge.charged {
        let refund: QuotaResourceList = share.iter().map(|(n, q)| (n.clone(), -*q)).collect();
        if let Err(error) = refund_quota(api, &charge.namespace, name, &refund).await {
            let namespace = &charge.namespace;
            tracing::warn!(%namespace, %name, %error, "failed to refund a quota; its usage is too high until the next recalculation");
        }
    }
}

async fn refund_quota(
    api: &dyn Api,
    namespace: &str,
    name: &str,
    refund: &QuotaResourceList,
) -> Result<(), Error> {
    let mut attempts = 0..MAX_CONFLICT_RETRIES;
    loop {
        let quota = match api
            .get(ResourcePath::object(&QUOTAS, namespace, name))
            .await
        {
            Err(e) if e.is_not_found() => return Ok(()),
            other => other?,
        };
        let current = quota.decode::<FederatedResourceQuota>()?;
        let used = add_usage(&current.status.overall_used, refund);
        match update_overall_used(api, &quota, &used).await {
            Err(e) if e.is_conflict() && attempts.next().is_some() => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests;
