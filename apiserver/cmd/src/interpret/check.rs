//! Whether customizations are sound.
//!
//! Enters: customizations. Leaves: what is told of each, and whether all are sound.

use interpreter::{Limits, check};
use machinery::Object;
use serde_json::Value;

use super::OPERATIONS;

const RULE: &str = "-----------------------------------";
/// Between the columns.
const GAP: usize = 3;

/// Without a line end.
pub(super) fn told(customizations: &[Object]) -> (String, bool) {
    let (mut lines, mut sound) = (Vec::new(), true);
    for customization in customizations {
        lines.push(RULE.to_owned());
        lines.push(format!("SOURCE: {}", customization.name()));
        let tree = customization.value().unwrap_or_default();
        let text = |at: &str| tree.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("/spec/target/apiVersion"), text("/spec/target/kind"));
        let missing = match (version, kind) {
            (_, "") => Some("target.kind no set"),
            ("", _) => Some("target.apiVersion no set"),
            _ => None,
        };
        if let Some(missing) = missing {
            sound = false;
            lines.push(missing.to_owned());
            continue;
        }
        lines.push(format!("TARGET: {version} {kind}"));
        lines.push("RULERS:".to_owned());
        let width = OPERATIONS.map(|(_, name)| name.len()).into_iter().max();
        let width = width.unwrap_or(0) + 1 + GAP;
        for (operation, name) in OPERATIONS {
            let script = text(&format!(
                "/spec/customizations/{}/luaScript",
                operation.field()
            ));
            let verdict = if script.is_empty() {
                "UNSET".to_owned()
            } else {
                match check(operation, script, Limits::default()) {
                    Ok(()) => "PASS".to_owned(),
                    Err(why) => {
                        sound = false;
                        format!("ERROR: {}", why.trim())
                    }
                }
            };
            let name = format!("{name}:");
            lines.push(format!("    {name:width$}{verdict}"));
        }
    }
    (lines.join("\n"), sound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_rule_of_each_customization_is_judged() {
        let one = |target: Value, script: &str| {
            let spec =
                json!({"target": target, "customizations": {"retention": {"luaScript": script}}});
            Object::from_value(&json!({"metadata": {"name": "one"}, "spec": spec})).unwrap()
        };
        let target = json!({"apiVersion": "example.io/v1", "kind": "Thing"});
        let good = "function Retain(desired) return desired end";
        let (text, sound) = told(&[one(target.clone(), good)]);
        assert!(sound);
        assert_eq!(
            text,
            "\
-----------------------------------
SOURCE: one
TARGET: example.io/v1 Thing
RULERS:
    Retain:                PASS
    InterpretReplica:      UNSET
    InterpretComponent:    UNSET
    ReviseReplica:         UNSET
    InterpretStatus:       UNSET
    AggregateStatus:       UNSET
    InterpretHealth:       UNSET
    InterpretDependency:   UNSET"
        );
        for (target, script, why) in [
            (target, "function Retain(", "ERROR: line 1"),
            (json!({"kind": "Thing"}), good, "target.apiVersion no set"),
            (json!({"apiVersion": "v1"}), good, "target.kind no set"),
        ] {
            let (text, sound) = told(&[one(target, script)]);
            assert!(!sound && text.contains(why), "{text}");
        }
    }
}
