//! The ComponentStatuses of this server, computed for each request
//! (`pkg/registry/core/componentstatus`). The store, whatever its engine, has the name of
//! Kubernetes' etcd. Controllers and scheduler are parts of this process and not listed.

use std::sync::Arc;

use async_trait::async_trait;
use machinery::{Gvr, LabelSelector, Object, Status};
use serde_json::json;

use crate::computed_resources::{
    ComputedListRequest, ComputedObjects, ComputedResourceProvider, RegistryReader,
};

/// Whether the store answers, or why it does not. Does no I/O.
pub type StoreHealthProbe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

pub(crate) static COMPONENT_STATUSES: Gvr = Gvr::from_static("", "v1", "componentstatuses");
const STORE_COMPONENT: &str = "etcd-0";

/// Provides the ComponentStatuses.
pub(crate) struct ComponentStatuses {
    pub(crate) store_health: StoreHealthProbe,
}

#[async_trait]
impl ComputedResourceProvider for ComponentStatuses {
    async fn list(
        &self,
        _: &dyn RegistryReader,
        request: &ComputedListRequest<'_>,
    ) -> Result<ComputedObjects, Status> {
        let labels = LabelSelector::parse(request.label_selector).map_err(Status::bad_request)?;
        let mut statuses = component_statuses(&self.store_health)?;
        statuses.retain(|status| labels.matches(|key| status.meta().label(key)));
        Ok(statuses.into())
    }
}

/// The ComponentStatuses, by name.
fn component_statuses(store_health: &StoreHealthProbe) -> Result<Vec<Object>, Status> {
    let condition = match store_health() {
        Ok(()) => json!({"type": "Healthy", "status": "True", "message": "ok"}),
        Err(message) => json!({"type": "Healthy", "status": "False", "error": message}),
    };
    let status = json!({
        "apiVersion": "v1", "kind": "ComponentStatus",
        "metadata": {"name": STORE_COMPONENT}, "conditions": [condition],
    });
    Ok(vec![Object::from_value(&status).map_err(Status::internal)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_component_status_of_the_store_is_its_health() {
        let condition = |health: StoreHealthProbe| {
            let statuses = component_statuses(&health).unwrap();
            assert_eq!(statuses[0].name(), "etcd-0");
            statuses[0].value().unwrap()["conditions"][0].clone()
        };
        assert_eq!(
            condition(Arc::new(|| Ok(()))),
            json!({"type": "Healthy", "status": "True", "message": "ok"})
        );
        assert_eq!(
            condition(Arc::new(|| Err("no leader".into()))),
            json!({"type": "Healthy", "status": "False", "error": "no leader"})
        );
    }
}
