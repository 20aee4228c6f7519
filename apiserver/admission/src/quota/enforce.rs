//! Enforces FederatedResourceQuotas: charges a binding's usage to every quota of its
//! namespace before the binding is stored.
//!
//! Writes `status.overallUsed` of the quotas, or rejects the binding with the reason
//! `QuotaExceeded`. Decisions do no I/O; [`charge_quotas`] and [`refund_quotas`] carry
//! them out. Rules and texts of Karmada's `pkg/webhook/resourcebinding`; unlike
//! Karmada, which waits for the next recalculation, the charge of a failed write is
//! refunded.

use client::{Api, At, Error, ListOptions, WriteOptions};
use machinery::{Object, Quantity, Status};
use openapi::karmada::quota::{Amounts, add, concerns_usage, difference, limited, usage};
use openapi::karmada::resources::QUOTAS;
use openapi::karmada::{BindingSpec, FederatedResourceQuota};
use serde::Deserialize;
use serde_json::Value;

use crate::attributes::{Attributes, Operation};
use crate::chain::{PAGE, webhook};
use crate::tree::get;

const EXCEEDED: &str = "QuotaExceeded";
/// Bound on retries after conflicting writes of one quota.
const ATTEMPTS: usize = 16;

/// What a write was charged, by quota.
#[derive(Debug, Default)]
pub struct Charge {
    namespace: String,
    shares: Vec<(String, Amounts)>,
}

impl Charge {
    pub(crate) fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }
}

/// The increase in usage by a binding; `None` when quotas do not apply.
pub(crate) fn demand(
    operation: Operation,
    new: &Value,
    old: Option<&Value>,
) -> Result<Option<Amounts>, Status> {
    let spec = |binding| BindingSpec::deserialize(get(binding, "/spec")).map_err(Status::internal);
    if old.is_some_and(|old| get(old, "/spec") == get(new, "/spec")) {
        return Ok(None);
    }
    let new = spec(new)?;
    let old = old.map(spec).transpose()?;
    let more = match old {
        None if operation == Operation::Create && new.clusters.is_empty() => return Ok(None),
        Some(old) if !concerns_usage(&old, &new) => return Ok(None),
        old => difference(
            &usage(&new),
            &old.map(|old| usage(&old)).unwrap_or_default(),
        ),
    };
    Ok((!more.is_empty()).then_some(more))
}

