//! Parses ValidatingWebhookConfigurations and MutatingWebhookConfigurations into their
//! webhooks in call order. A malformed webhook is left out and logged.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use client::webhook::WebhookClientConfig;
use kubernetes_cel::{AdmissionExpression, AdmissionExpressions, DeclaredAdmissionVariables};
use machinery::{FailureLogLimiter, LabelSelector, Object};
use serde::Deserialize;
use serde_json::Value;

use crate::expressions::compile_match_conditions;

const DEFAULT_TIMEOUT_SECONDS: u64 = 10;
const MAX_TIMEOUT_SECONDS: u64 = 30;
/// Log state of malformed webhooks, by the UID of their configuration and their index
/// in it.
static FAILURES: FailureLogLimiter = FailureLogLimiter::new();

/// Match conditions of webhooks share no variables.
pub(super) static MATCH_CONDITION_EXPRESSIONS: LazyLock<AdmissionExpressions> =
    LazyLock::new(AdmissionExpressions::new);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffectsOnDryRun {
    /// None or NoneOnDryRun.
    None,
    Some,
}

/// The version of the reviews that a webhook gets: the first that it lists and that this
/// server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    fn first_supported(listed: &[String]) -> Option<Self> {
        if listed.is_empty() {
            return Some(Self::V1);
        }
        listed.iter().find_map(|version| match version.as_str() {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct AdmissionWebhookRule {
    pub(crate) operations: Vec<String>,
    pub(crate) api_groups: Vec<String>,
    pub(crate) api_versions: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) scope: Option<String>,
}

#[derive(Debug)]
pub(super) struct AdmissionWebhook {
    pub(super) name: String,
    /// The name of its configuration.
    pub(super) configuration: String,
    pub(super) client_config: WebhookClientConfig,
    pub(super) rules: Vec<AdmissionWebhookRule>,
    pub(super) ignore_failures: bool,
    /// matchPolicy Equivalent: rules of one version match the others too.
    pub(super) match_equivalent: bool,
    pub(super) namespace_selector: LabelSelector,
    pub(super) object_selector: LabelSelector,
    pub(super) side_effects: SideEffectsOnDryRun,
    pub(super) timeout: Duration,
    pub(super) reinvoke: bool,
    pub(super) review_version: ReviewVersion,
    pub(super) match_conditions: Vec<AdmissionExpression>,
}

#[derive(Deserialize)]
struct AdmissionWebhookConfiguration {
    #[serde(default)]
    webhooks: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionWebhookJson {
    name: String,
    client_config: WebhookClientConfig,
    #[serde(default)]
    rules: Vec<AdmissionWebhookRule>,
    failure_policy: Option<String>,
    match_policy: Option<String>,
    #[serde(default)]
    namespace_selector: Value,
    #[serde(default)]
    object_selector: Value,
    side_effects: Option<String>,
    timeout_seconds: Option<u64>,
    admission_review_versions: Option<Vec<String>>,
    reinvocation_policy: Option<String>,
}

/// The webhooks of all configurations, sorted by configuration name, then in their
/// order there.
pub(super) fn parse_all(configurations: &[Object]) -> Vec<Arc<AdmissionWebhook>> {
    let mut sorted: Vec<&Object> = configurations.iter().collect();
    sorted.sort_by(|a, b| a.name().cmp(b.name()));
    let mut hooks = Vec::new();
    for configuration in sorted {
        let (name, uid) = (configuration.name(), configuration.uid());
        let written = match machinery::json::from_slice::<AdmissionWebhookConfiguration>(
            &configuration.bytes(),
        ) {
            Ok(written) => written,
            Err(error) => {
                if FAILURES.record_failure(uid, &error.to_string()) {
                    tracing::warn!(name, %error, "failed to parse webhook configuration");
                }
                continue;
            }
        };
        FAILURES.record_success(uid);
        for (index, webhook) in written.webhooks.into_iter().enumerate() {
            match parse(name, webhook) {
                Ok(webhook) => {
                    FAILURES.record_success(&(uid, index));
                    hooks.push(Arc::new(webhook));
                }
                Err(error) if FAILURES.record_failure(&(uid, index), &error) => {
                    tracing::warn!(name, %error, "failed to parse webhook");
                }
                Err(_) => {}
            }
        }
    }
    hooks
}

fn parse(configuration: &str, value: Value) -> Result<AdmissionWebhook, String> {
    let match_conditions = compile_match_conditions(
        &MATCH_CONDITION_EXPRESSIONS,
        &value,
        DeclaredAdmissionVariables {
            authorizer: true,
            ..DeclaredAdmissionVariables::default()
        },
    );
    let written: AdmissionWebhookJson = serde_json::from_value(value).map_err(|e| e.to_string())?;
    let selector = |value: &Value| match value {
        Value::Null => Ok(LabelSelector::everything()),
        value => LabelSelector::from_value(value),
    };
    let versions = written.admission_review_versions.unwrap_or_default();
    let Some(review_version) = ReviewVersion::first_supported(&versions) else {
        return Err(format!(
            "{} accepts no known version of AdmissionReview",
            written.name
        ));
    };
    let equals = |field: &Option<String>, value: &str| field.as_deref() == Some(value);
    let has_no_side_effects =
        equals(&written.side_effects, "None") || equals(&written.side_effects, "NoneOnDryRun");
    let seconds = written
        .timeout_seconds
        .unwrap_or(DEFAULT_TIMEOUT_SECONDS)
        .clamp(1, MAX_TIMEOUT_SECONDS);
    Ok(AdmissionWebhook {
        client_config: written.client_config,
        name: written.name,
        configuration: configuration.to_owned(),
        rules: written.rules,
        ignore_failures: equals(&written.failure_policy, "Ignore"),
        match_equivalent: !equals(&written.match_policy, "Exact"),
        namespace_selector: selector(&written.namespace_selector)?,
        object_selector: selector(&written.object_selector)?,
        side_effects: if has_no_side_effects {
            SideEffectsOnDryRun::None
        } else {
            SideEffectsOnDryRun::Some
        },
        timeout: Duration::from_secs(seconds),
        reinvoke: equals(&written.reinvocation_policy, "IfNeeded"),
        review_version,
        match_conditions,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn omitted_fields_are_defaulted() {
        let client_config = json!({"url": "https://a.b"});
        let webhook = parse("c", json!({"name": "h", "clientConfig": client_config})).unwrap();
        assert!(!webhook.ignore_failures && webhook.match_equivalent && !webhook.reinvoke);
        assert_eq!(webhook.timeout, Duration::from_secs(10));
        let error = parse("c", json!({"name": "h", "clientConfig": {}})).unwrap_err();
        assert_eq!(error, "exactly one of url or service is required");
    }

    #[test]
    fn the_first_known_review_version_is_used() {
        for (listed, expected) in [
            (&[] as &[&str], Some(ReviewVersion::V1)),
            (&["v2", "v1beta1", "v1"], Some(ReviewVersion::V1Beta1)),
            (&["v1", "v1beta1"], Some(ReviewVersion::V1)),
            (&["v2"], None),
        ] {
            let listed: Vec<String> = listed.iter().map(|v| (*v).to_owned()).collect();
            assert_eq!(ReviewVersion::first_supported(&listed), expected);
        }
    }

    #[test]
    fn webhooks_are_sorted_by_configuration_name() {
        let configuration = |name: &str, hooks: &[&str]| {
            let hooks: Vec<Value> = hooks
                .iter()
                .map(|h| json!({"name": h, "clientConfig": {"url": "https://h"}}))
                .collect();
            let body = json!({"apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": name}, "webhooks": hooks});
            Object::from_value(&body).unwrap()
        };
        let hooks = parse_all(&[configuration("b", &["1"]), configuration("a", &["3", "2"])]);
        let names: Vec<&str> = hooks.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["3", "2", "1"]);
    }
}
