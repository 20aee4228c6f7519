//! Absolute URLs (`k8s.io/apiserver/pkg/cel/library/urls.go`, Go's `net/url`).

use std::rc::Rc;

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::url_value::Url;
use crate::value::{EvaluationResult, Map, Opaque, OwnedMap, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    ("string_to_url", "url(string) kubernetes.URL", parse),
    ("is_url_string", "isURL(string) bool", is_url),
    (
        "url_get_scheme",
        "<kubernetes.URL>.getScheme() string",
        scheme,
    ),
    ("url_get_host", "<kubernetes.URL>.getHost() string", host),
    (
        "url_get_hostname",
        "<kubernetes.URL>.getHostname() string",
        hostname,
    ),
    ("url_get_port", "<kubernetes.URL>.getPort() string", port),
    (
        "url_get_escaped_path",
        "<kubernetes.URL>.getEscapedPath() string",
        escaped_path,
    ),
    (
        "url_get_query",
        "<kubernetes.URL>.getQuery() map(string,list(string))",
        query,
    ),
];

/// Decodes one part of a query; `None` if it is malformed.
fn unescape_query(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = std::str::from_utf8(&digits).ok()?.to_owned();
                out.push(u8::from_str_radix(&digits, 16).ok()?);
            }
            other => out.push(other),
        }
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

fn parse<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let url = Url::parse(text.as_str()).map_err(|message| {
        EvalError::new(format!(
            "URL parse error during conversion from string: {message}"
        ))
    })?;
    Ok(Value::opaque(Opaque::Url(url)))
}

fn is_url<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(Url::parse(text.as_str()).is_ok())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn url<'v>(arguments: &'v [Value<'_>]) -> Result<&'v Url, EvalError> {
    match arguments {
        [Value::Opaque(opaque)] => match &**opaque {
            Opaque::Url(url) => Ok(url),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn scheme<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::string(&*url(arguments)?.scheme))
}

fn host<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::string(&*url(arguments)?.host))
}

fn hostname<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::string(url(arguments)?.host_and_port().0))
}

fn port<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::string(url(arguments)?.host_and_port().1))
}

fn escaped_path<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::string(&*url(arguments)?.path))
}

fn query<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let mut values: Vec<(String, Vec<Value<'a>>)> = Vec::new();
    for pair in url(arguments)?.query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (unescape_query(key), unescape_query(value)) else {
            continue;
        };
        if pair.is_empty() || pair.contains(';') {
            continue;
        }
        let value = Value::string(value);
        match values.iter_mut().find(|(k, _)| *k == key) {
            Some((_, list)) => list.push(value),
            None => values.push((key, vec![value])),
        }
    }
    let mut map = OwnedMap::default();
    for (key, list) in values {
        map.insert(Value::string(key), Value::list(list))?;
    }
    Ok(Value::Map(Map::Owned(Rc::new(map))))
}
