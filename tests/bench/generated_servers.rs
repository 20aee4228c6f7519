//! API servers whose objects are generated whenever they are read, so that nobody stores millions of
//! them: the members of a control plane, or the control plane of a console.
//!
//! `/server-003/api/v1/pods` ──► [`GeneratedCollection`] ──► pages of lists
//! [`GeneratedServers::change`] ──► open watches

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::stream;
use harness::FakeHttpsServer;
use harness::http_client::{TestHttpBody, full_body};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const THREADS: usize = 2;
const NO_OBJECTS: &str =
    r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;

/// An object at one of its states.
#[derive(Clone, Copy)]
pub(crate) struct ObjectState {
    pub(crate) server: usize,
    /// From 0, in the collection of its server.
    pub(crate) number: usize,
    pub(crate) revision: u64,
    /// The number of the change that has led to the state; 0: it is as it was created.
    pub(crate) change: usize,
}

/// Encodes an object as an item of a list.
pub(crate) type ObjectEncoder = Box<dyn Fn(ObjectState) -> String + Send + Sync>;

/// The objects of a kind, as many in each server.
pub(crate) struct GeneratedCollection {
    /// Such as `/api/v1/pods`.
    pub(crate) path: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) count: usize,
    pub(crate) encode: ObjectEncoder,
}

impl GeneratedCollection {
    /// Group, version and resource.
    fn path_segments(&self) -> (&'static str, &'static str, &'static str) {
        match *self.path.split('/').collect::<Vec<_>>() {
            [_, "apis", group, version, resource] => (group, version, resource),
            [_, "api", version, resource] => ("", version, resource),
            _ => ("", "", ""),
        }
    }

    fn api_version(&self) -> String {
        match self.path_segments() {
            ("", version, _) => version.to_owned(),
            (group, version, _) => format!("{group}/{version}"),
        }
    }

    /// A page, whose continue token is the number of the next object.
    fn list(&self, server: usize, revision: u64, query: &str) -> String {
        let first = parameter(query, "continue").unwrap_or(0);
        let limit = parameter(query, "limit").unwrap_or(usize::MAX);
        let end = self.count.min(first.saturating_add(limit));
        let token = match end < self.count {
            true => end.to_string(),
            false => String::new(),
        };
        let metadata = json!({"resourceVersion": revision.to_string(), "continue": token});
        let mut list = format!(
            r#"{{"kind":"{}List","apiVersion":"{}","metadata":{metadata},"items":["#,
            self.kind,
            self.api_version()
        );
        for number in first..end {
            if number > first {
                list.push(',');
            }
            list.push_str(&(self.encode)(ObjectState {
                server,
                number,
                revision: number as u64 + 1,
                change: 0,
            }));
        }
        list.push_str("]}");
        list
    }
}

/// A number in a query.
fn parameter(query: &str, name: &str) -> Option<usize> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name)?.1.parse().ok()
}

/// The state of one server.
struct GeneratedServer {
    revision: AtomicU64,
    /// The open watches of each collection.
    watches: Vec<Mutex<Vec<UnboundedSender<Bytes>>>>,
}

struct ServedCollections {
    collections: Vec<GeneratedCollection>,
    servers: Vec<GeneratedServer>,
}

/// Servers behind one port, on threads of their own.
pub(crate) struct GeneratedServers {
    server: FakeHttpsServer,
    served: Arc<ServedCollections>,
    _threads: Runtime,
}

impl GeneratedServers {
    pub(crate) fn start(
        count: usize,
        collections: Vec<GeneratedCollection>,
    ) -> anyhow::Result<Self> {
        let threads = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .build()?;
        let newest = collections.iter().map(|c| c.count as u64 + 1).max();
        let server = || GeneratedServer {
            revision: AtomicU64::new(newest.unwrap_or(1)),
            watches: collections.iter().map(|_| Mutex::default()).collect(),
        };
        let servers = std::iter::repeat_with(server).take(count).collect();
        let served = Arc::new(ServedCollections {
            servers,
            collections,
        });
        let handler = Arc::clone(&served);
        let server = threads.block_on(FakeHttpsServer::start(Arc::new(move |request| {
            let served = Arc::clone(&handler);
            Box::pin(async move { served.respond(request).await })
        })));
        Ok(Self {
            server,
            served,
            _threads: threads,
        })
    }

    pub(crate) fn name(server: usize) -> String {
        format!("server-{server:03}")
    }

    pub(crate) fn url(&self, server: usize) -> String {
        format!("https://{}/{}", self.server.address, Self::name(server))
    }

