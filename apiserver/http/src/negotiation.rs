//! Content negotiation: picks the response format from Accept, Accept-Encoding and
//! User-Agent and the body type from Content-Type, or fails with 406 or 415
//! (`handlers/negotiation/negotiate.go`). Does no I/O.

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use machinery::Status;

use crate::requestinfo::Query;

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Media types of responses.
const SERVED: [&str; 2] = [JSON, YAML];
/// Media types of request bodies.
const TAKEN: [&str; 3] = [JSON, YAML, PROTOBUF];
/// Bound on parsed clauses of Accept.
const MAX_CLAUSES: usize = 32;

/// The serialization of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

/// The representation of an object that a client asks for (`as=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Object,
    /// `as=Table`
    Table {
        beta: bool,
    },
    /// `as=PartialObjectMetadata`
    Metadata {
        beta: bool,
    },
    /// `as=PartialObjectMetadataList`
    MetadataList {
        beta: bool,
    },
}

/// The negotiated format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) encoding: Encoding,
    pub(crate) view: View,
    pub(crate) pretty: bool,
}

impl Form {
    /// Compact JSON, for responses sent before or without negotiation.
    pub(crate) const PLAIN: Self = Self {
        encoding: Encoding::Json,
        view: View::Object,
        pretty: false,
    };
}

/// One clause of an Accept header.
pub(crate) struct Clause<'a> {
    /// `type/subtype`, compared case-sensitively in lower case.
    pub(crate) media: &'a str,
    params: Vec<(&'a str, &'a str)>,
    quality: u16,
}

impl<'a> Clause<'a> {
    /// A parameter's value, empty when absent.
    pub(crate) fn param(&self, name: &str) -> &'a str {
        self.params
            .iter()
            .find(|(k, _)| *k == name)
            .map_or("", |(_, v)| v)
    }
}

/// The clauses of all Accept headers, best first; a missing header counts as `*/*`.
pub(crate) fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    let mut all: Vec<Clause<'_>> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(clause)
        .take(MAX_CLAUSES)
        .collect();
    if all.is_empty() {
        all.extend(clause("*/*"));
    }
    all.sort_by_key(|c| std::cmp::Reverse(c.quality));
    all
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|m| !m.is_empty())?;
    let mut found = Clause {
        media,
        params: Vec::new(),
        quality: 1000,
    };
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim_matches('"');
        if key == "q" {
            let q: f32 = value.parse().unwrap_or(1.0);
            found.quality = (q.clamp(0.0, 1.0) * 1000.0) as u16;
        } else {
            found.params.push((key, value));
        }
    }
    (found.quality > 0).then_some(found)
}

fn encoding_of(media: &str) -> Option<Encoding> {
    match media {
        "*/*" | "application/*" | JSON => Some(Encoding::Json),
        YAML => Some(Encoding::Yaml),
        _ => None,
    }
}

/// `None` when the clause asks for an unknown representation.
fn view_of(clause: &Clause<'_>) -> Option<View> {
    let beta = match clause.param("v") {
        "v1" => false,
        "v1beta1" => true,
        _ if clause.param("as").is_empty() => return Some(View::Object),
        _ => return None,
    };
    if clause.param("as").is_empty() {
        return Some(View::Object);
    }
    if clause.param("g") != "meta.k8s.io" {
        return None;
    }
    match clause.param("as") {
        "Table" => Some(View::Table { beta }),
        "PartialObjectMetadata" => Some(View::Metadata { beta }),
        "PartialObjectMetadataList" => Some(View::MetadataList { beta }),
        _ => None,
    }
}

/// Negotiates the format of a response. With `views` false, only the object's own
/// representation is offered.
pub(crate) fn reply(headers: &HeaderMap, query: &Query, views: bool) -> Result<Form, Status> {
    for clause in clauses(headers) {
        let Some(encoding) = encoding_of(clause.media) else {
            continue;
        };
        match view_of(&clause) {
            Some(view) if views || view == View::Object => {
                return Ok(Form {
                    encoding,
                    view,
                    pretty: pretty(headers, query, &clause),
                });
            }
            _ => {}
        }
    }
    Err(Status::not_acceptable(&SERVED))
}

