//! Writes responses in the negotiated format: objects, lists and errors
//! (kube-apiserver's `responsewriters`).
//!
//! Lists are spliced from shared bytes, chunk by chunk. Tables and metadata lists are
//! rendered before anything is sent: an object that cannot be rendered fails the whole
//! list, as in kube-apiserver (`endpoints/handlers/response.go`).

use bytes::{Bytes, BytesMut};
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY, WARNING,
};
use http::{Response, StatusCode};
use machinery::{Object, Status};
use registry::{ListReply, Row};
use serde_json::{Value, json};

use crate::body::{Body, Chunks};
use crate::negotiation::{Encoding, Form, View};
use crate::table;

/// Shorter responses are not compressed (`responsewriters`).
const GZIP_FROM: u64 = 128 * 1024;
/// Small objects are gathered into chunks of about this size.
const CHUNK: usize = 64 * 1024;
/// Items rendered before the task yields.
const ROWS_PER_TURN: usize = 64;
/// Characters of all warnings together above which each is truncated.
const WARNINGS_MAX: usize = 4096;
const WARNING_CUT: usize = 256;

/// How to write the response of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) form: Form,
    pub(crate) gzip: bool,
    /// `includeObject` of tables.
    pub(crate) include: table::Include,
}

fn json_type(encoding: Encoding) -> HeaderValue {
    HeaderValue::from_static(match encoding {
        Encoding::Json => "application/json",
        Encoding::Yaml => "application/yaml",
    })
}

fn response(code: u16, body: Body, content_type: HeaderValue) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Writes a `Status`: a failure, or the success of a deletion.
pub(crate) fn status(status: &Status, form: Form) -> Response<Body> {
    let code = if status.code == 0 { 200 } else { status.code };
    let mut response = value(code, &status.document(), form);
    if let Some(details) = &status.details
        && details.retry_after_seconds > 0
    {
        response
            .headers_mut()
            .insert(RETRY_AFTER, details.retry_after_seconds.into());
    }
    response
}

/// Writes a JSON value.
pub(crate) fn value(code: u16, value: &Value, form: Form) -> Response<Body> {
    let text = match (form.encoding, form.pretty) {
        (Encoding::Yaml, _) => match serde_saphyr::to_string(value) {
            Ok(text) => text,
            Err(e) => return status(&Status::internal(e), Form::PLAIN),
        },
        (Encoding::Json, true) => {
            let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
            text.push('\n');
            text
        }
        (Encoding::Json, false) => {
            let mut text = value.to_string();
            text.push('\n');
            text
        }
    };
    response(code, Body::full(text), json_type(form.encoding))
}

