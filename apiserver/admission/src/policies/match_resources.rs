//! Matches requests with the constraints of policies and bindings
//! (`k8s.io/apiserver/pkg/admission/plugin/policy/matching`).

use machinery::{Gvk, Gvr, LabelSelector, Status};
use serde_json::Value;

use crate::attributes::AdmissionAttributes;
use crate::namespace_lookup::NamespaceLookup;
use crate::unstructured::{get, items, text, texts};
use crate::webhooks::AdmissionWebhookRule;
use crate::webhooks::matching::{has_rule_for, matches_namespace, matches_object, matches_rule};

/// A rule that may be limited to objects with certain names.
#[derive(Debug)]
struct NamedRule {
    resource_names: Vec<String>,
    rule: AdmissionWebhookRule,
}

impl NamedRule {
    fn parse(written: &Value) -> Result<Self, String> {
        Ok(Self {
            resource_names: texts(written, "/resourceNames")
                .map(str::to_owned)
                .collect(),
            rule: serde_json::from_value(written.clone()).map_err(|e| e.to_string())?,
        })
    }

    fn matches(&self, attributes: &AdmissionAttributes<'_>, name: &str, gvr: &Gvr) -> bool {
        matches_rule(&self.rule, attributes, gvr)
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == name))
    }
}

/// `MatchResources` of a policy or a binding.
#[derive(Debug)]
pub(super) struct MatchResources {
    namespace_selector: LabelSelector,
    object_selector: LabelSelector,
    rules: Vec<NamedRule>,
    excluded: Vec<NamedRule>,
    equivalent: bool,
}

impl MatchResources {
    pub(super) fn parse(written: &Value) -> Result<Self, String> {
        let selector = |name: &str| match get(written, name) {
            Value::Null => Ok(LabelSelector::everything()),
            selector => LabelSelector::from_value(selector),
        };
        let rules = |name: &str| -> Result<Vec<NamedRule>, String> {
            items(written, name).iter().map(NamedRule::parse).collect()
        };
        Ok(Self {
            namespace_selector: selector("/namespaceSelector")?,
            object_selector: selector("/objectSelector")?,
            rules: rules("/resourceRules")?,
            excluded: rules("/excludeResourceRules")?,
            equivalent: text(written, "/matchPolicy") != "Exact",
        })
    }

    /// Whether a rule may match the resource in some version.
    pub(super) fn has_rule_for(&self, gvr: &Gvr, subresource: &str) -> bool {
        let rules = self.rules.iter().map(|named_rule| &named_rule.rule);
        self.rules.is_empty() || has_rule_for(rules, gvr, subresource)
    }

    /// The index of the version that the constraints match.
    pub(super) async fn matching_version(
        &self,
        attributes: &AdmissionAttributes<'_>,
        versions: &[(Gvk, Gvr)],
        (new, old): (&Value, Option<&Value>),
        namespaces: &dyn NamespaceLookup,
    ) -> Result<Option<usize>, Status> {
        let name = match attributes.name {
            "" => text(new, "/metadata/name"),
            name => name,
        };
        if !matches_object(&self.object_selector, new, old)
            || self
                .version_of(&self.excluded, attributes, name, versions)
                .is_some()
        {
            return Ok(None);
        }
        let version = match self.rules.is_empty() {
            true => Some(0),
            false => self.version_of(&self.rules, attributes, name, versions),
        };
        let Some(version) = version else {
            return Ok(None);
        };
        let selector = &self.namespace_selector;
        let matches = matches_namespace(selector, namespaces, attributes, new).await?;
        Ok(matches.then_some(version))
    }

    fn version_of(
        &self,
        rules: &[NamedRule],
        attributes: &AdmissionAttributes<'_>,
        name: &str,
        versions: &[(Gvk, Gvr)],
    ) -> Option<usize> {
        let tried = if self.equivalent { versions.len() } else { 1 };
        let mut tried = 0..tried.min(versions.len());
        tried.find(|version| {
            let gvr = &versions[*version].1;
            rules.iter().any(|rule| rule.matches(attributes, name, gvr))
        })
    }
}