fn pretty(headers: &HeaderMap, query: &Query, clause: &Clause<'_>) -> bool {
    if let Some(value) = query.get("pretty") {
        return matches!(value, "1" | "true" | "t" | "T" | "TRUE" | "True");
    }
    if clause.param("pretty") == "1" {
        return true;
    }
    headers
        .get(USER_AGENT)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|a| {
            ["curl", "Wget", "Mozilla/5.0"]
                .iter()
                .any(|b| a.starts_with(b))
        })
}

/// The serialization of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyType {
    Json,
    Yaml,
    Protobuf,
}

/// The media type of a request body, without parameters; JSON when the header is
/// missing. A header that is not ASCII yields an unsupported type.
pub(crate) fn content_type(headers: &HeaderMap) -> &str {
    const UNREADABLE: &str = "unreadable";
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return JSON;
    };
    let text = value.to_str().unwrap_or(UNREADABLE);
    match text.split(';').next().unwrap_or_default().trim() {
        "" => JSON,
        media => media,
    }
}

/// The serialization of a request body; `proto` is whether the kind has a protobuf
/// form.
pub(crate) fn body_type(headers: &HeaderMap, proto: bool) -> Result<BodyType, Status> {
    match content_type(headers) {
        JSON => Ok(BodyType::Json),
        YAML => Ok(BodyType::Yaml),
        PROTOBUF if proto => Ok(BodyType::Protobuf),
        _ if proto => Err(Status::unsupported_media_type(&TAKEN)),
        _ => Err(Status::unsupported_media_type(&SERVED)),
    }
}

/// Whether the client accepts gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|e| {
            let (name, rest) = e.split_once(';').unwrap_or((e, ""));
            name.trim() == "gzip" && rest.trim() != "q=0"
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, expect: Option<(Encoding, View)>) {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(ACCEPT, accept.parse().unwrap());
        }
        let got = reply(&headers, &Query::parse(None), true).ok();
        assert_eq!(got.map(|f| (f.encoding, f.view)), expect, "{accept:?}");
    }

    #[test]
    fn replies_are_negotiated() {
        use Encoding::{Json, Yaml};
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        check("", Some((Json, View::Object)));
        check("*/*", Some((Json, View::Object)));
        check("application/yaml", Some((Yaml, View::Object)));
        check(table, Some((Json, View::Table { beta: false })));
        check(
            &format!(
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,{table},{JSON}"
            ),
            Some((Json, View::Table { beta: false })),
        );
        check(
            "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
            Some((Json, View::Object)),
        );
        check(
            "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
            Some((Json, View::MetadataList { beta: true })),
        );
        check(
            "application/json;q=0.1, application/yaml",
            Some((Yaml, View::Object)),
        );
        check("application/json;stream=watch", Some((Json, View::Object)));
        check(PROTOBUF, None);
        check("application/cbor", None);
        check(
            "application/cbor,application/json",
            Some((Json, View::Object)),
        );
    }

    #[test]
    fn pretty_is_for_people() {
        let ask = |agent: &str, query: &str, accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, agent.parse().unwrap());
            headers.insert(ACCEPT, accept.parse().unwrap());
            reply(&headers, &Query::parse(Some(query)), true)
                .unwrap()
                .pretty
        };
        assert!(ask("curl/8", "", "*/*"));
        assert!(!ask("curl/8", "pretty=false", "*/*"));
        assert!(ask("kubectl", "pretty=true", "*/*"));
        assert!(ask("kubectl", "", "application/json;pretty=1"));
        assert!(!ask("kubectl", "", "application/json"));
    }

    #[test]
    fn bodies_are_judged_by_their_type() {
        let ask = |value: &str, proto: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            body_type(&headers, proto).map_err(|s| s.code)
        };
        assert_eq!(body_type(&HeaderMap::new(), false).unwrap(), BodyType::Json);
        assert_eq!(
            ask("application/json; charset=utf-8", false),
            Ok(BodyType::Json)
        );
        assert_eq!(ask(YAML, false), Ok(BodyType::Yaml));
        assert_eq!(ask(PROTOBUF, true), Ok(BodyType::Protobuf));
        assert_eq!(ask(PROTOBUF, false), Err(415));
        assert_eq!(ask("application/cbor", true), Err(415));
    }
}
