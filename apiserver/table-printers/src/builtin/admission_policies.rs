//! Prints admission policies and their bindings.

use serde_json::Value;

use super::PrintHandler;
use super::printer_input::PrinterInput;

const UNSET: &str = "<unset>";

pub(super) const VALIDATING_POLICY: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Validations", "integer"),
        ("ParamKind", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| policy_cells(row, "/spec/validations"),
};

pub(super) const MUTATING_POLICY: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Mutations", "integer"),
        ("ParamKind", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| policy_cells(row, "/spec/mutations"),
};

pub(super) const BINDING: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("PolicyName", "string"),
        ("ParamRef", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let policy = row.text("/spec/policyName").into();
        vec![row.name(), policy, param_reference(row).into(), row.age()]
    },
};

fn policy_cells(row: &PrinterInput<'_>, rules: &str) -> Vec<Value> {
    let kind = match row.value("/spec/paramKind") {
        Value::Null => UNSET.to_owned(),
        _ => format!(
            "{}/{}",
            row.text("/spec/paramKind/apiVersion"),
            row.text("/spec/paramKind/kind")
        ),
    };
    vec![row.name(), row.count(rules).into(), kind.into(), row.age()]
}

fn param_reference(row: &PrinterInput<'_>) -> String {
    if row.value("/spec/paramRef").is_null() {
        return UNSET.to_owned();
    }
    let name = row.text("/spec/paramRef/name");
    match row.text("/spec/paramRef/namespace") {
        "" if name.is_empty() => row.value("/spec/paramRef/selector").to_string(),
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    }
}
