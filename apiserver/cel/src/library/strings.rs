//! Strings: the standard functions and the strings extension (`cel-go/ext/strings.go`).
//! Positions count characters.

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::library::string_format::format;
use crate::meter::Meter;
use crate::value::{EvaluationResult, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    (
        "contains_string",
        "<string>.contains(string) bool",
        contains,
    ),
    (
        "starts_with_string",
        "<string>.startsWith(string) bool",
        starts_with,
    ),
    (
        "ends_with_string",
        "<string>.endsWith(string) bool",
        ends_with,
    ),
    ("string_char_at_int", "<string>.charAt(int) string", char_at),
    (
        "string_index_of_string",
        "<string>.indexOf(string) int",
        index_of,
    ),
    (
        "string_index_of_string_int",
        "<string>.indexOf(string,int) int",
        index_of,
    ),
    (
        "string_last_index_of_string",
        "<string>.lastIndexOf(string) int",
        last_index_of,
    ),
    (
        "string_last_index_of_string_int",
        "<string>.lastIndexOf(string,int) int",
        last_index_of,
    ),
    (
        "string_lower_ascii",
        "<string>.lowerAscii() string",
        lower_ascii,
    ),
    (
        "string_upper_ascii",
        "<string>.upperAscii() string",
        upper_ascii,
    ),
    (
        "string_replace_string_string",
        "<string>.replace(string,string) string",
        replace,
    ),
    (
        "string_replace_string_string_int",
        "<string>.replace(string,string,int) string",
        replace,
    ),
    (
        "string_split_string",
        "<string>.split(string) list(string)",
        split,
    ),
    (
        "string_split_string_int",
        "<string>.split(string,int) list(string)",
        split,
    ),
    (
        "string_substring_int",
        "<string>.substring(int) string",
        substring,
    ),
    (
        "string_substring_int_int",
        "<string>.substring(int,int) string",
        substring,
    ),
    ("string_trim", "<string>.trim() string", trim),
    ("string_format", "<string>.format(list(dyn)) string", format),
    ("strings_quote", "strings.quote(string) string", quote),
    ("list_join", "<list(string)>.join() string", join),
    (
        "list_join_string",
        "<list(string)>.join(string) string",
        join,
    ),
    (
        "string_jsonpatch_escapeKey_string",
        "jsonpatch.escapeKey(string) string",
        escape_key,
    ),
];

fn two_texts<'a>(arguments: &[Value<'a>], test: fn(&str, &str) -> bool) -> EvaluationResult<'a> {
    match arguments {
        [Value::String(a), Value::String(b)] => Ok(Value::Bool(test(a.as_str(), b.as_str()))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn contains<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    two_texts(arguments, |text, part| text.contains(part))
}

fn starts_with<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    two_texts(arguments, |text, part| text.starts_with(part))
}

fn ends_with<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    two_texts(arguments, |text, part| text.ends_with(part))
}

fn out_of_range<T>(index: i64) -> Result<T, EvalError> {
    Err(EvalError::new(format!("index out of range: {index}")))
}

fn char_at<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::String(text), Value::Int(index)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let text = text.as_str();
    let position = usize::try_from(*index).ok();
    match position.and_then(|p| text.chars().nth(p)) {
        Some(c) => Ok(Value::string(c.to_string())),
        None if position == Some(text.chars().count()) => Ok(Value::string("")),
        None => out_of_range(*index),
    }
}

/// The byte at which a character begins; the length for the position after the last one.
fn byte_offset(text: &str, index: i64) -> Result<usize, EvalError> {
    let position = usize::try_from(index).ok();
    let mut starts = text.char_indices().map(|(byte, _)| byte);
    match position.and_then(|p| starts.nth(p)) {
        Some(byte) => Ok(byte),
        None if position == Some(text.chars().count()) => Ok(text.len()),
        None => out_of_range(index),
    }
}

fn chars_before(text: &str, byte: usize) -> Value<'static> {
    let count = text[..byte].chars().count();
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

