//! Serves the custom resources of established CustomResourceDefinitions, one entry of the
//! resource table for each served version.
//!
//! A controller, not this module, writes the conditions that establish a CRD.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use machinery::{Gvk, Gvr, Object};
use openapi::{Column, Kind, ResourceNames, Scale, Schema, shadows_built_in};
use serde_json::Value;
use tokio::sync::watch;
use watchcache::Hub;

use crate::fields::Field;
use crate::figures::Timings;
use crate::strategy;
use crate::table::{Row, Stored, subresources};
use crate::view::View;

/// The served resources of one CRD at one revision.
pub(crate) struct Custom {
    pub(crate) revision: u64,
    /// The storage prefix of its custom resources; `None` while they are not served.
    pub(crate) prefix: Option<String>,
    pub(crate) rows: Vec<Arc<Row>>,
    /// The hash of the served definition, and a sender whose drop ends the watches of `resources`.
    served: (u64, watch::Sender<()>),
}

/// The served resources of all CRDs, by the name of the CRD.
pub(crate) type Customs = HashMap<String, Custom>;

/// The result of a synchronization.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) changed: bool,
    /// Storage prefixes that are no longer served.
    pub(crate) closed: Vec<String>,
}

/// Synchronizes `customs` with the CRDs that exist. Unchanged CRDs keep their resources; a
/// CRD with a schema that cannot be converted is served without one; a CRD that requests a
/// name of a built-in resource is not served, whatever its status says.
pub(crate) fn sync(
    customs: &mut Customs,
    crds: &[Object],
    builtin: &[Arc<Row>],
    hub: &Arc<Hub>,
) -> Outcome {
    let mut outcome = Outcome::default();
    customs.retain(|name, custom| {
        let keep = crds.iter().any(|c| c.name() == name);
        if !keep {
            outcome.changed = true;
            outcome.closed.extend(custom.prefix.take());
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
        let watches = known.filter(|c| c.served.0 == served);
        let watches = watches.map_or_else(|| watch::Sender::new(()), |c| c.served.1.clone());
        let is_served = established(&value) && accepted(&value) && !shadows(&value, builtin);
        let rows = if is_served {
            rows(&value, crd.head().deleting, hub, &watches)
        } else {
            Vec::new()
        };
        let prefix = is_served.then(|| prefix(&value));
        outcome.changed |= !rows.is_empty() || known.is_some_and(|c| !c.rows.is_empty());
        if prefix.is_none() {
            outcome.closed.extend(known.and_then(|c| c.prefix.clone()));
        }
        let custom = Custom {
            revision: crd.revision(),
            prefix,
            rows,
            served: (served, watches),
        };
        customs.insert(crd.name().to_owned(), custom);
    }
    outcome
}

fn established(crd: &Value) -> bool {
    crd["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Whether the plural name and a kind of the CRD are accepted.
fn accepted(crd: &Value) -> bool {
    let (names, accepted) = (&crd["spec"]["names"], &crd["status"]["acceptedNames"]);
    names["plural"] == accepted["plural"] && !text(accepted, "kind").is_empty()
}

/// Whether a name of the CRD is that of a built-in kind in its group.
fn shadows(crd: &Value, builtin: &[Arc<Row>]) -> bool {
    let group = text(&crd["spec"], "group");
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

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or("")
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect()
}

fn prefix(crd: &Value) -> String {
    let spec = &crd["spec"];
    Kind::default_prefix(text(spec, "group"), text(&spec["names"], "plural"))
}

fn rows(crd: &Value, deleting: bool, hub: &Arc<Hub>, watches: &watch::Sender<()>) -> Vec<Arc<Row>> {
    let versions: Vec<&Value> = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let Some(storage) = versions.iter().find(|v| v["storage"] == true) else {
        return Vec::new();
    };
    let stored_kind = Arc::new(kind(crd, storage));
    let stored = Arc::new(Stored {
        schema: schema(crd, storage),
        cache: hub.resource(&stored_kind.storage_prefix),
        strategy: strategy::custom(stored_kind.status),
        timings: Timings::default(),
        kind: stored_kind,
    });
    versions
        .iter()
        .filter(|v| v["served"] == true)
        .map(|version| {
            let kind = kind(crd, version);
            let mut verbs = kind.verbs.clone();
            // No creates while the CRD is deleted; custom resources with finalizers can
            // still be updated.
            if deleting {
                verbs.retain(|v| v != "create");
            }
            Arc::new(Row {
                schema: schema(crd, version),
                custom: true,
                verbs,
                subresources: subresources(&kind),
                view: if kind.gvk == stored.kind.gvk {
                    View::Stored
                } else {
                    View::Renamed
                },
                fields: selectable(version),
                definition: Some(watches.subscribe()),
                stored: Arc::clone(&stored),
                kind: Arc::new(kind),
            })
        })
        .collect()
}

fn selectable(version: &Value) -> Vec<Field> {
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    fields
        .filter_map(|f| f["jsonPath"].as_str())
        .map(Field::custom)
        .collect()
}

fn schema(crd: &Value, version: &Value) -> Schema {
    let raw = &version["schema"]["openAPIV3Schema"];
    if raw.is_null() || crd["spec"]["preserveUnknownFields"] == true {
        return Schema::keep_all();
    }
    Schema::from_crd(raw).unwrap_or_else(|why| {
        tracing::warn!(crd = text(&crd["metadata"], "name"), %why, "failed to convert the schema; unknown fields are preserved");
        Schema::keep_all()
    })
}

fn kind(crd: &Value, version: &Value) -> Kind {
    let (spec, names) = (&crd["spec"], &crd["status"]["acceptedNames"]);
    let (group, plural) = (text(spec, "group"), text(names, "plural"));
    let kind = text(names, "kind");
    let or = |name: &str, otherwise: String| {
        if name.is_empty() {
            otherwise
        } else {
            name.to_owned()
        }
    };
    let subresources = &version["subresources"];
    let scale = subresources["scale"].as_object().map(|_| Scale {
        spec: text(&subresources["scale"], "specReplicasPath").to_owned(),
        status: text(&subresources["scale"], "statusReplicasPath").to_owned(),
        selector: text(&subresources["scale"], "labelSelectorPath").to_owned(),
    });
    Kind {
        gvk: Gvk::new(group, text(version, "name"), kind),
        gvr: Gvr::new(group, text(version, "name"), plural),
        list_kind: or(text(names, "listKind"), format!("{kind}List")),
        singular: or(text(names, "singular"), kind.to_lowercase()),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: text(spec, "scope") == "Namespaced",
        status: subresources["status"].is_object(),
        scale,
        columns: columns(version),
        verbs: Kind::default_verbs(),
        storage_prefix: prefix(crd),
        ..Kind::default()
    }
}

fn columns(version: &Value) -> Vec<Column> {
    let listed = version["additionalPrinterColumns"]
        .as_array()
        .into_iter()
        .flatten();
    listed
        .filter_map(|c| {
            let mut column =
                Column::new(text(c, "name"), text(c, "type"), text(c, "jsonPath")).ok()?;
            column.format = text(c, "format").to_owned();
            column.description = text(c, "description").to_owned();
            column.priority = c["priority"]
                .as_i64()
                .and_then(|p| p.try_into().ok())
                .unwrap_or(0);
            Some(column)
        })
        .collect()
}
