//! Finds the resource of a scale target by discovery.

use client::{Api, Result};
use karmada_api::cron_federated_hpa::ScaleTargetReference;
use machinery::Gvr;
use machinery::names::split_api_version;

/// The namespaced resource of the target's kind; `None` if the server does not serve it.
pub(crate) async fn resolve_resource(
    api: &dyn Api,
    target: &ScaleTargetReference,
) -> Result<Option<Gvr>> {
    let (group, version) = split_api_version(&target.api_version);
    let discovered = api.discover_groups(&|g: &str| g == group).await?;
    let served = discovered
        .resources
        .into_iter()
        .find(|r| r.kind == target.kind && *r.resource.version == *version && r.namespaced);
    Ok(served.map(|r| r.resource))
}
