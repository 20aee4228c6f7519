//! Handles requests on resources: maps verb and body to a registry call and writes its
//! result (kube-apiserver's `endpoints/handlers`).

use std::sync::Arc;
use std::time::Duration;

use client::{At, Patch};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use machinery::{Gvr, Status, UserInfo};
use registry::{Ctx, Deleted, Row, Written, options};
use tokio::time::Instant;

use crate::app::{App, resource_target};
use crate::body::Body;
use crate::connect::Connection;
use crate::decode;
use crate::negotiation::{self, BodyType, Encoding, View};
use crate::reply::{self, Shape};
use crate::requestinfo::{Query, Resource};
use crate::table::Include;
use crate::watch;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// An authorized request on a resource.
pub(crate) struct Call {
    pub(crate) user: Arc<UserInfo>,
    pub(crate) verb: &'static str,
    pub(crate) resource: Resource,
    pub(crate) query: Query,
    pub(crate) deadline: Option<Instant>,
}

/// Handles one [`ResourceCall`]; holds the resource and context looked up for it.
struct Found<'a> {
    app: &'a App,
    call: &'a Call,
    row: Arc<Row>,
    ctx: Ctx,
}

impl App {
    pub(crate) async fn resource(
        &self,
        call: Call,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Status> {
        let r = &call.resource;
        if let Some(connector) = self.connector(r) {
            let connection = Connection {
                user: call.user,
                namespace: r.namespace.clone(),
                name: r.name.clone(),
                tail: r.tail.clone(),
                deadline: call.deadline,
                closing: self.ending.begun().into(),
                request,
            };
            return connector.connect(connection).await;
        }
        call.query.check()?;
        let gvr = Gvr::new(&r.group, &r.version, &r.resource);
        let resource_info = self.registry().served(&gvr).await?;
        allowed(&resource_info, &call)?;
        let handler = Found {
            app: self,
            ctx: Ctx {
                user: Arc::clone(&call.user),
                deadline: call.deadline,
            },
            call: &call,
            row: resource_info,
        };
        let headers = request.headers().clone();
        match call.verb {
            "get" => handler.get(&headers).await,
            "list" => handler.list(&headers).await,
            "watch" => handler.watch(&headers).await,
            "create" => handler.create(&headers, request.into_body()).await,
            "update" => handler.update(&headers, request.into_body()).await,
            "patch" => handler.patch(&headers, request.into_body()).await,
            "delete" => handler.delete(&headers, request.into_body()).await,
            "deletecollection" => handler.delete_all(&headers, request.into_body()).await,
            _ => Err(Status::method_not_allowed()),
        }
    }
}

/// Checks that the resource has this verb at this path; 404 and 405 as from
/// kube-apiserver's routes.
fn allowed(resource_info: &Row, call: &Call) -> Result<(), Status> {
    let (r, verb) = (&call.resource, call.verb);
    let kind = &resource_info.kind;
    let refused = || Err(Status::method_not_allowed());
    if !kind.namespaced && !r.namespace.is_empty() && r.namespace != r.name {
        return Err(Status::no_such_path());
    }
    if kind.namespaced && r.namespace.is_empty() {
        if r.named {
            return Err(Status::no_such_path());
        }
        if !matches!(verb, "list" | "watch") {
            return refused();
        }
    }
    if !r.subresource.is_empty() {
        let sub = resource_info
            .subresource(&r.subresource)
            .ok_or_else(Status::no_such_path)?;
        return match sub.verbs.contains(&verb) && r.tail.trim_matches('/').is_empty() {
            true => Ok(()),
            false => refused(),
        };
    }
    let fits = match verb {
        "create" => !r.named,
        "get" | "update" | "patch" | "delete" => r.named,
        _ => true,
    };
    if fits && resource_info.allows(verb) {
        Ok(())
    } else {
        refused()
    }
}

impl Found<'_> {
    fn at(&self) -> At<'_> {
        let r = &self.call.resource;
        At {
            resource: &self.row.kind.gvr,
            namespace: if self.row.kind.namespaced {
                &r.namespace
            } else {
                ""
            },
            name: if r.named { &r.name } else { "" },
            subresource: &r.subresource,
        }
    }

    fn shape(&self, headers: &HeaderMap) -> Result<Shape, Status> {
        let views = matches!(self.call.resource.subresource.as_str(), "" | "status");
        Ok(Shape {
            form: negotiation::reply(headers, &self.call.query, views)?,
            gzip: negotiation::takes_gzip(headers),
            include: Include::parse(self.call.query.get("includeObject"))?,
        })
    }

    /// Runs one of the registry's option parsers on the query.
    fn with_query<T>(
        &self,
        parse: impl FnOnce(options::Query<'_>) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let query = &self.call.query;
        parse(&|key| {
            // Every value of dryRun counts: the parser gets the first that is not All
            // and refuses it.
            let refused = match key {
                "dryRun" => query.all(key).find(|v| *v != "All"),
                _ => None,
            };
            refused.or_else(|| query.get(key)).map(str::to_owned)
        })
    }

    async fn get(&self, headers: &HeaderMap) -> Result<Response<Body>, Status> {
        let response_options = self.shape(headers)?;
        if let Some(getter) = self.app.teller(&self.call.resource) {
            let at = self.at();
            let value = getter.tell(at.namespace, at.name).await?;
            return Ok(reply::value(200, &value, response_options.form));
        }
        let options = self.with_query(|q| Ok(options::get(q)))?;
        let registry = self.app.registry();
        let object = registry.get(&self.ctx, self.at(), &options).await?;
        reply::object(200, &self.row, &object, response_options, self.app.now())
    }

    async fn list(&self, headers: &HeaderMap) -> Result<Response<Body>, Status> {
        let response_options = self.shape(headers)?;
        if matches!(response_options.form.view, View::Metadata { .. }) {
            return Err(Status::not_acceptable(&[negotiation::JSON]));
        }
        let options = self.with_query(|q| options::list(q))?;
        let registry = self.app.registry();
        let list = registry.list(&self.ctx, self.at(), &options).await?;
        reply::list(list, response_options, self.app.now()).await
    }

    async fn watch(&self, headers: &HeaderMap) -> Result<Response<Body>, Status> {
        let response_options = self.shape(headers)?;
        if response_options.form.encoding != Encoding::Json {
            return Err(Status::not_acceptable(&[negotiation::JSON]));
        }
        let options = self.with_query(|q| options::watch(q))?;
        let watch = self
            .app
            .registry()
            .watch(&self.ctx, self.at(), &options)
            .await?;
        let gvr = &self.row.kind.gvr;
        let events = watch::events(
            watch,
            Arc::clone(&self.row),
            response_options,
            self.app.clock(),
            self.app.leaving(),
            self.app
                .metrics
                .watch_events(&gvr.group, &gvr.version, &gvr.resource),
        );
        let mut response = Response::new(Body::events(events));
        let json = http::HeaderValue::from_static(negotiation::JSON);
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, json);
        Ok(response)
    }

    /// Reads and decodes the object in a request body.
    async fn body(&self, headers: &HeaderMap, body: Incoming) -> Result<registry::Body, Status> {
        // Subresources have kinds of their own, most of them with a protobuf form.
        let proto = self.row.kind.proto
            || (!self.row.custom
                && !matches!(self.call.resource.subresource.as_str(), "" | "status"));
        let body_type = negotiation::body_type(headers, proto)?;
        let bytes = decode::read(body).await?;
        let decoded = decode::object(&bytes, body_type)?;
        Ok(registry::Body {
            value: decoded.value,
            duplicates: decoded.duplicates,
        })
    }

    fn written(
        &self,
        written: &Written,
        response_options: Shape,
    ) -> Result<Response<Body>, Status> {
        let code = if written.created { 201 } else { 200 };
        let mut response = reply::object(
            code,
            &self.row,
            &written.object,
            response_options,
            self.app.now(),
        )?;
        reply::warn(&mut response, &written.warnings);
        Ok(response)
    }

    async fn create(&self, headers: &HeaderMap, body: Incoming) -> Result<Response<Body>, Status> {
        let response_options = self.shape(headers)?;
        let options = self.with_query(|q| options::write(q, "CreateOptions"))?;
        let body = self.body(headers, body).await?;
        let registry = self.app.registry();
        let mut written = registry
            .create(&self.ctx, self.at(), body, &options)
            .await?;
        // POST returns 201 even where nothing is stored, as for reviews.
        written.created = true;
        self.written(&written, response_options)
    }

    async fn update(&self, headers: &HeaderMap, body: Incoming) -> Result<Response<Body>, Status> {
        let response_options = self.shape(headers)?;
        let options = self.with_query(|q| options::write(q, "UpdateOptions"))?;
        let body = self.body(headers, body).await?;
        self.may_create().await?;
        let registry = self.app.registry();
        let written = registry
            .update(&self.ctx, self.at(), body, &options)
            .await?;
        self.written(&written, response_options)
    }

    /// A PUT that would create the object needs the right to create it.
    async fn may_create(&self) -> Result<(), Status> {
        if !self.row.kind.create_on_update || !self.call.resource.subresource.is_empty() {
            return Ok(());
        }
        let target = resource_target(&self.call.resource);
        let verdict = self.app.authorize(&self.call.user, "create", target);
        let Err(forbidden) = verdict.await else {
            return Ok(());
        };
        let newest = registry::GetOptions::default();
        match self.app.registry().get(&self.ctx, self.at(), &newest).await {
            Err(e) if e.code == 404 => Err(forbidden),
            Err(e) => Err(e),
            Ok(_) => Ok(()),
        }
    }

    async fn patch(&self, headers: &HeaderMap, body: Incoming) -> Result<Response<Body>, Status> {
        let response_options = self.shape(headers)?;
        let supported = self.row.patch_types();
        let content_type = negotiation::content_type(headers);
        let unsupported = || Status::unsupported_media_type(supported);
        if !supported.contains(&content_type) {
            return Err(unsupported());
        }
        let options = self.with_query(|q| options::write(q, "PatchOptions"))?;
        if self.call.query.flag("force") {
            return Err(forced());
        }
        let value = decode::json(&decode::read(body).await?)?.value;
        let patch = match content_type {
            JSON_PATCH => Patch::Json(value),
            MERGE_PATCH => Patch::Merge(value),
            STRATEGIC_PATCH => Patch::Strategic(value),
            _ => return Err(unsupported()),
        };
        let registry = self.app.registry();
        let written = registry
            .patch(&self.ctx, self.at(), patch, &options)
            .await?;
        self.written(&written, response_options)
    }

    /// DeleteOptions from the body when there is one, else from the query.
    async fn delete_options(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<client::DeleteOptions, Status> {
        let bytes = decode::read(body).await?;
        let value = if bytes.is_empty() {
            None
        } else {
            // Clients may send DeleteOptions as protobuf, whatever the kind.
            let body_type: BodyType = negotiation::body_type(headers, true)?;
            Some(decode::object(&bytes, body_type)?.value)
        };
        self.with_query(|q| options::delete(q, value.as_ref()))
    }

    async fn delete(&self, headers: &HeaderMap, body: Incoming) -> Result<Response<Body>, Status> {
        let response_options = self.shape(headers)?;
        let options = self.delete_options(headers, body).await?;
        let registry = self.app.registry();
        match registry.delete(&self.ctx, self.at(), &options).await? {
            Deleted::Gone(status) => Ok(reply::status(&status, response_options.form)),
            Deleted::Object { object, .. } => {
                reply::object(200, &self.row, &object, response_options, self.app.now())
            }
        }
    }

    async fn delete_all(
        &self,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Response<Body>, Status> {
        let response_options = self.shape(headers)?;
        let select = self.with_query(|q| options::list(q))?;
        let options = self.delete_options(headers, body).await?;
        let list = self
            .app
            .registry()
            .delete_collection(&self.ctx, self.at(), &options, &select)
            .await?;
        reply::list(list, response_options, self.app.now()).await
    }
}

fn forced() -> Status {
    let kind = machinery::Gvk::constant("meta.k8s.io", "v1", "PatchOptions");
    let error =
        machinery::FieldError::forbidden("force", "may not be specified for non-apply patch");
    Status::invalid(&kind, "", &[error])
}

/// The timeout of a request: its `timeout` parameter, at most the server's limit.
pub(crate) fn time_limit(query: &Query, limit: Duration) -> Duration {
    let requested = query.get("timeout").and_then(parse_seconds);
    requested.map_or(limit, |requested| requested.min(limit))
}

/// Parses Go durations of one unit: `34s`, `500ms`, `1m`.
fn parse_seconds(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && *n > 0.0)?;
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_capped() {
        let check = |query: &str, expect: u64| {
            let got = time_limit(&Query::parse(Some(query)), Duration::from_secs(60));
            assert_eq!(got.as_millis(), u128::from(expect), "{query}");
        };
        check("", 60_000);
        check("timeout=34s", 34_000);
        check("timeout=500ms", 500);
        check("timeout=2m", 60_000);
        check("timeout=-1s", 60_000);
        check("timeout=x", 60_000);
    }
}
