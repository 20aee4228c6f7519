//! Enforces ResourceQuotas: charges what a write uses to every quota of its namespace that
//! counts it, before the write is stored (`pkg/admission/plugin/resourcequota`).
//!
//! The controller of quotas sets `status.hard` and recalculates `status.used`; until then a
//! quota limits nothing. A charge is a write of the status that fails if the quota changed.

use client::{Api, Error, ResourcePath, WriteOptions};
use machinery::{Gvr, Object, Quantity, Status};
use quota::ResourceList;
use quota::resource_quota::{self, ResourceQuota};
use serde_json::Value;

use crate::attributes::{AdmissionAttributes, AdmissionOperation};
use crate::list_objects::list_cached;

static QUOTAS: Gvr = Gvr::from_static("", "v1", "resourcequotas");
/// Bound on retries after conflicting writes of one quota.
const MAX_CONFLICT_RETRIES: usize = 16;

/// The charges of a write, by quota.
#[derive(Debug, Default)]
pub(crate) struct ResourceQuotaCharges {
    namespace: String,
    charged: Vec<(String, ResourceList)>,
}

impl ResourceQuotaCharges {
    pub(crate) fn is_empty(&self) -> bool {
        self.charged.is_empty()
    }
}

/// A write with the resources that it additionally uses.
struct ChargedWrite<'a> {
    attributes: &'a AdmissionAttributes<'a>,
    name: &'a str,
    object: &'a Value,
    old: Option<&'a Value>,
    increase: ResourceList,
}

/// The quotas of the namespace, if the write may use any.
pub(crate) async fn list_quotas(
    api: &dyn Api,
    attributes: &AdmissionAttributes<'_>,
) -> Result<Vec<Object>, Status> {
    let is_event = &*attributes.gvr.resource == "events";
    let uses = match attributes.operation {
        AdmissionOperation::Create => attributes.subresource.is_empty(),
        // Requests of pods do not change.
        AdmissionOperation::Update => {
            attributes.subresource.is_empty()
                && resource_quota::usage_may_change(attributes.gvr)
                && &*attributes.gvr.resource != "pods"
        }
        _ => false,
    };
    if !uses || is_event || attributes.namespace.is_empty() {
        return Ok(Vec::new());
    }
    list_cached(api, &QUOTAS, attributes.namespace).await
}

