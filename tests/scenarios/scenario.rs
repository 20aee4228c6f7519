//! The format of a scenario and its parser.
//!
//! ```yaml
//! name: two-of-three            # also the name of its namespace
//! proves: [SCH-1]               # ids of tests/behaviors.txt
//! alone: true                   # no other scenario runs meanwhile: it changes clusters
//! steps:
//! - apply: [OBJECT, ...]        # created, or merged into the existing object
//! - merge: [PATCH, ...]         # merge patches with kind and name of existing objects
//! - delete: [Kind/name, ...]    # deleted, and waited for
//! - scale: {Deployment/web: 5}  # through the subresource
//! - in: member1                 # this step acts on a member
//! - status: {Kind/name: PATCH}  # a merge patch of the subresource
//! - cluster: {member1: PATCH}   # a merge patch; undone when the scenario ends
//! - restore: true               # clusters get back their state from before the scenario
//! - second: true                # waits a second, the resolution of object timestamps
//! - refused: OBJECT             # or {merge: PATCH-OF-AN-OBJECT}, {delete: Kind/name}
//!   code: 403
//!   message: the complete text
//! - served: Widget              # waits until the control plane serves a kind
//! - settle: true                # waits until the effects of earlier steps are complete
//! - expect: {Deployment/web: EXPECTED, ...}
//! - shows: {Kind/name: TREE}    # fields of an object, or of Kind/name/subresource: lists are
//!                               # complete; null: the field is absent; `set`: any text
//! - gone: [Kind/name, ...]
//! - events: [{on: Kind/name, type: Warning, reason: R, message: the complete text}]
//! ```
//!
//! An OBJECT may omit its namespace, its `apiVersion` and that of its resource selectors; a
//! Deployment or StatefulSet without a pod template gets one. `$ns` in any text is replaced
//! by the namespace.
//!
//! `expect` waits until the bindings of the namespace, their Works in all clusters and the
//! objects in all members are exactly the expected ones; [`TemplateExpectation`] has its
//! fields. Fields that it omits follow from the rules in [`crate::scenarios::expected_state`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The first document of a theme: its requirements on the control plane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThemeRequirements {
    /// The subject of the theme.
    #[serde(rename = "theme")]
    _theme: String,
    /// Additional arguments of `flotilla up`; without any the control plane is shared.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct ScenarioTheme {
    pub(crate) requirements: ThemeRequirements,
    pub(crate) scenarios: Vec<Scenario>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    /// Read by `tests/structure`.
    #[serde(rename = "proves")]
    _proves: Vec<String>,
    #[serde(default)]
    pub(crate) alone: bool,
    pub(crate) steps: Vec<ScenarioStep>,
}

/// One step: actions and checks.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScenarioStep {
    pub(crate) r#in: Option<String>,
    pub(crate) apply: Vec<Value>,
    pub(crate) merge: Vec<Value>,
    pub(crate) delete: Vec<String>,
    pub(crate) scale: BTreeMap<String, i64>,
    pub(crate) cluster: BTreeMap<String, Value>,
    pub(crate) restore: bool,
    pub(crate) second: bool,
    pub(crate) refused: Option<Value>,
    pub(crate) code: u16,
    pub(crate) message: String,
    pub(crate) served: Option<String>,
    pub(crate) settle: bool,
    pub(crate) status: BTreeMap<String, Value>,
    pub(crate) expect: Option<BTreeMap<String, TemplateExpectation>>,
    pub(crate) shows: BTreeMap<String, Value>,
    pub(crate) gone: Vec<String>,
    pub(crate) events: Vec<ExpectedEvent>,
}

