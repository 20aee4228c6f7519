//! Resource models of a cluster: grades of nodes by their size.
//!
//! Enters: `spec` of a cluster. Leaves: models as they are stored, or field
//! errors. Pure.

use std::collections::HashSet;

use machinery::{FieldError, Quantity};
use serde_json::{Map, Value, json};

use crate::attributes::Operation;
use crate::tree::{get, int, items, items_mut, nth, text};

/// Lower bounds of the default grades: cores, GiB of memory.
const GRADES: [(i64, i64); 9] = [
    (0, 0),
    (1, 4),
    (2, 16),
    (4, 32),
    (8, 64),
    (16, 128),
    (32, 256),
    (64, 512),
    (128, 1024),
];
const GIB: i64 = 1 << 30;

pub(super) fn mutate(operation: Operation, spec: &mut Map<String, Value>) {
    let given = spec.get("resourceModels").and_then(Value::as_array);
    if given.is_none_or(Vec::is_empty) {
        if operation == Operation::Create {
            spec.insert("resourceModels".into(), defaults());
        }
        return;
    }
    let Some(Value::Array(models)) = spec.get_mut("resourceModels") else {
        return;
    };
    models.sort_by_key(|m| int(m, "/grade"));
    if let Some(first) = models.first_mut() {
        bound(first, "min", "0".into());
    }
    if let Some(last) = models.last_mut() {
        bound(last, "max", unbounded());
    }
}

fn bound(model: &mut Value, side: &str, value: Value) {
    for range in items_mut(model, "/ranges") {
        if let Some(range) = range.as_object_mut() {
            range.insert(side.into(), value.clone());
        }
    }
}

fn unbounded() -> Value {
    Quantity::from_units(i64::MAX).to_string().into()
}

fn defaults() -> Value {
    let cores = |n: i64| Value::from(Quantity::from_units(n).to_string());
    let memory = |n: i64| Value::from(Quantity::from_bytes(n * GIB).to_string());
    let grade = |(i, (cpu, gib)): (usize, &(i64, i64))| {
        let next = GRADES.get(i + 1);
        let range = |name: &str, min: Value, max: Option<Value>| json!({"name": name, "min": min, "max": max.unwrap_or_else(unbounded)});
        json!({"grade": i, "ranges": [
            range("cpu", cores(*cpu), next.map(|n| cores(n.0))),
            range("memory", memory(*gib), next.map(|n| memory(n.1))),
        ]})
    };
    Value::Array(GRADES.iter().enumerate().map(grade).collect())
}

pub(super) fn validate(models: &[Value], errors: &mut Vec<FieldError>) {
    let mut grades = HashSet::new();
    let mut previous: Option<&Value> = None;
    for (i, model) in models.iter().enumerate() {
        let field = nth("spec.resourceModels", i);
        if !grades.insert(int(model, "/grade")) {
            errors.push(FieldError::duplicate(
                format!("{field}.grade"),
                get(model, "/grade"),
            ));
        }
        let last = i + 1 == models.len();
        ranges(&field, model, previous, last, errors);
        previous = Some(model);
    }
}

fn ranges(
    field: &str,
    model: &Value,
    previous: Option<&Value>,
    last: bool,
    errors: &mut Vec<FieldError>,
) {
    let ranges = items(model, "/ranges");
    let before = previous.map(|p| items(p, "/ranges"));
    let names = |list: &[Value]| -> Vec<String> {
        list.iter().map(|r| text(r, "/name").to_owned()).collect()
    };
    if before.is_some_and(|b| names(b) != names(ranges)) {
        errors.push(FieldError::invalid(
            format!("{field}.ranges"),
            &Value::from(ranges),
            "the number, names and order of resources must be the same in every grade",
        ));
        return;
    }
    for (j, range) in ranges.iter().enumerate() {
        let field = nth(&format!("{field}.ranges"), j);
        let mut side = |name: &str| {
            let value = get(range, &format!("/{name}"));
            Quantity::from_value(value)
                .map_err(|e| {
                    let field = format!("{field}.{name}");
                    errors.push(FieldError::invalid(field, value, e.to_string()));
                })
                .ok()
        };
        let (Some(min), Some(max)) = (side("min"), side("max")) else {
            continue;
        };
        let mut refuse = |side: &str, why: &str| {
            let value = get(range, &format!("/{side}"));
            errors.push(FieldError::invalid(format!("{field}.{side}"), value, why));
        };
        if max <= min {
            refuse("max", "max must be greater than min");
        }
        match before.and_then(|b| b.get(j)) {
            None if !min.is_zero() => refuse("min", "the min of the first grade must be 0"),
            Some(b) if Quantity::from_value(get(b, "/max")) != Ok(min) => {
                refuse("min", "min must equal the max of the grade before");
            }
            _ => {}
        }
        if last && max != Quantity::from_units(i64::MAX) {
            refuse("max", "the max of the last grade must be MaxInt64");
        }
    }
}
