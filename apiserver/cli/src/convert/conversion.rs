//! The result of a conversion: manifests, and what the reader has to know about them.

use std::fmt;

use serde_json::Value;

/// Manifests in the order in which they have to be applied, and findings.
#[derive(Default)]
pub(crate) struct Conversion {
    /// Secrets of clusters, clusters, namespaces, definitions, and objects that stay as they are.
    pub(crate) prerequisites: Vec<Value>,
    /// Propagation and override policies. They precede the templates, so that a template is
    /// placed as it is meant to be from its first moment.
    pub(crate) policies: Vec<Value>,
    pub(crate) templates: Vec<Value>,
    pub(crate) findings: Vec<Finding>,
}

impl Conversion {
    pub(crate) fn manifests(&self) -> impl Iterator<Item = &Value> {
        let policies = self.policies.iter().chain(&self.templates);
        self.prerequisites.iter().chain(policies)
    }

    pub(crate) fn count(&self, severity: Severity) -> usize {
        let findings = self.findings.iter();
        findings.filter(|f| f.severity == severity).count()
    }

    /// Records a finding about a field of an object, as `Kind namespace/name`.
    pub(crate) fn report(&mut self, severity: Severity, object: &str, field: &str, message: &str) {
        self.findings.push(Finding {
            severity,
            object: object.to_owned(),
            field: field.to_owned(),
            message: message.to_owned(),
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The source asks for something that the manifests cannot say.
    Loss,
    /// The manifests say the same, but somebody has to do or to know something.
    Note,
}

#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    pub(crate) object: String,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Loss => "no equal",
            Severity::Note => "note",
        };
        write!(f, "{severity}: {}: ", self.object)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}
