//! Serves the documents that are derived from the resource table: discovery and
//! OpenAPI.
//!
//! They are built on the first request after the table changes; OpenAPI is built on a
//! blocking thread and kept compressed.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, EXPIRES, HeaderValue, LAST_MODIFIED, LOCATION,
    VARY,
};
use http::{HeaderMap, Response, StatusCode};
use machinery::Status;
use openapi::publish;
use registry::{Registry, Table};
use serde_json::Value;
use sha2::{Digest, Sha512};
use tokio::sync::OnceCell;

use crate::body::Body;
use crate::discovery::Discovery;
use crate::negotiation::{self, Form};
use crate::reply;
use crate::requestinfo::Query;

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// As clients send it in `Accept`; a content type may not contain `@`.
const V2_PROTOBUF_ASKED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

/// A gzipped document and its ETag.
struct Packed {
    gzip: Bytes,
    etag: String,
}

impl Packed {
    fn new(bytes: &[u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Writing to a vector cannot fail.
        let _ = encoder.write_all(bytes);
        let etag = Sha512::digest(bytes)
            .iter()
            .map(|b| format!("{b:02X}"))
            .collect();
        Self {
            gzip: encoder.finish().unwrap_or_default().into(),
            etag,
        }
    }

    fn reply(&self, headers: &HeaderMap, content_type: &'static str) -> Response<Body> {
        if negotiation::takes_gzip(headers) {
            let mut response = reply::document(headers, content_type, &self.etag, &self.gzip);
            if response.status() == StatusCode::OK {
                let gzip = HeaderValue::from_static("gzip");
                response.headers_mut().insert(CONTENT_ENCODING, gzip);
            }
            let vary = HeaderValue::from_static("Accept, Accept-Encoding");
            response.headers_mut().insert(VARY, vary);
            return response;
        }
        let mut plain = Vec::new();
        let _ = GzDecoder::new(&self.gzip[..]).read_to_end(&mut plain);
        reply::document(headers, content_type, &self.etag, &plain.into())
    }
}

struct V2 {
    json: Packed,
    protobuf: Packed,
}

struct V3 {
    index: Value,
    /// By `api/v1` or `apis/GROUP/VERSION`.
    groups: Vec<(String, Packed)>,
}

/// The documents of one resource table.
struct Generation {
    table: Arc<Table>,
    discovery: Discovery,
    v2: OnceCell<V2>,
    v3: OnceCell<V3>,
}

/// The documents of the newest resource table.
pub(crate) struct Documents {
    registry: Arc<Registry>,
    newest: ArcSwapOption<Generation>,
    /// `Last-Modified` of OpenAPI v2: when this process started.
    since: HeaderValue,
}

impl Documents {
    pub(crate) fn new(registry: Arc<Registry>, now: jiff::Timestamp) -> Self {
        let text = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        Self {
            registry,
            newest: ArcSwapOption::empty(),
            since: HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("0")),
        }
    }

    fn generation(&self) -> Arc<Generation> {
        let table = self.registry.table();
        if let Some(current) = self.newest.load_full()
            && Arc::ptr_eq(&current.table, &table)
        {
            return current;
        }
        let built = Arc::new(Generation {
            discovery: Discovery::new(&table),
            table,
            v2: OnceCell::new(),
            v3: OnceCell::new(),
        });
        self.newest.store(Some(Arc::clone(&built)));
        built
    }

    /// Serves discovery: the `/api` and `/apis` paths that are not resources.
    pub(crate) fn discovery(
        &self,
        headers: &HeaderMap,
        query: &Query,
        path: &str,
    ) -> Option<Response<Body>> {
        self.generation().discovery.answer(headers, query, path)
    }