/// The expected state of one template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TemplateExpectation {
    /// `Kind/name` of the claiming policy.
    pub(crate) by: Option<String>,
    /// The same of a policy that no longer claims it: the binding has no claim any more, the
    /// Works still have its labels and annotations.
    pub(crate) left: Option<String>,
    /// The target clusters: a list, or a map to replicas.
    pub(crate) clusters: ExpectedClusters,
    /// Clusters by the independent binding that requires the template (`namespace/name`).
    pub(crate) required: BTreeMap<String, ExpectedClusters>,
    /// The dependencies in the annotation of its binding.
    pub(crate) dependencies: Option<Value>,
    /// The condition Scheduled if it differs from the condition of a success, or `none`.
    pub(crate) scheduled: Option<ExpectedCondition>,
    /// The same for the condition FullyApplied.
    pub(crate) applied: Option<ExpectedCondition>,
    /// Merge patches on the expected binding and, by cluster, on the manifest (without
    /// Karmada's labels and annotations), on the Work and on the member's object. A null
    /// instead of a patch: the object is absent.
    pub(crate) binding: Option<Value>,
    pub(crate) copies: BTreeMap<String, Value>,
    pub(crate) works: BTreeMap<String, Value>,
    /// Further values of the manifest by JSON pointer, for elements of lists.
    pub(crate) sets: BTreeMap<String, BTreeMap<String, Value>>,
    pub(crate) members: BTreeMap<String, Value>,
    /// The reflected status by cluster, when it does not follow from the kind; null: none
    /// yet. `health` is by cluster, too.
    pub(crate) reports: BTreeMap<String, Value>,
    pub(crate) health: BTreeMap<String, String>,
    /// The message of a Work that is not applied, by cluster.
    pub(crate) unapplied: BTreeMap<String, String>,
    /// Clusters where a suspended Work was applied before its suspension.
    pub(crate) stays: Vec<String>,
    /// There is no binding; the other fields are about the members' objects.
    pub(crate) unbound: bool,
}

/// An expected condition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub(crate) enum ExpectedCondition {
    Absent(NoneKeyword),
    Condition {
        status: String,
        reason: String,
        message: String,
    },
}

/// The word `none`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NoneKeyword {
    None,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ExpectedClusters(pub(crate) BTreeMap<String, Option<i64>>);

impl<'de> Deserialize<'de> for ExpectedClusters {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum ClustersField {
            Names(Vec<String>),
            Replicas(BTreeMap<String, i64>),
        }
        Ok(Self(match ClustersField::deserialize(from)? {
            ClustersField::Names(names) => names.into_iter().map(|n| (n, None)).collect(),
            ClustersField::Replicas(all) => all.into_iter().map(|(n, r)| (n, Some(r))).collect(),
        }))
    }
}

/// An event that must have been recorded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedEvent {
    pub(crate) on: String,
    pub(crate) r#type: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl ScenarioTheme {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|e| e.to_string())?;
        let mut documents = documents.into_iter();
        let head = documents.next().ok_or("empty")?;
        let head = serde_json::from_value(head).map_err(|e| e.to_string())?;
        let scenario = |mut document: Value| {
            let name = document["name"].as_str().unwrap_or_default().to_owned();
            substitute_namespace(&mut document, &name);
            serde_json::from_value(document).map_err(|e| format!("{name}: {e}"))
        };
        let scenarios = documents.map(scenario).collect::<Result<_, _>>()?;
        Ok(Self {
            requirements: head,
            scenarios,
        })
    }
}

/// Replaces `$ns` by the namespace in texts and keys.
fn substitute_namespace(value: &mut Value, namespace: &str) {
    match value {
        Value::String(text) => *text = text.replace("$ns", namespace),
        Value::Array(all) => all
            .iter_mut()
            .for_each(|v| substitute_namespace(v, namespace)),
        Value::Object(map) => {
            let filled = std::mem::take(map).into_iter().map(|(key, mut value)| {
                substitute_namespace(&mut value, namespace);
                (key.replace("$ns", namespace), value)
            });
            *map = filled.collect::<Map<_, _>>();
        }
        _ => {}
    }
}
