//! Detects names that a CustomResourceDefinition requests in its group and that another
//! resource of the group already has
//! (`apiextensions-apiserver/pkg/controller/status/naming_controller.go`).

use serde_json::Value;

use crate::model::KindInfo;

/// `spec.names` or `status.acceptedNames` of a CustomResourceDefinition, or the names
/// of a built-in kind. Empty names are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceNames {
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub kind: String,
    pub list_kind: String,
}

/// A name that is already in use in the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameConflict {
    /// The field of `spec.names` that requests it.
    pub field: &'static str,
    /// The reason of the condition `NamesAccepted`.
    pub reason: &'static str,
    pub name: String,
}

impl From<&Value> for ResourceNames {
    fn from(names: &Value) -> Self {
        let text = |field: &str| names[field].as_str().unwrap_or_default().to_owned();
        let short_names = names["shortNames"].as_array().into_iter().flatten();
        Self {
            plural: text("plural"),
            singular: text("singular"),
            short_names: short_names
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
            kind: text("kind"),
            list_kind: text("listKind"),
        }
    }
}

impl From<&KindInfo> for ResourceNames {
    fn from(kind: &KindInfo) -> Self {
        Self {
            plural: kind.gvr.resource.to_string(),
            singular: kind.singular.clone(),
            short_names: kind.short_names.clone(),
            kind: kind.gvk.kind.to_string(),
            list_kind: kind.list_kind.clone(),
        }
    }
}

impl ResourceNames {
    /// The requested names that one of `other_names` already has, in the order in which
    /// kube-apiserver checks the fields. Plural, singular and short names share one
    /// namespace, kind and list kind another.
    pub fn conflicts(&self, other_names: &[Self]) -> Vec<NameConflict> {
        let resource = |name: &str| {
            !name.is_empty()
                && other_names.iter().any(|other| {
                    name == other.plural
                        || name == other.singular
                        || other
                            .short_names
                            .iter()
                            .any(|short_name| name == short_name)
                })
        };
        let kind = |name: &str| {
            !name.is_empty()
                && other_names
                    .iter()
                    .any(|other| name == other.kind || name == other.list_kind)
        };
        let mut conflicts = Vec::new();
        let mut check = |field, reason, name: &str, in_use: bool| {
            if in_use {
                let name = name.to_owned();
                conflicts.push(NameConflict {
                    field,
                    reason,
                    name,
                });
            }
        };
        let (plural, singular) = (&self.plural, &self.singular);
        check("plural", "PluralConflict", plural, resource(plural));
        check("singular", "SingularConflict", singular, resource(singular));
        for short_name in &self.short_names {
            check(
                "shortNames",
                "ShortNamesConflict",
                short_name,
                resource(short_name),
            );
        }
        check("kind", "KindConflict", &self.kind, kind(&self.kind));
        let list_kind = &self.list_kind;
        check("listKind", "ListKindConflict", list_kind, kind(list_kind));
        conflicts
    }
}

/// Whether a CustomResourceDefinition must not be served, because its plural or one of its
/// accepted names is one of the `built_in` names of its group: its custom resources would
/// have the same storage keys as those of the built-in kind.
pub fn shadows_built_in(definition: &Value, built_in: &[ResourceNames]) -> bool {
    let plural = ResourceNames {
        plural: ResourceNames::from(&definition["spec"]["names"]).plural,
        ..ResourceNames::default()
    };
    let accepted = ResourceNames::from(&definition["status"]["acceptedNames"]);
    [plural, accepted]
        .iter()
        .any(|names| !names.conflicts(built_in).is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resource_names_and_kind_names_are_separate_namespaces() {
        let existing = ResourceNames::from(&json!({"plural": "things", "singular": "thing",
            "shortNames": ["th"], "kind": "Thing", "listKind": "ThingList"}));
        let check = |names: Value, expected: &[&str]| {
            let conflicts = ResourceNames::from(&names).conflicts(std::slice::from_ref(&existing));
            let fields: Vec<&str> = conflicts.iter().map(|c| c.field).collect();
            assert_eq!(fields, expected, "{names}");
        };
        check(json!({"plural": "others", "kind": "Other"}), &[]);
        check(json!({"plural": "th", "kind": "thing"}), &["plural"]);
        check(
            json!({"plural": "a", "singular": "things", "shortNames": ["x", "thing"]}),
            &["singular", "shortNames"],
        );
        check(
            json!({"plural": "a", "kind": "ThingList", "listKind": "Thing"}),
            &["kind", "listKind"],
        );
    }

    #[test]
    fn a_definition_shadows_by_its_plural_or_by_an_accepted_name() {
        let built_in = [ResourceNames::from(
            &json!({"plural": "things", "singular": "thing", "kind": "Thing"}),
        )];
        let check = |plural: &str, accepted: Value, expected: bool| {
            let definition = json!({"spec": {"names": {"plural": plural, "kind": "Thing"}},
                "status": {"acceptedNames": accepted}});
            assert_eq!(
                shadows_built_in(&definition, &built_in),
                expected,
                "{definition}"
            );
        };
        check("things", Value::Null, true);
        check("others", Value::Null, false);
        check(
            "others",
            json!({"plural": "others", "kind": "Other"}),
            false,
        );
        check("others", json!({"plural": "others", "kind": "Thing"}), true);
    }
}
