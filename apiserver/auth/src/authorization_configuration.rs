//! The file of `--authorization-config`: the authorizers of a server, in order
//! (`AuthorizationConfiguration` of apiserver.config.k8s.io).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use machinery::duration;
use machinery::names::validate_dns1123_subdomain;
use serde::Deserialize;

use crate::webhook::MatchConditions;

const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];
const KIND: &str = "AuthorizationConfiguration";
const MAX_WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_AUTHORIZED_TTL: Duration = Duration::from_secs(5 * 60);
const DEFAULT_UNAUTHORIZED_TTL: Duration = Duration::from_secs(30);
const TYPES: &str = "\"AlwaysAllow\", \"AlwaysDeny\", \"RBAC\", \"Webhook\"";

/// An authorizer of the configuration.
pub enum ConfiguredAuthorizer {
    Rbac { name: String },
    AlwaysAllow { name: String },
    AlwaysDeny { name: String },
    Webhook(ConfiguredWebhook),
}

/// A webhook of the configuration.
pub struct ConfiguredWebhook {
    pub name: String,
    pub kubeconfig: PathBuf,
    pub timeout: Duration,
    /// `None`: not cached.
    pub authorized_cache_ttl: Option<Duration>,
    pub unauthorized_cache_ttl: Option<Duration>,
    pub deny_on_failure: bool,
    pub match_conditions: MatchConditions,
}

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthorizationConfiguration {
    api_version: String,
    kind: String,
    #[serde(default)]
    authorizers: Vec<AuthorizerEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AuthorizerEntry {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    webhook: Option<WebhookEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WebhookEntry {
    #[serde(rename = "authorizedTTL")]
    authorized_ttl: Option<String>,
    cache_authorized_requests: Option<bool>,
    #[serde(rename = "unauthorizedTTL")]
    unauthorized_ttl: Option<String>,
    cache_unauthorized_requests: Option<bool>,
    timeout: Option<String>,
    subject_access_review_version: String,
    match_condition_subject_access_review_version: String,
    failure_policy: String,
    connection_info: ConnectionInfoEntry,
    match_conditions: Vec<MatchConditionEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ConnectionInfoEntry {
    #[serde(rename = "type")]
    kind: String,
    kube_config_file: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MatchConditionEntry {
    #[serde(default)]
    expression: String,
}

impl AuthorizationConfiguration {
    /// The authorizers, validated. An error names the field.
    pub fn authorizers(self) -> Result<Vec<ConfiguredAuthorizer>, String> {
        if !VERSIONS.contains(&self.api_version.as_str()) || self.kind != KIND {
            return Err(format!(
                "must be of kind {KIND} and version {}",
                VERSIONS[0]
            ));
        }
        if self.authorizers.is_empty() {
            return Err(
                "authorizers: Required value: at least one authorization mode must be defined"
                    .into(),
            );
        }
        let (mut kinds, mut names) = (BTreeSet::new(), BTreeSet::new());
        let mut authorizers = Vec::new();
        for (i, entry) in self.authorizers.into_iter().enumerate() {
            let path = format!("authorizers[{i}]");
            check_type(&entry.kind, &path)?;
            if !kinds.insert(entry.kind.clone()) && entry.kind != "Webhook" {
                return Err(format!("{path}.type: Duplicate value: {:?}", entry.kind));
            }
            check_name(&entry.name, &path)?;
            if !names.insert(entry.name.clone()) {
                return Err(format!("{path}.name: Duplicate value: {:?}", entry.name));
            }
            authorizers.push(entry.validated(&path)?);
        }
        Ok(authorizers)
    }
}

fn check_type(kind: &str, path: &str) -> Result<(), String> {
    match kind {
        "" => Err(format!("{path}.type: Required value")),
        "AlwaysAllow" | "AlwaysDeny" | "RBAC" | "Webhook" => Ok(()),
        other => Err(format!(
            "{path}.type: Unsupported value: {other:?}: supported values: {TYPES}"
        )),
    }
}

fn check_name(name: &str, path: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err(format!("{path}.name: Required value"));
    }
    validate_dns1123_subdomain(name).map_err(|message| {
        format!("{path}.name: Invalid value: {name:?}: authorizer name is invalid: {message}")
    })
}

impl AuthorizerEntry {
    fn validated(self, path: &str) -> Result<ConfiguredAuthorizer, String> {
        let name = self.name;
        match (self.kind.as_str(), self.webhook) {
            ("Webhook", Some(webhook)) => webhook
                .validated(name, path)
                .map(ConfiguredAuthorizer::Webhook),
            ("Webhook", None) => Err(format!(
                "{path}.webhook: Required value: required when type=Webhook"
            )),
            (_, Some(_)) => Err(format!(
                "{path}.webhook: Invalid value: \"non-null\": may only be specified when type=Webhook"
            )),
            ("AlwaysAllow", None) => Ok(ConfiguredAuthorizer::AlwaysAllow { name }),
            ("AlwaysDeny", None) => Ok(ConfiguredAuthorizer::AlwaysDeny { name }),
            _ => Ok(ConfiguredAuthorizer::Rbac { name }),
        }
    }
}

impl WebhookEntry {
    fn validated(self, name: String, path: &str) -> Result<ConfiguredWebhook, String> {
        let timeout = parse_duration(self.timeout.as_deref(), &format!("{path}.timeout"))?;
        let timeout = timeout.ok_or_else(|| format!("{path}.timeout: Required value"))?;
        if timeout > MAX_WEBHOOK_TIMEOUT {
            let text = self.timeout.unwrap_or_default();
            return Err(format!(
                "{path}.timeout: Invalid value: {text:?}: must be > 0s and <= 30s"
            ));
        }
        let ttl = |text: &Option<String>, field: &str, default| {
            let parsed = parse_duration(text.as_deref(), &format!("{path}.{field}"));
            parsed.map(|ttl| ttl.unwrap_or(default))
        };
        let authorized = ttl(
            &self.authorized_ttl,
            "authorizedTTL",
            DEFAULT_AUTHORIZED_TTL,
        )?;
        let unauthorized = ttl(
            &self.unauthorized_ttl,
            "unauthorizedTTL",
            DEFAULT_UNAUTHORIZED_TTL,
        )?;
        self.check_versions(path)?;
        let deny_on_failure = match self.failure_policy.as_str() {
            "" => return Err(format!("{path}.failurePolicy: Required value")),
            "Deny" => true,
            "NoOpinion" => false,
            other => {
                return Err(format!(
                    "{path}.failurePolicy: Unsupported value: {other:?}: supported values: \"Deny\", \"NoOpinion\""
                ));
            }
        };
        let expressions = self.match_conditions.into_iter().map(|c| c.expression);
        let expressions: Vec<String> = expressions.collect();
        let conditions_path = format!("{path}.matchConditions");
        Ok(ConfiguredWebhook {
            kubeconfig: self.connection_info.kubeconfig(path)?,
            name,
            timeout,
            authorized_cache_ttl: Some(authorized)
                .filter(|_| self.cache_authorized_requests != Some(false)),
            unauthorized_cache_ttl: Some(unauthorized)
                .filter(|_| self.cache_unauthorized_requests != Some(false)),
            deny_on_failure,
            match_conditions: MatchConditions::compile(&expressions, &conditions_path)?,
        })
    }

    fn check_versions(&self, path: &str) -> Result<(), String> {
        match self.subject_access_review_version.as_str() {
            "v1" => {}
            "" => {
                return Err(format!("{path}.subjectAccessReviewVersion: Required value"));
            }
            other => {
                return Err(format!(
                    "{path}.subjectAccessReviewVersion: Unsupported value: {other:?}: supported values: \"v1\""
                ));
            }
        }
        let version = &self.match_condition_subject_access_review_version;
        let field = format!("{path}.matchConditionSubjectAccessReviewVersion");
        match version.as_str() {
            "v1" => Ok(()),
            "" if self.match_conditions.is_empty() => Ok(()),
            "" => Err(format!(
                "{field}: Required value: required if match conditions are specified"
            )),
            other => Err(format!(
                "{field}: Unsupported value: {other:?}: supported values: \"v1\""
            )),
        }
    }
}

impl ConnectionInfoEntry {
    fn kubeconfig(self, path: &str) -> Result<PathBuf, String> {
        let path = format!("{path}.connectionInfo");
        match self.kind.as_str() {
            "KubeConfigFile" => {}
            "" => return Err(format!("{path}.type: Required value")),
            // It would ask this server for the access to itself.
            other => {
                return Err(format!(
                    "{path}.type: Unsupported value: {other:?}: supported values: \"KubeConfigFile\""
                ));
            }
        }
        let file = self.kube_config_file.unwrap_or_default();
        let field = format!("{path}.kubeConfigFile");
        if file.is_empty() {
            return Err(format!("{field}: Required value"));
        }
        let file = PathBuf::from(file);
        if !file.is_absolute() {
            let file_name = file.display().to_string();
            return Err(format!(
                "{field}: Invalid value: {file_name:?}: must be an absolute path"
            ));
        }
        Ok(file)
    }
}

/// A duration of a field that is positive; `None` if the field is absent or zero.
fn parse_duration(text: Option<&str>, path: &str) -> Result<Option<Duration>, String> {
    let Some(text) = text else {
        return Ok(None);
    };
    let parsed = duration::parse(text);
    let parsed = parsed.map_err(|message| format!("{path}: Invalid value: {text:?}: {message}"))?;
    Ok(Some(parsed).filter(|duration| !duration.is_zero()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn webhook(fields: Value) -> Value {
        let mut webhook = json!({"timeout": "3s", "subjectAccessReviewVersion": "v1",
            "failurePolicy": "Deny", "matchConditionSubjectAccessReviewVersion": "v1",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/a"}});
        for (name, value) in fields.as_object().unwrap() {
            webhook[name] = value.clone();
        }
        json!({"type": "Webhook", "name": "w", "webhook": webhook})
    }

    fn authorizers(list: Value) -> Result<Vec<ConfiguredAuthorizer>, String> {
        let file = json!({"apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthorizationConfiguration", "authorizers": list});
        let config: AuthorizationConfiguration = serde_json::from_value(file).unwrap();
        config.authorizers()
    }

    #[test]
    fn webhooks_have_the_defaults_of_kubernetes() {
        let fields = json!({"cacheUnauthorizedRequests": false,
            "matchConditions": [{"expression": "request.user == 'a'"}]});
        let list = json!([webhook(fields), {"type": "RBAC", "name": "rbac"}]);
        let all = authorizers(list).unwrap();
        let [
            ConfiguredAuthorizer::Webhook(webhook),
            ConfiguredAuthorizer::Rbac { name },
        ] = &all[..]
        else {
            panic!("the order is another");
        };
        assert_eq!(name, "rbac");
        assert_eq!(webhook.authorized_cache_ttl, Some(Duration::from_secs(300)));
        assert_eq!(webhook.unauthorized_cache_ttl, None);
        assert!(webhook.deny_on_failure && !webhook.match_conditions.is_empty());
    }

    #[test]
    fn errors_name_the_field() {
        let rbac = json!({"type": "RBAC", "name": "rbac"});
        for (list, message) in [
            (json!([]), "authorizers: Required value"),
            (json!([{"name": "a"}]), "authorizers[0].type: Required"),
            (
                json!([{"type": "Node", "name": "a"}]),
                "Unsupported value: \"Node\"",
            ),
            (json!([rbac, rbac]), "authorizers[1].type: Duplicate"),
            (json!([{"type": "RBAC"}]), "authorizers[0].name: Required"),
            (
                json!([{"type": "RBAC", "name": "A"}]),
                "authorizer name is invalid",
            ),
            (
                json!([{"type": "RBAC", "name": "a", "webhook": {}}]),
                "may only be specified",
            ),
            (
                json!([{"type": "Webhook", "name": "a"}]),
                "authorizers[0].webhook: Required",
            ),
            (
                json!([webhook(json!({})), webhook(json!({}))]),
                "authorizers[1].name: Duplicate",
            ),
            (json!([webhook(json!({"timeout": "31s"}))]), "<= 30s"),
            (
                json!([webhook(json!({"timeout": "0s"}))]),
                "timeout: Required",
            ),
            (
                json!([webhook(json!({"failurePolicy": "x"}))]),
                "failurePolicy: Unsupported",
            ),
            (
                json!([webhook(json!({"subjectAccessReviewVersion": "v1beta1"}))]),
                "Unsupported",
            ),
            (
                json!([webhook(
                    json!({"connectionInfo": {"type": "InClusterConfig"}})
                )]),
                "type: Unsupp",
            ),
            (
                json!([webhook(json!({"matchConditions": [{"expression": "x"}]}))]),
                "authorizers[0].matchConditions[0].expression: Invalid",
            ),
        ] {
            let error = authorizers(list).err().unwrap();
            assert!(error.contains(message), "{error}");
        }
    }
}
