//! The hooks of ResourceInterpreterWebhookConfigurations.
//!
//! Enters: the configurations there are. Leaves: which hook answers for a kind. Pure.
//! Source: Karmada's `webhook/{customized,configmanager}` and `util/interpreter`.

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
/// The one version of the protocol.
const VERSION: &str = "v1alpha1";
/// Seconds.
const TIMEOUT: u64 = 10;
const LONGEST: u64 = 30;
/// Configurations that cannot be read at present, by their uid.
static FAILURES: FailureLog = FailureLog::new();

/// What a hook is asked for.
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

#[derive(Debug)]
pub(crate) struct Hook {
    /// `CONFIGURATION/NAME`.
    pub(super) uid: String,
    /// Where it is, or why that cannot be said.
    pub(super) place: Result<Place, String>,
    rules: Vec<Rule>,
    pub(super) timeout: Duration,
    /// Whether it takes the version that we speak.
    pub(super) understands: bool,
    pub(super) gate: Arc<Gate>,
}

impl Hook {
    fn covers(&self, kind: &Gvk, operation: Operation) -> bool {
        self.rules.iter().any(|rule| rule.covers(kind, operation))
    }

    /// Whether nothing says that it would answer otherwise.
    fn is(&self, other: &Self) -> bool {
        let said = |hook: &Self| (hook.timeout, hook.understands);
        self.uid == other.uid && self.place == other.place && said(self) == said(other)
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

/// All hooks, in the order in which they are asked whether they answer.
#[derive(Debug, Default)]
pub(crate) struct Hooks(Vec<Arc<Hook>>);

impl Hooks {
    /// The one that answers.
    pub(super) fn find(&self, kind: &Gvk, operation: Operation) -> Option<&Arc<Hook>> {
        self.0.iter().find(|hook| hook.covers(kind, operation))
    }

    fn read(&self, configuration: &str, webhook: Value) -> Result<Hook, serde_json::Error> {
        let written: Written = serde_json::from_value(webhook)?;
        let uid = format!("{configuration}/{}", written.name);
        let place = serde_json::from_value(written.client_config).map_err(|e| e.to_string());
        let seconds = written.timeout_seconds.unwrap_or(TIMEOUT);
        // It is still as busy as it was.
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
                    tracing::warn!(configuration = name, %error, "webhooks cannot be read");
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
        let asked = |hook: &&Arc<Hook>, operation: Operation| {
            let mut rules = hook.rules.iter();
            rules.any(|rule| has(&rule.operations, operation.name()))
        };
        let same = |operation: Operation| {
            let mut now = self.0.iter().filter(|h| asked(h, operation));
            let mut then = before.0.iter().filter(|h| asked(h, operation));
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
    fn the_first_by_name_of_all_that_cover_it_answers() {
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
    fn a_rule_covers_what_it_names_in_all_four_ways() {
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
    fn what_is_said_of_a_hook_is_kept_and_what_is_not_has_a_default() {
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
    fn only_what_another_hook_answers_is_told_of() {
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
        // Who answers the rest anyway.
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
        // Who is as busy as before is known to be.
        let now = told(&first, &before);
        assert!(Arc::ptr_eq(&now.0[0].gate, &before.0[0].gate));
    }
}
