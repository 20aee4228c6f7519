//! Reads whether a FederatedTypeConfig switches the propagation of a kind off, with the user's own
//! rights.

use client::{Api, ApiResource, ResourcePath};
use karmada_api::resources::FEDERATED_TYPE_CONFIGS;
use karmada_api::{FederatedTypeConfig, TYPE_CONFIG_NAMESPACE};

/// `namespace/name` of the configuration; none for users who may not read it.
pub(crate) async fn find_disabling_config(api: &dyn Api, kind: &ApiResource) -> Option<String> {
    let (plural, group) = (&kind.resource.resource, &kind.resource.group);
    let name = match group.is_empty() {
        true => plural.to_string(),
        false => format!("{plural}.{group}"),
    };
    let at = ResourcePath::object(&FEDERATED_TYPE_CONFIGS, TYPE_CONFIG_NAMESPACE, &name);
    let config = api.get(at).await.ok()?;
    let view = config.decode::<FederatedTypeConfig>().ok()?;
    (!view.propagates()).then(|| config.meta().key())
}
