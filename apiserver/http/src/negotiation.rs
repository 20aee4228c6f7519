//! Content negotiation: picks the response format from Accept, Accept-Encoding and
//! User-Agent and the body type from Content-Type, or fails with 406 or 415
//! (`handlers/negotiation/negotiate.go`). Does no I/O.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, USER_AGENT};
use machinery::Status;

use crate::requestinfo::QueryParams;

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Media types of responses, and of request bodies of kinds with a protobuf form.
const RESPONSE_MEDIA_TYPES: [&str; 3] = [JSON, YAML, PROTOBUF];
/// Bound on parsed clauses of Accept.
const MAX_CLAUSES: usize = 32;

/// The serialization of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseSerialization {
    Json,
    Yaml,
    Protobuf,
}

/// The media types that a path offers beside objects in JSON and YAML.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponseOffer {
    pub(crate) tables: bool,
    pub(crate) partial_metadata: bool,
    pub(crate) protobuf: ProtobufOffer,
}

/// The replies of a path that are offered in protobuf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ProtobufOffer {
    Nothing,
    /// Partial metadata, which has a protobuf form for every kind.
    #[default]
    Metadata,
    Objects,
}

impl ResponseOffer {
    fn includes(self, encoding: ResponseSerialization, view: Representation) -> bool {
        let (is_offered, has_protobuf) = match view {
            Representation::Object => (true, self.protobuf == ProtobufOffer::Objects),
            Representation::Table { .. } => (self.tables, false),
            Representation::Metadata { .. } | Representation::MetadataList { .. } => (
                self.partial_metadata,
                self.protobuf != ProtobufOffer::Nothing,
            ),
        };
        is_offered && (has_protobuf || encoding != ResponseSerialization::Protobuf)
    }

    /// The media types that a 406 names. As Kubernetes does, it names protobuf also where only metadata
    /// has that form.
    fn media_types(self) -> &'static [&'static str] {
        match self.protobuf {
            ProtobufOffer::Nothing => &[JSON, YAML],
            ProtobufOffer::Metadata | ProtobufOffer::Objects => &RESPONSE_MEDIA_TYPES,
        }
    }
}

/// The representation of an object that a client asks for (`as=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Representation {
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
pub(crate) struct ResponseFormat {
    pub(crate) encoding: ResponseSerialization,
    pub(crate) representation: Representation,
    pub(crate) pretty: bool,
}

impl ResponseFormat {
    /// Compact JSON, for responses sent before or without negotiation.
    pub(crate) const PLAIN_JSON: Self = Self {
        encoding: ResponseSerialization::Json,
        representation: Representation::Object,
        pretty: false,
    };
}

/// One clause of an Accept or Accept-Encoding header.
pub(crate) struct AcceptClause<'a> {
    /// `type/subtype` in lower case.
    pub(crate) media_type: Cow<'a, str>,
    /// Names in lower case; values as sent.
    params: Vec<(Cow<'a, str>, &'a str)>,
    quality: u16,
}

impl<'a> AcceptClause<'a> {
    /// A parameter's value, empty when absent.
    pub(crate) fn param(&self, name: &str) -> &'a str {
        self.params
            .iter()
            .find(|(k, _)| k == name)
            .map_or("", |(_, v)| v)
    }
}

/// The clauses of all Accept headers, best first; a missing header counts as `*/*`.
pub(crate) fn accept_clauses(headers: &HeaderMap) -> Vec<AcceptClause<'_>> {
    let mut all: Vec<AcceptClause<'_>> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(parse_clause)
        .take(MAX_CLAUSES)
        .collect();
    if all.is_empty() {
        all.extend(parse_clause("*/*"));
    }
    all.sort_by_key(|c| std::cmp::Reverse(c.quality));
    all
}

fn parse_clause(text: &str) -> Option<AcceptClause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|m| !m.is_empty())?;
    let mut clause = AcceptClause {
        media_type: lower_case(media),
        params: Vec::new(),
        quality: 1000,
    };
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim_matches('"');
        match lower_case(key) {
            key if key == "q" => clause.quality = parse_quality(value),
            key => clause.params.push((key, value)),
        }
    }
    (clause.quality > 0).then_some(clause)
}

/// Media types and the names of their parameters are case-insensitive (RFC 9110; Go's
/// `mime.ParseMediaType`).
fn lower_case(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|b| b.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}

