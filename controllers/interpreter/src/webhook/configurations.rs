//! Indexes the webhooks of ResourceInterpreterWebhookConfigurations.
//!
//! It finds the webhook for an operation on a kind, and computes which operations change with a new set
//! of configurations. Pure. Source: Karmada's `webhook/{customized,configmanager}` and
//! `util/interpreter`.

use std::sync::Arc;
use std::time::Duration;

use client::webhook::WebhookClientConfig;
use machinery::{FailureLogLimiter, Gvk, Object};
use serde::Deserialize;
use serde_json::Value;

use super::concurrency::WebhookConcurrencyLimit;
use crate::config_manager::BuildableInterpreterRuleIndex;
use crate::operation::InterpreterOperation;

const WILDCARD: &str = "*";
/// The only supported interpreterContextVersion.
const CONTEXT_VERSION: &str = "v1alpha1";
/// Default of `timeoutSeconds`.
const DEFAULT_TIMEOUT_SECONDS: u64 = 10;
/// Maximum of `timeoutSeconds`.
const MAX_TIMEOUT_SECONDS: u64 = 30;
/// Configurations that currently fail to parse, by UID.
static PARSE_FAILURES: FailureLogLimiter = FailureLogLimiter::new();

/// The operations and kinds that a webhook covers.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct InterpreterWebhookRule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    kinds: Vec<String>,
}

fn contains_or_wildcard(all: &[String], one: &str) -> bool {
    all.iter().any(|each| each == WILDCARD || each == one)
}

impl InterpreterWebhookRule {
    fn covers(&self, kind: &Gvk, operation: InterpreterOperation) -> bool {
        contains_or_wildcard(&self.operations, operation.name())
            && contains_or_wildcard(&self.api_groups, &kind.group)
            && contains_or_wildcard(&self.api_versions, &kind.version)
            && contains_or_wildcard(&self.kinds, &kind.kind)
    }
}

/// A webhook of a configuration, ready to be called.
#[derive(Debug)]
pub(crate) struct InterpreterWebhook {
    /// `CONFIGURATION/NAME`.
    pub(super) uid: String,
    /// Its client config, or why that is invalid.
    pub(super) client_config: Result<WebhookClientConfig, String>,
    rules: Vec<InterpreterWebhookRule>,
    pub(super) timeout: Duration,
    /// Whether it accepts a version of the protocol that Flotilla speaks.
    pub(super) supports_version: bool,
    pub(super) concurrency: Arc<WebhookConcurrencyLimit>,
}

impl InterpreterWebhook {
    fn covers(&self, kind: &Gvk, operation: InterpreterOperation) -> bool {
        self.rules.iter().any(|rule| rule.covers(kind, operation))
    }

    /// Whether both are the same webhook with the same client config, timeout and versions.
    fn same_behavior(&self, other: &Self) -> bool {
        let settings = |hook: &Self| (hook.timeout, hook.supports_version);
        self.uid == other.uid
            && self.client_config == other.client_config
            && settings(self) == settings(other)
    }
}

#[derive(Deserialize)]
struct ResourceInterpreterWebhookConfiguration {
    #[serde(default)]
    webhooks: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceInterpreterWebhook {
    name: String,
    #[serde(default)]
    client_config: Value,
    #[serde(default)]
    rules: Vec<InterpreterWebhookRule>,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    interpreter_context_versions: Vec<String>,
}

/// All webhooks, sorted by UID; the first that covers an operation on a kind is called.
#[derive(Debug, Default)]
pub(crate) struct SortedInterpreterWebhooks(Vec<Arc<InterpreterWebhook>>);

impl SortedInterpreterWebhooks {
    /// The webhook for an operation on a kind.
    pub(super) fn find(
        &self,
        kind: &Gvk,
        operation: InterpreterOperation,
    ) -> Option<&Arc<InterpreterWebhook>> {
        self.0.iter().find(|hook| hook.covers(kind, operation))
    }

