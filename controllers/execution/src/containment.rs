//! Tells whether an object contains what is wanted, and where it does not. Lists are compared by the
//! keys of their schema. Pure.

use openapi::SchemaCursor;
use serde_json::Value;

use crate::list_keys::ListKeys;

/// Whether elements of keyed lists must have the order of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementOrder {
    Any,
    Same,
}

/// Whether an object contains everything that is wanted. Empty and absent values are equal.
pub(crate) fn is_subset(
    desired: &Value,
    observed: &Value,
    schema: Option<SchemaCursor<'_>>,
    order: ElementOrder,
) -> bool {
    reversed_difference(desired, observed, schema, order).is_none()
}

/// The path of the first wanted field that an object lacks or has otherwise, as keys of
/// `fieldsV1`.
pub(crate) fn first_difference(
    desired: &Value,
    observed: &Value,
    schema: Option<SchemaCursor<'_>>,
) -> Option<Vec<String>> {
    let mut path = reversed_difference(desired, observed, schema, ElementOrder::Any)?;
    path.reverse();
    Some(path)
}

/// The paths of the wanted fields that an object lacks or has otherwise, the first of each list.
pub(crate) fn differences(
    desired: &Value,
    observed: &Value,
    schema: Option<SchemaCursor<'_>>,
    limit: usize,
) -> Vec<Vec<String>> {
    let (Value::Object(fields), Value::Object(_)) = (desired, observed) else {
        let path = first_difference(desired, observed, schema);
        return path.into_iter().collect();
    };
    let mut paths = Vec::new();
    for (name, value) in fields {
        let observed = observed.get(name).unwrap_or(&Value::Null);
        let field = schema.and_then(|s| s.field(name));
        let rest = limit.saturating_sub(paths.len());
        for mut path in differences(value, observed, field, rest) {
            path.insert(0, format!("f:{name}"));
            paths.push(path);
        }
        if paths.len() >= limit {
            break;
        }
    }
    paths.truncate(limit);
    paths
}

fn reversed_difference(
    desired: &Value,
    observed: &Value,
    schema: Option<SchemaCursor<'_>>,
    order: ElementOrder,
) -> Option<Vec<String>> {
    let differs = match (desired, observed) {
        (Value::Object(desired), Value::Object(observed)) => {
            return desired.iter().find_map(|(name, value)| {
                let field = schema.and_then(|s| s.field(name));
                let observed = observed.get(name).unwrap_or(&Value::Null);
                let mut path = reversed_difference(value, observed, field, order)?;
                path.push(format!("f:{name}"));
                Some(path)
            });
        }
        (Value::Array(desired), Value::Array(observed)) => {
            return list_difference(desired, observed, schema, order);
        }
        (Value::Null, observed) => !is_empty(observed),
        (desired, Value::Null) => !is_empty(desired),
        (Value::Number(a), Value::Number(b)) => a != b && a.as_f64() != b.as_f64(),
        (desired, observed) => desired != observed,
    };
    differs.then(Vec::new)
}

/// The difference of two lists: by the keys of the schema, else by position.
fn list_difference(
    desired: &[Value],
    observed: &[Value],
    schema: Option<SchemaCursor<'_>>,
    order: ElementOrder,
) -> Option<Vec<String>> {
    let item_schema = schema.and_then(SchemaCursor::item);
    let is_contained = |(w, f): (&Value, &Value)| is_subset(w, f, item_schema, order);
    if desired.len() == observed.len() && desired.iter().zip(observed).all(is_contained) {
        return None;
    }
    let keys = ListKeys::of_schema(schema);
    let (Some(_), Some(positions)) = (keys.index(desired), keys.index(observed)) else {
        return Some(Vec::new());
    };
    let mut last = None;
    for item in desired {
        let key = keys.key_of(item)?;
        let position = positions.get(&key).copied();
        let difference = match position {
            Some(at) => reversed_difference(item, &observed[at], item_schema, order),
            None => Some(Vec::new()),
        };
        if let Some(mut path) = difference {
            path.push(keys.managed_fields_key(&key));
            return Some(path);
        }
        if order == ElementOrder::Same && position < last {
            return Some(Vec::new());
        }
        last = position;
    }
    None
}

