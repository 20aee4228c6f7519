//! Writes responses in the negotiated format: objects, lists and errors
//! (kube-apiserver's `responsewriters`).
//!
//! Lists are spliced from shared bytes, chunk by chunk. Tables and metadata lists are
//! rendered before anything is sent: an object that cannot be rendered fails the whole
//! list, as in kube-apiserver (`endpoints/handlers/response.go`).

use std::collections::HashSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY, WARNING,
};
use http::{Response, StatusCode};
use machinery::{Object, Status, json};
use registry::{ObjectListPage, ResourceInfo};
use serde_json::{Value, json};

use crate::negotiation::{self, Representation, ResponseFormat, ResponseSerialization};
use crate::protobuf_responses;
use crate::response_body::{BodyChunkIterator, ITEMS_PER_YIELD, ServerResponseBody};
use crate::table;

/// Shorter responses are not compressed (`responsewriters`).
const GZIP_MIN_BYTES: u64 = 128 * 1024;
/// A value that is nested deeper is written without indentation.
const MAX_INDENTED_DEPTH: usize = 128;
/// Small objects are gathered into chunks of about this size.
const LIST_CHUNK_BYTES: usize = 64 * 1024;
/// Characters of all warnings together above which each is truncated.
const MAX_WARNING_CHARS: usize = 4096;
const TRUNCATED_WARNING_CHARS: usize = 256;

/// How to write the response of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseOptions {
    pub(crate) format: ResponseFormat,
    pub(crate) gzip: bool,
    /// `includeObject` of tables.
    pub(crate) include: table::IncludeObjectPolicy,
}

fn media_type_header(encoding: ResponseSerialization) -> HeaderValue {
    HeaderValue::from_static(match encoding {
        ResponseSerialization::Json => negotiation::JSON,
        ResponseSerialization::Yaml => negotiation::YAML,
        ResponseSerialization::Protobuf => negotiation::PROTOBUF,
    })
}

fn new_response(
    code: u16,
    body: ServerResponseBody,
    content_type: HeaderValue,
) -> Response<ServerResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Writes a `Status`: a failure, or the success of a deletion.
pub(crate) fn write_status(status: &Status, form: ResponseFormat) -> Response<ServerResponseBody> {
    let code = if status.code == 0 { 200 } else { status.code };
    if status.is_plain_text() {
        return write_text(code, format!("{}\n", status.message));
    }
    let mut response = write_value(code, &status.to_json(), form);
    if let Some(details) = &status.details
        && details.retry_after_seconds > 0
    {
        response
            .headers_mut()
            .insert(RETRY_AFTER, details.retry_after_seconds.into());
    }
    add_warnings(&mut response, &status.warnings);
    response
}

/// Writes a JSON value.
pub(crate) fn write_value(
    code: u16,
    value: &Value,
    form: ResponseFormat,
) -> Response<ServerResponseBody> {
    if form.encoding == ResponseSerialization::Protobuf {
        // A value without a protobuf form, such as a discovery document, is sent as JSON.
        return match protobuf_responses::encode_value(value) {
            Ok(bytes) => new_response(
                code,
                ServerResponseBody::full(bytes),
                media_type_header(form.encoding),
            ),
            Err(_) => write_value(code, value, ResponseFormat::PLAIN_JSON),
        };
    }
    // Indentation would make a deep value many times as large. JSON is YAML, too.
    let is_indented = json::depth(value) <= MAX_INDENTED_DEPTH;
    let text = match (form.encoding, form.pretty) {
        (ResponseSerialization::Yaml, _) if is_indented => match serde_saphyr::to_string(value) {
            Ok(text) => text,
            Err(e) => return write_status(&Status::internal(e), ResponseFormat::PLAIN_JSON),
        },
        (_, true) if is_indented => {
            let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
            text.push('\n');
            text
        }
        _ => {
            let mut text = value.to_string();
            text.push('\n');
            text
        }
    };
    new_response(
        code,
        ServerResponseBody::full(text),
        media_type_header(form.encoding),
    )
}

