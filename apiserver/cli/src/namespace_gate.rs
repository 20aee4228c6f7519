//! Reads to which clusters a Namespace restricts what lies in it, with the user's own rights.

use anyhow::Context;
use client::{Api, ResourcePath, ignore_not_found};
use karmada_api::names;
use karmada_api::resources::CLUSTER_BINDINGS;
use machinery::Gvr;

static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");

/// The clusters, by name; `None` if the Namespace restricts nothing, or if the user may not read
/// it.
pub(crate) async fn read_gate(
    api: &dyn Api,
    namespace: &str,
) -> anyhow::Result<Option<Vec<String>>> {
    if namespace.is_empty() {
        return Ok(None);
    }
    let at = ResourcePath::object(&NAMESPACES, "", namespace);
    let Ok(object) = api.get(at).await else {
        return Ok(None);
    };
    if !controller_context::has_namespace_gate(&object) {
        return Ok(None);
    }
    let binding = names::binding_name("Namespace", namespace);
    let at = ResourcePath::object(&CLUSTER_BINDINGS, "", &binding);
    let binding = ignore_not_found(api.get(at).await);
    let binding = binding.context("the binding of the namespace cannot be read")?;
    Ok(controller_context::gated_clusters(
        &object,
        binding.as_ref(),
    ))
}