/// The quota's usage after adding `more`, or the message of a rejection. `None` when
/// the quota does not limit any of it. A decrease is never rejected, even above the
/// limit.
fn raised(
    quota: &FederatedResourceQuota,
    key: &str,
    more: &Amounts,
) -> Result<Option<Amounts>, String> {
    let overall = &quota.spec.overall;
    let share = limited(more, overall);
    if share.is_empty() {
        return Ok(None);
    }
    let used = shifted(&quota.status.overall_used, &share);
    for (name, _) in share.iter().filter(|(_, more)| !more.is_negative()) {
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
fn shifted(used: &Amounts, by: &Amounts) -> Amounts {
    let mut sum = used.clone();
    for (name, amount) in by {
        add(&mut sum, name.clone(), *amount);
    }
    let all = sum.into_iter().filter(|(_, q)| *q > Quantity::ZERO);
    all.map(|(name, q)| {
        let saturating = |q: i128| i64::try_from(q).unwrap_or(i64::MAX);
        let plain = match &*name {
            "cpu" => Quantity::from_milli(saturating(q.milli())),
            "memory" | "ephemeral-storage" => Quantity::from_bytes(saturating(q.value())),
            n if n.starts_with("hugepages-") => Quantity::from_bytes(saturating(q.value())),
            _ => Quantity::from_units(saturating(q.value())),
        };
        (name, plain)
    })
    .collect()
}

/// Charges all quotas of the namespace, or none.
pub(crate) async fn charge(
    api: &dyn Api,
    attributes: &Attributes<'_>,
    more: &Amounts,
) -> Result<Charge, Status> {
    let mut charge = Charge {
        namespace: attributes.namespace.to_owned(),
        shares: Vec::new(),
    };
    for quota in quotas(api, attributes.namespace).await? {
        let name = quota.name().to_owned();
        match raise(api, attributes, quota, more).await {
            Ok(None) => {}
            Ok(Some(share)) => charge.shares.push((name, share)),
            Err(refused) => {
                refund(api, &charge).await;
                return Err(refused);
            }
        }
    }
    Ok(charge)
}

async fn quotas(api: &dyn Api, namespace: &str) -> Result<Vec<Object>, Status> {
    let mut options = ListOptions {
        limit: PAGE,
        ..ListOptions::default()
    };
    let mut all = Vec::new();
    loop {
        let page = api.list(At::all(&QUOTAS, namespace), &options).await;
        let page = page.map_err(|e| {
            Status::internal(format!("failed to list FederatedResourceQuotas: {e}"))
        })?;
        all.extend(page.items);
        if page.continue_token.is_empty() {
            return Ok(all);
        }
        options.continue_token = page.continue_token;
    }
}

/// Charges one quota. Returns the charged amounts; `None` when it does not apply or the
/// request is a dry run.
async fn raise(
    api: &dyn Api,
    attributes: &Attributes<'_>,
    mut quota: Object,
    more: &Amounts,
) -> Result<Option<Amounts>, Status> {
    let mut attempts = 0..ATTEMPTS;
    loop {
        let current = quota.view::<FederatedResourceQuota>();
        let current = current.map_err(Status::internal)?;
        let key = quota.head().key();
        let raised = raised(&current, &key, more);
        let Some(used) = raised.map_err(|why| exceeded(attributes, &why))? else {
            return Ok(None);
        };
        if attributes.dry_run {
            return Ok(None);
        }
        match store(api, &quota, &used).await {
            Ok(()) => return Ok(Some(limited(more, &current.spec.overall))),
            Err(e) if e.is_conflict() && attempts.next().is_some() => {
                match api.get(At::of(&QUOTAS, &quota)).await {
                    Ok(newer) => quota = newer,
                    Err(e) if e.is_not_found() => return Ok(None),
                    Err(e) => return Err(failed(attributes, &e)),
                }
            }
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(failed(attributes, &e)),
        }
    }
}

fn exceeded(attributes: &Attributes<'_>, why: &str) -> Status {
    Status {
        reason: EXCEEDED.into(),
        ..Status::denied(&webhook(attributes), why)
    }
}

fn failed(attributes: &Attributes<'_>, error: &Error) -> Status {
    let (namespace, name) = (attributes.namespace, attributes.name);
    let what = if error.is_conflict() {
        "failed to apply FederatedResourceQuota updates after multiple retries"
    } else {
        "permanent error updating FRQ statuses"
    };
    Status::internal(format!("{what} for RB {namespace}/{name}: {error}"))
}

/// Updates the used amounts, unless the quota has changed since it was read.
async fn store(api: &dyn Api, quota: &Object, used: &Amounts) -> Result<(), Error> {
    let mut body = quota.value()?;
    body["status"]["overallUsed"] =
        serde_json::to_value(used).map_err(|e| Error::Protocol(e.to_string()))?;
    let at = At::of(&QUOTAS, quota).sub("status");
    let written = api.update(at, body, &WriteOptions::default()).await;
    written.map(drop)
}

/// Refunds the charge of a write that was not stored. What cannot be refunded is
/// corrected by the next recalculation.
pub(crate) async fn refund(api: &dyn Api, charge: &Charge) {
    for (name, share) in &charge.shares {
        let back: Amounts = share.iter().map(|(n, q)| (n.clone(), -*q)).collect();
        if let Err(error) = lower(api, &charge.namespace, name, &back).await {
            let namespace = &charge.namespace;
            tracing::warn!(%namespace, %name, %error, "failed to refund a quota; its usage is too high until the next recalculation");
        }
    }
}

async fn lower(api: &dyn Api, namespace: &str, name: &str, back: &Amounts) -> Result<(), Error> {
    let mut attempts = 0..ATTEMPTS;
    loop {
        let quota = match api.get(At::one(&QUOTAS, namespace, name)).await {
            Err(e) if e.is_not_found() => return Ok(()),
            other => other?,
        };
        let current = quota.view::<FederatedResourceQuota>()?;
        let used = shifted(&current.status.overall_used, back);
        match store(api, &quota, &used).await {
            Err(e) if e.is_conflict() && attempts.next().is_some() => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests;
