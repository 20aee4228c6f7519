//! Absolute URLs in their parts, as Go's `net/url` parses them.

/// An absolute URI or an absolute path, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parse_error = |message: &str| format!("parse {text:?}: {message}");
        if text.is_empty() {
            return Err(parse_error("empty url"));
        }
        if text.chars().any(|c| c < ' ' || c == '\x7f') {
            return Err(parse_error("net/url: invalid control character in URL"));
        }
        let (scheme, rest) = split_scheme(text).map_err(parse_error)?;
        if scheme.is_empty() && !rest.starts_with('/') {
            return Err(parse_error("invalid URI for request"));
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
            return Err(parse_error("invalid URI for request"));
        }
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        check_host(host).map_err(|message| parse_error(&message))?;
        check_percent(path).map_err(|message| parse_error(&message))?;
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
    pub(crate) fn host_and_port(&self) -> (&str, &str) {
        let host = &*self.host;
        if let Some(inner) = host.strip_prefix('[')
            && let Some((address, rest)) = inner.split_once(']')
        {
            return (address, rest.strip_prefix(':').unwrap_or(""));
        }
        host.rsplit_once(':').unwrap_or((host, ""))
    }
}

fn split_scheme(text: &str) -> Result<(String, &str), &'static str> {
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

fn check_host(host: &str) -> Result<(), String> {
    let after = match host.strip_prefix('[') {
        Some(inner) => inner
            .split_once(']')
            .map(|(_, after)| after)
            .ok_or("missing ']' in host")?,
        None => host.find(':').map_or("", |colon| &host[colon..]),
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

fn check_percent(path: &str) -> Result<(), String> {
    for (index, _) in path.match_indices('%') {
        let digits = path.get(index + 1..index + 3);
        if !digits.is_some_and(|d| d.bytes().all(|b| b.is_ascii_hexdigit())) {
            let end = (index + 3).min(path.len());
            let escape = path.get(index..end).unwrap_or("%");
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