/// Charges the quotas that count the object, or none.
pub(crate) async fn charge_quotas(
    api: &dyn Api,
    quotas: Vec<Object>,
    attributes: &AdmissionAttributes<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Result<ResourceQuotaCharges, Status> {
    let mut charges = ResourceQuotaCharges {
        namespace: attributes.namespace.to_owned(),
        charged: Vec::new(),
    };
    let write = ChargedWrite {
        attributes,
        name: new["metadata"]["name"].as_str().unwrap_or(attributes.name),
        object: new,
        old,
        increase: usage_increase(attributes.gvr, new, old),
    };
    for quota in quotas {
        let name = quota.name().to_owned();
        match write.charge_quota(api, quota).await {
            Ok(None) => {}
            Ok(Some(share)) => charges.charged.push((name, share)),
            Err(rejection) => {
                refund_quotas(api, &charges).await;
                return Err(rejection);
            }
        }
    }
    Ok(charges)
}

/// The usage of the new object minus the usage of the old one.
fn usage_increase(resource: &Gvr, new: &Value, old: Option<&Value>) -> ResourceList {
    let before = old.map(|old| resource_quota::usage(resource, old));
    let before = before.unwrap_or_default();
    let mut increase = resource_quota::usage(resource, new);
    for (name, amount) in &mut increase {
        if let Some(used) = before.get(name) {
            *amount -= *used;
        }
    }
    increase.retain(|_, amount| *amount > Quantity::ZERO);
    increase
}

impl ChargedWrite<'_> {
    fn forbidden(&self, message: impl std::fmt::Display) -> Status {
        Status::forbidden(self.attributes.gvr, self.name, message)
    }

    /// Charges one quota. Returns the charged amounts; `None` when it does not count the
    /// object or the request is a dry run.
    async fn charge_quota(
        &self,
        api: &dyn Api,
        mut quota: Object,
    ) -> Result<Option<ResourceList>, Status> {
        let mut attempts = 0..MAX_CONFLICT_RETRIES;
        loop {
            let current = quota.decode::<ResourceQuota>().map_err(Status::internal)?;
            let Some((share, used)) = self.usage_after(quota.name(), &current)? else {
                return Ok(None);
            };
            if self.attributes.dry_run {
                return Ok(None);
            }
            match update_used(api, &quota, &used).await {
                Ok(()) => return Ok(Some(share)),
                Err(e) if e.is_not_found() => return Ok(None),
                Err(e) if e.is_conflict() && attempts.next().is_some() => {
                    match api.get(ResourcePath::of_object(&QUOTAS, &quota)).await {
                        Ok(newer) => quota = newer,
                        Err(e) if e.is_not_found() => return Ok(None),
                        Err(e) => return Err(Status::internal(e)),
                    }
                }
                Err(e) => return Err(Status::internal(e)),
            }
        }
    }

    /// The charged amounts and the quota's usage with them.
    fn usage_after(
        &self,
        name: &str,
        quota: &ResourceQuota,
    ) -> Result<Option<(ResourceList, ResourceList)>, Status> {
        let resource = self.attributes.gvr;
        if !quota.spec.covers(resource, self.object) {
            return Ok(None);
        }
        let (hard, used) = (&quota.status.hard, &quota.status.used);
        let mut limits = hard.clone();
        limits.retain(|name, _| resource_quota::counts(name, resource));
        if let Some(message) =
            resource_quota::missing_container_resources(resource, self.object, &limits)
        {
            return Err(self.forbidden(format!("failed quota: {name}: {message}")));
        }
        if limits.keys().any(|resource| !used.contains_key(resource)) {
            let names: Vec<&str> = limits.keys().map(String::as_str).collect();
            let names = names.join(",");
            return Err(self.forbidden(format!(
                "status unknown for quota: {name}, resources: {names}"
            )));
        }
        let mut share = match self.old {
            // The quota counts the object from now on.
            Some(old) if !quota.spec.covers(resource, old) => {
                usage_increase(resource, self.object, None)
            }
            _ => self.increase.clone(),
        };
        share.retain(|resource, _| hard.contains_key(resource));
        if share.is_empty() {
            return Ok(None);
        }
        let after = add(used, &share);
        let mut exceeded = share.clone();
        exceeded.retain(|resource, _| after.get(resource) > hard.get(resource));
        if exceeded.is_empty() {
            return Ok(Some((share, after)));
        }
        let masked = |amounts: &ResourceList| {
            let listed = amounts
                .iter()
                .filter(|(name, _)| exceeded.contains_key(*name));
            let listed: Vec<String> = listed.map(|(name, q)| format!("{name}={q}")).collect();
            listed.join(",")
        };
        Err(self.forbidden(format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            masked(&share),
            masked(used),
            masked(hard)
        )))
    }
}

fn add(used: &ResourceList, increase: &ResourceList) -> ResourceList {
    let mut sum = used.clone();
    for (name, amount) in increase {
        *sum.entry(name.clone()).or_insert(Quantity::ZERO) += *amount;
    }
    sum
}

/// Updates the usage, unless the quota has changed since it was read.
async fn update_used(api: &dyn Api, quota: &Object, used: &ResourceList) -> Result<(), Error> {
    let mut body = quota.value()?;
    body["status"]["used"] =
        serde_json::to_value(used).map_err(|e| Error::Protocol(e.to_string()))?;
    let path = ResourcePath::of_object(&QUOTAS, quota).subresource("status");
    let written = api
        .update(path, body.into(), &WriteOptions::default())
        .await;
    written.map(drop)
}

/// Refunds the charge of a write that was not stored. What cannot be refunded is corrected
/// by the next recalculation.
pub(crate) async fn refund_quotas(api: &dyn Api, charges: &ResourceQuotaCharges) {
    let namespace = &charges.namespace;
    for (name, share) in &charges.charged {
        if let Err(error) = refund_quota(api, namespace, name, share).await {
            tracing::warn!(%namespace, %name, %error, "failed to refund a quota; its usage is too high until the next recalculation");
        }
    }
}

async fn refund_quota(
    api: &dyn Api,
    namespace: &str,
    name: &str,
    share: &ResourceList,
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
        let mut used = quota.decode::<ResourceQuota>()?.status.used.clone();
        for (name, amount) in share {
            if let Some(sum) = used.get_mut(name) {
                *sum = (*sum - *amount).max(Quantity::ZERO);
            }
        }
        match update_used(api, &quota, &used).await {
            Err(e) if e.is_conflict() && attempts.next().is_some() => {}
            other => return other,
        }
    }
}
