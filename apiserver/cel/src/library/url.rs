//! Absolute URLs (`k8s.io/apiserver/pkg/cel/library/urls.go`, Go's `net/url`).

use std::rc::Rc;

use crate::error::EvalError;
use crate::meter::Meter;
use crate::overloads::Declared;
use crate::value::{Map, Opaque, OwnedMap, Result, Value};

pub(super) const OVERLOADS: &[Declared] = &[
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

/// An absolute URI or an absolute path, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

impl Url {
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        let wrong = |why: &str| format!("parse {text:?}: {why}");
        if text.is_empty() {
            return Err(wrong("empty url"));
        }
        if text.chars().any(|c| c < ' ' || c == '\x7f') {
            return Err(wrong("net/url: invalid control character in URL"));
        }
        let (scheme, rest) = split_scheme(text).map_err(wrong)?;
        if scheme.is_empty() && !rest.starts_with('/') {
            return Err(wrong("invalid URI for request"));
        }
        let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match rest.strip_prefix("//") {
            Some(after) if !scheme.is_empty() || !rest.starts_with("///") => {
                let end = after.find('/').unwrap_or(after.len());
                after.split_at(end)
            }
            _ => ("", rest),
        };
        if !scheme.is_empty() && host.is_empty() && !path.starts_with('/') {
            return Err(wrong("invalid URI for request"));
        }
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        check_host(host).map_err(|why| wrong(&why))?;
        check_percent(path).map_err(|why| wrong(&why))?;
        Ok(Self {
            text: text.to_owned(),
            scheme,
            host: host.to_owned(),
            path: escape_path(path),
            query: query.to_owned(),
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The host without its port, and the port.
    fn host_and_port(&self) -> (&str, &str) {
        let host = &*self.host;
        if let Some(inner) = host.strip_prefix('[')
            && let Some((address, rest)) = inner.split_once(']')
        {
            return (address, rest.strip_prefix(':').unwrap_or(""));
        }
        host.rsplit_once(':').unwrap_or((host, ""))
    }
}

fn split_scheme(text: &str) -> std::result::Result<(String, &str), &'static str> {
    let Some(end) = text.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)) else {
        return Ok((String::new(), text));
    };
    if !text[end..].starts_with(':') {
        return Ok((String::new(), text));
    }
    if end == 0 {
        return Err("missing protocol scheme");
    }
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err("first path segment in URL cannot contain colon");
    }
    Ok((text[..end].to_ascii_lowercase(), &text[end + 1..]))
}

fn check_host(host: &str) -> std::result::Result<(), String> {
    let after = match host.strip_prefix('[') {
        Some(inner) => inner
            .split_once(']')
            .map(|(_, after)| after)
            .ok_or("missing ']' in host")?,
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    let port = after.strip_prefix(':');
    let valid = after.is_empty() || port.is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    if !valid {
        return Err(format!("invalid port {after:?} after host"));
    }
    match host.chars().find(|c| " \"<>\\^`{}|".contains(*c)) {
        Some(c) => Err(format!(
            "invalid character {:?} in host name",
            c.to_string()
        )),
        None => Ok(()),
    }
}

fn check_percent(path: &str) -> std::result::Result<(), String> {
    for (at, _) in path.match_indices('%') {
        let digits = path.get(at + 1..at + 3);
        if !digits.is_some_and(|d| d.bytes().all(|b| b.is_ascii_hexdigit())) {
            let end = (at + 3).min(path.len());
            let escape = path.get(at..end).unwrap_or("%");
            return Err(format!("invalid URL escape {escape:?}"));
        }
    }
    Ok(())
}

/// The path with what may not stand in one escaped.
fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*%[]".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

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

fn parse<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    let [Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let url = Url::parse(text.as_str()).map_err(|why| {
        EvalError::new(format!(
            "URL parse error during conversion from string: {why}"
        ))
    })?;
    Ok(Value::opaque(Opaque::Url(url)))
}

fn is_url<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(Url::parse(text.as_str()).is_ok())),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn url<'v>(arguments: &'v [Value<'_>]) -> std::result::Result<&'v Url, EvalError> {
    match arguments {
        [Value::Opaque(opaque)] => match &**opaque {
            Opaque::Url(url) => Ok(url),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn scheme<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    Ok(Value::string(&*url(arguments)?.scheme))
}

fn host<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    Ok(Value::string(&*url(arguments)?.host))
}

fn hostname<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    Ok(Value::string(url(arguments)?.host_and_port().0))
}

fn port<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    Ok(Value::string(url(arguments)?.host_and_port().1))
}

fn escaped_path<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    Ok(Value::string(&*url(arguments)?.path))
}

fn query<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
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
