//! Routes requests to pages, actions and assets.

use std::sync::Arc;
use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;

use crate::actions::Action;
use crate::guard::{Refusal, RequestGuard};
use crate::pages::{self, Page, PageContext};
use crate::query::{QueryParameters, decode_segment};
use crate::response::{self, ConsoleResponse};
use crate::server::ConsoleServer;
use crate::session::Session;
use crate::{live, live_log};

const MAX_FORM_BYTES: usize = 8 << 10;
/// Of a form with a policy.
const MAX_MANIFEST_FORM_BYTES: usize = 128 << 10;
/// How long a page may take, and a body may take to come.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const ICON: &str = include_str!("assets/icon.svg");

const TOO_LATE: Refusal = (
    StatusCode::GATEWAY_TIMEOUT,
    "the control plane did not answer in time",
);
const TOO_MANY_PAGES: Refusal = (
    StatusCode::TOO_MANY_REQUESTS,
    "too many pages are kept up to date; close some",
);

impl ConsoleServer {
    pub(crate) async fn respond<B>(&self, request: Request<B>) -> ConsoleResponse
    where
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let response = tokio::time::timeout(REQUEST_TIMEOUT, Box::pin(self.route(request)));
        let refuse = |(status, message)| response::refusal(status, message);
        match response.await {
            Ok(response) => response.unwrap_or_else(refuse),
            Err(_) => refuse(TOO_LATE),
        }
    }

    async fn route<B>(&self, request: Request<B>) -> Result<ConsoleResponse, Refusal>
    where
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        self.guard.check_origin(&head.headers)?;
        let query = QueryParameters::parse(head.uri.query().unwrap_or_default());
        let path: Option<Vec<String>> = head
            .uri
            .path()
            .split('/')
            .skip(1)
            .map(decode_segment)
            .collect();
        let path = path.ok_or((StatusCode::BAD_REQUEST, "the path is no UTF-8"))?;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        if head.method == Method::GET {
            match *path {
                ["login"] => return Ok(self.login(&query)),
                ["assets", "console.css"] => {
                    return Ok(response::asset("text/css; charset=utf-8", STYLE));
                }
                ["assets", "console.js"] => {
                    return Ok(response::asset("text/javascript; charset=utf-8", SCRIPT));
                }
                ["assets", "icon.svg"] => return Ok(response::asset("image/svg+xml", ICON)),
                _ => {}
            }
        }
        let Some(session) = self.guard.session(&head.headers, &self.sessions) else {
            let page = pages::without_session();
            return Ok(response::html(StatusCode::UNAUTHORIZED, page));
        };
        match head.method {
            Method::GET => self.get(&path, query, &head.headers, &session).await,
            Method::POST => {
                let max_bytes = match *path {
                    ["policies", ..] => MAX_MANIFEST_FORM_BYTES,
                    _ => MAX_FORM_BYTES,
                };
                let form = read_form(body, max_bytes).await?;
                RequestGuard::check_form(&head.headers, &session, form.get("token"))?;
                self.post(&path, &form, &session).await
            }
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "use GET or POST")),
        }
    }

    /// Exchanges the link's token for a cookie, and prints the next link.
    fn login(&self, query: &QueryParameters) -> ConsoleResponse {
        match self.sessions.exchange(query.get("token")) {
            Some(cookie) => {
                self.print_link();
                response::redirection("/", Some(&self.guard.set_cookie(&cookie)))
            }
            None => response::html(StatusCode::UNAUTHORIZED, pages::without_session()),
        }
    }

    async fn get(
        &self,
        path: &[&str],
        query: QueryParameters,
        headers: &HeaderMap,
        session: &Session,
    ) -> Result<ConsoleResponse, Refusal> {
        let context = PageContext {
            console: &self.console,
            session,
        };
        if let Some(action) = Action::parse(path, &query) {
            let (status, page) = Box::pin(action.plan_page(&context)).await;
            return Ok(response::html(status, page));
        }
        let Some(page) = Page::parse(path, query) else {
            let page = pages::missing(&context);
            return Ok(response::html(StatusCode::NOT_FOUND, page));
        };
        let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        if accepted == Some("text/event-stream") && page.is_live() {
            let permit = Arc::clone(&self.live_pages).try_acquire_owned();
            let permit = permit.map_err(|_| TOO_MANY_PAGES)?;
            let console = Arc::clone(&self.console);
            return Ok(response::events(match page {
                Page::Log { log, .. } => live_log::follow(console, log, permit),
                page => live::follow(console, page, permit),
            }));
        }
        let (status, page) = pages::render(&page, &context).await;
        Ok(response::html(status, page))
    }

    async fn post(
        &self,
        path: &[&str],
        form: &QueryParameters,
        session: &Session,
    ) -> Result<ConsoleResponse, Refusal> {
        let action = Action::parse(path, form);
        let action = action.ok_or((StatusCode::NOT_FOUND, "there is no such action"))?;
        let context = PageContext {
            console: &self.console,
            session,
        };
        Ok(match Box::pin(action.execute(form, &context)).await {
            Ok(to) => response::redirection(&to, None),
            Err((status, page)) => response::html(status, page),
        })
    }
}

async fn read_form<B>(body: B, max_bytes: usize) -> Result<QueryParameters, Refusal>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, max_bytes).collect().await;
    let body = body.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, "the form is too large"))?;
    let bytes = body.to_bytes();
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| (StatusCode::BAD_REQUEST, "the form is no UTF-8"))?;
    Ok(QueryParameters::parse(text))
}
