//! Charges the quotas of a write: the ResourceQuotas of its namespace, and the
//! FederatedResourceQuotas of a binding.

use karmada_api::KarmadaFeature;
use machinery::Status;
use serde_json::Value;

use super::{AdmissionChain, is_object_write};
use crate::attributes::AdmissionAttributes;
use crate::federated_quota::quota_enforcement::{self, QuotaChargesOfWrite};
use crate::resource_quota::{self, ResourceQuotaCharges};

/// The charges of a write, by ResourceQuotas and by FederatedResourceQuotas.
#[derive(Debug, Default)]
pub struct QuotaCharges {
    resources: ResourceQuotaCharges,
    federated: QuotaChargesOfWrite,
}

impl AdmissionChain {
    /// Charges quotas for a valid write, as the last step before it is stored. When the
    /// write fails, the caller must [`refund`](Self::refund_quota) the charge.
    pub async fn charge_quota(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<QuotaCharges, Status> {
        let mut charges = QuotaCharges::default();
        if let Some(api) = self.api.get() {
            let quotas = resource_quota::list_quotas(&**api, attributes).await?;
            if !quotas.is_empty() {
                let _quota_guard = self.quota_lock.lock().await;
                charges.resources =
                    resource_quota::charge_quotas(&**api, quotas, attributes, new, old).await?;
            }
        }
        match self.charge_federated_quota(attributes, new, old).await {
            Ok(charged) => charges.federated = charged,
            Err(rejection) => {
                self.refund_quota(&charges).await;
                return Err(rejection);
            }
        }
        Ok(charges)
    }

    async fn charge_federated_quota(
        &self,
        attributes: &AdmissionAttributes<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<QuotaChargesOfWrite, Status> {
        let bindings = (&*attributes.gvk.group, &*attributes.gvk.kind)
            == ("work.karmada.io", "ResourceBinding");
        let enforced = self
            .options
            .feature_gates
            .enabled(KarmadaFeature::FederatedQuotaEnforcement);
        if !enforced || !bindings || !is_object_write(attributes) {
            return Ok(QuotaChargesOfWrite::default());
        }
        let Some(increase) = quota_enforcement::usage_increase(attributes.operation, new, old)?
        else {
            return Ok(QuotaChargesOfWrite::default());
        };
        let api = self.api()?;
        let _quota_guard = self.quota_lock.lock().await;
        quota_enforcement::charge_quotas(&**api, attributes, &increase).await
    }

    /// Refunds the charge of a write that was not stored.
    pub async fn refund_quota(&self, charges: &QuotaCharges) {
        let QuotaCharges {
            resources,
            federated,
        } = charges;
        if let Some(api) = self.api.get()
            && (!resources.is_empty() || !federated.is_empty())
        {
            let _quota_guard = self.quota_lock.lock().await;
            resource_quota::refund_quotas(&**api, resources).await;
            quota_enforcement::refund_quotas(&**api, federated).await;
        }
    }
}