/// Writes plain text, as the health endpoints do.
pub(crate) fn text(code: u16, text: String) -> Response<Body> {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let mut response = response(code, Body::full(text), plain);
    response.headers_mut().insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Writes chunks, compressed when the client accepts gzip and `size` is large enough.
/// With `exact`, `size` becomes the content length.
fn send(code: u16, chunks: Chunks, size: u64, exact: bool, options: Shape) -> Response<Body> {
    if options.form.pretty || options.form.encoding == Encoding::Yaml {
        let bytes: Vec<u8> = chunks.flatten().collect();
        return match serde_json::from_slice(&bytes) {
            Ok(tree) => value(code, &tree, options.form),
            Err(e) => status(&Status::internal(e), Form::PLAIN),
        };
    }
    let gzip = options.gzip && size > GZIP_FROM;
    let body = if gzip {
        Body::gzip(chunks)
    } else if exact {
        Body::chunks(chunks, Some(size))
    } else {
        Body::chunks(chunks, None)
    };
    let mut response = response(code, body, json_type(Encoding::Json));
    if gzip {
        let headers = response.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Writes one object.
pub(crate) fn object(
    code: u16,
    resource_info: &Row,
    object: &Object,
    options: Shape,
    now: jiff::Timestamp,
) -> Result<Response<Body>, Status> {
    let bytes = match options.form.view {
        View::Object => object.bytes().clone(),
        View::Metadata { beta } => table::partial(object, beta)?,
        View::MetadataList { .. } => return Err(Status::not_acceptable(&["application/json"])),
        View::Table { beta } => {
            let mut text = table::open(
                resource_info,
                beta,
                &table::list_metadata(object.revision(), None, None),
                true,
            );
            text.push_str(&table::row(
                resource_info,
                object,
                options.include,
                beta,
                now,
            )?);
            text.push_str("]}\n");
            text.into()
        }
    };
    let size = bytes.len() as u64;
    Ok(send(
        code,
        Box::new(std::iter::once(bytes)),
        size,
        true,
        options,
    ))
}

/// Writes a list.
pub(crate) async fn list(
    list: ListReply,
    options: Shape,
    now: jiff::Timestamp,
) -> Result<Response<Body>, Status> {
    let metadata = table::list_metadata(list.revision, list.next.as_deref(), list.remaining);
    let resource_info = &list.row;
    match options.form.view {
        View::Object => {
            let kind = &resource_info.kind;
            let head = format!(
                "{{\"kind\":{:?},\"apiVersion\":{:?},\"metadata\":{metadata},\"items\":[",
                kind.list_kind,
                kind.gvk.api_version()
            );
            let items = list.items.iter().map(|o| o.bytes().clone()).collect();
            Ok(joined(head, items, options))
        }
        View::MetadataList { beta } => {
            let head = format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":{:?},\"metadata\":{metadata},\"items\":[",
                table::api_version(beta)
            );
            let items = rendered(&list.items, |o| table::partial(o, beta));
            Ok(joined(head, items.await?, options))
        }
        View::Table { beta } => {
            let head = table::open(resource_info, beta, &metadata, true);
            let show = |o: &Object| {
                table::row(resource_info, o, options.include, beta, now).map(Bytes::from)
            };
            Ok(joined(head, rendered(&list.items, show).await?, options))
        }
        View::Metadata { .. } => Err(Status::not_acceptable(&["application/json"])),
    }
}

/// Renders every item; fails with the error of the first that cannot be rendered.
async fn rendered(
    items: &[Object],
    show: impl Fn(&Object) -> Result<Bytes, Status>,
) -> Result<Vec<Bytes>, Status> {
    let mut rendered = Vec::with_capacity(items.len());
    for turn in items.chunks(ROWS_PER_TURN) {
        if !rendered.is_empty() {
            tokio::task::yield_now().await;
        }
        for object in turn {
            rendered.push(show(object)?);
        }
    }
    Ok(rendered)
}

/// Writes a list of items that are in memory.
fn joined(head: String, items: Vec<Bytes>, options: Shape) -> Response<Body> {
    let commas = items.len().saturating_sub(1);
    let sum: usize = items.iter().map(Bytes::len).sum();
    let size = (head.len() + sum + commas + Joined::TAIL.len()) as u64;
    let chunks = Joined::new(head, items.into_iter());
    send(200, Box::new(chunks), size, true, options)
}

/// Gathers the list's head, the comma-separated items and the closing brackets into
/// chunks; an item of half a chunk or more is passed on without copying.
struct Joined<I> {
    buffer: BytesMut,
    items: I,
    large: Option<Bytes>,
    first: bool,
    done: bool,
}

impl Joined<()> {
    const TAIL: &str = "]}\n";
}

impl<I: Iterator<Item = Bytes>> Joined<I> {
    fn new(head: String, items: I) -> Self {
        Self {
            buffer: BytesMut::from(head.as_bytes()),
            items,
            large: None,
            first: true,
            done: false,
        }
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for Joined<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(large) = self.large.take() {
            return Some(large);
        }
        if self.done {
            return None;
        }
        self.buffer.reserve(CHUNK);
        while self.buffer.len() < CHUNK {
            let Some(bytes) = self.items.next() else {
                self.done = true;
                self.buffer.extend_from_slice(Joined::TAIL.as_bytes());
                break;
            };
            if !std::mem::replace(&mut self.first, false) {
                self.buffer.extend_from_slice(b",");
            }
            if bytes.len() >= CHUNK / 2 && !self.buffer.is_empty() {
                self.large = Some(bytes);
                break;
            }
            self.buffer.extend_from_slice(&bytes);
        }
        Some(self.buffer.split().freeze())
    }
}

/// Adds each distinct warning as a `Warning` header; truncates all when they are too
/// long together.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let mut distinct: Vec<&str> = Vec::new();
    for text in warnings {
        if !text.is_empty() && !distinct.contains(&text.as_str()) {
            distinct.push(text);
        }
    }
    let long = distinct.iter().map(|t| t.chars().count()).sum::<usize>() > WARNINGS_MAX;
    for text in distinct {
        let shown: String = if long {
            text.chars().take(WARNING_CUT).collect()
        } else {
            text.to_owned()
        };
        let quoted = shown.replace('\\', "\\\\").replace('"', "\\\"");
        let clean: String = quoted.chars().filter(|c| !c.is_control()).collect();
        if let Ok(header) = HeaderValue::from_bytes(format!("299 - \"{clean}\"").as_bytes()) {
            response.headers_mut().append(WARNING, header);
        }
    }
}

/// Writes a cacheable document with its ETag, or 304 when the client has it.
pub(crate) fn document(
    request: &http::HeaderMap,
    content_type: &'static str,
    etag: &str,
    bytes: &Bytes,
) -> Response<Body> {
    let quoted = format!("\"{etag}\"");
    let not_modified = request
        .get_all(http::header::IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|v| v.trim().trim_start_matches("W/") == quoted || v.trim() == "*");
    let mut response = if not_modified {
        let mut empty = Response::new(Body::empty());
        *empty.status_mut() = StatusCode::NOT_MODIFIED;
        empty
    } else {
        response(
            200,
            Body::full(bytes.clone()),
            HeaderValue::from_static(content_type),
        )
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(&quoted) {
        headers.insert(http::header::ETAG, tag);
    }
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// Writes the document of `/`.
pub(crate) fn paths(paths: &[String], form: Form) -> Response<Body> {
    value(200, &json!({ "paths": paths }), form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_items_make_a_document() {
        for (count, size) in [(0, 10), (1, 10), (3, 40_000), (2000, 300), (40, 70_000)] {
            let items: Vec<Bytes> = (0..count)
                .map(|n| {
                    let pad = "x".repeat(size);
                    format!("{{\"metadata\":{{\"name\":\"n{n}\"}},\"pad\":\"{pad}\"}}").into()
                })
                .collect();
            let head = "{\"items\":[".to_owned();
            let chunks: Vec<Bytes> = Joined::new(head, items.into_iter()).collect();
            let whole: Value = serde_json::from_slice(&chunks.concat()).unwrap();
            assert_eq!(whole["items"].as_array().unwrap().len(), count);
            assert!(chunks.iter().all(|c| c.len() < 2 * CHUNK + size));
        }
    }

    #[test]
    fn warnings_are_distinct_and_bounded() {
        let mut r = Response::new(Body::empty());
        warn(&mut r, &["a \"b\"".into(), "a \"b\"".into(), "c".into()]);
        let all: Vec<_> = r.headers().get_all(WARNING).iter().collect();
        assert_eq!(all, ["299 - \"a \\\"b\\\"\"", "299 - \"c\""]);
        let mut r = Response::new(Body::empty());
        warn(&mut r, &["x".repeat(5000)]);
        assert!(r.headers()[WARNING].len() < 300);
    }
}
