//! Reads from the `managedFields` of an object in a member which fields this control plane set,
//! and which ones another manager set. The member wrote them, so their number is bounded.

use std::collections::{BTreeMap, BTreeSet};

use machinery::Object;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The managers whose fields are this control plane's: the user agent of Flotilla, and those of
/// Karmada, from which a member may have been taken over.
const OWN_MANAGERS: [&str; 3] = ["flotilla", "karmada-controller-manager", "karmada-agent"];
/// Kubernetes keeps about ten managers that update, beside those that apply.
const MAX_MANAGERS: usize = 100;
/// `fieldManager` has at most 128 characters.
const MAX_SHOWN_MANAGER_CHARS: usize = 128;

/// The managers of an object's fields.
pub(crate) struct FieldManagers(Vec<ManagedFieldsEntry>);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ManagedFieldsEntry {
    manager: String,
    subresource: String,
    fields_v1: Value,
}

impl ManagedFieldsEntry {
    fn is_own(&self) -> bool {
        self.subresource.is_empty() && OWN_MANAGERS.contains(&self.manager.as_str())
    }
}

#[derive(Deserialize)]
struct ObjectWithManagers {
    metadata: MetadataWithManagers,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataWithManagers {
    #[serde(default)]
    managed_fields: Vec<ManagedFieldsEntry>,
}

impl FieldManagers {
    /// The managers of an object; `None` if the server does not track them.
    pub(crate) fn from_object(object: &Object) -> Option<Self> {
        let parsed: ObjectWithManagers = machinery::json::from_slice(&object.bytes()).ok()?;
        let mut entries = parsed.metadata.managed_fields;
        entries.truncate(MAX_MANAGERS);
        (!entries.is_empty()).then_some(Self(entries))
    }

    /// Who owns the object and the fields below it.
    pub(crate) fn owners(&self) -> FieldOwners<'_> {
        let fields = |own: bool| {
            let entries = self.0.iter().filter(move |entry| entry.is_own() == own);
            entries.map(|entry| &entry.fields_v1).collect()
        };
        FieldOwners {
            ours: fields(true),
            others: fields(false),
        }
    }

    /// The other manager that owns the field at a path of `fieldsV1` keys, or what contains it.
    pub(crate) fn other_manager_of(&self, path: &[String]) -> Option<String> {
        let others = self.0.iter().filter(|entry| !entry.is_own());
        let depth = |entry: &ManagedFieldsEntry| {
            let mut node = &entry.fields_v1;
            let mut depth = 0;
            for key in path {
                match node.get(key) {
                    Some(child) => node = child,
                    None => break,
                }
                depth += 1;
            }
            let is_whole = node.as_object().is_none_or(Map::is_empty);
            (depth == path.len() || (depth > 0 && is_whole)).then_some(depth)
        };
        let (_, owner) = others
            .filter_map(|entry| Some((depth(entry)?, entry)))
            .max_by_key(|(depth, _)| *depth)?;
        let name = owner.manager.chars().filter(|c| !c.is_control());
        Some(name.take(MAX_SHOWN_MANAGER_CHARS).collect())
    }
}

/// Who owns one field: the places of the field in the sets of this control plane and of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldOwners<'a> {
    ours: Vec<&'a Value>,
    others: Vec<&'a Value>,
}

impl<'a> FieldOwners<'a> {
    pub(crate) fn field(&self, name: &str) -> Self {
        let key = format!("f:{name}");
        let below = |nodes: &[&'a Value]| nodes.iter().filter_map(|node| node.get(&key)).collect();
        Self {
            ours: below(&self.ours),
            others: below(&self.others),
        }
    }

    /// Whether this control plane set the field, or something in it.
    pub(crate) fn is_ours(&self) -> bool {
        !self.ours.is_empty()
    }

    /// Whether this control plane set the field as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        let mut nodes = self.ours.iter();
        nodes.any(|node| node.as_object().is_none_or(Map::is_empty))
    }

    /// The owners of the elements of a list.
    pub(crate) fn elements(&self) -> ElementOwners<'a> {
        let mut elements = ElementOwners::default();
        for (nodes, is_own) in [(&self.ours, true), (&self.others, false)] {
            let children = nodes.iter().filter_map(|node| node.as_object()).flatten();
            for (key, node) in children {
                elements.insert(key, node, is_own);
            }
        }
        elements
    }

    /// The part of a value that this control plane did not set, or that another manager set too;
    /// `None` if nothing is left.
    pub(crate) fn unowned_part(&self, value: &Value) -> Option<Value> {
        if !self.is_ours() {
            return Some(value.clone());
        }
        let rest = match value {
            Value::Object(fields) if !self.is_whole() => {
                let rest: Map<String, Value> = fields
                    .iter()
                    .filter_map(|(name, value)| {
                        Some((name.clone(), self.field(name).unowned_part(value)?))
                    })
                    .collect();
                (!rest.is_empty()).then(|| rest.into())
            }
            Value::Array(items) if !self.is_whole() => {
                let elements = self.elements();
                let rest: Vec<Value> = items
                    .iter()
                    .filter_map(|item| {
                        let rest = elements.owners_of(item).unowned_part(item)?;
                        Some(elements.with_key(rest, item))
                    })
                    .collect();
                (!rest.is_empty()).then(|| rest.into())
            }
            _ => None,
        };
        match rest {
            None if !self.others.is_empty() => Some(value.clone()),
            rest => rest,
        }
    }
}

