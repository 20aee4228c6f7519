//! Indexes the scripts of ResourceInterpreterCustomizations by kind and operation.
//!
//! It also computes for which kinds and operations the scripts have changed. Pure. Source: Karmada's
//! `configmanager/{manager,accessor}.go`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use machinery::{FailureLogLimiter, Gvk, Object};
use serde::Deserialize;

use crate::config_manager::BuildableInterpreterRuleIndex;
use crate::lua::{LuaScript, ScriptHash};
use crate::operation::InterpreterOperation;

/// Customizations that currently fail to parse, by UID.
static PARSE_FAILURES: FailureLogLimiter = FailureLogLimiter::new();

/// A script, and the name of its customization.
#[derive(Clone, Debug)]
pub(crate) struct CustomizationScript {
    pub(crate) customization: Arc<str>,
    pub(crate) script: Arc<LuaScript>,
}

/// The scripts of a kind by operation. Only dependency interpretation may have several.
type ScriptsByOperation = BTreeMap<InterpreterOperation, Vec<CustomizationScript>>;

/// All scripts, by kind.
#[derive(Debug, Default)]
pub(crate) struct ScriptIndex {
    kinds: HashMap<Gvk, ScriptsByOperation>,
}

/// The fields of a ResourceInterpreterCustomization that are read.
#[derive(Deserialize)]
struct ResourceInterpreterCustomization {
    spec: ResourceInterpreterCustomizationSpec,
}

#[derive(Deserialize)]
struct ResourceInterpreterCustomizationSpec {
    target: CustomizationTarget,
    #[serde(default)]
    customizations: BTreeMap<String, Option<CustomizationRule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomizationTarget {
    api_version: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomizationRule {
    #[serde(default)]
    lua_script: String,
}

impl BuildableInterpreterRuleIndex for ScriptIndex {
    /// When two customizations have a script for the same kind and operation, the first by name
    /// wins. Scripts with unchanged text are taken over from `before`, with their bytecode.
    fn build<'a>(all: impl IntoIterator<Item = &'a Object>, before: &Self) -> Self {
        let mut compiled: HashMap<ScriptHash, Arc<LuaScript>> = before
            .scripts()
            .map(|(_, _, rule)| (*rule.script.hash(), Arc::clone(&rule.script)))
            .collect();
        let mut all: Vec<&Object> = all.into_iter().collect();
        all.sort_by_key(|object| object.name());
        PARSE_FAILURES.retain_keys(all.iter().map(|object| object.uid()));
        let mut table = Self::default();
        for object in all {
            let name: Arc<str> = object.name().into();
            let spec = match machinery::json::from_slice::<ResourceInterpreterCustomization>(
                &object.bytes(),
            ) {
                Ok(spec) => {
                    PARSE_FAILURES.record_success(object.uid());
                    spec.spec
                }
                Err(error) => {
                    if PARSE_FAILURES.record_failure(object.uid(), &error.to_string()) {
                        tracing::warn!(customization = &*name, %error, "failed to parse a ResourceInterpreterCustomization");
                    }
                    continue;
                }
            };
            let kind = Gvk::from_api_version(&spec.target.api_version, &spec.target.kind);
            let rules = table.kinds.entry(kind).or_default();
            for operation in InterpreterOperation::ALL {
                let customized = spec.customizations.get(operation.customization_field());
                let source = customized.and_then(Option::as_ref).map(|c| &*c.lua_script);
                let Some(source) = source.filter(|source| !source.is_empty()) else {
                    continue;
                };
                let of_operation = rules.entry(operation).or_default();
                if of_operation.is_empty() || operation == InterpreterOperation::InterpretDependency
                {
                    let script = Arc::new(LuaScript::new(source));
                    let script = compiled.entry(*script.hash()).or_insert(script);
                    of_operation.push(CustomizationScript {
                        customization: Arc::clone(&name),
                        script: Arc::clone(script),
                    });
                }
            }
        }
        table
    }

    fn differs(&self, before: &Self, kind: &Gvk, operation: InterpreterOperation) -> bool {
        let hashes = |table: &Self| {
            let rules = table.find(kind, operation).iter();
            rules.map(|rule| *rule.script.hash()).collect::<Vec<_>>()
        };
        hashes(self) != hashes(before)
    }

    fn changed_operations(&self, before: &Self) -> Vec<InterpreterOperation> {
        let kinds = || self.kinds.keys().chain(before.kinds.keys());
        let touched = |o: &InterpreterOperation| kinds().any(|kind| self.differs(before, kind, *o));
        InterpreterOperation::ALL
            .into_iter()
            .filter(touched)
            .collect()
    }
}

impl ScriptIndex {
    fn scripts(&self) -> impl Iterator<Item = (&Gvk, InterpreterOperation, &CustomizationScript)> {
        self.kinds.iter().flat_map(|(kind, rules)| {
            let each = rules.iter();
            each.flat_map(move |(operation, rules)| {
                rules.iter().map(move |rule| (kind, *operation, rule))
            })
        })
    }