    /// The discovery paths, for the document of `/`.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.generation().discovery.paths().cloned().collect()
    }

    /// Serves `/openapi/v2`.
    pub(crate) async fn v2(&self, headers: &HeaderMap) -> Result<Response<Body>, Status> {
        let protobuf = wants_protobuf(headers)?;
        let generation = self.generation();
        let v2 = generation
            .v2
            .get_or_try_init(|| {
                let table = Arc::clone(&generation.table);
                beside(move || make_v2(&table))
            })
            .await?;
        let mut response = if protobuf {
            v2.protobuf.reply(headers, V2_PROTOBUF)
        } else {
            v2.json.reply(headers, "application/json")
        };
        response
            .headers_mut()
            .insert(LAST_MODIFIED, self.since.clone());
        Ok(response)
    }

    /// Serves `/openapi/v3` and the paths under it; `below` has no leading slash.
    pub(crate) async fn v3(
        &self,
        headers: &HeaderMap,
        query: &Query,
        below: &str,
    ) -> Result<Response<Body>, Status> {
        let generation = self.generation();
        let v3 = generation
            .v3
            .get_or_try_init(|| {
                let table = Arc::clone(&generation.table);
                beside(move || make_v3(&table))
            })
            .await?;
        if below.is_empty() {
            return Ok(reply::value(200, &v3.index, Form::PLAIN));
        }
        let (path, packed) = v3
            .groups
            .iter()
            .find(|(path, _)| path == below)
            .ok_or_else(Status::no_such_path)?;
        let Some(hash) = query.get("hash").filter(|h| !h.is_empty()) else {
            return Ok(packed.reply(headers, "application/json"));
        };
        if hash != packed.etag {
            return moved(path, &packed.etag);
        }
        let mut response = packed.reply(headers, "application/json");
        let headers = response.headers_mut();
        let for_ever = HeaderValue::from_static("public, immutable");
        headers.insert(CACHE_CONTROL, for_ever);
        let year = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(365 * 24);
        let expires = year.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        if let Ok(value) = HeaderValue::from_str(&expires) {
            headers.insert(EXPIRES, value);
        }
        Ok(response)
    }
}

fn moved(path: &str, hash: &str) -> Result<Response<Body>, Status> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let to = HeaderValue::from_str(&format!("/openapi/v3/{path}?hash={hash}"))
        .map_err(Status::internal)?;
    response.headers_mut().insert(LOCATION, to);
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
}

fn wants_protobuf(headers: &HeaderMap) -> Result<bool, Status> {
    for clause in negotiation::clauses(headers) {
        match clause.media {
            V2_PROTOBUF | V2_PROTOBUF_ASKED => return Ok(true),
            "application/json" | "*/*" | "application/*" => return Ok(false),
            _ => {}
        }
    }
    let served = ["application/json", V2_PROTOBUF_ASKED];
    Err(Status::not_acceptable(&served))
}

/// Runs long CPU-bound work on a blocking thread.
async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Status> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Status::internal("building the document panicked"))
}

fn make_v2(table: &Table) -> V2 {
    let resources: Vec<publish::Resource<'_>> = table
        .rows()
        .iter()
        .map(|resource_info| publish::Resource {
            kind: &resource_info.kind,
            schema: &resource_info.schema,
        })
        .collect();
    let document = publish::v2(&resources);
    let protobuf = Packed::new(&publish::v2_protobuf(&document));
    let json = Packed::new(document.to_string().as_bytes());
    V2 { json, protobuf }
}

fn make_v3(table: &Table) -> V3 {
    let mut groups = Vec::new();
    let mut hashes = Vec::new();
    for group in table.groups() {
        for version in &group.versions {
            let path = if group.name.is_empty() {
                format!("api/{}", version.version)
            } else {
                format!("apis/{}/{}", group.name, version.version)
            };
            let resources: Vec<publish::Resource<'_>> = version
                .rows
                .iter()
                .map(|resource_info| publish::Resource {
                    kind: &resource_info.kind,
                    schema: &resource_info.schema,
                })
                .collect();
            let document = publish::v3_group(&resources).to_string();
            let packed = Packed::new(document.as_bytes());
            hashes.push((path.clone(), packed.etag.clone()));
            groups.push((path, packed));
        }
    }
    V3 {
        index: publish::v3_index(&hashes),
        groups,
    }
}
