//! Allocates what a write needs before it is stored, and releases it if the write fails:
//! the addresses of Services, and usage charged to quotas.

use admission::Charge;
use machinery::Status;
use serde_json::Value;

use crate::accept::Admit;
use crate::registry::Registry;
use crate::strategy::services::Drawn;

/// What was allocated for a write.
#[derive(Default)]
pub(crate) struct Taken {
    addresses: Drawn,
    charge: Charge,
}

impl Admit<'_> {
    pub(crate) async fn take(&self, new: &mut Value, old: Option<&Value>) -> Result<Taken, Status> {
        let registry = self.registry;
        let addresses = registry.draw(self.resource, new, old, self.dry_run).await?;
        let mut allocation = Taken {
            addresses,
            ..Taken::default()
        };
        let chain = &registry.options.chain;
        match chain.charge(&self.attributes(), new, old).await {
            Ok(charge) => allocation.charge = charge,
            Err(error) => {
                registry.give_back(&allocation).await;
                return Err(error);
            }
        }
        Ok(allocation)
    }
}

impl Registry {
    pub(crate) async fn give_back(&self, allocation: &Taken) {
        self.undo(&allocation.addresses).await;
        self.options.chain.refund(&allocation.charge).await;
    }
}
