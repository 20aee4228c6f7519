//! Serves the documents that are derived from the resource table: discovery and
//! OpenAPI.
//!
//! They are built when they are requested; OpenAPI is built on a blocking thread and kept
//! compressed.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, EXPIRES, HeaderValue, LAST_MODIFIED, LOCATION};
use http::{HeaderMap, Response, StatusCode};
use machinery::Status;
use openapi::publish;
use registry::{Registry, ResourceTable};
use tokio::sync::OnceCell;

use crate::compressed_document::{CompressedDocument, run_blocking};
use crate::discovery::DiscoveryDocuments;
use crate::negotiation::{self, ResponseFormat};
use crate::openapi_v3::OpenApiV3Documents;
use crate::requestinfo::QueryParams;
use crate::response_body::ServerResponseBody;
use crate::response_writers;
use crate::subresources::SubresourceConnectors;

const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The form that clients send in `Accept`; a content type may not contain `@`.
const V2_PROTOBUF_ACCEPT: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

struct OpenApiV2Documents {
    json: CompressedDocument,
    protobuf: CompressedDocument,
}

/// The documents of one resource table.
struct ApiDocuments {
    table: Arc<ResourceTable>,
    discovery: DiscoveryDocuments,
    v2: OnceCell<OpenApiV2Documents>,
    v3: OnceCell<Arc<OpenApiV3Documents>>,
}

/// The documents of the newest resource table.
pub(crate) struct CurrentApiDocuments {
    registry: Arc<Registry>,
    connectors: Arc<SubresourceConnectors>,
    current: ArcSwapOption<ApiDocuments>,
    /// The last ones that were built; the next ones share what did not change.
    latest_v3: ArcSwapOption<OpenApiV3Documents>,
    /// Host and port of this server.
    server_address: String,
    /// `Last-Modified` of OpenAPI v2: when this process started.
    last_modified: HeaderValue,
}

impl CurrentApiDocuments {
    pub(crate) fn new(
        registry: Arc<Registry>,
        connectors: Arc<SubresourceConnectors>,
        server_address: String,
        now: jiff::Timestamp,
    ) -> Self {
        let text = httpdate::fmt_http_date(now.into());
        Self {
            registry,
            connectors,
            current: ArcSwapOption::empty(),
            latest_v3: ArcSwapOption::empty(),
            server_address,
            last_modified: HeaderValue::from_str(&text)
                .unwrap_or_else(|_| HeaderValue::from_static("0")),
        }
    }

    fn table_documents(&self) -> Arc<ApiDocuments> {
        let table = self.registry.table();
        if let Some(current) = self.current.load_full()
            && Arc::ptr_eq(&current.table, &table)
        {
            return current;
        }
        let built = Arc::new(ApiDocuments {
            discovery: DiscoveryDocuments::new(
                Arc::clone(&table),
                Arc::clone(&self.connectors),
                self.server_address.clone(),
            ),
            table,
            v2: OnceCell::new(),
            v3: OnceCell::new(),
        });
        self.current.store(Some(Arc::clone(&built)));
        built
    }

    /// Serves discovery: the `/api` and `/apis` paths that are not resources.
    pub(crate) fn discovery(
        &self,
        headers: &HeaderMap,
        query: &QueryParams,
        path: &str,
    ) -> Option<Response<ServerResponseBody>> {
        self.table_documents().discovery.serve(headers, query, path)
    }

    /// The discovery paths, for the document of `/`.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.table_documents().discovery.paths()
    }

    /// Serves `/openapi/v2`.
    pub(crate) async fn v2(
        &self,
        headers: &HeaderMap,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let protobuf = wants_protobuf(headers)?;
        let generation = self.table_documents();
        let v2 = generation
            .v2
            .get_or_try_init(|| {
                let table = Arc::clone(&generation.table);
                run_blocking(move || build_v2(&table))
            })
            .await?;
        let mut response = if protobuf {
            v2.protobuf.response(headers, V2_PROTOBUF)
        } else {
            v2.json.response(headers, "application/json")
        };
        response
            .headers_mut()
            .insert(LAST_MODIFIED, self.last_modified.clone());
        Ok(response)
    }

    async fn v3_documents(&self) -> Result<Arc<OpenApiV3Documents>, Status> {
        let generation = self.table_documents();
        let built = generation.v3.get_or_try_init(async || {
            let table = Arc::clone(&generation.table);
            let before = self.latest_v3.load_full();
            let documents =
                run_blocking(move || OpenApiV3Documents::new(&table, before.as_deref())).await?;
            let documents = Arc::new(documents);
            self.latest_v3.store(Some(Arc::clone(&documents)));
            Ok::<_, Status>(documents)
        });
        built.await.cloned()
    }

    /// Serves `/openapi/v3` and the paths under it; `subpath` has no leading slash.
    pub(crate) async fn v3(
        &self,
        headers: &HeaderMap,
        query: &QueryParams,
        subpath: &str,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let documents = self.v3_documents().await?;
        if subpath.is_empty() {
            return Ok(response_writers::write_value(
                200,
                documents.index(),
                ResponseFormat::PLAIN_JSON,
            ));
        }
        let group_version = documents.find(subpath).ok_or_else(Status::path_not_found)?;
        let packed = group_version.compressed().await?;
        let Some(hash) = query.get("hash").filter(|h| !h.is_empty()) else {
            return Ok(packed.response(headers, "application/json"));
        };
        if hash != packed.etag {
            return redirect_to_hash(subpath, &packed.etag);
        }
        let mut response = packed.response(headers, "application/json");
        let headers = response.headers_mut();
        let for_ever = HeaderValue::from_static("public, immutable");
        headers.insert(CACHE_CONTROL, for_ever);
        let year = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(365 * 24);
        let expires = httpdate::fmt_http_date(year.into());
        if let Ok(value) = HeaderValue::from_str(&expires) {
            headers.insert(EXPIRES, value);
        }
        Ok(response)
    }
}

fn redirect_to_hash(path: &str, hash: &str) -> Result<Response<ServerResponseBody>, Status> {
    let mut response = Response::new(ServerResponseBody::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = HeaderValue::from_str(&format!("/openapi/v3/{path}?hash={hash}"))
        .map_err(Status::internal)?;
    response.headers_mut().insert(LOCATION, location);
    let text_plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(CONTENT_TYPE, text_plain);
    Ok(response)
}

fn wants_protobuf(headers: &HeaderMap) -> Result<bool, Status> {
    for clause in negotiation::accept_clauses(headers) {
        match &*clause.media_type {
            V2_PROTOBUF | V2_PROTOBUF_ACCEPT => return Ok(true),
            "application/json" | "*/*" | "application/*" => return Ok(false),
            _ => {}
        }
    }
    let served = ["application/json", V2_PROTOBUF_ACCEPT];
    Err(Status::not_acceptable(&served))
}

fn build_v2(table: &ResourceTable) -> OpenApiV2Documents {
    let resources: Vec<publish::PublishedResource<'_>> = table
        .resources()
        .iter()
        .map(|resource_info| publish::PublishedResource {
            kind: &resource_info.kind,
            schema: &resource_info.schema,
        })
        .collect();
    let document = publish::v2_document(&resources);
    let protobuf = CompressedDocument::new(&publish::v2_protobuf(&document));
    let json = CompressedDocument::new(document.to_string().as_bytes());
    OpenApiV2Documents { json, protobuf }
}