/// A quality value in thousandths; a malformed one counts as 1.
fn parse_quality(value: &str) -> u16 {
    let quality: f32 = value.parse().unwrap_or(1.0);
    (quality.clamp(0.0, 1.0) * 1000.0) as u16
}

fn encoding_of(media: &str) -> Option<ResponseSerialization> {
    match media {
        "*/*" | "application/*" | JSON => Some(ResponseSerialization::Json),
        YAML => Some(ResponseSerialization::Yaml),
        PROTOBUF => Some(ResponseSerialization::Protobuf),
        _ => None,
    }
}

/// `None` when the clause asks for an unknown representation.
fn representation_of(clause: &AcceptClause<'_>) -> Option<Representation> {
    let beta = match clause.param("v") {
        "v1" => false,
        "v1beta1" => true,
        _ if clause.param("as").is_empty() => return Some(Representation::Object),
        _ => return None,
    };
    if clause.param("as").is_empty() {
        return Some(Representation::Object);
    }
    if clause.param("g") != "meta.k8s.io" {
        return None;
    }
    match clause.param("as") {
        "Table" => Some(Representation::Table { beta }),
        "PartialObjectMetadata" => Some(Representation::Metadata { beta }),
        "PartialObjectMetadataList" => Some(Representation::MetadataList { beta }),
        _ => None,
    }
}

/// Negotiates the format of a response: the first that the client prefers and the path
/// offers.
pub(crate) fn negotiate(
    headers: &HeaderMap,
    query: &QueryParams,
    offer: ResponseOffer,
) -> Result<ResponseFormat, Status> {
    for clause in accept_clauses(headers) {
        let Some(encoding) = encoding_of(&clause.media_type) else {
            continue;
        };
        match representation_of(&clause) {
            Some(view) if offer.includes(encoding, view) => {
                return Ok(ResponseFormat {
                    encoding,
                    representation: view,
                    pretty: wants_pretty(headers, query, &clause),
                });
            }
            _ => {}
        }
    }
    Err(Status::not_acceptable(offer.media_types()))
}

fn wants_pretty(headers: &HeaderMap, query: &QueryParams, clause: &AcceptClause<'_>) -> bool {
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
pub enum RequestBodySerialization {
    Json,
    Yaml,
    Protobuf,
}

/// The media type of a request body in lower case, without parameters; JSON when the header is
/// missing. A header that is not ASCII yields an unsupported type.
pub(crate) fn content_type(headers: &HeaderMap) -> Cow<'_, str> {
    const UNREADABLE: &str = "unreadable";
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return Cow::Borrowed(JSON);
    };
    let text = value.to_str().unwrap_or(UNREADABLE);
    match text.split(';').next().unwrap_or_default().trim() {
        "" => Cow::Borrowed(JSON),
        media => lower_case(media),
    }
}

/// The serialization of a request body; `proto` is whether the kind has a protobuf
/// form.
pub(crate) fn body_type(
    headers: &HeaderMap,
    proto: bool,
) -> Result<RequestBodySerialization, Status> {
    match &*content_type(headers) {
        JSON => Ok(RequestBodySerialization::Json),
        YAML => Ok(RequestBodySerialization::Yaml),
        PROTOBUF if proto => Ok(RequestBodySerialization::Protobuf),
        // Kubernetes lists protobuf also where it does not take it.
        _ => Err(Status::unsupported_media_type(&RESPONSE_MEDIA_TYPES)),
    }
}

