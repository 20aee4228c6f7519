//! Reads what a FederatedTypeConfig switches off for a kind, with the user's own rights.

use client::{Api, ApiResource, ResourcePath};
use karmada_api::resources::FEDERATED_TYPE_CONFIGS;
use karmada_api::{FederatedTypeConfig, TYPE_CONFIG_NAMESPACE};

/// The configurations, as `namespace/name`, that switch something off.
#[derive(Debug, Default)]
pub(crate) struct DisablingConfigs {
    /// The one that switches the propagation off.
    pub(crate) propagation: Option<String>,
    /// The one that switches the collection of the status off.
    pub(crate) status: Option<String>,
}

/// The switches that are off for a kind; none for users who may not read the configuration.
pub(crate) async fn find_disabling_configs(api: &dyn Api, kind: &ApiResource) -> DisablingConfigs {
    let (plural, group) = (&kind.resource.resource, &kind.resource.group);
    let name = match group.is_empty() {
        true => plural.to_string(),
        false => format!("{plural}.{group}"),
    };
    let at = ResourcePath::object(&FEDERATED_TYPE_CONFIGS, TYPE_CONFIG_NAMESPACE, &name);
    let Ok(config) = api.get(at).await else {
        return DisablingConfigs::default();
    };
    let Ok(view) = config.decode::<FederatedTypeConfig>() else {
        return DisablingConfigs::default();
    };
    let key = config.meta().key();
    DisablingConfigs {
        propagation: (!view.propagates()).then(|| key.clone()),
        status: (!view.collects_status()).then_some(key),
    }
}
