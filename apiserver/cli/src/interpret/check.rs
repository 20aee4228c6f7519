//! Validates ResourceInterpreterCustomizations (`flotilla interpret --check`), with the
//! output of karmadactl.

use interpreter::{LuaLimits, check};
use machinery::{Gvk, Object};
use serde_json::Value;

use super::operations::OPERATIONS;

const SEPARATOR: &str = "-----------------------------------";
/// The space between columns.
const COLUMN_GAP: usize = 3;

/// The widths of the columns, which never shrink, as in the tables of kubectl.
#[derive(Default)]
struct ColumnWidths([usize; 2]);

impl ColumnWidths {
    fn widen<'a>(&mut self, column: usize, texts: impl Iterator<Item = &'a str>) -> usize {
        let widest = texts.map(|text| text.chars().count() + COLUMN_GAP).max();
        self.0[column] = self.0[column].max(widest.unwrap_or(0));
        self.0[column]
    }
}

/// The report, without a line feed at its end, and whether all customizations are valid.
pub(super) fn check_customizations(documents: &[Object]) -> (String, bool) {
    let (mut lines, mut sound) = (Vec::new(), true);
    let mut widths = ColumnWidths::default();
    for document in documents {
        lines.push(SEPARATOR.to_owned());
        lines.push(format!("SOURCE: {}", document.name()));
        match check_customization(document, &mut widths) {
            Ok((rows, all_pass)) => {
                lines.extend(rows);
                sound &= all_pass;
            }
            Err(reason) => {
                lines.push(reason);
                sound = false;
            }
        }
    }
    (lines.join("\n"), sound)
}

/// The lines for one customization, and whether its scripts are valid; an error when the
/// document is not a complete customization.
fn check_customization(
    document: &Object,
    widths: &mut ColumnWidths,
) -> Result<(Vec<String>, bool), String> {
    let tree = document.value().unwrap_or_default();
    check_customization_kind(&tree)?;
    let text = |at: &str| tree.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let target = match (text("/spec/target/apiVersion"), text("/spec/target/kind")) {
        (_, "") => return Err("target.kind no set".into()),
        ("", _) => return Err("target.apiVersion no set".into()),
        (version, kind) => format!("TARGET: {version} {kind}"),
    };
    let width = widths.widen(0, std::iter::once(&*target));
    let mut lines = vec![format!("{target:width$}"), "RULERS:".to_owned()];
    let rows = OPERATIONS.map(|(operation, name)| {
        let path = format!(
            "/spec/customizations/{}/luaScript",
            operation.customization_field()
        );
        let result = match text(&path) {
            "" => Ok("UNSET"),
            script => check(operation, script, LuaLimits::default()).map(|()| "PASS"),
        };
        let result = result.map_err(|reason| format!("ERROR: {}", reason.trim()));
        (format!("    {name}:"), result)
    });
    let first = widths.widen(0, rows.iter().map(|(name, _)| &**name));
    for alike in rows.chunk_by(|(_, a), (_, b)| a.is_err() == b.is_err()) {
        let failed = alike.iter().filter_map(|(_, v)| v.as_ref().err());
        let second = widths.widen(1, failed.map(|reason| &**reason));
        lines.extend(alike.iter().map(|(name, result)| match result {
            Ok(result) => format!("{name:first$}{result}"),
            Err(reason) => format!("{name:first$}{reason:second$}"),
        }));
    }
    let sound = rows.iter().all(|(_, result)| result.is_ok());
    Ok((lines, sound))
}

/// Checks that a document is a customization; the error names its kind otherwise.
pub(super) fn check_customization_kind(document: &Value) -> Result<(), String> {
    let text = |field: &str| document[field].as_str().unwrap_or_default();
    let kind = Gvk::from_api_version(text("apiVersion"), text("kind"));
    if kind.group == "config.karmada.io" && kind.kind == "ResourceInterpreterCustomization" {
        return Ok(());
    }
    let Gvk {
        group,
        version,
        kind,
    } = kind;
    Err(format!(
        "not a ResourceInterpreterCustomization, got {group}/{version}, Kind={kind}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: CLI-interpret-check
    #[test]
    fn each_rule_of_each_customization_is_checked() {
        let one = |target: Value, script: &str| {
            let spec =
                json!({"target": target, "customizations": {"retention": {"luaScript": script}}});
            Object::from_value(&json!({"apiVersion": "config.karmada.io/v1alpha1",
                "kind": "ResourceInterpreterCustomization", "metadata": {"name": "one"}, "spec": spec}))
            .unwrap()
        };
        let target = json!({"apiVersion": "example.io/v1", "kind": "Thing"});
        let good = "function Retain(desired) return desired end";
        let (text, sound) = check_customizations(&[one(target.clone(), good)]);
        assert!(sound);
        let rows = |first: &str| {
            format!(
                "\
-----------------------------------
SOURCE: one
TARGET: example.io/v1 Thing   
RULERS:
    Retain:                   {first}
    InterpretReplica:         UNSET
    InterpretComponent:       UNSET
    ReviseReplica:            UNSET
    InterpretStatus:          UNSET
    AggregateStatus:          UNSET
    InterpretHealth:          UNSET
    InterpretDependency:      UNSET"
            )
        };
        assert_eq!(text, rows("PASS"));
        // Columns do not shrink.
        let narrow = one(json!({"apiVersion": "v1", "kind": "Pod"}), good);
        let (text, _) = check_customizations(&[one(target.clone(), good), narrow]);
        let (_, second) = text.rsplit_once("SOURCE").unwrap();
        assert!(
            second.contains(&format!("\n{:30}\n", "TARGET: v1 Pod")),
            "{text}"
        );
        let (text, sound) = check_customizations(&[one(target.clone(), "function Retain(")]);
        assert!(
            !sound && text.contains("Retain:                   ERROR: line 1"),
            "{text}"
        );
        assert!(text.lines().nth(4).unwrap().ends_with("   "), "{text}");
        // Other documents are reported among the customizations.
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let other = Object::from_value(&pod).unwrap();
        pod["apiVersion"] = "example.io/v1".into();
        let another = Object::from_value(&pod).unwrap();
        let (text, sound) = check_customizations(&[other, another]);
        assert!(!sound);
        assert_eq!(
            text,
            "\
-----------------------------------
SOURCE: p
not a ResourceInterpreterCustomization, got /v1, Kind=Pod
-----------------------------------
SOURCE: p
not a ResourceInterpreterCustomization, got example.io/v1, Kind=Pod"
        );
        for (target, script, reason) in [
            (target, "function Retain(", "ERROR: line 1"),
            (json!({"kind": "Thing"}), good, "target.apiVersion no set"),
            (json!({"apiVersion": "v1"}), good, "target.kind no set"),
        ] {
            let (text, sound) = check_customizations(&[one(target, script)]);
            assert!(!sound && text.contains(reason), "{text}");
        }
    }
}