/// Whether the client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|e| parse_clause(e).is_some_and(|clause| clause.media_type == "gzip"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(
        accept: &str,
        protobuf: ProtobufOffer,
    ) -> Result<(ResponseSerialization, Representation), Status> {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(ACCEPT, accept.parse().unwrap());
        }
        let offer = ResponseOffer {
            tables: true,
            partial_metadata: true,
            protobuf,
        };
        let format = negotiate(&headers, &QueryParams::parse(None), offer)?;
        Ok((format.encoding, format.representation))
    }

    fn check(accept: &str, expect: Option<(ResponseSerialization, Representation)>) {
        let negotiated = negotiated(accept, ProtobufOffer::Metadata).ok();
        assert_eq!(negotiated, expect, "{accept:?}");
    }

    // proves: SRC-media-types
    #[test]
    fn without_protobuf_the_next_choice_is_json() {
        let partial = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        let metadata = Representation::MetadataList { beta: false };
        for (accept, representation) in [
            (format!("{PROTOBUF},{JSON}"), Representation::Object),
            (format!("{PROTOBUF};{partial},{JSON};{partial}"), metadata),
            (format!("{PROTOBUF},*/*"), Representation::Object),
        ] {
            let format = negotiated(&accept, ProtobufOffer::Nothing).unwrap();
            assert_eq!(format, (ResponseSerialization::Json, representation));
        }
        for accept in [PROTOBUF.to_owned(), format!("{PROTOBUF};{partial}")] {
            let rejection = negotiated(&accept, ProtobufOffer::Nothing).unwrap_err();
            assert_eq!(rejection.code, 406);
            let media_types = "accepted: application/json, application/yaml";
            assert!(rejection.message.ends_with(media_types), "{rejection:?}");
        }
    }

    #[test]
    fn accept_is_negotiated() {
        use ResponseSerialization::{Json, Yaml};
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        check("", Some((Json, Representation::Object)));
        check("*/*", Some((Json, Representation::Object)));
        check("application/yaml", Some((Yaml, Representation::Object)));
        check(table, Some((Json, Representation::Table { beta: false })));
        check(
            &format!(
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,{table},{JSON}"
            ),
            Some((Json, Representation::Table { beta: false })),
        );
        check(
            "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
            Some((Json, Representation::Object)),
        );
        check(
            "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
            Some((Json, Representation::MetadataList { beta: true })),
        );
        check(
            "application/json;q=0.1, application/yaml",
            Some((Yaml, Representation::Object)),
        );
        check(
            "application/json;stream=watch",
            Some((Json, Representation::Object)),
        );
        check(PROTOBUF, None);
        check(
            &format!("{PROTOBUF},{JSON}"),
            Some((Json, Representation::Object)),
        );
        check(
            &format!("{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io,{JSON}"),
            Some((
                ResponseSerialization::Protobuf,
                Representation::Metadata { beta: false },
            )),
        );
        check("application/cbor", None);
        check(
            "application/cbor,application/json",
            Some((Json, Representation::Object)),
        );
    }

    #[test]
    fn media_types_are_case_insensitive() {
        check(
            "Application/JSON;AS=Table;V=v1;G=meta.k8s.io",
            Some((
                ResponseSerialization::Json,
                Representation::Table { beta: false },
            )),
        );
        check(
            "application/json;Q=0, application/YAML",
            Some((ResponseSerialization::Yaml, Representation::Object)),
        );
    }

    #[test]
    fn gzip_is_accepted_unless_its_quality_is_zero() {
        for (value, accepted) in [
            ("gzip", true),
            ("GZIP", true),
            ("br, gzip;q=0.5", true),
            ("gzip ; q=1.0", true),
            ("br", false),
            ("gzip;q=0", false),
            ("gzip;q=0.0", false),
            ("gzip; Q=0.000", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, value.parse().unwrap());
            assert_eq!(accepts_gzip(&headers), accepted, "{value}");
        }
    }

    #[test]
    fn pretty_is_negotiated() {
        let ask = |agent: &str, query: &str, accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(USER_AGENT, agent.parse().unwrap());
            headers.insert(ACCEPT, accept.parse().unwrap());
            negotiate(
                &headers,
                &QueryParams::parse(Some(query)),
                ResponseOffer::default(),
            )
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
    fn content_type_selects_body_type() {
        let ask = |value: &str, proto: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            body_type(&headers, proto).map_err(|s| s.code)
        };
        assert_eq!(
            body_type(&HeaderMap::new(), false).unwrap(),
            RequestBodySerialization::Json
        );
        assert_eq!(
            ask("application/json; charset=utf-8", false),
            Ok(RequestBodySerialization::Json)
        );
        assert_eq!(ask(YAML, false), Ok(RequestBodySerialization::Yaml));
        assert_eq!(
            ask("Application/JSON; charset=UTF-8", false),
            Ok(RequestBodySerialization::Json)
        );
        assert_eq!(ask(PROTOBUF, true), Ok(RequestBodySerialization::Protobuf));
        assert_eq!(ask(PROTOBUF, false), Err(415));
        assert_eq!(ask("application/cbor", true), Err(415));
    }
}
