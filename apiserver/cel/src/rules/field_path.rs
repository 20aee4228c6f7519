//! The `fieldPath` of a rule: `.spec.replicas`, `['a-b'].c`
//! (`ValidFieldPath` in `apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go`).

use serde_json::Value as Json;

/// The path as field errors write it, if it leads to a field of the schema.
pub(super) fn normalize(path: &str, schema: &Json) -> Result<String, String> {
    let mut rest = path;
    let mut schema = schema;
    let mut normalized = String::new();
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            (after[..end].to_owned(), &after[end..])
        } else if let Some(after) = rest.strip_prefix('[') {
            quoted(after)?
        } else {
            return Err(format!("expected [ or . but got: {rest}"));
        };
        if name.is_empty() {
            return Err("unexpected end of JSON path".to_owned());
        }
        let missing = || Err("does not refer to a valid field".to_owned());
        if let Some(properties) = schema["properties"].as_object() {
            let Some(child) = properties.get(&name) else {
                return missing();
            };
            schema = child;
            if !normalized.is_empty() {
                normalized.push('.');
            }
            normalized.push_str(&name);
        } else if schema["additionalProperties"].is_object() {
            schema = &schema["additionalProperties"];
            normalized = format!("{normalized}[{name}]");
        } else {
            return missing();
        }
        rest = after;
    }
    Ok(normalized)
}

/// The name in `'name']`, and what follows.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let inner = text
        .strip_prefix('\'')
        .ok_or_else(|| format!("expected single quoted string but got {text}"))?;
    let mut name = String::new();
    let mut chars = inner.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '\'' => {
                let after = &inner[index + 1..];
                let after = after.strip_prefix(']');
                let after = after.ok_or("expected ]")?;
                return Ok((name, after));
            }
            '\\' => match chars.next() {
                Some((_, escaped @ ('\'' | '\\'))) => name.push(escaped),
                Some((_, 'n')) => name.push('\n'),
                Some((_, 't')) => name.push('\t'),
                Some((_, 'r')) => name.push('\r'),
                Some((_, other)) => return Err(format!("invalid escape char \\{other}")),
                None => break,
            },
            other => name.push(other),
        }
    }
    Err("unexpected end of JSON path".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::normalize;

    #[test]
    fn paths_lead_to_fields() {
        let schema = json!({"properties": {
            "spec": {"properties": {"a-b": {"type": "string"}, "it's": {"type": "string"}}},
            "labels": {"additionalProperties": {"type": "string"}},
        }});
        for (path, normalized) in [
            (".spec", Some("spec")),
            (".spec.a-b", Some("spec.a-b")),
            ("['spec']['a-b']", Some("spec.a-b")),
            (".spec['it\\'s']", Some("spec.it's")),
            (".labels['x']", Some("labels[x]")),
            (".spec.missing", None),
            ("spec", None),
            (".spec[0]", None),
            (".spec['a-b'", None),
            (".spec.", None),
        ] {
            let path_in_schema = normalize(path, &schema).ok();
            assert_eq!(path_in_schema.as_deref(), normalized, "{path}");
        }
    }
}
