//! Converts `spec.overrides` of a federated object to the rules of an override policy.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::convert::conversion::{Conversion, Severity};

const REPLICAS: &str = "/spec/replicas";
/// The overriders that change one map of metadata key by key.
const METADATA_MAPS: [(&str, &str); 2] = [
    ("/metadata/labels", "labelsOverrider"),
    ("/metadata/annotations", "annotationsOverrider"),
];

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
    let items = object["spec"]["overrides"].as_array();
    for (index, item) in items.into_iter().flatten().enumerate() {
        let field = format!("spec.overrides[{index}]");
        let cluster = item["clusterName"].as_str();
        let cluster = cluster.with_context(|| format!("{field}.clusterName: must be set"))?;
        ensure!(
            clusters.insert(cluster),
            "{field}.clusterName: {cluster} appears more than once"
        );
        let overrides = item["clusterOverrides"].as_array();
        let mut overriders = Overriders::default();
        for (index, change) in overrides.into_iter().flatten().enumerate() {
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
            if let Some(reason) = no_equal(path) {
                conversion.report(Severity::Loss, text, &format!("{field}.path"), reason);
                continue;
            }
            overriders.add(change, path, &field)?;
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
    /// Adds an override. An operation that is not given replaces.
    fn add(&mut self, change: &Value, path: &str, field: &str) -> anyhow::Result<()> {
        ensure!(path.starts_with('/'), "{field}.path: must begin with /");
        let operator = match change["op"].as_str().unwrap_or_default() {
            "" | "replace" => "replace",
            operator @ ("add" | "remove") => operator,
            operator => bail!("{field}.op: {operator} is none of add, remove and replace"),
        };
        // The map as a whole also holds what the member's controllers need, so that its keys are
        // set one by one.
        let map = METADATA_MAPS.iter().find(|(map, _)| *map == path);
        if let (Some((_, overrider)), Some(value)) = (map, change["value"].as_object()) {
            let change = json!({"operator": "add", "value": value});
            self.metadata.entry(overrider).or_default().push(change);
            return Ok(());
        }
        for (map, overrider) in METADATA_MAPS {
            let Some(key) = path.strip_prefix(map).and_then(|key| key.strip_prefix('/')) else {
                continue;
            };
            let key = key.replace("~1", "/").replace("~0", "~");
            let value = change["value"].as_str().unwrap_or_default();
            let change = json!({"operator": operator, "value": {key: value}});
            self.metadata.entry(overrider).or_default().push(change);
            return Ok(());
        }
        let mut plaintext = json!({"operator": operator, "path": path});
        if operator != "remove" {
            plaintext["value"] = change["value"].clone();
        }
        self.plaintext.push(plaintext);
        Ok(())
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
