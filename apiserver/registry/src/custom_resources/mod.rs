//! Serves the custom resources of established CustomResourceDefinitions, one entry of the
//! resource table for each served version.
//!
//! Each version is written, validated, cached and watched in itself. Its store converts
//! objects that are stored in another form ([`versioned_store`]). A definition that never
//! changed has no object in another form than that of its storage version, whose cache
//! then stands on the store itself.
//!
//! A definition is established by the write that creates it (`definition_names`); a controller
//! writes its conditions later.

mod conversion_review;
mod converter;
mod versioned_store;

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use kubernetes_cel::RuleValidator;
use machinery::{Gvk, Gvr, Object};
use openapi::{
    DefinitionSummary, KindInfo, PrinterColumn, ResourceNames, ScalePaths, Schema, is_established,
    shadows_built_in,
};
use serde_json::Value;
use storage::Store;
use tokio::sync::watch;
use watchcache::{CacherOptions, WatchCaches};

pub(crate) use self::converter::{ConversionWebhookClient, CustomResourceConverter};
pub(crate) use self::versioned_store::VersionedStore;
use crate::conversion::VersionConversion;
use crate::metrics::ResourceStoreMetrics;
use crate::resource_table::{ResourceInfo, ResourceStorage, subresources, version_priority};
use crate::selectable_fields::SelectableField;
use crate::strategy;

/// The served resources of one CRD at one revision.
pub(crate) struct ServedResourcesOfCrd {
    pub(crate) revision: u64,
    /// The ids of the caches of its custom resources.
    pub(crate) cache_ids: Vec<String>,
    pub(crate) resources: Vec<Arc<ResourceInfo>>,
    pub(crate) summary: DefinitionSummary,
    /// Whether every stored object has the form of the storage version.
    has_one_form: bool,
    /// Objects written until this revision may have been written under another definition.
    schema_revision: u64,
    /// The hash of the served definition, and a sender whose drop ends the watches of `resources`.
    crd_hash_and_watch: (u64, watch::Sender<()>),
}

/// The served resources of all CRDs, by the name of the CRD.
pub(crate) type ServedCrds = HashMap<String, ServedResourcesOfCrd>;

/// The result of a synchronization.
#[derive(Default)]
pub(crate) struct CrdSyncResult {
    pub(crate) changed: bool,
    /// The ids of caches that are no longer used.
    pub(crate) closed_caches: Vec<String>,
}

/// The parts from which the resources of all definitions are built.
pub(crate) struct CustomResourceOptions<'a> {
    pub(crate) builtin: &'a [Arc<ResourceInfo>],
    pub(crate) caches: &'a WatchCaches,
    pub(crate) webhook_client: &'a ConversionWebhookClient,
    /// The revision at which the definitions were listed.
    pub(crate) revision: u64,
}

/// Synchronizes `customs` with the CRDs that exist. Unchanged CRDs keep their resources; a
/// CRD with a schema that cannot be converted is served without one; a CRD that requests a
/// name of a built-in resource is not served, whatever its status says.
pub(crate) fn sync_definitions(
    customs: &mut ServedCrds,
    crds: &[Object],
    options: &CustomResourceOptions<'_>,
) -> CrdSyncResult {
    let mut outcome = CrdSyncResult::default();
    let names: HashSet<&str> = crds.iter().map(Object::name).collect();
    customs.retain(|name, custom| {
        let keep = names.contains(name.as_str());
        if !keep {
            outcome.changed = true;
            outcome.closed_caches.append(&mut custom.cache_ids);
        }
        keep
    });
    for crd in crds {
        let served = customs.get(crd.name());
        if served.is_some_and(|c| c.revision == crd.revision()) {
            continue;
        }
        let Ok(value) = crd.value() else {
            tracing::error!(
                crd = crd.name(),
                "failed to decode the CustomResourceDefinition; it is not served"
            );
            continue;
        };
        let custom = served_crd(crd, &value, served, options);
        outcome.changed |=
            !custom.resources.is_empty() || served.is_some_and(|c| !c.resources.is_empty());
        let closed_ids = served.into_iter().flat_map(|c| &c.cache_ids);
        outcome.closed_caches.extend(
            closed_ids
                .filter(|id| !custom.cache_ids.contains(id))
                .cloned(),
        );
        customs.insert(crd.name().to_owned(), custom);
    }
    outcome
}

/// The resources of a CRD. With the same definition as before they have the same caches and
/// do not end the watches.
fn served_crd(
    crd: &Object,
    value: &Value,
    served: Option<&ServedResourcesOfCrd>,
    options: &CustomResourceOptions<'_>,
) -> ServedResourcesOfCrd {
    let hash = fingerprint(value);
    let unchanged = served.filter(|c| c.crd_hash_and_watch.0 == hash);
    let watches = unchanged.map_or_else(
        || watch::Sender::new(()),
        |c| c.crd_hash_and_watch.1.clone(),
    );
    // A change that this process sees happen may have been preceded by writes under the
    // definition before it, up to now.
    let schema_revision = match (unchanged, served) {
        (Some(unchanged), _) => unchanged.schema_revision,
        (None, Some(_)) => options.revision,
        (None, None) => crd.revision(),
    };
    // The first definition of a kind has no objects of another one. A deletion raises the
    // generation too.
    let has_one_form = unchanged.map_or(crd.meta().generation <= 1, |unchanged| {
        unchanged.has_one_form
    });
    let mut custom = ServedResourcesOfCrd {
        revision: crd.revision(),
        has_one_form,
        cache_ids: Vec::new(),
        resources: Vec::new(),
        summary: DefinitionSummary::of(value),
        schema_revision,
        crd_hash_and_watch: (hash, watches),
    };
    let is_served = is_established(value)
        && has_accepted_names(value)
        && !shadows_built_in_kind(value, options.builtin);
    if is_served {
        serve_versions(value, crd.meta().deleting, &mut custom, options);
    }
    custom
}

