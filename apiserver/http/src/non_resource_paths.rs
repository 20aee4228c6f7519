//! Serves the non-resource paths: probes, discovery, OpenAPI, metrics, version, backups and
//! the token issuer's documents.

use std::sync::Arc;

use auth::RequestAuthenticator;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response};
use machinery::{Status, UserInfo};
use serde_json::Value;

use crate::backup::{self, BACKUP_PATH, BackupOpener};
use crate::documents::CurrentApiDocuments;
use crate::dynamic_groups::DynamicGroups;
use crate::health::{self, HealthCheck};
use crate::metrics::ApiServerMetrics;
use crate::negotiation::{self, ResponseFormat, ResponseOffer};
use crate::profiling;
use crate::requestinfo::QueryParams;
use crate::response_body::ServerResponseBody;
use crate::response_writers;
use crate::version::VersionInfo;

/// The state that the non-resource paths show.
pub(crate) struct NonResourcePathHandler {
    pub(crate) checks: Vec<HealthCheck>,
    pub(crate) documents: CurrentApiDocuments,
    pub(crate) metrics: Arc<ApiServerMetrics>,
    pub(crate) version: VersionInfo,
    pub(crate) authenticator: Arc<RequestAuthenticator>,
    /// Whether profiles of this process are served.
    pub(crate) profiling: bool,
    /// Begins the backups of the store.
    pub(crate) backup: Option<BackupOpener>,
    pub(crate) dynamic_groups: Arc<DynamicGroups>,
}

impl NonResourcePathHandler {
    /// Serves GET of a non-resource path.
    pub(crate) async fn serve(
        &self,
        user: &UserInfo,
        path: &str,
        query: &QueryParams,
        headers: &HeaderMap,
    ) -> Result<Response<ServerResponseBody>, Status> {
        if let Some(response) = health::serve(&self.checks, &self.metrics, path, query) {
            return Ok(response);
        }
        let dynamic = &self.dynamic_groups;
        if let Some(served) = dynamic.serve_discovery(path, user, query, headers).await {
            return served;
        }
        if let Some(response) = self.documents.discovery(headers, query, path) {
            return Ok(response);
        }
        let form = || negotiation::negotiate(headers, query, ResponseOffer::default());
        match path {
            "/version" => Ok(response_writers::write_value(
                200,
                &self.version.to_json(),
                form()?,
            )),
            "/metrics" => Ok(prometheus_response(self.metrics.text())),
            "/metrics/slis" => Ok(prometheus_response(self.metrics.slis_text())),
            "/openapi/v2" => self.documents.v2(headers).await,
            "/" => Ok(response_writers::write_paths(&self.all_paths(), form()?)),
            "/openid/v1/jwks" => Ok(issuer_response(&self.token_issuer()?.jwks())),
            "/.well-known/openid-configuration" => {
                let issuer = self.token_issuer()?;
                let uri = format!("{}/openid/v1/jwks", issuer.issuer());
                Ok(issuer_response(&issuer.openid_configuration(&uri)))
            }
            BACKUP_PATH => {
                let open = self.backup.as_ref().ok_or_else(Status::page_not_found)?;
                backup::serve(open).await
            }
            _ if self.profiling && path.starts_with(profiling::INDEX_PATH) => {
                profiling::serve(path, query).await
            }
            _ => match path.strip_prefix("/openapi/v3") {
                Some("") => self.documents.v3(headers, query, "").await,
                Some(below) if below.starts_with('/') => {
                    self.documents.v3(headers, query, &below[1..]).await
                }
                _ => Err(Status::page_not_found()),
            },
        }
    }

    fn token_issuer(&self) -> Result<&auth::token::ServiceAccountTokens, Status> {
        let issuer = self.authenticator.token_issuer();
        issuer.ok_or_else(Status::path_not_found)
    }

    fn all_paths(&self) -> Vec<String> {
        let mut all = self.documents.paths();
        let fixed = [
            "/healthz",
            "/livez",
            "/metrics",
            "/metrics/slis",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ];
        all.extend(fixed.map(str::to_owned));
        if self.authenticator.token_issuer().is_some() {
            let issuing = ["/.well-known/openid-configuration", "/openid/v1/jwks"];
            all.extend(issuing.map(str::to_owned));
        }
        for check in &self.checks {
            all.push(format!("/readyz/{}", check.name));
            if check.live {
                all.push(format!("/livez/{}", check.name));
                all.push(format!("/healthz/{}", check.name));
            }
        }
        all.sort_unstable();
        all
    }
}

/// A document about the issuer of service account tokens.
fn issuer_response(document: &Value) -> Response<ServerResponseBody> {
    response_writers::write_value(200, document, ResponseFormat::PLAIN_JSON)
}

/// Metrics in Prometheus' text format.
fn prometheus_response(text: Vec<u8>) -> Response<ServerResponseBody> {
    let mut response = Response::new(ServerResponseBody::full(text));
    let format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, format);
    response
}
