//! Routes requests to pages, actions and assets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;

use crate::access::{ActiveSession, ConsoleAccess, SessionFailure};
use crate::actions::Action;
use crate::guard::{Refusal, RequestGuard};
use crate::pages::{self, Page, PageContext};
use crate::query::{QueryParameters, decode_segment};
use crate::response::{self, ConsoleResponse};
use crate::server::ConsoleServer;
use crate::users::{BearerToken, LoginFailure};
use crate::{live, live_log};

const MAX_FORM_BYTES: usize = 8 << 10;
/// Of a form with a policy.
const MAX_MANIFEST_FORM_BYTES: usize = 128 << 10;
/// Of a form with a token of a user.
const MAX_LOGIN_FORM_BYTES: usize = 32 << 10;
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
        let serves_users = matches!(self.access, ConsoleAccess::Tokens(_));
        // A kubelet asks by the address of the pod.
        if serves_users && matches!(head.uri.path(), "/livez" | "/readyz") {
            return Ok(response::alive());
        }
        self.guard.check_host(&head)?;
        if self.guard.enters_from_site(&head) {
            return Ok(response::html(StatusCode::OK, pages::entrance()));
        }
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
        if let (&Method::GET, Some(asset)) = (&head.method, asset(&path)) {
            return Ok(asset);
        }
        if *path == ["login"] {
            return self.login(&head, &query, body).await;
        }
        let active = match self.access.session(&self.guard, &head.headers).await {
            Ok(active) => active,
            Err(failure) => return self.session_failure(failure),
        };
        match head.method {
            Method::GET => self.get(&path, query, &head.headers, active).await,
            Method::POST => {
                let max_bytes = match *path {
                    ["policies", ..] => MAX_MANIFEST_FORM_BYTES,
                    _ => MAX_FORM_BYTES,
                };
                let form = read_form(body, max_bytes).await?;
                RequestGuard::check_form(&head.headers, &active.session, form.get("token"))?;
                self.post(&path, &form, &active).await
            }
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "use GET or POST")),
        }
    }

    /// Exchanges the token of a link, or that of a user, for a cookie.
    async fn login<B>(
        &self,
        head: &Parts,
        query: &QueryParameters,
        body: B,
    ) -> Result<ConsoleResponse, Refusal>
    where
        B: Body + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let opened =
            |cookie: &str| response::redirection("/", Some(&self.guard.set_cookie(cookie)));
        match (&self.access, &head.method) {
            (ConsoleAccess::Link(link), &Method::GET) => Ok(match link.login(query.get("token")) {
                Some(cookie) => opened(&cookie),
                None => response::html(StatusCode::UNAUTHORIZED, pages::without_session()),
            }),
            (ConsoleAccess::Tokens(_), &Method::GET) => {
                Ok(response::html(StatusCode::OK, pages::login(None)))
            }
            (ConsoleAccess::Tokens(users), &Method::POST) => {
                RequestGuard::check_login(&head.headers)?;
                let form = read_body(body, MAX_LOGIN_FORM_BYTES).await?;
                let token = BearerToken::of_form(&form).ok_or(LoginFailure::Refused);
                let cookie = match token {
                    Ok(token) => users.login(&token).await,
                    Err(failure) => Err(failure),
                };
                Ok(match cookie {
                    Ok(cookie) => opened(&cookie),
                    Err(failure) => login_failure(failure),
                })
            }
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "use GET or POST")),
        }
    }

    fn session_failure(&self, failure: SessionFailure) -> Result<ConsoleResponse, Refusal> {
        let page = match (failure, &self.access) {
            (SessionFailure::Refusal(refusal), _) => return Err(refusal),
            (SessionFailure::Login(failure), _) => return Ok(login_failure(failure)),
            (SessionFailure::NoSession { .. }, ConsoleAccess::Link(_)) => pages::without_session(),
            (SessionFailure::NoSession { had_cookie }, ConsoleAccess::Tokens(_)) => {
                pages::login(had_cookie.then_some(pages::ENDED))
            }
        };
        Ok(response::html(StatusCode::UNAUTHORIZED, page))
    }

    async fn get(
        &self,
        path: &[&str],
        query: QueryParameters,
        headers: &HeaderMap,
        active: ActiveSession,
    ) -> Result<ConsoleResponse, Refusal> {
        let accepted = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let is_event_stream = accepted == Some("text/event-stream");
        let context = PageContext {
            console: &active.console,
            session: &active.session,
        };
        let (status, page) = if let Some(action) = Action::parse(path, &query) {
            Box::pin(action.plan_page(&context)).await
        } else {
            match Page::parse(path, query) {
                Some(page) if is_event_stream && page.is_live() => return follow(page, active),
                Some(page) => pages::render(&page, &context).await,
                None => (StatusCode::NOT_FOUND, pages::missing(&context)),
            }
        };
        if active.usage.is_some_and(|usage| usage.has_ended()) {
            return self.session_failure(SessionFailure::NoSession { had_cookie: true });
        }
        Ok(response::html(status, page))
    }

    async fn post(
        &self,
        path: &[&str],
        form: &QueryParameters,
        active: &ActiveSession,
    ) -> Result<ConsoleResponse, Refusal> {
        if let (["logout"], Some(usage)) = (path, &active.usage) {
            usage.end();
            let cookie = self.guard.clear_cookie();
            return Ok(response::redirection("/login", Some(&cookie)));
        }
        let action = Action::parse(path, form);
        let action = action.ok_or((StatusCode::NOT_FOUND, "there is no such action"))?;
        let context = PageContext {
            console: &active.console,
            session: &active.session,
        };
        Ok(match Box::pin(action.execute(form, &context)).await {
            Ok(to) => response::redirection(&to, None),
            Err((status, page)) => response::html(status, page),
        })
    }
}

fn asset(path: &[&str]) -> Option<ConsoleResponse> {
    let (content_type, content) = match *path {
        ["assets", "console.css"] => ("text/css; charset=utf-8", STYLE),
        ["assets", "console.js"] => ("text/javascript; charset=utf-8", SCRIPT),
        ["assets", "icon.svg"] => ("image/svg+xml", ICON),
        _ => return None,
    };
    Some(response::asset(content_type, content))
}

fn login_failure(failure: LoginFailure) -> ConsoleResponse {
    let (status, page) = pages::login_failure(failure);
    response::html(status, page)
}

/// Keeps a page up to date as long as the session lasts.
fn follow(page: Page, active: ActiveSession) -> Result<ConsoleResponse, Refusal> {
    let console = active.console;
    let permit = Arc::clone(&console.live_pages).try_acquire_owned();
    let permit = permit.map_err(|_| TOO_MANY_PAGES)?;
    let events = match page {
        Page::Log { log, .. } => live_log::follow(console, log, permit),
        page => live::follow(console, page, permit),
    };
    Ok(response::events(match active.usage {
        Some(usage) => usage.until_end(events),
        None => events,
    }))
}

async fn read_body<B>(body: B, max_bytes: usize) -> Result<Bytes, Refusal>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, max_bytes).collect().await;
    let body = body.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, "the form is too large"))?;
    Ok(body.to_bytes())
}

async fn read_form<B>(body: B, max_bytes: usize) -> Result<QueryParameters, Refusal>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let bytes = read_body(body, max_bytes).await?;
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| (StatusCode::BAD_REQUEST, "the form is no UTF-8"))?;
    Ok(QueryParameters::parse(text))
}
