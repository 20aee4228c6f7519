//! Answers gets and lists of resources of members from the cache.

use http::{HeaderMap, Response};
use machinery::{Object, Status};
use members::MemberListRequest;
use openapi::KindInfo;
use serde_json::{Value, json};

use super::native_request::{MemberResourceReader, NativeRequest};
use crate::negotiation::{self, ProtobufOffer, Representation, ResponseFormat, ResponseOffer};
use crate::requestinfo::QueryParams;
use crate::response_body::ServerResponseBody;
use crate::response_writers::{self, ListResponse, ResponseOptions};
use crate::table::{self, IncludeObjectPolicy, TableKind};

/// The format of a response: objects of members are sent in JSON or YAML, and as tables.
pub(super) fn response_options(
    headers: &HeaderMap,
    query: &QueryParams,
) -> Result<ResponseOptions, Status> {
    let offer = ResponseOffer {
        tables: true,
        partial_metadata: true,
        protobuf: ProtobufOffer::Nothing,
    };
    Ok(ResponseOptions {
        format: negotiation::negotiate(headers, query, offer)?,
        gzip: negotiation::accepts_gzip(headers),
        include: IncludeObjectPolicy::parse(query.get("includeObject"))?,
    })
}

/// The format of a search: lists in JSON.
fn search_options(headers: &HeaderMap) -> ResponseOptions {
    ResponseOptions {
        format: ResponseFormat::PLAIN_JSON,
        gzip: negotiation::accepts_gzip(headers),
        include: IncludeObjectPolicy::None,
    }
}

/// The opening of a list of objects, up to its first item.
fn list_head(kind: &KindInfo, metadata: &str) -> String {
    format!(
        "{{\"kind\":{:?},\"apiVersion\":{:?},\"metadata\":{metadata},\"items\":[",
        kind.list_kind,
        kind.gvk.api_version()
    )
}

impl MemberResourceReader {
    pub(super) async fn get(
        &self,
        request: &NativeRequest,
        kind: &KindInfo,
        headers: &HeaderMap,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let options = response_options(headers, &request.query)?;
        let version = request.param("resourceVersion");
        let (gvr, namespace) = (request.gvr(), request.namespace(kind));
        let name = &request.resource.name;
        let object = self.cache.get(&gvr, namespace, name, version).await?;
        let bytes = match options.format.representation {
            Representation::Object => object.served_bytes(),
            Representation::Metadata { beta } => table::partial_object_metadata(&object, beta)?,
            Representation::Table { beta } => {
                let value = object.value().map_err(Status::internal)?;
                let metadata =
                    json!({"resourceVersion": value["metadata"]["resourceVersion"]}).to_string();
                let kind = self.table_kind(kind);
                let mut text = table::table_opening(kind, beta, &metadata, true);
                let now = self.clock.now();
                text.push_str(&table::table_row(
                    kind,
                    &object,
                    options.include,
                    beta,
                    now,
                )?);
                text.push_str("]}\n");
                text.into()
            }
            Representation::MetadataList { .. } => {
                return Err(Status::not_acceptable(&[negotiation::JSON]));
            }
        };
        Ok(response_writers::write_bytes(200, bytes, options))
    }

    pub(super) async fn list(
        &self,
        request: &NativeRequest,
        kind: &KindInfo,
        headers: &HeaderMap,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let options = response_options(headers, &request.query)?;
        let list = MemberListRequest {
            selection: request.selection(kind)?,
            resource_version: request.param("resourceVersion").to_owned(),
            resource_version_match: request.param("resourceVersionMatch").to_owned(),
            limit: usize::try_from(request.number("limit")?).unwrap_or(usize::MAX),
            continue_token: request.param("continue").to_owned(),
        };
        let page = self.cache.list(&request.gvr(), list).await?;
        let mut metadata = json!({"resourceVersion": page.resource_version});
        if let Some(token) = page.continue_token {
            metadata["continue"] = Value::from(token);
        }
        let items = (page.items, page.warnings);
        self.write_list(kind, metadata.to_string(), items, options)
            .await
    }

    /// The list of a search, which has no version.
    pub(super) async fn search(
        &self,
        request: &NativeRequest,
        kind: &KindInfo,
        headers: &HeaderMap,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let options = search_options(headers);
        let selection = request.selection(kind)?;
        let result = self.cache.search(&request.gvr(), selection).await?;
        let items = (result.items, result.warnings);
        self.write_list(kind, "{}".to_owned(), items, options).await
    }

    /// The list of a search for a kind that no ResourceRegistry selects; 404 if neither this
    /// server nor Kubernetes has the kind.
    pub(super) async fn empty_search(
        &self,
        request: &NativeRequest,
        headers: &HeaderMap,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let Some(kind) = self.known_kind(&request.gvr()) else {
            return Err(Status::path_not_found());
        };
        let options = search_options(headers);
        let no_items = (Vec::new(), Vec::new());
        self.write_list(&kind, "{}".to_owned(), no_items, options)
            .await
    }

    fn table_kind<'a>(&self, kind: &'a KindInfo) -> TableKind<'a> {
        TableKind {
            kind,
            with_cluster: self.with_cluster_column,
        }
    }

    async fn write_list(
        &self,
        kind: &KindInfo,
        metadata: String,
        (items, warnings): (Vec<Object>, Vec<String>),
        options: ResponseOptions,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let list = ListResponse {
            head: list_head(kind, &metadata),
            kind: self.table_kind(kind),
            metadata,
            items,
        };
        let now = self.clock.now();
        let mut response = response_writers::write_list_response(list, options, now).await?;
        response_writers::add_warnings(&mut response, &warnings);
        Ok(response)
    }
}
