//! [`RemoteApi`]: [`Api`] over HTTP, for a [`Config`] from a kubeconfig or elsewhere.
//!
//! Every call has a timeout except the stream of a watch; its connection is checked with
//! HTTP/2 pings.

mod body;
mod config;
mod credentials;
mod decode;
mod dial;
mod discovery;
mod figures;
mod forward;
mod gate;
pub mod incluster;
pub mod kubeconfig;
mod pool;
mod request;
#[cfg(test)]
mod server_tests;
mod tls;

use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use machinery::{Object, Status};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::api::{
    Api, At, DeleteOptions, Discovered, Error, Groups, List, ListOptions, Patch, Result,
    WatchEvent, WatchOptions, WatchStream, WriteOptions,
};
use crate::encoded::EncodedBody;
use crate::tasks::Tasks;
pub use body::Body;
pub use config::{Auth, Config, ConfigError, Exec, Flow, Identity, Impersonate, Secret};
use decode::Events;
use figures::Figures;
pub use forward::{Forwarder, Unreachable};
pub use gate::Gate;
pub use pool::Reply;
use pool::{Fate, Pool};
use request::Ask;
pub use tls::client as tls_client;

/// The timeout of a call, without the stream of a watch.
const PATIENCE: Duration = Duration::from_secs(30);
/// A page of a list holds at most 500 objects of 1.5 MiB each, in practice far less.
const LARGEST_REPLY: usize = 256 << 20;
/// Attempts of a call that the server asks to retry later.
const ATTEMPTS: u32 = 4;
/// The longest `Retry-After` that is honored.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long a watch may outlive its `timeoutSeconds`.
const WATCH_GRACE: Duration = Duration::from_secs(60);

/// A client of one server. It works until its tasks are stopped.
pub struct Remote {
    pool: Pool,
    host: String,
    as_user: HeaderMap,
    figures: Figures,
}

impl Remote {
    /// A client whose connections are owned by `tasks`. Nothing is dialed yet.
    pub fn new(config: Config, tasks: &Tasks) -> std::result::Result<Self, ConfigError> {
        let host = config.server.authority();
        let host = host.map_or_else(String::new, ToString::to_string);
        let as_user = request::as_user(config.impersonate.as_ref()).map_err(ConfigError)?;
        // Reports unusable TLS settings before the first call.
        tls::client(&config, config.auth.identity.as_ref(), tls::ANY)
            .map_err(|e| ConfigError(format!("{host}: {e}")))?;
        Ok(Self {
            pool: Pool::new(config, tasks.child()),
            figures: Figures::new(&host),
            host,
            as_user,
        })
    }

    pub fn config(&self) -> &Config {
        self.pool.config()
    }

    /// POSTs JSON to a path outside the API, such as a webhook, without retries. A
    /// response body larger than `most` bytes is an error.
    pub async fn post(&self, path: &str, body: Bytes, most: usize) -> Result<Bytes> {
        let ask = Ask::post(path.to_owned(), body);
        let response = self.ask_once(&ask).await.map_err(|(error, _)| error)?;
        self.body_of(response, most).await
    }

    fn transport(&self, message: impl Into<String>) -> Error {
        Error::Transport {
            host: self.host.clone(),
            message: message.into(),
        }
    }

