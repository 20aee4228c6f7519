//! The status of CustomResourceDefinitions: which of their names are accepted, and their
//! conditions (`apiextensions-apiserver/pkg/controller/status`). Pure.
//!
//! The registry computes it when it creates a definition, and the controller of definitions
//! whenever a definition changes.

use machinery::conditions::set_json_condition;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api_approval::{ApiApproval, is_protected_community_group};
use crate::resource_names::{NameConflict, ResourceNames, shadows_built_in};

const API_APPROVAL_CONDITION: &str = "KubernetesAPIApprovalPolicyConformant";

/// The parts of a definition that are needed to check others, without its schemas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSummary {
    pub group: String,
    /// `spec.names.plural`
    pub plural: String,
    /// `status.acceptedNames`
    pub accepted: ResourceNames,
    pub is_established: bool,
    /// Whether a name was refused because another resource has it.
    pub has_name_conflict: bool,
}

impl DefinitionSummary {
    /// The summary of a definition.
    pub fn of(definition: &Value) -> Self {
        let (spec, status) = (&definition["spec"], &definition["status"]);
        Self {
            group: spec["group"].as_str().unwrap_or_default().to_owned(),
            plural: ResourceNames::from(&spec["names"]).plural,
            accepted: ResourceNames::from(&status["acceptedNames"]),
            is_established: has_condition(status, "Established", "True"),
            has_name_conflict: has_condition(status, "NamesAccepted", "False"),
        }
    }

    /// Reads the text of a definition; its schemas are skipped.
    pub fn decode(text: &[u8]) -> serde_json::Result<Self> {
        #[derive(Default, Deserialize, Serialize)]
        #[serde(default)]
        struct Spec {
            group: Value,
            names: Value,
        }
        #[derive(Default, Deserialize, Serialize)]
        #[serde(default)]
        struct Definition {
            spec: Spec,
            status: Value,
        }
        let definition: Definition = machinery::json::from_slice(text)?;
        Ok(Self::of(&serde_json::to_value(definition)?))
    }
}

fn has_condition(status: &Value, kind: &str, value: &str) -> bool {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    all.any(|condition| condition["type"] == kind && condition["status"] == value)
}

/// Whether a definition is established.
pub fn is_established(definition: &Value) -> bool {
    has_condition(&definition["status"], "Established", "True")
}