    fn parse_webhook(
        &self,
        configuration: &str,
        webhook: Value,
    ) -> Result<InterpreterWebhook, serde_json::Error> {
        let written: ResourceInterpreterWebhook = serde_json::from_value(webhook)?;
        let uid = format!("{configuration}/{}", written.name);
        let client_config =
            serde_json::from_value(written.client_config).map_err(|e| e.to_string());
        let seconds = written.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
        // The calls in flight of an unchanged webhook still count.
        let former = self
            .0
            .iter()
            .find(|h| h.uid == uid && h.client_config == client_config);
        let gate = former.map_or_else(Arc::default, |h| Arc::clone(&h.concurrency));
        let versions = written.interpreter_context_versions;
        Ok(InterpreterWebhook {
            uid,
            client_config,
            rules: written.rules,
            timeout: Duration::from_secs(seconds.clamp(1, MAX_TIMEOUT_SECONDS)),
            supports_version: versions.iter().any(|v| v == CONTEXT_VERSION),
            concurrency: gate,
        })
    }
}

impl BuildableInterpreterRuleIndex for SortedInterpreterWebhooks {
    fn build<'a>(all: impl IntoIterator<Item = &'a Object>, before: &Self) -> Self {
        let all: Vec<&Object> = all.into_iter().collect();
        PARSE_FAILURES.retain_keys(all.iter().map(|object| object.uid()));
        let mut hooks = Vec::new();
        for object in all {
            let name = object.name();
            let read = machinery::json::from_slice::<ResourceInterpreterWebhookConfiguration>(
                &object.bytes(),
            );
            let webhooks = read.map(|c| {
                c.webhooks
                    .into_iter()
                    .map(|w| before.parse_webhook(name, w))
            });
            match webhooks.and_then(Iterator::collect::<Result<Vec<_>, _>>) {
                Ok(parsed) => {
                    PARSE_FAILURES.record_success(object.uid());
                    hooks.extend(parsed.into_iter().map(Arc::new));
                }
                Err(error) if PARSE_FAILURES.record_failure(object.uid(), &error.to_string()) => {
                    tracing::warn!(configuration = name, %error, "failed to parse a ResourceInterpreterWebhookConfiguration");
                }
                Err(_) => {}
            }
        }
        hooks.sort_by(|a, b| a.uid.cmp(&b.uid));
        Self(hooks)
    }

    fn differs(&self, before: &Self, kind: &Gvk, operation: InterpreterOperation) -> bool {
        let answer = |hooks: &'_ Self| hooks.find(kind, operation).cloned();
        match (answer(self), answer(before)) {
            (Some(now), Some(then)) => !now.same_behavior(&then),
            (None, None) => false,
            _ => true,
        }
    }

