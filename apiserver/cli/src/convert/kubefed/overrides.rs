//! Converts `spec.overrides` of a federated object to the rules of an override policy.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};

use super::fields;
use crate::convert::conversion::{Conversion, Severity};

const REPLICAS: &str = "/spec/replicas";
const LABELS: &str = "/metadata/labels";
/// The overriders that change one map of metadata key by key.
const METADATA_MAPS: [(&str, &str); 2] = [
    (LABELS, "labelsOverrider"),
    ("/metadata/annotations", "annotationsOverrider"),
];

/// The map as a whole also holds what the member's controllers need.
const KEY_BY_KEY: &str = "a policy changes labels and annotations key by key";

/// The rules of a federated object. Clusters with the same overrides share a rule. A replica
/// preference writes replicas as overrides; with one these are left out.
pub(super) fn rules(
    object: &Value,
    text: &str,
    has_preference: bool,
    conversion: &mut Conversion,
) -> anyhow::Result<Vec<Value>> {
    let mut clusters = BTreeSet::new();
    let mut clusters_by_overriders: BTreeMap<String, (Value, Vec<&str>)> = BTreeMap::new();
    let labels = &object["spec"]["template"]["metadata"]["labels"];
    let labels = fields::text_map(labels, "spec.template.metadata.labels")?;
    let labels = labels.cloned().unwrap_or_default();
    let items = fields::list(&object["spec"]["overrides"], "spec.overrides")?;
    for (index, item) in items.unwrap_or_default().iter().enumerate() {
        let field = format!("spec.overrides[{index}]");
        let cluster = item["clusterName"].as_str();
        let cluster = cluster.with_context(|| format!("{field}.clusterName: must be set"))?;
        ensure!(
            clusters.insert(cluster),
            "{field}.clusterName: {cluster} appears more than once"
        );
        let overrides = &item["clusterOverrides"];
        let overrides = fields::list(overrides, &format!("{field}.clusterOverrides"))?;
        let mut overriders = Overriders::default();
        for (index, change) in overrides.unwrap_or_default().iter().enumerate() {
            let field = format!("{field}.clusterOverrides[{index}]");
            let path = change["path"].as_str();
            let path = path.with_context(|| format!("{field}.path: must be set"))?;
            ensure!(
                overriders.paths.insert(path.to_owned()),
                "{field}.path: {path} appears more than once"
            );
            if has_preference && path == REPLICAS {
                continue;
            }
            let reason = match no_equal(path) {
                Some(reason) => Some(reason),
                None => overriders.add(change, path, &field, &labels)?,
            };
            if let Some(reason) = reason {
                conversion.report(Severity::Loss, text, &format!("{field}.path"), reason);
            }
        }
        if let Some(overriders) = overriders.value() {
            let key = overriders.to_string();
            let entry = clusters_by_overriders.entry(key);
            entry.or_insert((overriders, Vec::new())).1.push(cluster);
        }
    }
    let rules = clusters_by_overriders.into_values();
    let rules = rules.map(|(overriders, clusters)| {
        json!({"targetCluster": {"clusterNames": clusters}, "overriders": overriders})
    });
    Ok(rules.collect())
}

/// Why no override policy may change a path.
fn no_equal(path: &str) -> Option<&'static str> {
    match path {
        "/apiVersion" => Some("a copy has the version of its template"),
        "/kind" | "/metadata/name" | "/metadata/namespace" | "/metadata/generateName" => {
            Some("KubeFed refuses this path too")
        }
        path if path == "/metadata/finalizers" || path.starts_with("/metadata/finalizers/") => {
            Some("finalizers of copies belong to the member")
        }
        _ => None,
    }
}

/// The overriders of one cluster.
#[derive(Default)]
struct Overriders {
    paths: BTreeSet<String>,
    plaintext: Vec<Value>,
    metadata: BTreeMap<&'static str, Vec<Value>>,
}

impl Overriders {
    /// Adds an override to a template with these labels, or returns the reason why it has no
    /// equal. An operation that is not given replaces.
    fn add(
        &mut self,
        change: &Value,
        path: &str,
        field: &str,
        labels: &Map<String, Value>,
    ) -> anyhow::Result<Option<&'static str>> {
        ensure!(path.starts_with('/'), "{field}.path: must begin with /");
        let operator = fields::text(&change["op"], &format!("{field}.op"))?;
        let operator = match operator.unwrap_or_default() {
            "" | "replace" => "replace",
            operator @ ("add" | "remove") => operator,
            operator => bail!("{field}.op: {operator} is none of add, remove and replace"),
        };
        let value_field = format!("{field}.value");
        for (map, overrider) in METADATA_MAPS {
            if map == path {
                if operator == "remove" {
                    return Ok(Some(KEY_BY_KEY));
                }
                let value = fields::text_map(&change["value"], &value_field)?;
                let value = value.cloned().unwrap_or_default();
                // Copies have no annotations of the template.
                let is_complete = map != LABELS || labels.keys().all(|k| value.contains_key(k));
                return Ok(self.add_map(overrider, value, is_complete));
            }
            let Some(key) = path.strip_prefix(map).and_then(|key| key.strip_prefix('/')) else {
                continue;
            };
            let key = key.replace("~1", "/").replace("~0", "~");
            let value = match operator {
                "remove" => None,
                _ => fields::text(&change["value"], &value_field)?,
            };
            ensure!(
                operator == "remove" || value.is_some(),
                "{value_field}: must be a string"
            );
            let value = value.unwrap_or_default();
            let change = json!({"operator": operator, "value": {key: value}});
            self.metadata.entry(overrider).or_default().push(change);
            return Ok(None);
        }
        let mut plaintext = json!({"operator": operator, "path": path});
        if operator != "remove" {
            plaintext["value"] = change["value"].clone();
        }
        self.plaintext.push(plaintext);
        Ok(None)
    }

    /// Adds the keys of a map of metadata that takes the place of the whole. It may not have to
    /// take keys away: neither those of the template, nor those of overrides before it.
    fn add_map(
        &mut self,
        overrider: &'static str,
        value: Map<String, Value>,
        is_complete: bool,
    ) -> Option<&'static str> {
        if !is_complete || self.metadata.contains_key(overrider) {
            return Some(KEY_BY_KEY);
        }
        if !value.is_empty() {
            let change = json!({"operator": "add", "value": value});
            self.metadata.insert(overrider, vec![change]);
        }
        None
    }

    fn value(self) -> Option<Value> {
        let mut overriders = json!({});
        if !self.plaintext.is_empty() {
            overriders["plaintext"] = json!(self.plaintext);
        }
        for (overrider, changes) in self.metadata {
            overriders[overrider] = json!(changes);
        }
        (overriders != json!({})).then_some(overriders)
    }
}
