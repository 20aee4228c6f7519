//! Serves the custom resources of established CustomResourceDefinitions, one entry of the
//! resource table for each served version.
//!
//! A controller, not this module, writes the conditions that establish a CRD.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kubernetes_cel::RuleValidator;
use machinery::{Gvk, Gvr, Object};
use openapi::{KindInfo, PrinterColumn, ResourceNames, ScalePaths, Schema, shadows_built_in};
use serde_json::Value;
use tokio::sync::watch;
use watchcache::WatchCaches;

use crate::conversion::VersionConversion;
use crate::metrics::ResourceStoreMetrics;
use crate::resource_table::{ResourceInfo, ResourceStorage, subresources};
use crate::selectable_fields::SelectableField;
use crate::strategy;

/// The served resources of one CRD at one revision.
pub(crate) struct ServedResourcesOfCrd {
    pub(crate) revision: u64,
    /// The storage prefix of its custom resources; `None` while they are not served.
    pub(crate) prefix: Option<String>,
    pub(crate) resources: Vec<Arc<ResourceInfo>>,
    /// The hash of the served definition, and a sender whose drop ends the watches of `resources`.
    crd_hash_and_watch: (u64, watch::Sender<()>),
}

/// The served resources of all CRDs, by the name of the CRD.
pub(crate) type ServedCrds = HashMap<String, ServedResourcesOfCrd>;

/// The result of a synchronization.
#[derive(Default)]
pub(crate) struct CrdSyncResult {
    pub(crate) changed: bool,
    /// Storage prefixes that are no longer served.
    pub(crate) closed_prefixes: Vec<String>,
}

/// Synchronizes `customs` with the CRDs that exist. Unchanged CRDs keep their resources; a
/// CRD with a schema that cannot be converted is served without one; a CRD that requests a
/// name of a built-in resource is not served, whatever its status says.
pub(crate) fn sync_definitions(
    customs: &mut ServedCrds,
    crds: &[Object],
    builtin: &[Arc<ResourceInfo>],
    hub: &Arc<WatchCaches>,
) -> CrdSyncResult {
    let mut outcome = CrdSyncResult::default();
    customs.retain(|name, custom| {
        let keep = crds.iter().any(|c| c.name() == name);
        if !keep {
            outcome.changed = true;
            outcome.closed_prefixes.extend(custom.prefix.take());
        }
        keep
    });
    for crd in crds {
        let known = customs.get(crd.name());
        if known.is_some_and(|c| c.revision == crd.revision()) {
            continue;
        }
        let Ok(value) = crd.value() else {
            tracing::error!(
                crd = crd.name(),
                "failed to decode the CustomResourceDefinition; it is not served"
            );
            continue;
        };
        let served = fingerprint(&value);
        let watches = known.filter(|c| c.crd_hash_and_watch.0 == served);
        let watches = watches.map_or_else(
            || watch::Sender::new(()),
            |c| c.crd_hash_and_watch.1.clone(),
        );
        let is_served = is_established(&value)
            && has_accepted_names(&value)
            && !shadows_built_in_kind(&value, builtin);
        let rows = if is_served {
            served_resources(&value, crd.meta().deleting, hub, &watches)
        } else {
            Vec::new()
        };
        let prefix = is_served.then(|| storage_prefix(&value));
        outcome.changed |= !rows.is_empty() || known.is_some_and(|c| !c.resources.is_empty());
        if prefix.is_none() {
            outcome
                .closed_prefixes
                .extend(known.and_then(|c| c.prefix.clone()));
        }
        let custom = ServedResourcesOfCrd {
            revision: crd.revision(),
            prefix,
            resources: rows,
            crd_hash_and_watch: (served, watches),
        };
        customs.insert(crd.name().to_owned(), custom);
    }
    outcome
}