    /// The scripts for an operation on a kind; empty when no customization has one.
    pub(crate) fn find(
        &self,
        kind: &Gvk,
        operation: InterpreterOperation,
    ) -> &[CustomizationScript] {
        let rules = self.kinds.get(kind).and_then(|rules| rules.get(&operation));
        rules.map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::object;
    use serde_json::{Value, json};

    fn customization(name: &str, kind: &str, scripts: &[(&str, &str)]) -> Object {
        let scripts = scripts.iter().map(|(operation, script)| {
            let script = json!({"luaScript": script});
            ((*operation).to_owned(), script)
        });
        object(json!({"metadata": {"name": name},
            "spec": {"target": {"apiVersion": "example.io/v1", "kind": kind},
                     "customizations": Value::Object(scripts.collect())}}))
    }

    fn names(table: &ScriptIndex, kind: &str, operation: InterpreterOperation) -> Vec<String> {
        let kind = Gvk::new("example.io", "v1", kind);
        let rules = table.find(&kind, operation).iter();
        rules.map(|rule| rule.customization.to_string()).collect()
    }

    #[test]
    fn a_deleted_customization_that_failed_to_parse_is_forgotten() {
        let broken = object(json!({"metadata": {"name": "b", "uid": "broken"}, "spec": {}}));
        let parsed =
            machinery::json::from_slice::<ResourceInterpreterCustomization>(&broken.bytes());
        let reason = parsed.err().unwrap().to_string();
        let before = ScriptIndex::build([&broken], &ScriptIndex::default());
        ScriptIndex::build([], &before);
        assert!(PARSE_FAILURES.record_failure("broken", &reason));
    }

    // proves: INT-first-by-name, INT-dependencies-of-all
    #[test]
    fn first_customization_by_name_wins_and_dependencies_use_all() {
        let all = [
            customization(
                "c",
                "Thing",
                &[("retention", "c"), ("dependencyInterpretation", "c")],
            ),
            customization(
                "a",
                "Thing",
                &[("retention", ""), ("dependencyInterpretation", "a")],
            ),
            customization("b", "Thing", &[("retention", "b")]),
            customization("d", "Other", &[("retention", "d")]),
            object(json!({"metadata": {"name": "broken"}, "spec": {}})),
        ];
        let table = ScriptIndex::build(&all, &ScriptIndex::default());
        let dependencies = InterpreterOperation::InterpretDependency;
        assert_eq!(names(&table, "Thing", InterpreterOperation::Retain), ["b"]);
        assert_eq!(names(&table, "Thing", dependencies), ["a", "c"]);
        assert_eq!(names(&table, "Other", InterpreterOperation::Retain), ["d"]);
        assert!(names(&table, "Thing", InterpreterOperation::InterpretHealth).is_empty());
        assert!(names(&table, "None", InterpreterOperation::Retain).is_empty());
    }

    #[test]
    fn only_changed_scripts_are_reported() {
        let first = [customization(
            "a",
            "Thing",
            &[("retention", "x"), ("healthInterpretation", "h")],
        )];
        let before = ScriptIndex::build(&first, &ScriptIndex::default());
        let changed = |all: &[Object]| {
            let table = ScriptIndex::build(all, &before);
            let pairs = table.scripts().zip(before.scripts());
            for ((_, _, now), (_, _, then)) in pairs {
                if now.script.hash() == then.script.hash() {
                    assert!(
                        Arc::ptr_eq(&now.script, &then.script),
                        "an unchanged script is not compiled again"
                    );
                }
            }
            let touched = table.changed_operations(&before);
            let kinds = ["Thing", "Other"].into_iter();
            let changed = kinds.map(|kind| {
                let differs = |o: &InterpreterOperation| {
                    table.differs(&before, &Gvk::new("example.io", "v1", kind), *o)
                };
                let operations: Vec<_> = InterpreterOperation::ALL
                    .into_iter()
                    .filter(differs)
                    .collect();
                assert!(operations.iter().all(|o| touched.contains(o)));
                (kind.to_owned(), operations)
            });
            changed
                .filter(|(_, operations)| !operations.is_empty())
                .collect::<Vec<_>>()
        };
        let thing =
            |operations: &[InterpreterOperation]| vec![("Thing".to_owned(), operations.to_vec())];
        let with = |scripts: &[(&str, &str)]| vec![customization("b", "Thing", scripts)];
        // The same scripts in a customization with another name.
        assert_eq!(
            changed(&with(&[("retention", "x"), ("healthInterpretation", "h")])),
            vec![]
        );
        assert_eq!(
            changed(&with(&[("retention", "y"), ("healthInterpretation", "h")])),
            thing(&[InterpreterOperation::Retain])
        );
        assert_eq!(
            changed(&[]),
            thing(&[
                InterpreterOperation::Retain,
                InterpreterOperation::InterpretHealth
            ])
        );
        let mut other = first.to_vec();
        other.push(customization("c", "Other", &[("replicaResource", "r")]));
        assert_eq!(
            changed(&other),
            vec![(
                "Other".to_owned(),
                vec![InterpreterOperation::InterpretReplica]
            )]
        );
    }
}
