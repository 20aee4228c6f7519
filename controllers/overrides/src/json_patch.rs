//! Applies one JSON patch operation (RFC 6902, with JSON pointers of RFC 6901) to a JSON value.

use machinery::json;
use serde_json::Value;

/// Why an operation cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonPatchError {
    #[error("a JSON pointer must be empty or start with \"/\"")]
    InvalidPointer,
    #[error("the parent of this path does not exist")]
    MissingParent,
    #[error("there is nothing at this path")]
    MissingTarget,
    #[error("the index is out of bounds")]
    IndexOutOfBounds,
    #[error("{}", json::depth_error(json::MAX_OBJECT_DEPTH))]
    TooDeep,
}

/// The unescaped tokens of a JSON pointer under which `value` is set: one operation after the
/// other cannot nest an object deeper than it may be.
pub(crate) fn pointer_tokens(pointer: &str, value: &Value) -> Result<Vec<String>, JsonPatchError> {
    if json::depth(value) + pointer.matches('/').count() > json::MAX_OBJECT_DEPTH {
        return Err(JsonPatchError::TooDeep);
    }
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let tokens = pointer
        .strip_prefix('/')
        .ok_or(JsonPatchError::InvalidPointer)?;
    let unescaped = |token: &str| token.replace("~1", "/").replace("~0", "~");
    Ok(tokens.split('/').map(unescaped).collect())
}

/// Applies one operation (`add`, `remove`, `replace`).
pub(crate) fn apply_operation(
    tree: &mut Value,
    operator: &str,
    path: &str,
    value: &Value,
) -> Result<(), JsonPatchError> {
    let tokens = pointer_tokens(path, value)?;
    let Some((last, parents)) = tokens.split_last() else {
        return match operator {
            "remove" => Err(JsonPatchError::MissingTarget),
            _ => {
                *tree = value.clone();
                Ok(())
            }
        };
    };
    let mut at = tree;
    for token in parents {
        at = child(at, token).ok_or(JsonPatchError::MissingParent)?;
    }
    match (operator, at) {
        ("add", Value::Object(entries)) => {
            entries.insert(last.clone(), value.clone());
        }
        ("add", Value::Array(items)) => {
            let at = match last.as_str() {
                "-" => Some(items.len()),
                index => index.parse().ok().filter(|at| *at <= items.len()),
            };
            items.insert(at.ok_or(JsonPatchError::IndexOutOfBounds)?, value.clone());
        }
        ("add", _) => return Err(JsonPatchError::MissingParent),
        ("remove", Value::Object(entries)) => {
            entries.remove(last).ok_or(JsonPatchError::MissingTarget)?;
        }
        ("remove", Value::Array(items)) => {
            let at = last.parse().ok().filter(|at| *at < items.len());
            items.remove(at.ok_or(JsonPatchError::MissingTarget)?);
        }
        (_, at) => *child(at, last).ok_or(JsonPatchError::MissingTarget)? = value.clone(),
    }
    Ok(())
}

fn child<'a>(at: &'a mut Value, token: &str) -> Option<&'a mut Value> {
    match at {
        Value::Object(entries) => entries.get_mut(token),
        Value::Array(items) => items.get_mut(token.parse::<usize>().ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(operator: &str, path: &str, expected: Result<Value, JsonPatchError>) {
        let mut tree = json!({"a": {"x/y": 1, "t~": 2}, "l": [1, 2], "s": "t"});
        let actual = apply_operation(&mut tree, operator, path, &json!("new")).map(|()| tree);
        let merged = |part: Value| {
            let mut all = json!({"a": {"x/y": 1, "t~": 2}, "l": [1, 2], "s": "t"});
            for (key, value) in part.as_object().into_iter().flatten() {
                all[key] = value.clone();
            }
            all
        };
        assert_eq!(actual, expected.map(merged), "{operator} {path}");
    }

    #[test]
    fn operations() {
        check(
            "add",
            "/a/n",
            Ok(json!({"a": {"x/y": 1, "t~": 2, "n": "new"}})),
        );
        check("add", "/a/x~1y", Ok(json!({"a": {"x/y": "new", "t~": 2}})));
        check(
            "replace",
            "/a/t~0",
            Ok(json!({"a": {"x/y": 1, "t~": "new"}})),
        );
        check("remove", "/a/x~1y", Ok(json!({"a": {"t~": 2}})));
        check("add", "/l/-", Ok(json!({"l": [1, 2, "new"]})));
        check("add", "/l/1", Ok(json!({"l": [1, "new", 2]})));
        check("remove", "/l/0", Ok(json!({"l": [2]})));
        check("replace", "/l/1", Ok(json!({"l": [1, "new"]})));
    }

    // proves: OVR-absent
    #[test]
    fn missing_paths_are_reported() {
        check("add", "a", Err(JsonPatchError::InvalidPointer));
        check("add", "/b/c", Err(JsonPatchError::MissingParent));
        check("add", "/s/c", Err(JsonPatchError::MissingParent));
        check("add", "/l/3", Err(JsonPatchError::IndexOutOfBounds));
        check("add", "/l/x", Err(JsonPatchError::IndexOutOfBounds));
        check("remove", "/a/none", Err(JsonPatchError::MissingTarget));
        check("remove", "/l/2", Err(JsonPatchError::MissingTarget));
        check("remove", "/s/x", Err(JsonPatchError::MissingTarget));
        check("replace", "/a/none", Err(JsonPatchError::MissingTarget));
        check("replace", "/l/2", Err(JsonPatchError::MissingTarget));
        check("remove", "", Err(JsonPatchError::MissingTarget));
        let mut tree = json!({});
        apply_operation(&mut tree, "replace", "", &json!([1])).unwrap();
        assert_eq!(tree, json!([1]));
    }
}