    /// The CA bundle in PEM.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.server.ca_pem
    }

    /// Changes an object of the first collection of a server.
    pub(crate) fn change(&self, server: usize, number: usize, change: usize) {
        let collection = &self.served.collections[0];
        let changed = &self.served.servers[server];
        // Watches get the changes of a server in the order of their revisions.
        let mut watches = changed.watches[0].lock();
        let object = (collection.encode)(ObjectState {
            server,
            number,
            revision: changed.revision.fetch_add(1, Ordering::Relaxed) + 1,
            change,
        });
        let (api_version, kind) = (collection.api_version(), collection.kind);
        let mut line = String::with_capacity(object.len() + 128);
        // The items of lists lack the two fields, and watched objects have them.
        let _ = writeln!(
            line,
            r#"{{"type":"MODIFIED","object":{{"apiVersion":"{api_version}","kind":"{kind}",{}}}"#,
            &object[1..]
        );
        let line = Bytes::from(line);
        watches.retain(|watch| watch.send(line.clone()).is_ok());
    }
}

impl ServedCollections {
    async fn respond(&self, request: Request<Incoming>) -> Response<TestHttpBody> {
        let (head, body) = request.into_parts();
        // A connection is used again once the body was read.
        let _ = body.collect().await;
        let path = head.uri.path().trim_start_matches("/server-");
        let (number, path) = path.split_at(path.find('/').unwrap_or(path.len()));
        let server = number.parse().unwrap_or(usize::MAX);
        let query = head.uri.query().unwrap_or_default();
        if server >= self.servers.len() {
            return response(StatusCode::NOT_FOUND, full_body("no such server"));
        }
        if head.method == Method::POST {
            let review = json!({"kind": "SelfSubjectAccessReview",
                "apiVersion": "authorization.k8s.io/v1", "status": {"allowed": true}});
            return response(StatusCode::CREATED, full_body(review.to_string()));
        }
        match path {
            "/readyz" | "/healthz" | "/livez" => response(StatusCode::OK, full_body("ok")),
            "/version" => {
                let version = r#"{"major":"1","minor":"36","gitVersion":"v1.36.0"}"#;
                response(StatusCode::OK, full_body(version))
            }
            "/api" => response(StatusCode::OK, full_body(self.discovery(true))),
            "/apis" => response(StatusCode::OK, full_body(self.discovery(false))),
            path => self.read(server, path, query),
        }
    }

    fn read(&self, server: usize, path: &str, query: &str) -> Response<TestHttpBody> {
        let mut collections = self.collections.iter();
        let index = collections.position(|collection| collection.path == path);
        let is_watch = parameter(query, "watch") == Some(1);
        let body = match index {
            Some(index) if is_watch => {
                let (sender, receiver) = unbounded_channel();
                self.servers[server].watches[index].lock().push(sender);
                watch_body(receiver)
            }
            Some(index) => {
                let revision = self.servers[server].revision.load(Ordering::Relaxed);
                full_body(self.collections[index].list(server, revision, query))
            }
            None if is_watch => StreamBody::new(stream::pending()).boxed(),
            None => full_body(NO_OBJECTS),
        };
        response(StatusCode::OK, body)
    }

    /// The aggregated discovery of the core group, or of all others.
    fn discovery(&self, is_core: bool) -> String {
        let collections = self.collections.iter();
        let groups = collections.filter_map(|collection| {
            let (group, version, resource) = collection.path_segments();
            (group.is_empty() == is_core).then(|| {
                json!({"metadata": {"name": group}, "versions": [{"version": version,
                    "freshness": "Current", "resources": [{"resource": resource,
                        "responseKind": {"group": group, "version": version, "kind": collection.kind},
                        "scope": "Namespaced", "singularResource": collection.kind.to_lowercase(),
                        "verbs": ["get", "list", "watch"]}]}]})
            })
        });
        let groups: Vec<Value> = groups.collect();
        json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {}, "items": groups})
        .to_string()
    }
}

fn watch_body(mut lines: UnboundedReceiver<Bytes>) -> TestHttpBody {
    let frames = stream::poll_fn(move |context| {
        let line = lines.poll_recv(context);
        line.map(|line| Some(Ok(Frame::data(line?))))
    });
    StreamBody::new(frames).boxed()
}

fn response(status: StatusCode, body: TestHttpBody) -> Response<TestHttpBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let json = hyper::header::HeaderValue::from_static("application/json");
    let headers = response.headers_mut();
    headers.insert(hyper::header::CONTENT_TYPE, json);
    response
}
