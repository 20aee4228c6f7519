//! Checks whether a group version can be taken over from CustomResourceDefinitions of the
//! host, such as those of a Karmada installation.
//!
//! A host registers an APIService by itself for each version that one of its definitions
//! serves, labels it as automanaged, and reconciles APIServices with that label
//! (`kube-aggregator/pkg/controllers/autoregister`), but no others. Once the APIService
//! leads to Flotilla, the objects of the definition can no longer be reached, so there
//! must be none.

use std::sync::Arc;

use anyhow::{Context, bail};
use client::{Api, ListOptions, ResourcePath};
use machinery::conditions::is_condition_true;
use machinery::{Gvr, Object};
use serde_json::Value;

static CRDS: Gvr = Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
/// The label: "true" for definitions, "onstart" for kinds of the host itself.
pub const AUTOMANAGED_LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Whether the host registered an APIService by itself for its definitions.
pub(super) fn is_automanaged(service: &Value) -> bool {
    service["metadata"]["labels"][AUTOMANAGED_LABEL] == "true"
        && !service["spec"]["service"].is_object()
}

/// The definitions of the host that serve a group version and have no objects. Fails when
/// one has objects; the error says what to do.
pub(super) async fn crds_without_objects(
    host: &Arc<dyn Api>,
    group: &str,
    version: &str,
) -> anyhow::Result<Vec<String>> {
    let all = ResourcePath::collection(&CRDS, "");
    let definitions = host.list(all, &ListOptions::default()).await;
    let definitions = definitions.context("CustomResourceDefinitions of the host")?;
    let mut names = Vec::new();
    for definition in definitions.items {
        let name = definition.name();
        let Some(plural) = served_plural(&definition, group, version)? else {
            continue;
        };
        let resource = Gvr::new(group.to_owned(), version.to_owned(), plural);
        let first = ListOptions {
            limit: 1,
            ..ListOptions::default()
        };
        let objects = host
            .list(ResourcePath::collection(&resource, ""), &first)
            .await;
        let objects = objects
            .with_context(|| format!("objects of CustomResourceDefinition {name} of the host"))?;
        if let Some(object) = objects.items.first() {
            bail!(
                "CustomResourceDefinition {name} of the host has objects, as {:?}, which would be \
                 hidden: take them over (start Flotilla with --await-takeover and run flotilla \
                 takeover), or save them (kubectl get {name} --all-namespaces -o yaml), delete \
                 the definition (kubectl delete crd {name}), start Flotilla, and apply them again",
                object.meta().key()
            );
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

/// The resource that a definition serves in a version; one that was never established
/// serves none.
fn served_plural(
    definition: &Object,
    group: &str,
    version: &str,
) -> anyhow::Result<Option<String>> {
    let value = definition.value()?;
    let has = |list: &Value, matches: &dyn Fn(&Value) -> bool| {
        list.as_array().is_some_and(|all| all.iter().any(matches))
    };
    let spec = &value["spec"];
    let serves = spec["group"] == group
        && has(&spec["versions"], &|v| {
            v["name"] == version && v["served"] == true
        })
        && is_condition_true(&value, "Established");
    let plural = spec["names"]["plural"].as_str().map(str::to_owned);
    Ok(plural.filter(|_| serves))
}
