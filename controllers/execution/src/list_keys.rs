//! Finds the elements of a list by the keys that the schema of its kind declares.

use std::collections::HashMap;

use machinery::Gvk;
use openapi::{ListType, Schema, SchemaCursor, catalog};
use serde_json::{Map, Value};

/// How the elements of a list are told apart.
#[derive(Debug, PartialEq)]
pub(crate) enum ListKeys {
    /// By nothing: the list is one value.
    Atomic,
    /// By their values.
    Set,
    /// By the values of these fields, which have these defaults.
    Fields(Vec<(String, Option<Value>)>),
}

/// The schema of a built-in kind.
pub(crate) fn schema_of(kind: &Gvk) -> Option<Schema> {
    let catalog = catalog();
    catalog.kind(kind).map(|kind| catalog.schema(kind))
}

impl ListKeys {
    pub(crate) fn of_schema(list: Option<SchemaCursor<'_>>) -> Self {
        let Some(list) = list else {
            return Self::Atomic;
        };
        let patch = list.patch_strategy();
        match list.list_type() {
            ListType::Map(names) => Self::Fields(
                names
                    .iter()
                    .map(|name| (name.to_string(), default_of(list, name)))
                    .collect(),
            ),
            ListType::Set => Self::Set,
            ListType::Unset if patch.merge && !patch.merge_key.is_empty() => {
                let name = &*patch.merge_key;
                Self::Fields(vec![(name.to_owned(), default_of(list, name))])
            }
            ListType::Unset if patch.merge => Self::Set,
            ListType::Unset | ListType::Atomic => Self::Atomic,
        }
    }

    /// The positions of the elements by their keys; `None` if an element has no key, or two have
    /// the same one.
    pub(crate) fn index(&self, items: &[Value]) -> Option<HashMap<String, usize>> {
        let mut positions = HashMap::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            if positions.insert(self.key_of(item)?, at).is_some() {
                return None;
            }
        }
        Some(positions)
    }

    /// The key of an element as JSON.
    pub(crate) fn key_of(&self, item: &Value) -> Option<String> {
        match self {
            Self::Atomic => None,
            Self::Set => Some(item.to_string()),
            Self::Fields(fields) => {
                let value = |(name, default): &(String, Option<Value>)| {
                    let value = item.get(name).or(default.as_ref())?;
                    Some((name.clone(), value.clone()))
                };
                let key: Option<Map<String, Value>> = fields.iter().map(value).collect();
                Some(Value::from(key?).to_string())
            }
        }
    }

    /// The key of an element as `fieldsV1` writes it.
    pub(crate) fn managed_fields_key(&self, key: &str) -> String {
        match self {
            Self::Set => format!("v:{key}"),
            Self::Atomic | Self::Fields(_) => format!("k:{key}"),
        }
    }
}

/// The default of a field that keys the elements of a list.
fn default_of(list: SchemaCursor<'_>, name: &str) -> Option<Value> {
    let declared = list.item()?.field(name)?.default().cloned();
    // The defaults of ports are in Go code in some versions.
    declared.or_else(|| (name == "protocol").then(|| "TCP".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keys(group: &str, kind: &str, path: &[&str]) -> ListKeys {
        let schema = schema_of(&Gvk::new(group, "v1", kind)).unwrap();
        let mut cursor = Some(schema.root());
        for field in path {
            cursor = cursor.and_then(|at| match *field {
                "[]" => at.item(),
                name => at.field(name),
            });
        }
        assert!(cursor.is_some(), "{path:?}");
        ListKeys::of_schema(cursor)
    }

    fn fields(names: &[&str]) -> ListKeys {
        let default = |name: &str| (name == "protocol").then(|| json!("TCP"));
        let field = |name: &&str| ((*name).to_owned(), default(name));
        ListKeys::Fields(names.iter().map(field).collect())
    }

    #[test]
    fn the_schema_says_how_elements_are_told_apart() {
        let pod = ["spec", "template", "spec"];
        let at = |more: &[&'static str]| [&pod[..], more].concat();
        let table = [
            ("apps", "Deployment", at(&["containers"]), fields(&["name"])),
            ("apps", "Deployment", at(&["tolerations"]), ListKeys::Atomic),
            (
                "apps",
                "Deployment",
                at(&["containers", "[]", "ports"]),
                fields(&["containerPort", "protocol"]),
            ),
            (
                "admissionregistration.k8s.io",
                "MutatingWebhookConfiguration",
                vec!["webhooks"],
                fields(&["name"]),
            ),
            (
                "rbac.authorization.k8s.io",
                "ClusterRole",
                vec!["rules"],
                ListKeys::Atomic,
            ),
            (
                "",
                "Service",
                vec!["spec", "ports"],
                fields(&["port", "protocol"]),
            ),
            (
                "",
                "PersistentVolume",
                vec!["spec", "accessModes"],
                ListKeys::Atomic,
            ),
        ];
        for (group, kind, path, expected) in table {
            assert_eq!(keys(group, kind, &path), expected, "{kind} {path:?}");
        }
    }

    #[test]
    fn elements_are_indexed_by_unique_keys() {
        let ports = fields(&["port", "protocol"]);
        let index = ports.index(&[json!({"port": 1}), json!({"port": 1, "protocol": "UDP"})]);
        assert_eq!(index.unwrap().len(), 2);
        let twice = [json!({"port": 1}), json!({"port": 1, "protocol": "TCP"})];
        assert_eq!(ports.index(&twice), None);
        assert_eq!(ports.index(&[json!({"protocol": "UDP"})]), None);
        assert_eq!(ListKeys::Atomic.index(&[json!(1)]), None);
        assert_eq!(
            ListKeys::Set.index(&[json!("a"), json!("b")]).unwrap()["\"b\""],
            1
        );
    }
}