/// The accepted names of a definition.
struct NameAcceptance {
    /// `status.acceptedNames`
    accepted: Value,
    /// Reason and message of `NamesAccepted=False`.
    conflict: Option<(&'static str, String)>,
}

/// Accepts each name that is free in the group; an accepted name stays accepted. The names
/// of built-in kinds are never accepted, even if they were before.
fn accept_names(
    definition: &Value,
    taken_names: &[ResourceNames],
    built_in: &[ResourceNames],
) -> NameAcceptance {
    let (spec, before) = (&definition["spec"], &definition["status"]["acceptedNames"]);
    let requested = ResourceNames::from(&spec["names"]);
    let reserved = requested.conflicts(built_in);
    let granted = |c: &NameConflict| {
        let (old_name, requested_name) = (&before[c.field], &spec["names"][c.field]);
        let among = old_name
            .as_array()
            .is_some_and(|all| all.contains(&json!(c.name)));
        among || old_name == requested_name
    };
    let mut in_use = requested.conflicts(taken_names);
    in_use.retain(|conflict| !granted(conflict));

    let mut accepted = match before.as_object() {
        Some(names) if !shadows_built_in(definition, built_in) => names.clone(),
        _ => Map::from_iter([("plural".into(), "".into()), ("kind".into(), "".into())]),
    };
    for field in [
        "plural",
        "singular",
        "shortNames",
        "kind",
        "listKind",
        "categories",
    ] {
        if reserved.iter().chain(&in_use).any(|c| c.field == field) {
            continue;
        }
        match &spec["names"][field] {
            Value::Null => accepted.remove(field),
            name => accepted.insert(field.into(), name.clone()),
        };
    }
    let reserved_conflict = reserved.first().map(|c| {
        let message = format!(
            "{:?} is already in use by a built-in kind of this server, which no definition replaces",
            c.name
        );
        (c.reason, message)
    });
    let taken_conflict = in_use.last();
    let taken_conflict =
        taken_conflict.map(|c| (c.reason, format!("{:?} is already in use", c.name)));
    NameAcceptance {
        accepted: accepted.into(),
        conflict: reserved_conflict.or(taken_conflict),
    }
}

/// The desired status of a definition. `taken_names` are the accepted names of the other definitions
/// of its group, `built_in` those of the built-in kinds.
pub fn desired_definition_status(
    definition: &Value,
    taken_names: &[ResourceNames],
    built_in: &[ResourceNames],
    now: &str,
) -> Value {
    let before = &definition["status"];
    let NameAcceptance { accepted, conflict } = accept_names(definition, taken_names, built_in);
    let was_established = is_established(definition) && !shadows_built_in(definition, built_in);
    let mut status = before.as_object().cloned().unwrap_or_default();
    status.insert("acceptedNames".into(), accepted);
    status.insert("storedVersions".into(), stored_versions(definition));
    let served = if conflict.is_none() || was_established {
        (
            "Established",
            true,
            "InitialNamesAccepted",
            "the initial names have been accepted".to_owned(),
        )
    } else {
        (
            "Established",
            false,
            "NotAccepted",
            "not all names are accepted".to_owned(),
        )
    };
    let names = match conflict {
        None => (
            "NamesAccepted",
            true,
            "NoConflicts",
            "no conflicts found".to_owned(),
        ),
        Some((reason, message)) => ("NamesAccepted", false, reason, message),
    };
    let conditions = status.entry("conditions").or_insert(Value::Null);
    for (kind, yes, reason, message) in [names, served] {
        let value = if yes { "True" } else { "False" };
        let condition = json!({"type": kind, "status": value, "lastTransitionTime": now,
            "reason": reason, "message": message});
        set_json_condition(conditions, condition);
    }
    if is_protected_community_group(definition["spec"]["group"].as_str().unwrap_or_default()) {
        let approval = ApiApproval::of(definition);
        let (conforms, reason) = approval.condition();
        let condition = json!({"type": API_APPROVAL_CONDITION,
            "status": if conforms { "True" } else { "False" }, "lastTransitionTime": now,
            "reason": reason, "message": approval.message(definition)});
        set_json_condition(conditions, condition);
    }
    Value::Object(status)
}

/// Every version in which instances have been stored so far.
fn stored_versions(definition: &Value) -> Value {
    let old_versions = definition["status"]["storedVersions"].as_array();
    let mut stored = old_versions.cloned().unwrap_or_default();
    let versions = definition["spec"]["versions"].as_array();
    for version in versions.into_iter().flatten() {
        if version["storage"] == true && !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    stored.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str) -> Value {
        json!({"spec": {"group": "g.io", "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
                        "versions": [{"name": "v1", "served": true, "storage": true}]}})
    }

    fn accepted(mut definition: Value, other_definitions: &[Value]) -> Value {
        let text = |other: &Value| other.to_string().into_bytes();
        let taken_names = other_definitions
            .iter()
            .map(|other| DefinitionSummary::decode(&text(other)).unwrap().accepted);
        let taken_names: Vec<ResourceNames> = taken_names.collect();
        definition["status"] = desired_definition_status(&definition, &taken_names, &[], "t1");
        definition
    }

    #[test]
    fn free_names_are_accepted_and_served() {
        let first = accepted(definition("things", "Thing"), &[]);
        assert!(is_established(&first));
        assert_eq!(first["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(
            desired_definition_status(&first, &[], &[], "t2"),
            first["status"],
            "nothing changes with time alone"
        );
    }

    #[test]
    fn definitions_of_the_project_have_a_condition_about_their_approval() {
        for (annotation, status, reason) in [
            ("https://a.b/c", "True", "ApprovedAnnotation"),
            ("unapproved", "False", "UnapprovedAnnotation"),
            ("", "False", "MissingAnnotation"),
            ("yes", "False", "InvalidAnnotation"),
        ] {
            let mut approved = definition("things", "Thing");
            approved["spec"]["group"] = json!("x.k8s.io");
            approved["metadata"]["annotations"]["api-approved.kubernetes.io"] = json!(annotation);
            let approved = accepted(approved, &[]);
            assert!(is_established(&approved));
            let condition = &approved["status"]["conditions"][2];
            assert_eq!(
                (&condition["status"], &condition["reason"]),
                (&json!(status), &json!(reason))
            );
        }
    }

    #[test]
    fn the_first_definition_keeps_a_name() {
        let first = accepted(definition("things", "Thing"), &[]);
        for (second, reason) in [
            (definition("things", "Other"), "SingularConflict"),
            (definition("others", "Thing"), "ListKindConflict"),
        ] {
            let second = accepted(second, std::slice::from_ref(&first));
            assert!(!is_established(&second), "{second}");
            assert_eq!(second["status"]["conditions"][0]["reason"], reason);
        }
    }

    #[test]
    fn accepted_names_stay_and_free_names_are_accepted() {
        let first = accepted(definition("things", "Thing"), &[]);
        let mut other = accepted(definition("others", "Other"), std::slice::from_ref(&first));
        other["spec"]["names"]["shortNames"] = json!(["thing"]);
        other["spec"]["names"]["categories"] = json!(["all"]);
        let other = accepted(other, &[first]);
        assert!(is_established(&other));
        let status = &other["status"];
        assert_eq!(status["conditions"][0]["reason"], "ShortNamesConflict");
        assert_eq!(
            status["acceptedNames"],
            json!({"plural": "others", "singular": "other", "kind": "Other",
                   "listKind": "OtherList", "categories": ["all"]})
        );
    }

    #[test]
    fn names_of_built_in_kinds_are_never_accepted() {
        let built_in = [ResourceNames::from(
            &definition("things", "Thing")["spec"]["names"],
        )];
        let served_before = accepted(definition("things", "Thing"), &[]);
        let fresh = |plural: &str, kind: &str| definition(plural, kind);
        for (shadowing, reason) in [
            (fresh("things", "Other"), "PluralConflict"),
            (fresh("thing", "Other"), "PluralConflict"),
            (fresh("others", "Thing"), "KindConflict"),
            (served_before, "PluralConflict"),
        ] {
            let status = desired_definition_status(&shadowing, &[], &built_in, "t2");
            assert_eq!(status["conditions"][0]["status"], "False", "{status}");
            assert_eq!(status["conditions"][0]["reason"], reason);
            assert_eq!(status["conditions"][1]["status"], "False", "{status}");
            let with_status = json!({"spec": shadowing["spec"], "status": status});
            assert_eq!(
                desired_definition_status(&with_status, &[], &built_in, "t3"),
                status
            );
        }
    }

    #[test]
    fn a_summary_has_the_names_and_no_schema() {
        let first = accepted(definition("things", "Thing"), &[]);
        let summary = DefinitionSummary::decode(first.to_string().as_bytes()).unwrap();
        assert!(summary.is_established && !summary.has_name_conflict);
        assert_eq!((&*summary.group, &*summary.plural), ("g.io", "things"));
        assert_eq!(
            summary.accepted,
            ResourceNames::from(&first["spec"]["names"])
        );
        let second = accepted(definition("others", "Thing"), std::slice::from_ref(&first));
        let summary = DefinitionSummary::decode(second.to_string().as_bytes()).unwrap();
        assert!(!summary.is_established && summary.has_name_conflict);
        let empty = DefinitionSummary::decode(b"{\"status\": null}").unwrap();
        assert_eq!(empty, DefinitionSummary::default());
    }
}