    /// Sends a request and repeats it, where that is safe, on 429 and 503, on 401 with
    /// fresh credentials, and once if the connection breaks.
    async fn ask(&self, ask: &Ask) -> Result<Response<Reply>> {
        let mut attempt = 1;
        let mut refused = false;
        loop {
            let response = match self.ask_once(ask).await {
                Ok(response) => response,
                // The connection broke before the response arrived.
                Err((error, fate)) => {
                    let harmless = ask.method == Method::GET && fate == Fate::Unknown;
                    if harmless && attempt == 1 {
                        attempt += 1;
                        continue;
                    }
                    return Err(error);
                }
            };
            let code = response.status();
            if code == StatusCode::UNAUTHORIZED && !refused {
                refused = true;
                if self.pool.credentials().can_change() {
                    self.pool.credentials().refused().await;
                    self.pool.retire();
                    continue;
                }
            }
            let Some(pause) = pause(&ask.method, &response) else {
                return Ok(response);
            };
            if attempt >= ATTEMPTS {
                return Ok(response);
            }
            attempt += 1;
            drop(response);
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends once; again if the server refused the request unprocessed.
    async fn ask_once(&self, ask: &Ask) -> std::result::Result<Response<Reply>, (Error, Fate)> {
        match self.send(ask).await {
            Err((_, Fate::Refused)) => self.send(ask).await,
            other => other,
        }
    }

    async fn send(&self, ask: &Ask) -> std::result::Result<Response<Reply>, (Error, Fate)> {
        let credentials = self.pool.credentials().header().await;
        let request = credentials
            .and_then(|header| ask.request(&self.config().server, header, &self.as_user))
            .map_err(|e| (self.transport(e), Fate::Unsent))?;
        let began = Instant::now();
        let sent = self.pool.send(request.map(Body::encoded)).await;
        let code = sent.as_ref().ok().map(|response| response.status());
        self.figures.asked(&ask.method, code, began.elapsed());
        sent.map_err(|failure| (self.transport(failure.message), failure.fate))
    }

    /// The body of a successful response.
    async fn fetch(&self, ask: &Ask) -> Result<Bytes> {
        self.in_time(async {
            let response = self.ask(ask).await?;
            self.body_of(response, LARGEST_REPLY).await
        })
        .await
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(done) => done,
            Err(_) => Err(self.transport(format!("no answer within {} s", PATIENCE.as_secs()))),
        }
    }

    async fn body_of(&self, response: Response<Reply>, most: usize) -> Result<Bytes> {
        let code = response.status();
        let body = self.collect(response.into_body(), most).await?;
        if code.is_success() {
            return Ok(body);
        }
        Err(refusal(code, &body).into())
    }

    async fn collect(&self, mut body: Reply, most: usize) -> Result<Bytes> {
        let expected = body.size_hint().exact().unwrap_or(0).min(1 << 20);
        let mut whole = BytesMut::with_capacity(usize::try_from(expected).unwrap_or(0));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| self.transport(pool::chain(&e)))?;
            if let Some(data) = frame.data_ref() {
                if whole.len() + data.len() > most {
                    return Err(Error::Protocol(format!("the reply exceeds {most} bytes")));
                }
                whole.extend_from_slice(data);
            }
        }
        Ok(whole.freeze())
    }

    async fn object(&self, ask: Ask) -> Result<Object> {
        Ok(Object::from_json(self.fetch(&ask).await?)?)
    }
}

/// The delay before a retry, if the server asks for one. A request answered with 429 was
/// not processed; one answered with 503 may have been, so only idempotent requests are
/// repeated.
fn pause(method: &Method, response: &Response<Reply>) -> Option<Duration> {
    let told = response.headers().get(RETRY_AFTER);
    let seconds: Option<u64> = told.and_then(|v| v.to_str().ok()?.parse().ok());
    let repeatable = matches!(*method, Method::GET | Method::PUT | Method::DELETE);
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS => {}
        StatusCode::SERVICE_UNAVAILABLE if repeatable && seconds.is_some() => {}
        _ => return None,
    }
    // The 429 of an eviction is final: it has no Retry-After.
    Some(Duration::from_secs(seconds?).min(LONGEST_PAUSE))
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: String,
}

/// The `Status` in the body of an error response, or one made from the status code.
fn refusal(code: StatusCode, body: &[u8]) -> Status {
    const MAX_MESSAGE_CHARS: usize = 200;
    let is_status = serde_json::from_slice::<Kind>(body).is_ok_and(|k| k.kind == "Status");
    if is_status && let Ok(mut status) = serde_json::from_slice::<Status>(body) {
        if status.code == 0 {
            status.code = code.as_u16();
        }
        return status;
    }
    let reason = match code.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Gone",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let text = String::from_utf8_lossy(body);
    let text: String = text.trim().chars().take(MAX_MESSAGE_CHARS).collect();
    let message = match text.as_str() {
        "" => code.to_string(),
        text => format!("{code}: {text}"),
    };
    Status::failure(code.as_u16(), reason, message)
}

/// An open watch.
struct Watch {
    body: Pin<Box<Reply>>,
    events: Events,
    host: String,
    deadline: Option<Instant>,
    over: bool,
}

