//! References from a template to its dependencies (`DependentObjectReference` of
//! `config.karmada.io/v1alpha1`), and the annotation of a binding that lists them.

use std::collections::BTreeMap;
use std::fmt;

use machinery::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Serialize};

use super::affinity::{ApiLabelSelector, SelectorRequirement};

/// A reference to one object by name, or to several by labels. Serializes as in Go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DependentObjectReference {
    pub api_version: String,
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Ignored if there is a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<ApiLabelSelector>,
}

impl DependentObjectReference {
    /// Whether it refers to objects of this kind in this namespace.
    pub fn refers_to_kind(&self, api_version: &str, kind: &str, namespace: &str) -> bool {
        self.api_version == api_version && self.kind == kind && self.namespace == namespace
    }

    /// The compiled label selector; `None` if the reference has a name. The error says why
    /// the selector is invalid.
    pub fn compile_label_selector(&self) -> Result<Option<LabelSelector>, String> {
        match &self.label_selector {
            Some(selector) if self.name.is_empty() => selector.compile().map(Some),
            _ => Ok(None),
        }
    }

    /// Whether it refers to an object of its kind and namespace.
    pub fn matches(&self, head: &ObjectMeta) -> Result<bool, String> {
        Ok(match self.compile_label_selector()? {
            Some(labels) => labels.matches(|key| head.label(key)),
            None => *self.name == *head.name,
        })
    }
}

/// Encodes the annotation of a binding that lists the dependencies of its template. As in
/// Go, an empty list is `null`.
pub fn encode_annotation(
    dependencies: &[DependentObjectReference],
) -> Result<String, serde_json::Error> {
    if dependencies.is_empty() {
        return Ok("null".into());
    }
    serde_json::to_string(dependencies)
}

/// Parses such an annotation.
pub fn parse_annotation(text: &str) -> Result<Vec<DependentObjectReference>, serde_json::Error> {
    Ok(machinery::json::from_str::<Option<_>>(text)?.unwrap_or_default())
}

/// Prints dependencies as Go does in the messages of events.
pub struct GoFormattedDependencies<'a>(pub &'a [DependentObjectReference]);

impl fmt::Display for GoFormattedDependencies<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, reference) in self.0.iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            let DependentObjectReference {
                api_version,
                kind,
                namespace,
                name,
                ..
            } = reference;
            write!(
                f,
                "{gap}{{APIVersion:{api_version} Kind:{kind} Namespace:{namespace} Name:{name} LabelSelector:"
            )?;
            match &reference.label_selector {
                Some(selector) => write_selector(f, selector)?,
                None => f.write_str("nil")?,
            }
            f.write_str("}")?;
        }
        f.write_str("]")
    }
}

fn write_selector(f: &mut fmt::Formatter<'_>, selector: &ApiLabelSelector) -> fmt::Result {
    f.write_str("&LabelSelector{MatchLabels:map[string]string{")?;
    let labels: &BTreeMap<String, String> = &selector.match_labels;
    for (key, value) in labels {
        write!(f, "{key}: {value},")?;
    }
    f.write_str("},MatchExpressions:[]LabelSelectorRequirement{")?;
    for SelectorRequirement {
        key,
        operator,
        values,
    } in &selector.match_expressions
    {
        let values = values.join(" ");
        write!(
            f,
            "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},"
        )?;
    }
    f.write_str("},}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dependency(value: serde_json::Value) -> DependentObjectReference {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn annotations_are_those_of_go_and_parse_back() {
        let all = [
            dependency(
                json!({"apiVersion": "v1", "kind": "Secret", "namespace": "n", "name": "s"}),
            ),
            dependency(
                json!({"apiVersion": "v1", "kind": "Pod", "labelSelector": {"matchLabels": {"a": "b"}}}),
            ),
        ];
        let text = r#"[{"apiVersion":"v1","kind":"Secret","namespace":"n","name":"s"},{"apiVersion":"v1","kind":"Pod","labelSelector":{"matchLabels":{"a":"b"}}}]"#;
        assert_eq!(encode_annotation(&all).unwrap(), text);
        assert_eq!(parse_annotation(text).unwrap(), all);
        assert_eq!(encode_annotation(&[]).unwrap(), "null");
        assert_eq!(parse_annotation("null").unwrap(), []);
        assert!(parse_annotation("{}").is_err());
        assert_eq!(
            GoFormattedDependencies(&all).to_string(),
            "[{APIVersion:v1 Kind:Secret Namespace:n Name:s LabelSelector:nil} {APIVersion:v1 Kind:Pod Namespace: Name: \
             LabelSelector:&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}}]"
        );
    }

    #[test]
    fn a_name_takes_precedence_over_labels() {
        let head = |name: &str| {
            let value = json!({"metadata": {"name": name, "labels": {"a": "b"}}});
            machinery::Object::from_value(&value).unwrap()
        };
        for (reference, name, expected) in [
            (json!({"name": "x"}), "x", Ok(true)),
            (json!({"name": "x"}), "y", Ok(false)),
            (
                json!({"labelSelector": {"matchLabels": {"a": "b"}}}),
                "y",
                Ok(true),
            ),
            (
                json!({"labelSelector": {"matchLabels": {"a": "c"}}}),
                "y",
                Ok(false),
            ),
            (
                json!({"name": "x", "labelSelector": {"matchLabels": {"a": "b"}}}),
                "y",
                Ok(false),
            ),
        ] {
            let matches = dependency(reference.clone()).matches(head(name).meta());
            assert_eq!(matches, expected, "{reference} {name}");
        }
        let invalid =
            json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}});
        assert!(dependency(invalid).matches(head("y").meta()).is_err());
    }
}