/// Writes plain text, as the health endpoints do.
pub(crate) fn write_text(code: u16, text: String) -> Response<ServerResponseBody> {
    let text_plain = HeaderValue::from_static("text/plain; charset=utf-8");
    let mut response = new_response(code, ServerResponseBody::full(text), text_plain);
    response.headers_mut().insert(
        "x-content-type-options",
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Writes chunks, compressed when the client accepts gzip and `size` is large enough.
/// With `exact`, `size` becomes the content length.
fn write_chunks(
    code: u16,
    chunks: BodyChunkIterator,
    size: u64,
    exact: bool,
    options: ResponseOptions,
) -> Response<ServerResponseBody> {
    let protobuf = options.format.encoding == ResponseSerialization::Protobuf;
    if !protobuf
        && (options.format.pretty || options.format.encoding == ResponseSerialization::Yaml)
    {
        let bytes: Vec<u8> = chunks.flatten().collect();
        return match json::from_slice(&bytes) {
            Ok(tree) => write_value(code, &tree, options.format),
            Err(e) => write_status(&Status::internal(e), ResponseFormat::PLAIN_JSON),
        };
    }
    let gzip = options.gzip && size > GZIP_MIN_BYTES;
    let body = if gzip {
        ServerResponseBody::gzip(chunks)
    } else if exact {
        ServerResponseBody::chunks(chunks, Some(size))
    } else {
        ServerResponseBody::chunks(chunks, None)
    };
    let mut response = new_response(code, body, media_type_header(options.format.encoding));
    if gzip {
        let headers = response.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Writes one object.
pub(crate) fn write_object(
    code: u16,
    resource_info: &ResourceInfo,
    object: &Object,
    options: ResponseOptions,
    now: jiff::Timestamp,
) -> Result<Response<ServerResponseBody>, Status> {
    if options.format.encoding == ResponseSerialization::Protobuf {
        let bytes: Bytes =
            protobuf_responses::encode_object(object, options.format.representation)?.into();
        return Ok(write_bytes(code, bytes, options));
    }
    let bytes = match options.format.representation {
        Representation::Object => object.served_bytes(),
        Representation::Metadata { beta } => table::partial_object_metadata(object, beta)?,
        Representation::MetadataList { .. } => {
            return Err(not_a_list(resource_info));
        }
        Representation::Table { beta } => {
            let kind = &resource_info.kind;
            let mut text = table::table_opening(
                kind,
                beta,
                &table::list_metadata(Some(object.revision()), None, None),
                true,
            );
            text.push_str(&table::table_row(kind, object, options.include, beta, now)?);
            text.push_str("]}\n");
            text.into()
        }
    };
    Ok(write_bytes(code, bytes, options))
}

/// Writes an encoded object.
pub(crate) fn write_bytes(
    code: u16,
    bytes: Bytes,
    options: ResponseOptions,
) -> Response<ServerResponseBody> {
    let size = bytes.len() as u64;
    let chunks = Box::new(std::iter::once(bytes));
    write_chunks(code, chunks, size, true, options)
}

/// The list's text up to its items.
fn list_head(list: &ObjectListPage) -> String {
    let metadata = table::list_metadata(
        list.revision,
        list.continue_token.as_deref(),
        list.remaining_item_count,
    );
    // The lists of kinds without a Go type have the field also when it is empty.
    let metadata = match list.continue_token.as_deref() {
        None | Some("") if list.revision.is_some() && !list.resource.has_go_type() => {
            metadata.replacen('{', "{\"continue\":\"\",", 1)
        }
        _ => metadata,
    };
    let kind = &list.resource.kind;
    format!(
        "{{\"kind\":{:?},\"apiVersion\":{:?},\"metadata\":{metadata},\"items\":[",
        kind.list_kind,
        kind.gvk.api_version()
    )
}

/// The whole text of a list.
pub(crate) fn encode_list(list: &ObjectListPage) -> Vec<u8> {
    let items = list.items.iter().map(Object::served_bytes);
    ListResponseChunks::new(list_head(list), items)
        .flatten()
        .collect()
}

/// Writes a list.
pub(crate) async fn write_list(
    list: ObjectListPage,
    options: ResponseOptions,
    now: jiff::Timestamp,
) -> Result<Response<ServerResponseBody>, Status> {
    let metadata = table::list_metadata(
        list.revision,
        list.continue_token.as_deref(),
        list.remaining_item_count,
    );
    if options.format.encoding == ResponseSerialization::Protobuf {
        let bytes: Bytes = protobuf_responses::encode_list(&list, options.format.representation)
            .await?
            .into();
        return Ok(write_bytes(200, bytes, options));
    }
    let kind = Arc::clone(&list.resource.kind);
    let response = ListResponse {
        head: list_head(&list),
        kind: (&*kind).into(),
        metadata,
        items: list.items,
    };
    write_list_response(response, options, now).await
}

/// A list to write in JSON.
pub(crate) struct ListResponse<'a> {
    /// The list up to its first item.
    pub(crate) head: String,
    pub(crate) kind: table::TableKind<'a>,
    /// The metadata of a table, or of a list of metadata.
    pub(crate) metadata: String,
    pub(crate) items: Vec<Object>,
}

/// Writes a list in a representation that is not protobuf.
pub(crate) async fn write_list_response(
    list: ListResponse<'_>,
    options: ResponseOptions,
    now: jiff::Timestamp,
) -> Result<Response<ServerResponseBody>, Status> {
    let ListResponse {
        head,
        kind,
        metadata,
        items,
    } = list;
    match options.format.representation {
        Representation::Object => {
            let sum = items.iter().map(Object::served_len).sum();
            let count = items.len();
            // Managers are inserted into one item after the other.
            let items = items.into_iter().map(|o| o.served_bytes());
            Ok(write_joined_items(head, items, (count, sum), options))
        }
        Representation::MetadataList { beta } => {
            let head = format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":{:?},\"metadata\":{metadata},\"items\":[",
                table::meta_api_version(beta)
            );
            let items = render_items(&items, |o| table::partial_object_metadata(o, beta));
            Ok(write_rendered_items(head, items.await?, options))
        }
        Representation::Table { beta } => {
            let head = table::table_opening(kind, beta, &metadata, true);
            let show =
                |o: &Object| table::table_row(kind, o, options.include, beta, now).map(Bytes::from);
            Ok(write_rendered_items(
                head,
                render_items(&items, show).await?,
                options,
            ))
        }
        Representation::Metadata { .. } => Err(Status::not_acceptable(&["application/json"])),
    }
}

/// Renders every item; fails with the error of the first that cannot be rendered.
async fn render_items(
    items: &[Object],
    show: impl Fn(&Object) -> Result<Bytes, Status>,
) -> Result<Vec<Bytes>, Status> {
    let mut rendered = Vec::with_capacity(items.len());
    for chunk in items.chunks(ITEMS_PER_YIELD) {
        if !rendered.is_empty() {
            tokio::task::yield_now().await;
        }
        for object in chunk {
            rendered.push(show(object)?);
        }
    }
    Ok(rendered)
}

/// Writes a list of rendered items.
fn write_rendered_items(
    head: String,
    items: Vec<Bytes>,
    options: ResponseOptions,
) -> Response<ServerResponseBody> {
    let sizes = (items.len(), items.iter().map(Bytes::len).sum());
    write_joined_items(head, items.into_iter(), sizes, options)
}

/// Writes a list of items, of which the number and the sum of their sizes are known.
fn write_joined_items(
    head: String,
    items: impl Iterator<Item = Bytes> + Send + 'static,
    (count, sum): (usize, usize),
    options: ResponseOptions,
) -> Response<ServerResponseBody> {
    let commas = count.saturating_sub(1);
    let size = (head.len() + sum + commas + ListResponseChunks::TAIL.len()) as u64;
    let chunks = ListResponseChunks::new(head, items);
    write_chunks(200, Box::new(chunks), size, true, options)
}

/// Gathers the list's head, the comma-separated items and the closing brackets into
/// chunks; an item of half a chunk or more is passed on without copying.
struct ListResponseChunks<I> {
    buffer: BytesMut,
    items: I,
    large_item: Option<Bytes>,
    first: bool,
    done: bool,
}

impl ListResponseChunks<()> {
    const TAIL: &str = "]}\n";
}

impl<I: Iterator<Item = Bytes>> ListResponseChunks<I> {
    fn new(head: String, items: I) -> Self {
        Self {
            buffer: BytesMut::from(head.as_bytes()),
            items,
            large_item: None,
            first: true,
            done: false,
        }
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for ListResponseChunks<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(large) = self.large_item.take() {
            return Some(large);
        }
        if self.done {
            return None;
        }
        self.buffer.reserve(LIST_CHUNK_BYTES);
        while self.buffer.len() < LIST_CHUNK_BYTES {
            let Some(bytes) = self.items.next() else {
                self.done = true;
                self.buffer
                    .extend_from_slice(ListResponseChunks::TAIL.as_bytes());
                break;
            };
            if !std::mem::replace(&mut self.first, false) {
                self.buffer.extend_from_slice(b",");
            }
            if bytes.len() >= LIST_CHUNK_BYTES / 2 && !self.buffer.is_empty() {
                self.large_item = Some(bytes);
                break;
            }
            self.buffer.extend_from_slice(&bytes);
        }
        Some(self.buffer.split().freeze())
    }
}

/// Adds each distinct warning as a `Warning` header. If the warnings are too long together, each is
/// truncated, and warnings beyond the total length are omitted.
pub(crate) fn add_warnings(response: &mut Response<ServerResponseBody>, warnings: &[String]) {
    let mut distinct_texts = HashSet::new();
    let texts = warnings.iter().map(String::as_str);
    let distinct: Vec<&str> = texts
        .filter(|text| !text.is_empty() && distinct_texts.insert(*text))
        .take(MAX_WARNING_CHARS)
        .collect();
    let is_truncated =
        distinct.iter().map(|t| t.chars().count()).sum::<usize>() > MAX_WARNING_CHARS;
    let mut added = 0;
    for text in distinct {
        if added > MAX_WARNING_CHARS {
            return;
        }
        let truncated: String = if is_truncated {
            text.chars().take(TRUNCATED_WARNING_CHARS).collect()
        } else {
            text.to_owned()
        };
        added += truncated.chars().count();
        let quoted = truncated.replace('\\', "\\\\").replace('"', "\\\"");
        let printable: String = quoted.chars().filter(|c| !c.is_control()).collect();
        if let Ok(header) = HeaderValue::from_bytes(format!("299 - \"{printable}\"").as_bytes()) {
            response.headers_mut().append(WARNING, header);
        }
    }
}

/// Writes a cacheable document with its ETag, or 304 when the client has it.
pub(crate) fn write_document(
    request: &http::HeaderMap,
    content_type: &'static str,
    etag: &str,
    bytes: &Bytes,
) -> Response<ServerResponseBody> {
    let quoted = format!("\"{etag}\"");
    let not_modified = request
        .get_all(http::header::IF_NONE_MATCH)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .any(|v| v.trim().trim_start_matches("W/") == quoted || v.trim() == "*");
    let mut response = if not_modified {
        let mut empty = Response::new(ServerResponseBody::empty());
        *empty.status_mut() = StatusCode::NOT_MODIFIED;
        empty
    } else {
        new_response(
            200,
            ServerResponseBody::full(bytes.clone()),
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
pub(crate) fn write_paths(paths: &[String], form: ResponseFormat) -> Response<ServerResponseBody> {
    write_value(200, &json!({ "paths": paths }), form)
}

/// The error for an object that is requested as a list of metadata.
fn not_a_list(info: &ResourceInfo) -> Status {
    if !info.has_go_type() {
        return Status::failure(500, "", "content is not a list");
    }
    let object = format!("*{}.{}", info.go_package(), info.kind.gvk.kind);
    Status::failure(
        406,
        "NotAcceptable",
        format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({object})"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_chunks_form_valid_json() {
        for (count, size) in [(0, 10), (1, 10), (3, 40_000), (2000, 300), (40, 70_000)] {
            let items: Vec<Bytes> = (0..count)
                .map(|n| {
                    let pad = "x".repeat(size);
                    format!("{{\"metadata\":{{\"name\":\"n{n}\"}},\"pad\":\"{pad}\"}}").into()
                })
                .collect();
            let head = "{\"items\":[".to_owned();
            let chunks: Vec<Bytes> = ListResponseChunks::new(head, items.into_iter()).collect();
            let list: Value = json::from_slice(&chunks.concat()).unwrap();
            assert_eq!(list["items"].as_array().unwrap().len(), count);
            assert!(chunks.iter().all(|c| c.len() < 2 * LIST_CHUNK_BYTES + size));
        }
    }

    #[test]
    fn warnings_are_distinct_and_bounded() {
        let mut r = Response::new(ServerResponseBody::empty());
        add_warnings(&mut r, &["a \"b\"".into(), "a \"b\"".into(), "c".into()]);
        let all: Vec<_> = r.headers().get_all(WARNING).iter().collect();
        assert_eq!(all, ["299 - \"a \\\"b\\\"\"", "299 - \"c\""]);
        let mut r = Response::new(ServerResponseBody::empty());
        add_warnings(&mut r, &["x".repeat(5000)]);
        assert!(r.headers()[WARNING].len() < 300);
        let mut r = write_text(200, String::new());
        let long_warnings: Vec<String> = (0..1000).map(|i| format!("{i} is wrong")).collect();
        add_warnings(&mut r, &long_warnings);
        let headers = r.headers().get_all(WARNING).iter();
        let length: usize = headers.map(HeaderValue::len).sum();
        assert!(length < 3 * MAX_WARNING_CHARS, "{length}");
    }
}
