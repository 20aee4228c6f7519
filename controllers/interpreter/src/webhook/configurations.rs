//! Indexes the webhooks of ResourceInterpreterWebhookConfigurations.
//!
//! It finds the webhook for an operation on a kind, and computes which operations change with a new set
//! of configurations. Pure. Source: Karmada's `webhook/{customized,configmanager}` and
//! `util/interpreter`.

use std::sync::Arc;
use std::time::Duration;

use client::webhook::Place;
use machinery::{FailureLog, Gvk, Object};
use serde::Deserialize;
use serde_json::Value;

use super::gate::Gate;
use crate::followed::Rules;
use crate::operation::Operation;

const ANY: &str = "*";
/// The only supported interpreterContextVersion.
const VERSION: &str = "v1alpha1";
/// Default of `timeoutSeconds`.
const TIMEOUT: u64 = 10;
/// Maximum of `timeoutSeconds`.
const LONGEST: u64 = 30;
/// Configurations that currently fail to parse, by UID.
static FAILURES: FailureLog = FailureLog::new();

/// The operations and kinds that a webhook covers.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Rule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    kinds: Vec<String>,
}

fn has(all: &[String], one: &str) -> bool {
    all.iter().any(|each| each == ANY || each == one)
}

impl Rule {
    fn covers(&self, kind: &Gvk, operation: Operation) -> bool {
        has(&self.operations, operation.name())
            && has(&self.api_groups, &kind.group)
            && has(&self.api_versions, &kind.version)
            && has(&self.kinds, &kind.kind)
    }
}

/// A webhook of a configuration, ready to be called.
#[derive(Debug)]
pub(crate) struct Hook {
    /// `CONFIGURATION/NAME`.
    pub(super) uid: String,
    /// Its client config, or why that is invalid.
    pub(super) place: Result<Place, String>,
    rules: Vec<Rule>,
    pub(super) timeout: Duration,
    /// Whether it accepts a version of the protocol that Flotilla speaks.
    pub(super) understands: bool,
    pub(super) gate: Arc<Gate>,
}

impl Hook {
    fn covers(&self, kind: &Gvk, operation: Operation) -> bool {
        self.rules.iter().any(|rule| rule.covers(kind, operation))
    }

    /// Whether both are the same webhook with the same client config, timeout and versions.
    fn is(&self, other: &Self) -> bool {
        let settings = |hook: &Self| (hook.timeout, hook.understands);
        self.uid == other.uid && self.place == other.place && settings(self) == settings(other)
    }
}

#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    webhooks: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    name: String,
    #[serde(default)]
    client_config: Value,
    #[serde(default)]
    rules: Vec<Rule>,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    interpreter_context_versions: Vec<String>,
}

/// All webhooks, sorted by UID; the first that covers an operation on a kind is called.
#[derive(Debug, Default)]
pub(crate) struct Hooks(Vec<Arc<Hook>>);

impl Hooks {
    /// The webhook for an operation on a kind.
    pub(super) fn find(&self, kind: &Gvk, operation: Operation) -> Option<&Arc<Hook>> {
        self.0.iter().find(|hook| hook.covers(kind, operation))
    }

    fn read(&self, configuration: &str, webhook: Value) -> Result<Hook, serde_json::Error> {
        let written: Written = serde_json::from_value(webhook)?;
        let uid = format!("{configuration}/{}", written.name);
        let place = serde_json::from_value(written.client_config).map_err(|e| e.to_string());
        let seconds = written.timeout_seconds.unwrap_or(TIMEOUT);
        // The calls in flight of an unchanged webhook still count.
        let former = self.0.iter().find(|h| h.uid == uid && h.place == place);
        let gate = former.map_or_else(Arc::default, |h| Arc::clone(&h.gate));
        let versions = written.interpreter_context_versions;
        Ok(Hook {
            uid,
            place,
            rules: written.rules,
            timeout: Duration::from_secs(seconds.clamp(1, LONGEST)),
            understands: versions.iter().any(|v| v == VERSION),
            gate,
        })
    }
}