/// Whether a list that two objects have is another one, compared by position.
pub(crate) fn has_different_list(desired: &Value, observed: &Value) -> bool {
    match (desired, observed) {
        (Value::Object(desired), Value::Object(observed)) => desired.iter().any(|(name, value)| {
            let observed = observed.get(name);
            observed.is_some_and(|observed| has_different_list(value, observed))
        }),
        (Value::Array(desired), Value::Array(observed)) => {
            let is_same = |(w, f)| is_subset(w, f, None, ElementOrder::Same);
            desired.len() != observed.len() || !desired.iter().zip(observed).all(is_same)
        }
        _ => false,
    }
}

/// Go's encoders may or may not omit empty values.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_keys::schema_of;
    use machinery::Gvk;
    use serde_json::json;

    // proves: EXE-no-write
    #[test]
    fn containment() {
        let table = [
            (json!({"a": 1}), json!({"a": 1, "b": 2}), true),
            (json!({"a": [1, 2]}), json!({"a": [1]}), false),
            (json!({"a": [1]}), json!({"a": [1, 2]}), false),
            (json!([{"n": "x"}]), json!([{"n": "x", "d": 1}]), true),
            (json!({"a": {}}), json!({}), true),
            (json!({"a": null, "b": {"c": {}}}), json!({}), true),
            (json!({"a": false}), json!({}), false),
            (json!({"a": 1}), json!({"a": 1.0}), true),
            (json!({"a": "1"}), json!({"a": 1}), false),
        ];
        for (desired, actual, expected) in table {
            for order in [ElementOrder::Any, ElementOrder::Same] {
                let contained = is_subset(&desired, &actual, None, order);
                assert_eq!(contained, expected, "{desired} {actual}");
            }
        }
    }

    // proves: EXE-list-keys
    #[test]
    fn lists_are_compared_by_the_keys_of_the_schema() {
        let schema = schema_of(&Gvk::from_static("", "v1", "Pod")).unwrap();
        let check = |desired: Value, actual: Value, drift: Option<&str>, same_order: bool| {
            let in_pod = |containers: &Value| json!({"spec": {"containers": containers}});
            let (desired, actual) = (in_pod(&desired), in_pod(&actual));
            let path = first_difference(&desired, &actual, Some(schema.root()));
            let path = path.map(|path| path.join("/"));
            assert_eq!(path.as_deref(), drift, "{desired} {actual}");
            let contained = is_subset(&desired, &actual, Some(schema.root()), ElementOrder::Same);
            assert_eq!(contained, same_order, "{desired} {actual}");
        };
        let (a, b) = (json!({"name": "a"}), json!({"name": "b", "image": "i"}));
        check(json!([a, b]), json!([a, b]), None, true);
        check(json!([a, b]), json!([b, a]), None, false);
        check(json!([a]), json!([b, a]), None, true);
        let missing = "f:spec/f:containers/k:{\"name\":\"b\"}";
        check(json!([a, b]), json!([a]), Some(missing), false);
        let image = "f:spec/f:containers/k:{\"name\":\"b\"}/f:image";
        check(json!([b]), json!([a, {"name": "b"}]), Some(image), false);
        let twice = json!([a, a]);
        check(twice.clone(), twice.clone(), None, true);
        check(twice, json!([a, b]), Some("f:spec/f:containers"), false);
        let ports = |ports: Value| json!([{"name": "a", "ports": ports}]);
        check(
            ports(json!([{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}])),
            ports(
                json!([{"containerPort": 1, "protocol": "UDP"}, {"containerPort": 1, "protocol": "TCP"}]),
            ),
            None,
            false,
        );
    }
}
