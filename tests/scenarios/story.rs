//! The form of a scenario.
//!
//! ```yaml
//! name: two-of-three            # and the namespace in which it happens
//! proves: [SCH-1]               # ids of tests/behaviours.txt
//! alone: true                   # nothing else runs meanwhile: it changes clusters
//! steps:
//! - apply: [OBJECT, ...]        # created, or merged into what is there
//! - merge: [PATCH, ...]         # of objects with kind and name, which must be there
//! - delete: [Kind/name, ...]    # and gone when the step ends
//! - scale: {Deployment/web: 5}  # by the subresource
//! - in: member1                 # what this step does and looks at is in a member
//! - status: {Kind/name: PATCH}  # a merge patch of the subresource
//! - cluster: {member1: PATCH}   # a merge patch; undone when the scenario ends
//! - restore: true               # clusters are as they were when the scenario began
//! - second: true                # another second has begun: objects tell no less
//! - refused: OBJECT             # or {merge: PATCH-OF-AN-OBJECT}, {delete: Kind/name}
//!   code: 403
//!   message: the whole text
//! - served: Widget              # when the control plane serves a kind
//! - settle: true                # whatever the steps before have begun is over
//! - expect: {Deployment/web: EXPECTED, ...}
//! - shows: {Kind/name: TREE}    # what an object has in the end, or Kind/name/subresource:
//!                               # fields of maps, whole lists; null: not there; `set`: any text
//! - gone: [Kind/name, ...]
//! - events: [{on: Kind/name, type: Warning, reason: R, message: the whole text}]
//! ```
//!
//! An OBJECT leaves out its namespace, its `apiVersion` and that of its resource
//! selectors; a Deployment or StatefulSet without a pod template gets one. `$ns` in
//! any text is the namespace.
//!
//! `expect` waits until the bindings of the namespace, their works in all clusters
//! and the objects in all members are exactly those that it says; [`Expected`] has
//! its fields. What it leaves out follows from the rules, see [`crate::frame`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// What a theme needs of its control plane.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    /// What the theme is about.
    #[serde(rename = "theme")]
    _theme: String,
    /// More arguments of `flotilla up`; without any the plane is shared.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Theme {
    pub(crate) head: Head,
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
    pub(crate) steps: Vec<Step>,
}

/// One thing to do or to see.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Step {
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
    pub(crate) expect: Option<BTreeMap<String, Expected>>,
    pub(crate) shows: BTreeMap<String, Value>,
    pub(crate) gone: Vec<String>,
    pub(crate) events: Vec<Told>,
}

/// What must be there of one template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Expected {
    /// `Kind/name` of the policy whose it is.
    pub(crate) by: Option<String>,
    /// The same, of one that has let go of it: the binding has no claim any more, the
    /// works still carry it.
    pub(crate) left: Option<String>,
    /// The placed clusters: a list, or a map to replicas.
    pub(crate) clusters: Clusters,
    /// Clusters by what requires the template: `namespace/name` of the binding.
    pub(crate) required: BTreeMap<String, Clusters>,
    /// What the template refers to: the annotation of its binding.
    pub(crate) dependencies: Option<Value>,
    /// The Scheduled condition where it is not that of a success, or `none`.
    pub(crate) scheduled: Option<Said>,
    /// The same for FullyApplied.
    pub(crate) applied: Option<Said>,
    /// Merge patches: on the binding, and by cluster on the copy (before the marks of
    /// Karmada are put on it), on the work, and on the member's object. A null in
    /// place of a patch: it is not there.
    pub(crate) binding: Option<Value>,
    pub(crate) copies: BTreeMap<String, Value>,
    pub(crate) works: BTreeMap<String, Value>,
    /// More on a copy: values by JSON pointer, for what lies in lists.
    pub(crate) sets: BTreeMap<String, BTreeMap<String, Value>>,
    pub(crate) members: BTreeMap<String, Value>,
    /// What the members report, where it does not follow from the kind; null:
    /// nothing yet. With `health`, for each cluster.
    pub(crate) reports: BTreeMap<String, Value>,
    pub(crate) health: BTreeMap<String, String>,
    /// By cluster, why the copy is not applied: the message of the work.
    pub(crate) unapplied: BTreeMap<String, String>,
    /// Clusters where a suspended work was applied before.
    pub(crate) stays: Vec<String>,
    /// There is no binding: what else is said holds for objects of members.
    pub(crate) unbound: bool,
}

/// A condition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub(crate) enum Said {
    Absent(Absent),
    Condition {
        status: String,
        reason: String,
        message: String,
    },
}

/// The word `none`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Absent {
    None,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Clusters(pub(crate) BTreeMap<String, Option<i64>>);

impl<'de> Deserialize<'de> for Clusters {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Names(Vec<String>),
            Replicas(BTreeMap<String, i64>),
        }
        Ok(Self(match Form::deserialize(from)? {
            Form::Names(names) => names.into_iter().map(|n| (n, None)).collect(),
            Form::Replicas(all) => all.into_iter().map(|(n, r)| (n, Some(r))).collect(),
        }))
    }
}

/// An event that must have been recorded.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Told {
    pub(crate) on: String,
    pub(crate) r#type: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Theme {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|e| e.to_string())?;
        let mut documents = documents.into_iter();
        let head = documents.next().ok_or("empty")?;
        let head = serde_json::from_value(head).map_err(|e| e.to_string())?;
        let scenario = |mut document: Value| {
            let name = document["name"].as_str().unwrap_or_default().to_owned();
            let place = Value::String(name.clone());
            fill(&mut document, place.as_str().unwrap_or_default());
            serde_json::from_value(document).map_err(|e| format!("{name}: {e}"))
        };
        let scenarios = documents.map(scenario).collect::<Result<_, _>>()?;
        Ok(Self { head, scenarios })
    }
}

/// Puts the namespace in place of `$ns`, in keys too.
fn fill(value: &mut Value, namespace: &str) {
    match value {
        Value::String(text) => *text = text.replace("$ns", namespace),
        Value::Array(all) => all.iter_mut().for_each(|v| fill(v, namespace)),
        Value::Object(map) => {
            let filled = std::mem::take(map).into_iter().map(|(key, mut value)| {
                fill(&mut value, namespace);
                (key.replace("$ns", namespace), value)
            });
            *map = filled.collect::<Map<_, _>>();
        }
        _ => {}
    }
}