impl Rules for Hooks {
    fn told<'a>(all: impl IntoIterator<Item = &'a Object>, before: &Self) -> Self {
        let mut hooks = Vec::new();
        for object in all {
            let name = object.name();
            let read = serde_json::from_slice::<Configuration>(object.bytes());
            let webhooks = read.map(|c| c.webhooks.into_iter().map(|w| before.read(name, w)));
            match webhooks.and_then(Iterator::collect::<Result<Vec<_>, _>>) {
                Ok(found) => {
                    FAILURES.record_success(object.uid());
                    hooks.extend(found.into_iter().map(Arc::new));
                }
                Err(error) if FAILURES.record_failure(object.uid(), &error.to_string()) => {
                    tracing::warn!(configuration = name, %error, "failed to parse a ResourceInterpreterWebhookConfiguration");
                }
                Err(_) => {}
            }
        }
        hooks.sort_by(|a, b| a.uid.cmp(&b.uid));
        Self(hooks)
    }

    fn differs(&self, before: &Self, kind: &Gvk, operation: Operation) -> bool {
        let answer = |hooks: &'_ Self| hooks.find(kind, operation).cloned();
        match (answer(self), answer(before)) {
            (Some(now), Some(then)) => !now.is(&then),
            (None, None) => false,
            _ => true,
        }
    }

    fn touched(&self, before: &Self) -> Vec<Operation> {
        let covers = |hook: &&Arc<Hook>, operation: Operation| {
            let mut rules = hook.rules.iter();
            rules.any(|rule| has(&rule.operations, operation.name()))
        };
        let same = |operation: Operation| {
            let mut now = self.0.iter().filter(|h| covers(h, operation));
            let mut then = before.0.iter().filter(|h| covers(h, operation));
            loop {
                match (now.next(), then.next()) {
                    (Some(a), Some(b)) if a.is(b) && a.rules == b.rules => {}
                    (None, None) => return true,
                    _ => return false,
                }
            }
        };
        let all = Operation::ALL.into_iter();
        all.filter(|operation| !same(*operation)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::native::tests::object;

    fn hook(name: &str, operations: &[&str], kinds: &[&str]) -> Value {
        json!({"name": name, "clientConfig": {"url": format!("https://{name}/x")},
            "rules": [{"operations": operations, "apiGroups": ["example.io"], "apiVersions": ["v1"], "kinds": kinds}],
            "interpreterContextVersions": ["v9", "v1alpha1"]})
    }

    fn configuration(name: &str, hooks: &[Value]) -> Object {
        object(json!({"metadata": {"name": name}, "webhooks": hooks}))
    }

    fn told(all: &[Object], before: &Hooks) -> Hooks {
        Hooks::told(all, before)
    }

    fn answers(hooks: &Hooks, kind: &Gvk, operation: Operation) -> Option<String> {
        hooks.find(kind, operation).map(|h| h.uid.clone())
    }

    const THING: Gvk = Gvk::constant("example.io", "v1", "Thing");

    // proves: WEB-first
    #[test]
    fn first_covering_webhook_by_name_is_found() {
        let all = [
            configuration("b", &[hook("a", &["Retain"], &["Thing"])]),
            configuration(
                "a",
                &[
                    hook("z", &["Retain", "InterpretHealth"], &["Thing"]),
                    hook("y", &["Retain"], &["Other"]),
                ],
            ),
            object(json!({"metadata": {"name": "broken"}, "webhooks": [{"name": 1}]})),
        ];
        let hooks = told(&all, &Hooks::default());
        let find = |kind: &Gvk, operation| answers(&hooks, kind, operation);
        assert_eq!(find(&THING, Operation::Retain).as_deref(), Some("a/z"));
        let other = Gvk::constant("example.io", "v1", "Other");
        assert_eq!(find(&other, Operation::Retain).as_deref(), Some("a/y"));
        assert_eq!(find(&other, Operation::InterpretHealth), None);
    }

    // proves: WEB-rules
    #[test]
    fn rule_matches_operation_group_version_and_kind() {
        let check = |rule: Value, covered: bool| {
            let mut hook = hook("h", &[], &[]);
            hook["rules"] = json!([{}, rule]);
            let hooks = told(&[configuration("c", &[hook])], &Hooks::default());
            let found = hooks.find(&THING, Operation::ReviseReplica);
            assert_eq!(found.is_some(), covered, "{rule}");
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
        let mut hook = hook("h", &["*"], &["*"]);
        let read = |hook: &Value| {
            let read = Hooks::default().read("c", hook.clone()).unwrap();
            (read.place.is_ok(), read.timeout.as_secs(), read.understands)
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
                hook("a", &["Retain"], &["Thing"]),
                hook("b", &["*"], &["Thing"]),
            ],
        )];
        let before = told(&first, &Hooks::default());
        let other = Gvk::constant("example.io", "v1", "Other");
        let check = |hooks: &[Value], touched: &[Operation], thing: &[Operation], others: bool| {
            let now = told(&[configuration("c", hooks)], &before);
            assert_eq!(now.touched(&before), touched, "{hooks:?}");
            let differs = |kind: &Gvk, o: &Operation| now.differs(&before, kind, *o);
            let all = Operation::ALL.into_iter();
            let found: Vec<_> = all.filter(|o| differs(&THING, o)).collect();
            assert_eq!(found, thing, "{hooks:?}");
            let any = Operation::ALL.iter().any(|o| differs(&other, o));
            assert_eq!(any, others, "{hooks:?}");
        };
        let (a, b) = (
            || hook("a", &["Retain"], &["Thing"]),
            || hook("b", &["*"], &["Thing"]),
        );
        check(&[b(), a()], &[], &[], false);
        // `b` covers the other operations with and without `a`.
        check(&[b()], &[Operation::Retain], &[Operation::Retain], false);
        let mut moved = a();
        moved["clientConfig"]["url"] = "https://elsewhere".into();
        check(
            &[moved, b()],
            &[Operation::Retain],
            &[Operation::Retain],
            false,
        );
        let health = hook("c", &["InterpretHealth"], &["*"]);
        let touched = [Operation::InterpretHealth];
        check(&[a(), b(), health], &touched, &[], true);
        check(&[], &Operation::ALL, &Operation::ALL, false);
        // An unchanged webhook keeps its concurrency limit.
        let now = told(&first, &before);
        assert!(Arc::ptr_eq(&now.0[0].gate, &before.0[0].gate));
    }
}