fn index_of<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (text, part, from) = match arguments {
        [Value::String(text), Value::String(part)] => (text.as_str(), part.as_str(), 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => {
            (text.as_str(), part.as_str(), *from)
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let from = byte_offset(text, from)?;
    let match_offset = text[from..].find(part);
    Ok(match_offset.map_or(Value::Int(-1), |offset| chars_before(text, from + offset)))
}

fn last_index_of<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (text, part, from) = match arguments {
        [Value::String(text), Value::String(part)] => (text.as_str(), part.as_str(), None),
        [Value::String(text), Value::String(part), Value::Int(from)] => {
            (text.as_str(), part.as_str(), Some(*from))
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    if part.is_empty() {
        let end = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        return Ok(Value::Int(from.unwrap_or(end)));
    }
    // The part may begin at `from` and end after it.
    let end = match from {
        None => text.len(),
        Some(from) => (byte_offset(text, from)? + part.len()).min(text.len()),
    };
    let mut end = end;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let match_offset = text[..end].rfind(part);
    Ok(match_offset.map_or(Value::Int(-1), |offset| chars_before(text, offset)))
}

fn one_text<'a>(arguments: &[Value<'a>], change: fn(&str) -> String) -> EvaluationResult<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::string(change(text.as_str()))),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn lower_ascii<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    one_text(arguments, str::to_ascii_lowercase)
}

fn upper_ascii<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    one_text(arguments, str::to_ascii_uppercase)
}

fn trim<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    one_text(arguments, |text| text.trim().to_owned())
}

fn escape_key<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    one_text(arguments, |text| text.replace('~', "~0").replace('/', "~1"))
}

fn quote<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    one_text(arguments, |text| {
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        for c in text.chars() {
            match c {
                '\x07' => quoted.push_str("\\a"),
                '\x08' => quoted.push_str("\\b"),
                '\x0c' => quoted.push_str("\\f"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                '\x0b' => quoted.push_str("\\v"),
                '\\' => quoted.push_str("\\\\"),
                '"' => quoted.push_str("\\\""),
                other => quoted.push(other),
            }
        }
        quoted.push('"');
        quoted
    })
}

fn replace<'a>(arguments: &[Value<'a>], meter: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (text, old, new, count) = match arguments {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [
            Value::String(text),
            Value::String(old),
            Value::String(new),
            Value::Int(count),
        ] => (text, old, new, *count),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let (text, old, new) = (text.as_str(), old.as_str(), new.as_str());
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // The result can be the product of both lengths: it is paid before it is made.
    let replacements = text.matches(old).take(count).count() as u64;
    meter.charge(replacements.saturating_mul(new.len() as u64) / 10)?;
    Ok(Value::string(text.replacen(old, new, count)))
}

fn split<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (text, separator, count) = match arguments {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(n)] => (text, separator, *n),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let (text, separator) = (text.as_str(), separator.as_str());
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let parts: Vec<&str> = if separator.is_empty() {
        split_chars(text, count)
    } else {
        text.splitn(count, separator).collect()
    };
    Ok(Value::list(parts.into_iter().map(Value::string).collect()))
}

/// At most `count` parts of one character each, except that the last has the rest.
fn split_chars(text: &str, count: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while parts.len() < count && !rest.is_empty() {
        let length = if parts.len() + 1 == count {
            rest.len()
        } else {
            rest.chars().next().map_or(rest.len(), char::len_utf8)
        };
        let (part, after) = rest.split_at(length);
        parts.push(part);
        rest = after;
    }
    parts
}

fn substring<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (text, begin, end) = match arguments {
        [Value::String(text), Value::Int(begin)] => (text.as_str(), *begin, None),
        [Value::String(text), Value::Int(begin), Value::Int(end)] => {
            (text.as_str(), *begin, Some(*end))
        }
        _ => return Err(EvalError::NoSuchOverload),
    };
    if let Some(end) = end
        && begin > end
    {
        let message = format!("invalid substring range. start: {begin}, end: {end}");
        return Err(EvalError::new(message));
    }
    let end = end.map_or(Ok(text.len()), |end| byte_offset(text, end))?;
    let begin = byte_offset(text, begin)?;
    Ok(Value::string(&text[begin..end]))
}

fn join<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (list, separator) = match arguments {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, separator.as_str()),
        _ => return Err(EvalError::NoSuchOverload),
    };
    let mut joined = String::new();
    for (i, item) in list.iter().enumerate() {
        let Value::String(item) = item? else {
            return Err(EvalError::NoSuchOverload);
        };
        if i > 0 {
            joined.push_str(separator);
        }
        joined.push_str(item.as_str());
    }
    Ok(Value::string(joined))
}