/// Whether the plural name and a kind of the CRD are accepted.
fn has_accepted_names(crd: &Value) -> bool {
    let (names, accepted) = (&crd["spec"]["names"], &crd["status"]["acceptedNames"]);
    names["plural"] == accepted["plural"] && !string_field(accepted, "kind").is_empty()
}

/// Whether a name of the CRD is that of a built-in kind in its group.
fn shadows_built_in_kind(crd: &Value, builtin: &[Arc<ResourceInfo>]) -> bool {
    let group = string_field(&crd["spec"], "group");
    shadows_built_in(crd, &built_in_names(builtin, group))
}

/// The names of the built-in kinds of a group.
pub(crate) fn built_in_names(builtin: &[Arc<ResourceInfo>], group: &str) -> Vec<ResourceNames> {
    let same_group = builtin
        .iter()
        .filter(|resource| *resource.kind.gvr.group == *group);
    same_group
        .map(|resource| ResourceNames::from(&*resource.kind))
        .collect()
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

/// Adds the resources and caches of all served versions to `custom`.
fn serve_versions(
    crd: &Value,
    deleting: bool,
    custom: &mut ServedResourcesOfCrd,
    options: &CustomResourceOptions<'_>,
) {
    let versions: Vec<&Value> = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let Some(stored) = versions.iter().find(|v| v["storage"] == true) else {
        return;
    };
    let stored = kind_info(crd, stored).gvk;
    let schemas = versions.iter().map(|version| {
        let api_version = kind_info(crd, version).gvk.api_version();
        (api_version, version_schema(crd, version))
    });
    let conversion = &crd["spec"]["conversion"];
    let converter =
        CustomResourceConverter::new(schemas.collect(), conversion, options.webhook_client);
    let converter = Arc::new(converter);
    let (hash, watches) = &custom.crd_hash_and_watch;
    for version in versions.iter().filter(|v| v["served"] == true) {
        let kind = Arc::new(kind_info(crd, version));
        let prefix = &kind.storage_prefix;
        let (id, cache, versioned_store) = match custom.has_one_form && kind.gvk == stored {
            true => (prefix.clone(), options.caches.cacher(prefix), None),
            false => {
                let store = Arc::new(VersionedStore::new(
                    Arc::clone(options.caches.store()),
                    Arc::clone(&converter),
                    kind.gvk.clone(),
                    stored.clone(),
                    custom.schema_revision,
                ));
                let id = format!("{prefix}{}@{hash:016x}", kind.gvk.version);
                let as_store: Arc<dyn Store> = Arc::clone(&store) as _;
                let cacher = CacherOptions::default();
                let cache = options.caches.cacher_of(&id, prefix, &as_store, cacher);
                (id, cache, Some(store))
            }
        };
        custom.cache_ids.push(id);
        let storage = Arc::new(ResourceStorage {
            schema: version_schema(crd, version),
            cache,
            strategy: strategy::custom_resource_strategy(kind.status),
            metrics: ResourceStoreMetrics::default(),
            versioned_store,
            converter: Some(Arc::clone(&converter)),
            kind: Arc::clone(&kind),
        });
        let mut info = custom_resource_info(version, deleting, watches, storage);
        info.deprecation_warning = deprecation_warning(crd, version);
        custom.resources.push(Arc::new(info));
    }
}

fn custom_resource_info(
    version: &Value,
    deleting: bool,
    watches: &watch::Sender<()>,
    storage: Arc<ResourceStorage>,
) -> ResourceInfo {
    let kind = &storage.kind;
    let mut verbs = kind.verbs.clone();
    // No creates while the CRD is deleted; custom resources with finalizers can still be
    // updated.
    if deleting {
        verbs.retain(|v| v != "create");
    }
    ResourceInfo {
        schema: storage.schema.clone(),
        custom: true,
        verbs,
        subresources: subresources(kind),
        conversion: VersionConversion::Stored,
        selectable_fields: selectable_fields(version),
        rules: RuleValidator::compile(&version["schema"]["openAPIV3Schema"]),
        definition_watch: Some(watches.subscribe()),
        deprecation_warning: None,
        kind: Arc::clone(kind),
        storage,
    }
}

/// The warning of a deprecated version: its own, or one that names the newest version to use
/// (`defaultDeprecationWarning` in `customresource_handler.go`).
fn deprecation_warning(crd: &Value, version: &Value) -> Option<String> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return Some(warning.to_owned());
    }
    let spec = &crd["spec"];
    let (group, kind) = (
        string_field(spec, "group"),
        string_field(&spec["names"], "kind"),
    );
    let name = string_field(version, "name");
    let versions = spec["versions"].as_array().into_iter().flatten();
    let current = versions
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| string_field(other, "name"))
        .filter(|other| version_priority(other) > version_priority(name))
        .max_by_key(|other| version_priority(other));
    let mut warning = format!("{group}/{name} {kind} is deprecated");
    if let Some(current) = current {
        warning.push_str(&format!("; use {group}/{current} {kind}"));
    }
    Some(warning)
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
    Schema::from_crd(raw).unwrap_or_else(|message| {
        tracing::warn!(crd = string_field(&crd["metadata"], "name"), why = %message, "failed to convert the schema; unknown fields are preserved");
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