    fn changed_operations(&self, before: &Self) -> Vec<InterpreterOperation> {
        let covers = |hook: &&Arc<InterpreterWebhook>, operation: InterpreterOperation| {
            let mut rules = hook.rules.iter();
            rules.any(|rule| contains_or_wildcard(&rule.operations, operation.name()))
        };
        let same = |operation: InterpreterOperation| {
            let mut now = self.0.iter().filter(|h| covers(h, operation));
            let mut then = before.0.iter().filter(|h| covers(h, operation));
            loop {
                match (now.next(), then.next()) {
                    (Some(a), Some(b)) if a.same_behavior(b) && a.rules == b.rules => {}
                    (None, None) => return true,
                    _ => return false,
                }
            }
        };
        let all = InterpreterOperation::ALL.into_iter();
        all.filter(|operation| !same(*operation)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::native::fixtures::object;

    fn webhook(name: &str, operations: &[&str], kinds: &[&str]) -> Value {
        json!({"name": name, "clientConfig": {"url": format!("https://{name}/x")},
            "rules": [{"operations": operations, "apiGroups": ["example.io"], "apiVersions": ["v1"], "kinds": kinds}],
            "interpreterContextVersions": ["v9", "v1alpha1"]})
    }

    fn configuration(name: &str, hooks: &[Value]) -> Object {
        object(json!({"metadata": {"name": name}, "webhooks": hooks}))
    }

    fn build_index(
        all: &[Object],
        before: &SortedInterpreterWebhooks,
    ) -> SortedInterpreterWebhooks {
        SortedInterpreterWebhooks::build(all, before)
    }

    fn found_uid(
        hooks: &SortedInterpreterWebhooks,
        kind: &Gvk,
        operation: InterpreterOperation,
    ) -> Option<String> {
        hooks.find(kind, operation).map(|h| h.uid.clone())
    }

    const THING: Gvk = Gvk::from_static("example.io", "v1", "Thing");

    // proves: WEB-first
    #[test]
    fn first_covering_webhook_by_name_is_found() {
        let all = [
            configuration("b", &[webhook("a", &["Retain"], &["Thing"])]),
            configuration(
                "a",
                &[
                    webhook("z", &["Retain", "InterpretHealth"], &["Thing"]),
                    webhook("y", &["Retain"], &["Other"]),
                ],
            ),
            object(json!({"metadata": {"name": "broken"}, "webhooks": [{"name": 1}]})),
        ];
        let hooks = build_index(&all, &SortedInterpreterWebhooks::default());
        let find = |kind: &Gvk, operation| found_uid(&hooks, kind, operation);
        assert_eq!(
            find(&THING, InterpreterOperation::Retain).as_deref(),
            Some("a/z")
        );
        let other = Gvk::from_static("example.io", "v1", "Other");
        assert_eq!(
            find(&other, InterpreterOperation::Retain).as_deref(),
            Some("a/y")
        );
        assert_eq!(find(&other, InterpreterOperation::InterpretHealth), None);
    }

    // proves: WEB-rules
    #[test]
    fn rule_matches_operation_group_version_and_kind() {
        let check = |rule: Value, covered: bool| {
            let mut hook = webhook("h", &[], &[]);
            hook["rules"] = json!([{}, rule]);
            let hooks = build_index(
                &[configuration("c", &[hook])],
                &SortedInterpreterWebhooks::default(),
            );
            let actual = hooks.find(&THING, InterpreterOperation::ReviseReplica);
            assert_eq!(actual.is_some(), covered, "{rule}");
        };
        let rule = |operation: &str, group: &str, version: &str, kind: &str| json!({"operations": ["Retain", operation], "apiGroups": ["", group], "apiVersions": ["v0", version], "kinds": ["None", kind]});
        let revise = "ReviseReplica";
        check(rule(revise, "example.io", "v1", "Thing"), true);
        check(rule("*", "*", "*", "*"), true);
        check(rule("InterpretReplica", "*", "*", "*"), false);
        check(rule("*", "example.org", "*", "*"), false);
        check(rule("*", "*", "v2", "*"), false);
        check(rule("*", "*", "*", "Things"), false);
        check(json!({}), false);
    }

    // proves: WEB-timeout
    #[test]
    fn settings_of_a_webhook_and_their_defaults() {
        let mut hook = webhook("h", &["*"], &["*"]);
        let read = |hook: &Value| {
            let read = SortedInterpreterWebhooks::default()
                .parse_webhook("c", hook.clone())
                .unwrap();
            (
                read.client_config.is_ok(),
                read.timeout.as_secs(),
                read.supports_version,
            )
        };
        assert_eq!(read(&hook), (true, 10, true));
        hook["timeoutSeconds"] = 3.into();
        hook["interpreterContextVersions"] = json!(["v2"]);
        assert_eq!(read(&hook), (true, 3, false));
        hook["clientConfig"]["caBundle"] = "?".into();
        assert_eq!(read(&hook), (false, 3, false));
    }

    // proves: WEB-effective-at-once
    #[test]
    fn only_changed_operations_are_reported() {
        let first = [configuration(
            "c",
            &[
                webhook("a", &["Retain"], &["Thing"]),
                webhook("b", &["*"], &["Thing"]),
            ],
        )];
        let before = build_index(&first, &SortedInterpreterWebhooks::default());
        let other = Gvk::from_static("example.io", "v1", "Other");
        let check = |hooks: &[Value],
                     touched: &[InterpreterOperation],
                     thing: &[InterpreterOperation],
                     others: bool| {
            let now = build_index(&[configuration("c", hooks)], &before);
            assert_eq!(now.changed_operations(&before), touched, "{hooks:?}");
            let differs = |kind: &Gvk, o: &InterpreterOperation| now.differs(&before, kind, *o);
            let all = InterpreterOperation::ALL.into_iter();
            let actual: Vec<_> = all.filter(|o| differs(&THING, o)).collect();
            assert_eq!(actual, thing, "{hooks:?}");
            let any = InterpreterOperation::ALL.iter().any(|o| differs(&other, o));
            assert_eq!(any, others, "{hooks:?}");
        };
        let (a, b) = (
            || webhook("a", &["Retain"], &["Thing"]),
            || webhook("b", &["*"], &["Thing"]),
        );
        check(&[b(), a()], &[], &[], false);
        // `b` covers the other operations with and without `a`.
        check(
            &[b()],
            &[InterpreterOperation::Retain],
            &[InterpreterOperation::Retain],
            false,
        );
        let mut moved = a();
        moved["clientConfig"]["url"] = "https://elsewhere".into();
        check(
            &[moved, b()],
            &[InterpreterOperation::Retain],
            &[InterpreterOperation::Retain],
            false,
        );
        let health = webhook("c", &["InterpretHealth"], &["*"]);
        let touched = [InterpreterOperation::InterpretHealth];
        check(&[a(), b(), health], &touched, &[], true);
        check(
            &[],
            &InterpreterOperation::ALL,
            &InterpreterOperation::ALL,
            false,
        );
        // An unchanged webhook keeps its concurrency limit.
        let now = build_index(&first, &before);
        assert!(Arc::ptr_eq(&now.0[0].concurrency, &before.0[0].concurrency));
    }
}
