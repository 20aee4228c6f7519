//! Typed views of Flotilla's own kinds of the record of who moved what (`history.flotilla.io/v1alpha1`):
//! TemplateHistory and ClusterTemplateHistory.

use machinery::Gvr;
use serde::{Deserialize, Serialize};

use super::binding::ObjectReference;

pub const HISTORY_GROUP: &str = "history.flotilla.io";
/// The histories of namespaced templates, under the names of their bindings.
pub static TEMPLATE_HISTORIES: Gvr =
    Gvr::from_static(HISTORY_GROUP, "v1alpha1", "templatehistories");
/// The histories of cluster-scoped templates, under the names of their bindings.
pub static CLUSTER_TEMPLATE_HISTORIES: Gvr =
    Gvr::from_static(HISTORY_GROUP, "v1alpha1", "clustertemplatehistories");

/// The most changed clusters that an entry names.
pub const MAX_RECORDED_CHANGES: usize = 500;
/// The longest text of an entry.
const MAX_TEXT_BYTES: usize = 1024;

/// TemplateHistory and ClusterTemplateHistory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateHistory {
    pub resource: ObjectReference,
    /// The newest first.
    pub entries: Vec<HistoryEntry>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HistoryEntryType {
    #[default]
    Placement,
    Rollout,
    Repair,
}

impl HistoryEntryType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Placement => "Placement",
            Self::Rollout => "Rollout",
            Self::Repair => "Repair",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryEntry {
    #[serde(rename = "type")]
    pub entry_type: HistoryEntryType,
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub actor: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cause: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    pub first_time: String,
    pub last_time: String,
    pub count: i64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ClusterChange>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub former_placement: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub former_policy: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stage: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from_revision: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to_revision: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// The change of one cluster of a placement; `None`: the template is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterChange {
    pub cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
}

/// The repair of one object in a member: it was changed, or deleted if no field is named. The
/// condition of a Work says it as a text, which a member may have influenced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriftRepair {
    /// Kind, namespace and name.
    pub object: String,
    pub fields: Vec<String>,
    /// The field manager of the member.
    pub manager: String,
}

impl DriftRepair {
    const CHANGED: &str = " changed by ";
    const DELETED: &str = "deleted by ";
    const SEPARATOR: &str = ", ";

    /// One line, such as `Deployment n/web: .spec.replicas changed by kubectl-edit`.
    pub fn to_message(&self) -> String {
        let manager = match &*self.manager {
            "" => "an unknown manager",
            manager => manager,
        };
        let text = match self.fields.is_empty() {
            true => format!("{}: {}{manager}", self.object, Self::DELETED),
            false => {
                let fields = self.fields.join(Self::SEPARATOR);
                format!("{}: {fields}{}{manager}", self.object, Self::CHANGED)
            }
        };
        bounded_text(&text)
    }

    /// Reads one line of [`to_message`](Self::to_message); `None` if it is another text.
    pub fn from_message(text: &str) -> Option<Self> {
        let (object, rest) = text.split_once(": ")?;
        let (fields, manager) = match rest.strip_prefix(Self::DELETED) {
            Some(manager) => ("", manager),
            None => rest.rsplit_once(Self::CHANGED)?,
        };
        let fields = fields.split(Self::SEPARATOR).filter(|f| !f.is_empty());
        Some(Self {
            object: object.to_owned(),
            fields: fields.map(str::to_owned).collect(),
            manager: manager.to_owned(),
        })
    }
}

/// A text of at most a kilobyte without control characters.
pub fn bounded_text(text: &str) -> String {
    let mut bounded: String = text.chars().filter(|c| !c.is_control()).collect();
    bounded.truncate(bounded.floor_char_boundary(MAX_TEXT_BYTES));
    bounded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_in_the_catalog() {
        for gvr in [&TEMPLATE_HISTORIES, &CLUSTER_TEMPLATE_HISTORIES] {
            let mut kinds = openapi::catalog().kinds().iter();
            assert!(kinds.any(|kind| kind.gvr == *gvr), "{gvr:?}");
        }
    }

    #[test]
    fn a_repair_is_read_from_its_message() {
        let repair = |fields: &[&str], manager: &str| DriftRepair {
            object: "ConfigMap n/c".to_owned(),
            fields: fields.iter().map(|f| (*f).to_owned()).collect(),
            manager: manager.to_owned(),
        };
        for (repair, message) in [
            (
                repair(&[".data.a", ".data.b"], "kubectl-edit"),
                "ConfigMap n/c: .data.a, .data.b changed by kubectl-edit",
            ),
            (
                repair(&[], "somebody"),
                "ConfigMap n/c: deleted by somebody",
            ),
        ] {
            assert_eq!(repair.to_message(), message);
            assert_eq!(DriftRepair::from_message(message), Some(repair));
        }
        assert_eq!(
            repair(&[], "").to_message(),
            "ConfigMap n/c: deleted by an unknown manager"
        );
        for other in ["", "ConfigMap n/c", "a: b", "a changed by b"] {
            assert_eq!(DriftRepair::from_message(other), None, "{other}");
        }
    }

    // proves: HIS-untrusted
    #[test]
    fn texts_are_bounded_and_have_no_control_characters() {
        let text = bounded_text(&format!("a\nb\u{1b}[0m{}", "ü".repeat(2000)));
        assert!(text.starts_with("ab[0mü"), "{text}");
        assert!(text.len() <= MAX_TEXT_BYTES && text.len() > MAX_TEXT_BYTES - 2);
    }
}