/// Who owns the elements of a list, by their keys or values.
#[derive(Debug, Default)]
pub(crate) struct ElementOwners<'a> {
    /// The names of the fields that key elements.
    key_names: BTreeSet<Vec<String>>,
    /// By the key, or by the value of a set's element, as JSON.
    by_key: BTreeMap<String, FieldOwners<'a>>,
}

impl<'a> ElementOwners<'a> {
    fn insert(&mut self, key: &str, node: &'a Value, is_own: bool) {
        let (keyed, json) = match key.split_once(':') {
            Some(("k", json)) => (true, json),
            Some(("v", json)) => (false, json),
            _ => return,
        };
        let Ok(key) = machinery::json::from_str::<Value>(json) else {
            return;
        };
        if let (true, Value::Object(fields)) = (keyed, &key) {
            self.key_names.insert(fields.keys().cloned().collect());
        }
        let owners = self.by_key.entry(key.to_string()).or_default();
        match is_own {
            true => owners.ours.push(node),
            false => owners.others.push(node),
        }
    }

    /// The names of the fields that key elements, if the list is keyed.
    pub(crate) fn key_names(&self) -> Option<&[String]> {
        self.key_names.first().map(Vec::as_slice)
    }

    /// The remainder of an element, with the fields that key it.
    fn with_key(&self, mut rest: Value, item: &Value) -> Value {
        if let Some(rest) = rest.as_object_mut() {
            for name in self.key_names.iter().flatten() {
                if let Some(value) = item.get(name) {
                    rest.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        rest
    }

    pub(crate) fn owners_of(&self, item: &Value) -> FieldOwners<'a> {
        let keyed = self.key_names.iter().find_map(|names| {
            let fields = names
                .iter()
                .map(|name| Some((name.clone(), item.get(name)?.clone())));
            let key: Map<String, Value> = fields.collect::<Option<_>>()?;
            self.by_key.get(&Value::from(key).to_string())
        });
        let owners = keyed.or_else(|| self.by_key.get(&item.to_string()));
        owners.cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn managers(entries: Value) -> FieldManagers {
        let object = json!({"metadata": {"name": "a", "managedFields": entries}});
        let object = Object::from_json(serde_json::to_vec(&object).unwrap().into()).unwrap();
        FieldManagers::from_object(&object).unwrap()
    }

    fn entry(manager: &str, subresource: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Update", "subresource": subresource, "fieldsV1": fields})
    }

    #[test]
    fn what_only_this_control_plane_set_goes() {
        let own_fields = json!({"f:spec": {
            "f:a": {}, "f:both": {}, "f:moved": {"f:x": {}},
            "f:map": {".": {}, "f:k": {}}, "f:gone": {".": {}, "f:k": {}}, "f:whole": {},
            "f:list": {".": {}, "k:{\"name\":\"o\"}": {".": {}, "f:name": {}, "f:v": {}}},
            "f:set": {"v:\"o\"": {}}, "f:empty": {}}});
        let foreign_fields = json!({"f:spec": {"f:both": {}, "f:empty": {"f:t": {}}, "f:map": {"f:t": {}},
            "f:list": {"k:{\"name\":\"o\"}": {"f:t": {}}, "k:{\"name\":\"t\"}": {}}}});
        let managers = managers(json!([
            entry("flotilla", "", own_fields),
            entry("injector", "", foreign_fields),
            entry("flotilla", "status", json!({"f:spec": {"f:unknown": {}}})),
        ]));
        let spec = json!({"a": 1, "both": 2, "moved": {"x": 1, "y": 2}, "map": {"k": 1, "t": 2},
            "gone": {"k": 1}, "whole": [1, 2], "unknown": 3, "set": ["o", "t"], "empty": {"t": 1},
            "list": [{"name": "o", "v": 1, "t": 2}, {"name": "t", "v": 3}, {"name": "u"}]});
        let rest = managers.owners().field("spec").unowned_part(&spec);
        assert_eq!(
            rest.unwrap(),
            json!({"both": 2, "moved": {"y": 2}, "map": {"t": 2}, "unknown": 3, "set": ["t"],
                "empty": {"t": 1}, "list": [{"name": "o", "t": 2}, {"name": "t", "v": 3}, {"name": "u"}]})
        );
    }

    #[test]
    fn the_other_manager_of_a_field_is_named() {
        let managers = managers(json!([
            entry("flotilla", "", json!({"f:rules": {}})),
            entry("shallow", "", json!({"f:spec": {"f:a": {}}})),
            entry(
                "aggre\ngator",
                "",
                json!({"f:rules": {}, "f:spec": {"f:a": {"f:b": {}}}})
            ),
        ]));
        let check = |path: &[&str], expected: Option<&str>| {
            let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
            assert_eq!(managers.other_manager_of(&path).as_deref(), expected);
        };
        check(&["f:rules"], Some("aggregator"));
        check(&["f:spec", "f:a", "f:b"], Some("aggregator"));
        check(&["f:spec", "f:a", "f:c"], Some("shallow"));
        check(&["f:data"], None);
    }
}