fn is_established(crd: &Value) -> bool {
    crd["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Whether the plural name and a kind of the CRD are accepted.
fn has_accepted_names(crd: &Value) -> bool {
    let (names, accepted) = (&crd["spec"]["names"], &crd["status"]["acceptedNames"]);
    names["plural"] == accepted["plural"] && !string_field(accepted, "kind").is_empty()
}

/// Whether a name of the CRD is that of a built-in kind in its group.
fn shadows_built_in_kind(crd: &Value, builtin: &[Arc<ResourceInfo>]) -> bool {
    let group = string_field(&crd["spec"], "group");
    let same_group = builtin
        .iter()
        .filter(|resource| *resource.kind.gvr.group == *group);
    let built_in_names: Vec<ResourceNames> = same_group
        .map(|resource| ResourceNames::from(&*resource.kind))
        .collect();
    shadows_built_in(crd, &built_in_names)
}

/// A hash of the parts of a CRD that determine how custom resources are served. Their
/// watches end when it changes, as in kube-apiserver (`updateCustomResourceDefinition` in
/// `customresource_handler.go`).
fn fingerprint(crd: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    let parts = [
        &crd["metadata"]["uid"],
        &crd["spec"],
        &crd["status"]["acceptedNames"],
    ];
    for part in parts {
        part.hash(&mut hasher);
    }
    hasher.finish()
}

fn string_field<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

fn string_list(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect()
}

fn storage_prefix(crd: &Value) -> String {
    let spec = &crd["spec"];
    KindInfo::default_storage_prefix(
        string_field(spec, "group"),
        string_field(&spec["names"], "plural"),
    )
}

fn served_resources(
    crd: &Value,
    deleting: bool,
    hub: &Arc<WatchCaches>,
    watches: &watch::Sender<()>,
) -> Vec<Arc<ResourceInfo>> {
    let versions: Vec<&Value> = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let Some(storage) = versions.iter().find(|v| v["storage"] == true) else {
        return Vec::new();
    };
    let stored_kind = Arc::new(kind_info(crd, storage));
    let stored = Arc::new(ResourceStorage {
        schema: version_schema(crd, storage),
        cache: hub.cacher(&stored_kind.storage_prefix),
        strategy: strategy::custom_resource_strategy(stored_kind.status),
        metrics: ResourceStoreMetrics::default(),
        kind: stored_kind,
    });
    versions
        .iter()
        .filter(|v| v["served"] == true)
        .map(|version| {
            let kind = kind_info(crd, version);
            let mut verbs = kind.verbs.clone();
            // No creates while the CRD is deleted; custom resources with finalizers can
            // still be updated.
            if deleting {
                verbs.retain(|v| v != "create");
            }
            Arc::new(ResourceInfo {
                schema: version_schema(crd, version),
                custom: true,
                verbs,
                subresources: subresources(&kind),
                conversion: if kind.gvk == stored.kind.gvk {
                    VersionConversion::Stored
                } else {
                    VersionConversion::ApiVersionOnly
                },
                selectable_fields: selectable_fields(version),
                rules: RuleValidator::compile(&version["schema"]["openAPIV3Schema"]),
                definition_watch: Some(watches.subscribe()),
                storage: Arc::clone(&stored),
                kind: Arc::new(kind),
            })
        })
        .collect()
}

fn selectable_fields(version: &Value) -> Vec<SelectableField> {
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    fields
        .filter_map(|f| f["jsonPath"].as_str())
        .map(SelectableField::custom)
        .collect()
}

fn version_schema(crd: &Value, version: &Value) -> Schema {
    let raw = &version["schema"]["openAPIV3Schema"];
    if raw.is_null() || crd["spec"]["preserveUnknownFields"] == true {
        return Schema::preserving_unknown_fields();
    }
    Schema::from_crd(raw).unwrap_or_else(|why| {
        tracing::warn!(crd = string_field(&crd["metadata"], "name"), %why, "failed to convert the schema; unknown fields are preserved");
        Schema::preserving_unknown_fields()
    })
}

fn kind_info(crd: &Value, version: &Value) -> KindInfo {
    let (spec, names) = (&crd["spec"], &crd["status"]["acceptedNames"]);
    let (group, plural) = (string_field(spec, "group"), string_field(names, "plural"));
    let kind = string_field(names, "kind");
    let or = |name: &str, otherwise: String| {
        if name.is_empty() {
            otherwise
        } else {
            name.to_owned()
        }
    };
    let subresources = &version["subresources"];
    let scale = subresources["scale"].as_object().map(|_| ScalePaths {
        spec: string_field(&subresources["scale"], "specReplicasPath").to_owned(),
        status: string_field(&subresources["scale"], "statusReplicasPath").to_owned(),
        selector: string_field(&subresources["scale"], "labelSelectorPath").to_owned(),
    });
    KindInfo {
        gvk: Gvk::new(group, string_field(version, "name"), kind),
        gvr: Gvr::new(group, string_field(version, "name"), plural),
        list_kind: or(string_field(names, "listKind"), format!("{kind}List")),
        singular: or(string_field(names, "singular"), kind.to_lowercase()),
        short_names: string_list(&names["shortNames"]),
        categories: string_list(&names["categories"]),
        namespaced: string_field(spec, "scope") == "Namespaced",
        status: subresources["status"].is_object(),
        scale,
        columns: printer_columns(version),
        verbs: KindInfo::default_verbs(),
        storage_prefix: storage_prefix(crd),
        ..KindInfo::default()
    }
}

fn printer_columns(version: &Value) -> Vec<PrinterColumn> {
    let listed = version["additionalPrinterColumns"]
        .as_array()
        .into_iter()
        .flatten();
    listed
        .filter_map(|c| {
            let mut column = PrinterColumn::new(
                string_field(c, "name"),
                string_field(c, "type"),
                string_field(c, "jsonPath"),
            )
            .ok()?;
            column.format = string_field(c, "format").to_owned();
            match string_field(c, "description") {
                "" => {}
                description => description.clone_into(&mut column.description),
            }
            column.priority = c["priority"]
                .as_i64()
                .and_then(|p| p.try_into().ok())
                .unwrap_or(0);
            Some(column)
        })
        .collect()
}
