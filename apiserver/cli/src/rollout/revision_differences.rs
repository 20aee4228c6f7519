//! Compares the content of a revision with the revisions that clusters have.

use std::collections::BTreeMap;

use ::rollout::{CONTROLLER_REVISIONS, verified_content};
use client::{Api, ResourcePath};
use machinery::Object;
use serde::Serialize;
use serde_json::Value;

use crate::field_differences::field_differences;
use crate::override_differences::override_differences;

/// The clusters that have a revision, by its name.
pub type ClustersByRevision = BTreeMap<String, Vec<String>>;

/// How a template and its override policies differ from what some clusters have.
#[derive(Debug, Serialize)]
pub struct RevisionDifference {
    /// Empty if changes of the template are not staged.
    pub revision: String,
    pub clusters: Vec<String>,
    /// Each as `path: old -> new`, after the name of its policy if it is one of an override policy; of
    /// many fields the first.
    pub fields: Vec<String>,
}

/// How a revision of a binding differs from those that clusters have.
pub async fn revision_differences(
    api: &dyn Api,
    (namespace, binding): (&str, &str),
    revision: &str,
    clusters: ClustersByRevision,
) -> anyhow::Result<Vec<RevisionDifference>> {
    let content = read_content(api, (namespace, binding), revision).await?;
    content_differences(api, (namespace, binding), &content, clusters).await
}

/// How the content that a revision would have differs from the revisions that clusters have.
pub(crate) async fn content_differences(
    api: &dyn Api,
    (namespace, binding): (&str, &str),
    content: &Value,
    clusters: ClustersByRevision,
) -> anyhow::Result<Vec<RevisionDifference>> {
    let mut differences = Vec::new();
    for (revision, clusters) in clusters {
        let before = read_content(api, (namespace, binding), &revision).await?;
        let mut fields = changed_fields(&before["template"], &content["template"]);
        let policies = "overridePolicies";
        fields.extend(override_differences(&before[policies], &content[policies]));
        differences.push(RevisionDifference {
            revision,
            clusters,
            fields,
        });
    }
    Ok(differences)
}

/// The content of a revision of a binding.
async fn read_content(
    api: &dyn Api,
    (namespace, binding): (&str, &str),
    revision: &str,
) -> anyhow::Result<Value> {
    let at = ResourcePath::object(&CONTROLLER_REVISIONS, namespace, revision);
    let object: Object = api.get(at).await?;
    verified_content(binding, &object).map_err(anyhow::Error::msg)
}

/// The fields that differ between two templates.
pub(crate) fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    let differences = field_differences(before, after);
    differences.iter().map(ToString::to_string).collect()
}
