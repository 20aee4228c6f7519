//! Allocates what a write needs before it is stored, and releases it if the write fails:
//! the addresses of Services, and usage charged to quotas.

use admission::QuotaCharges;
use machinery::Status;
use serde_json::Value;

use crate::registry::Registry;
use crate::strategy::services::ServiceAllocation;
use crate::write_pipeline::AdmissionContext;

/// The allocations for a write.
#[derive(Default)]
pub(crate) struct WriteAllocation {
    addresses: ServiceAllocation,
    charge: QuotaCharges,
}

impl AdmissionContext<'_> {
    pub(crate) async fn allocate(
        &self,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<WriteAllocation, Status> {
        let registry = self.registry;
        let addresses = registry
            .allocate_service_addresses(self.resource, new, old, self.dry_run)
            .await?;
        let mut allocation = WriteAllocation {
            addresses,
            ..WriteAllocation::default()
        };
        let chain = &registry.options.admission_chain;
        match chain.charge_quota(&self.attributes(), new, old).await {
            Ok(charge) => allocation.charge = charge,
            Err(error) => {
                registry.release_allocation(&allocation).await;
                return Err(error);
            }
        }
        Ok(allocation)
    }
}

impl Registry {
    pub(crate) async fn release_allocation(&self, allocation: &WriteAllocation) {
        self.undo_service_allocation(&allocation.addresses).await;
        self.options
            .admission_chain
            .refund_quota(&allocation.charge)
            .await;
    }
}
