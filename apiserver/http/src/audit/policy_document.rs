//! Parses and validates the file of `--audit-policy-file`
//! (`k8s.io/apiserver/pkg/apis/audit/validation`).

use machinery::FieldError;
use machinery::names::validate_dns1123_subdomain;
use serde::Deserialize;
use serde_json::{Value, json};

use super::level_and_stage::{AuditLevel, AuditStage};
use super::policy::{
    AuditPolicy, AuditPolicyRule, GroupResources, OmittedStages, RequestAuditConfig,
};

const API_VERSION: &str = "audit.k8s.io/v1";
const LEVELS: [(&str, AuditLevel); 4] = [
    ("None", AuditLevel::None),
    ("Metadata", AuditLevel::Metadata),
    ("Request", AuditLevel::Request),
    ("RequestResponse", AuditLevel::RequestResponse),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyDocument {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: Value,
    #[serde(default)]
    rules: Vec<RuleDocument>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RuleDocument {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResourcesDocument>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct GroupResourcesDocument {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl AuditPolicy {
    /// Parses YAML or JSON. An error names the field.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: PolicyDocument = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        if document.api_version != API_VERSION || document.kind != "Policy" {
            return Err(format!(
                "must be a Policy of {API_VERSION}, is {:?} of {:?}",
                document.kind, document.api_version
            ));
        }
        if document.rules.is_empty() {
            return Err("has no rules".into());
        }
        let mut errors = Vec::new();
        let omitted = parse_stages(&document.omit_stages, "omitStages", &mut errors);
        let rules = document.rules.into_iter().enumerate().map(|(n, rule)| {
            let defaults = (omitted, document.omit_managed_fields);
            rule.validate(defaults, &format!("rules[{n}]"), &mut errors)
        });
        let rules = rules.collect();
        if errors.is_empty() {
            return Ok(Self { rules });
        }
        let all: Vec<String> = errors.iter().map(FieldError::to_string).collect();
        Err(all.join(", "))
    }
}

impl RuleDocument {
    fn validate(
        self,
        (mut omit_stages, omit_managed_fields): (OmittedStages, bool),
        path: &str,
        errors: &mut Vec<FieldError>,
    ) -> AuditPolicyRule {
        let level = parse_level(&self.level, &format!("{path}.level"), errors);
        omit_stages.insert_all(parse_stages(
            &self.omit_stages,
            &format!("{path}.omitStages"),
            errors,
        ));
        validate_urls(&self, path, errors);
        let resources = self.resources.into_iter().enumerate();
        let resources =
            resources.map(|(n, gr)| gr.validate(&format!("{path}.resources[{n}]"), errors));
        AuditPolicyRule {
            resources: resources.collect(),
            config: RequestAuditConfig {
                level,
                omit_stages,
                omit_managed_fields: self.omit_managed_fields.unwrap_or(omit_managed_fields),
            },
            users: self.users,
            user_groups: self.user_groups,
            verbs: self.verbs,
            namespaces: self.namespaces,
            non_resource_urls: self.non_resource_urls,
        }
    }
}

impl GroupResourcesDocument {
    fn validate(self, path: &str, errors: &mut Vec<FieldError>) -> GroupResources {
        if !self.group.is_empty()
            && let Err(message) = validate_dns1123_subdomain(&self.group)
        {
            let field = format!("{path}.group");
            errors.push(FieldError::invalid(field, &json!(self.group), message));
        }
        if self.resources.is_empty() && !self.resource_names.is_empty() {
            let field = format!("{path}.resourceNames");
            let text = "using resourceNames requires at least one resource";
            errors.push(FieldError::invalid(
                field,
                &json!(self.resource_names),
                text,
            ));
        }
        GroupResources {
            group: self.group,
            resources: self.resources,
            resource_names: self.resource_names,
        }
    }
}

fn validate_urls(rule: &RuleDocument, path: &str, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.nonResourceURLs");
    for (n, url) in rule.non_resource_urls.iter().enumerate() {
        let mut refuse = |text: &str| {
            let field = format!("{field}[{n}]");
            errors.push(FieldError::invalid(field, &json!(url), text));
        };
        if url == "*" {
            continue;
        }
        if !url.starts_with('/') {
            refuse("non-resource URL rules must begin with a '/' character");
        }
        if url.trim_end_matches('*').contains('*') || url.ends_with("**") {
            refuse("non-resource URL wildcards '*' must be the final character of the rule");
        }
    }
    let has_resources = !rule.resources.is_empty() || !rule.namespaces.is_empty();
    if has_resources && !rule.non_resource_urls.is_empty() {
        let text = "rules cannot apply to both regular resources and non-resource URLs";
        errors.push(FieldError::invalid(
            field,
            &json!(rule.non_resource_urls),
            text,
        ));
    }
}

fn parse_level(text: &str, field: &str, errors: &mut Vec<FieldError>) -> AuditLevel {
    if let Some((_, level)) = LEVELS.iter().find(|(name, _)| *name == text) {
        return *level;
    }
    errors.push(match text {
        "" => FieldError::required(field, ""),
        _ => FieldError::not_supported(field, &json!(text), &LEVELS.map(|(name, _)| name)),
    });
    AuditLevel::None
}

fn parse_stages(names: &[String], field: &str, errors: &mut Vec<FieldError>) -> OmittedStages {
    let mut stages = OmittedStages::default();
    for (n, name) in names.iter().enumerate() {
        match AuditStage::ALL.iter().find(|stage| stage.as_str() == name) {
            Some(stage) => stages.insert(*stage),
            None => {
                let allowed = AuditStage::ALL.map(AuditStage::as_str).join(",");
                let text = format!("allowed stages are {allowed}");
                errors.push(FieldError::invalid(
                    format!("{field}[{n}]"),
                    &json!(name),
                    text,
                ));
            }
        }
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_policies_are_refused_with_their_field() {
        for (body, expected) in [
            ("rules: []", "has no rules"),
            ("rules: [{users: [a]}]", "rules[0].level: Required value"),
            ("rules: [{level: All}]", "rules[0].level: Unsupported value"),
            ("rules: [{level: None, user: a}]", "unknown field"),
            (
                "omitStages: [X], rules: [{level: None}]",
                "omitStages[0]: Invalid value",
            ),
            (
                "rules: [{level: None, omitStages: [Panic, X]}]",
                "rules[0].omitStages[1]: Invalid value",
            ),
            (
                "rules: [{level: None, nonResourceURLs: [a]}]",
                "nonResourceURLs[0]: Invalid value: \"a\": non-resource URL rules must begin",
            ),
            (
                "rules: [{level: None, nonResourceURLs: [/a*b]}]",
                "must be the final character",
            ),
            (
                "rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]",
                "rules cannot apply to both",
            ),
            (
                "rules: [{level: None, resources: [{group: apps/v1}]}]",
                "rules[0].resources[0].group: Invalid value",
            ),
            (
                "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
                "using resourceNames requires at least one resource",
            ),
        ] {
            let text = format!("{{apiVersion: audit.k8s.io/v1, kind: Policy, {body}}}");
            let error = AuditPolicy::parse(&text).unwrap_err();
            assert!(error.contains(expected), "{body}: {error}");
        }
        let other = AuditPolicy::parse("{apiVersion: audit.k8s.io/v1beta1, kind: Policy}");
        assert!(
            other
                .unwrap_err()
                .contains("must be a Policy of audit.k8s.io/v1")
        );
    }

    #[test]
    fn rules_inherit_and_override_what_is_omitted() {
        let text = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], \
                    omitManagedFields: true, rules: [{level: Request, omitStages: [Panic]}, \
                    {level: Request, omitManagedFields: false}]}";
        let policy = AuditPolicy::parse(text).unwrap();
        let [first, second] = [0, 1].map(|n| policy.rules[n].config);
        let omits = |config: RequestAuditConfig| {
            AuditStage::ALL.map(|stage| config.omit_stages.contains(stage))
        };
        assert_eq!(omits(first), [true, false, false, true]);
        assert_eq!(omits(second), [true, false, false, false]);
        assert!(first.omit_managed_fields && !second.omit_managed_fields);
    }
}