impl Watch {
    async fn next(mut self) -> Option<(Result<WatchEvent>, Self)> {
        if self.over {
            return None;
        }
        let item = self.read().await.transpose()?;
        self.over = item.is_err();
        Some((item, self))
    }

    async fn read(&mut self) -> Result<Option<WatchEvent>> {
        loop {
            if let Some(event) = self.events.next()? {
                return Ok(Some(event));
            }
            let frame = match self.deadline {
                None => self.body.frame().await,
                Some(deadline) => {
                    match tokio::time::timeout_at(deadline, self.body.frame()).await {
                        Ok(frame) => frame,
                        // A live server would have ended the watch by now: resume.
                        Err(_) => return Ok(None),
                    }
                }
            };
            match frame {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.events.push(data);
                    }
                }
                Some(Err(error)) => {
                    return Err(Error::Transport {
                        host: self.host.clone(),
                        message: pool::chain(&error),
                    });
                }
                None if self.events.is_between() => return Ok(None),
                None => return Err(Error::Protocol("a watch ended inside an event".into())),
            }
        }
    }
}

#[async_trait]
impl Api for Remote {
    async fn get(&self, at: At<'_>) -> Result<Object> {
        self.object(Ask::get(at)).await
    }

    async fn list(&self, at: At<'_>, options: &ListOptions) -> Result<List> {
        decode::list(&self.fetch(&Ask::list(at, options)).await?)
    }

    async fn watch(&self, at: At<'_>, options: &WatchOptions) -> Result<WatchStream> {
        let ask = Ask::watch(at, options);
        let opened = self.in_time(async {
            let response = self.ask(&ask).await?;
            if response.status().is_success() {
                return Ok(response.into_body());
            }
            let refused = self.body_of(response, LARGEST_REPLY).await;
            Err(refused
                .err()
                .unwrap_or_else(|| Error::Protocol("no watch".into())))
        });
        let body = opened.await?;
        let asked = u64::from(options.timeout_seconds);
        let watch = Watch {
            body: Box::pin(body),
            events: Events::default(),
            host: self.host.clone(),
            deadline: (asked > 0)
                .then(|| Instant::now() + Duration::from_secs(asked) + WATCH_GRACE),
            over: false,
        };
        Ok(Box::pin(stream::unfold(watch, Watch::next)))
    }

    async fn create(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        self.create_encoded(at, body.into(), options).await
    }

    async fn create_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.object(Ask::create(at, body, options)).await
    }

    async fn update(&self, at: At<'_>, body: Value, options: &WriteOptions) -> Result<Object> {
        self.update_encoded(at, body.into(), options).await
    }

    async fn update_encoded(
        &self,
        at: At<'_>,
        body: EncodedBody,
        options: &WriteOptions,
    ) -> Result<Object> {
        self.object(Ask::update(at, body, options)).await
    }

    async fn patch(&self, at: At<'_>, patch: Patch, options: &WriteOptions) -> Result<Object> {
        self.object(Ask::patch(at, patch, options)).await
    }

    async fn delete(&self, at: At<'_>, options: &DeleteOptions) -> Result<Option<Object>> {
        let body = self.fetch(&Ask::delete(at, options)).await?;
        let kind: Kind =
            serde_json::from_slice(&body).map_err(|e| Error::Protocol(e.to_string()))?;
        if kind.kind == "Status" {
            return Ok(None);
        }
        let object = Object::from_json(body)?;
        Ok(object.head().deleting.then_some(object))
    }

    async fn delete_collection(
        &self,
        at: At<'_>,
        options: &DeleteOptions,
        select: &ListOptions,
    ) -> Result<()> {
        let ask = Ask::delete_collection(at, options, select);
        self.fetch(&ask).await.map(|_| ())
    }

    async fn resources(&self) -> Result<Discovered> {
        discovery::discover(self, &|_| true).await
    }

    async fn resources_of(&self, wanted: Groups<'_>) -> Result<Discovered> {
        discovery::discover(self, wanted).await
    }

    async fn raw(&self, path: &str) -> Result<Bytes> {
        self.fetch(&Ask::new(Method::GET, path.to_owned())).await
    }
}
