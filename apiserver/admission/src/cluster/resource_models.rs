//! Mutates and validates the resource models of a cluster, which grade its nodes by
//! size. Does no I/O.

use machinery::{FieldError, Quantity};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::attributes::AdmissionOperation;
use crate::unstructured::{get, go_json, index_path, int, items, items_mut};

/// Lower bounds of the default grades: cores, and GiB of memory.
const DEFAULT_GRADES: [(i64, i64); 9] = [
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

pub(super) fn mutate(operation: AdmissionOperation, spec: &mut Map<String, Value>) {
    let models = spec.get("resourceModels").and_then(Value::as_array);
    if models.is_none_or(Vec::is_empty) {
        if operation == AdmissionOperation::Create {
            spec.insert("resourceModels".into(), default_models());
        }
        return;
    }
    let Some(Value::Array(models)) = spec.get_mut("resourceModels") else {
        return;
    };
    models.sort_by_key(|m| int(m, "/grade"));
    if let Some(first) = models.first_mut() {
        set_bound(first, "min", "0".into());
    }
    if let Some(last) = models.last_mut() {
        set_bound(last, "max", unbounded_quantity());
    }
}

fn set_bound(model: &mut Value, side: &str, value: Value) {
    for range in items_mut(model, "/ranges") {
        if let Some(range) = range.as_object_mut() {
            range.insert(side.into(), value.clone());
        }
    }
}

fn unbounded_quantity() -> Value {
    Quantity::from_units(i64::MAX).to_string().into()
}

fn default_models() -> Value {
    let cores = |n: i64| Value::from(Quantity::from_units(n).to_string());
    let memory = |n: i64| Value::from(Quantity::from_bytes(n * GIB).to_string());
    let grade = |(i, (cpu, gib)): (usize, &(i64, i64))| {
        let next = DEFAULT_GRADES.get(i + 1);
        let range = |name: &str, min: Value, max: Option<Value>| json!({"name": name, "min": min, "max": max.unwrap_or_else(unbounded_quantity)});
        json!({"grade": i, "ranges": [
            range("cpu", cores(*cpu), next.map(|n| cores(n.0))),
            range("memory", memory(*gib), next.map(|n| memory(n.1))),
        ]})
    };
    Value::Array(DEFAULT_GRADES.iter().enumerate().map(grade).collect())
}

/// One resource model, serialized for errors with the field names of Karmada's internal
/// type.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "PascalCase"))]
struct ClusterResourceModel {
    grade: i64,
    ranges: Vec<ClusterResourceModelRange>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all(serialize = "PascalCase"))]
struct ClusterResourceModelRange {
    name: String,
    min: Quantity,
    max: Quantity,
}

/// Reports malformed quantities by path, otherwise the first violated rule.
pub(super) fn validate(models: &[Value], errors: &mut Vec<FieldError>) {
    let before = errors.len();
    for (i, model) in models.iter().enumerate() {
        validate_quantities(&index_path("spec.resourceModels", i), model, errors);
    }
    let read = Vec::<ClusterResourceModel>::deserialize(&Value::from(models));
    let Some(read) = read.ok().filter(|_| errors.len() == before) else {
        return;
    };
    if let Some(detail) = violated_rule(&read) {
        let models_text = go_json::<Vec<ClusterResourceModel>>(&Value::from(models));
        errors.push(FieldError::invalid_rendered(
            "spec.resourceModels",
            &models_text,
            detail,
        ));
    }
}

fn validate_quantities(field: &str, model: &Value, errors: &mut Vec<FieldError>) {
    for (j, range) in items(model, "/ranges").iter().enumerate() {
        let field = index_path(&format!("{field}.ranges"), j);
        for side in ["min", "max"] {
            let value = get(range, &format!("/{side}"));
            if let Err(detail) = Quantity::from_value(value) {
                let field = format!("{field}.{side}");
                errors.push(FieldError::invalid(field, value, detail.to_string()));
            }
        }
    }
}

fn violated_rule(models: &[ClusterResourceModel]) -> Option<&'static str> {
    let mut previous: Option<&ClusterResourceModel> = None;
    for (i, model) in models.iter().enumerate() {
        if previous.is_some_and(|p| p.grade == model.grade) {
            return Some("The grade of each models should not be the same");
        }
        if previous.is_some_and(|p| p.ranges.len() != model.ranges.len()) {
            return Some("The number of resource types should be the same");
        }
        for (j, range) in model.ranges.iter().enumerate() {
            let lower_range = previous.and_then(|p| p.ranges.get(j));
            let detail = range.violated_rule(lower_range, i + 1 == models.len());
            if detail.is_some() {
                return detail;
            }
        }
        previous = Some(model);
    }
    None
}

impl ClusterResourceModelRange {
    /// `lower_range` is the same resource in the previous grade.
    fn violated_rule(&self, lower_range: Option<&Self>, last: bool) -> Option<&'static str> {
        if self.max <= self.min {
            return Some("The max value of each resource must be greater than the min value");
        }
        match lower_range {
            None if !self.min.is_zero() => {
                return Some("The min value of each resource in the first model should be 0");
            }
            Some(lower_range) if lower_range.name != self.name => {
                return Some("The resource types of each models should be the same");
            }
            Some(lower_range) if lower_range.max != self.min => {
                return Some(
                    "Model intervals for resources must be contiguous and non-overlapping",
                );
            }
            _ => {}
        }
        let unbounded = self.max.value() == i128::from(i64::MAX);
        (last && !unbounded)
            .then_some("The max value of each resource in the last model should be MaxInt64")
    }
}
