//! Tests of decisions as tables, one case per line, and properties of all decisions.
//!
//! The tables are the `.txt` files beside this one; [`decision_table`] documents their format.

mod assignment;
pub(crate) mod decision_table;
mod plugins;
mod properties;
mod replica_preference;
mod replica_preference_planner;
mod trace;

use machinery::Object;
use serde_json::{Value, json};

/// A cluster with capacity for `pods` pods.
pub(crate) fn cluster(name: &str, pods: i64, more: Value) -> Object {
    let mut cluster = json!({
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {"syncMode": "Push"},
        "status": {
            "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}],
            "resourceSummary": {"allocatable": {"pods": pods, "cpu": "10", "memory": "10Gi"}},
        },
    });
    merge(&mut cluster, &more);
    Object::from_value(&cluster).unwrap()
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (k, v) in more {
                merge(into.entry(k.clone()).or_insert(Value::Null), v);
            }
        }
        (into, more) => *into = more.clone(),
    }
}
