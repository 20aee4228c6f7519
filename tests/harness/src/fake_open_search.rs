//! An OpenSearch cluster of one node inside a test: the requests that a writer of documents sends,
//! with the documented semantics of `_bulk`, external versions and scrolls.
//!
//! It can be stopped and started again, lose its documents, and fail requests or documents.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::http_client::{TestHttpBody, full_body};
use crate::{FakeHttpsServer, TcpRelay};

/// A stored document.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeDocument {
    pub version: u64,
    pub source: Value,
}

#[derive(Default)]
struct FakeIndex {
    mappings: Value,
    documents: BTreeMap<String, FakeDocument>,
    /// The versions of deleted documents.
    tombstones: BTreeMap<String, u64>,
}

/// A failure of the next requests to `_bulk`.
#[derive(Clone, Copy)]
struct RequestFailure {
    status: u16,
    retry_after: Option<u32>,
    times: usize,
}

/// A failure of the next writes of documents whose object has this name.
struct DocumentFailure {
    name: String,
    status: u16,
    error_type: &'static str,
    times: usize,
}

#[derive(Default)]
struct FakeState {
    authorization: Option<String>,
    indexes: BTreeMap<String, FakeIndex>,
    scrolls: BTreeMap<String, (usize, Vec<Value>)>,
    next_scroll: usize,
    request_failures: Vec<RequestFailure>,
    document_failures: Vec<DocumentFailure>,
    refuses_flat_object: bool,
    /// The most bytes of a request to `_bulk`.
    max_request_bytes: usize,
    /// Documents in each request to `_bulk` so far, refused ones included.
    bulk_requests: Vec<usize>,
    unauthorized: usize,
}

/// A running cluster. Dropping it stops it.
pub struct FakeOpenSearch {
    server: FakeHttpsServer,
    /// Clients connect to it, so that the cluster can go away.
    relay: TcpRelay,
    state: Arc<Mutex<FakeState>>,
}

impl FakeOpenSearch {
    /// A cluster with this user and password.
    pub async fn start(user: &str, password: &str) -> Self {
        let credentials = STANDARD.encode(format!("{user}:{password}"));
        let state = Arc::new(Mutex::new(FakeState {
            authorization: Some(format!("Basic {credentials}")),
            max_request_bytes: 100 << 20,
            ..FakeState::default()
        }));
        let shared = Arc::clone(&state);
        let server = FakeHttpsServer::start(Arc::new(move |request| {
            let state = Arc::clone(&shared);
            Box::pin(async move { respond(&state, request).await })
        }));
        let server = server.await;
        let relay = TcpRelay::start(&[server.address]);
        Self {
            server,
            relay,
            state,
        }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.relay.address())
    }

    /// The data of a Secret with the credentials and the authority of the cluster.
    pub fn secret_data(&self, user: &str, password: &str) -> Value {
        json!({"username": STANDARD.encode(user), "password": STANDARD.encode(password),
            "ca.crt": STANDARD.encode(&self.server.ca_pem)})
    }

    /// The cluster is gone: connections break, and new ones are refused.
    pub fn stop(&self) {
        self.relay.set_servers(&[]);
        self.state.lock().scrolls.clear();
    }

    /// The cluster is back with its documents.
    pub fn restart(&self) {
        self.relay.set_servers(&[self.server.address]);
    }

    /// All indexes are lost, as after a new installation.
    pub fn lose_documents(&self) {
        self.state.lock().indexes.clear();
    }

    /// The next requests to `_bulk` fail.
    pub fn fail_requests(&self, status: u16, retry_after: Option<u32>, times: usize) {
        self.state.lock().request_failures.push(RequestFailure {
            status,
            retry_after,
            times,
        });
    }

    /// The next writes of documents of objects with this name fail.
    pub fn fail_documents(&self, name: &str, status: u16, error_type: &'static str, times: usize) {
        self.state.lock().document_failures.push(DocumentFailure {
            name: name.to_owned(),
            status,
            error_type,
            times,
        });
    }

    /// Behaves as a version that does not know the type `flat_object`.
    pub fn refuse_flat_object(&self) {
        self.state.lock().refuses_flat_object = true;
    }

    pub fn set_max_request_bytes(&self, bytes: usize) {
        self.state.lock().max_request_bytes = bytes;
    }

    /// Documents in each request to `_bulk` so far.
    pub fn bulk_requests(&self) -> Vec<usize> {
        self.state.lock().bulk_requests.clone()
    }

    /// The number of requests with other credentials.
    pub fn unauthorized_requests(&self) -> usize {
        self.state.lock().unauthorized
    }

    /// The number of scans that are not closed.
    pub fn open_scrolls(&self) -> usize {
        self.state.lock().scrolls.len()
    }

    pub fn indexes(&self) -> Vec<String> {
        self.state.lock().indexes.keys().cloned().collect()
    }

    pub fn mappings(&self, index: &str) -> Value {
        self.state.lock().indexes[index].mappings.clone()
    }

    /// The documents of an index by id.
    pub fn documents(&self, index: &str) -> BTreeMap<String, FakeDocument> {
        let state = self.state.lock();
        let stored_index = state.indexes.get(index);
        stored_index.map_or_else(BTreeMap::new, |index| index.documents.clone())
    }

    /// The names of the objects in an index, with their clusters, in order.
    pub fn names(&self, index: &str) -> Vec<String> {
        let documents = self.documents(index).into_values();
        let mut names: Vec<String> = documents
            .map(|document| {
                let text = |pointer: &str| document.source.pointer(pointer).and_then(Value::as_str);
                let cluster = text("/cluster/name").unwrap_or_default();
                format!("{cluster}/{}", text("/metadata/name").unwrap_or_default())
            })
            .collect();
        names.sort();
        names
    }

    /// Stores a document, as another writer does.
    pub fn put_document(&self, index: &str, id: &str, document: FakeDocument) {
        let mut state = self.state.lock();
        let index = state.indexes.entry(index.to_owned()).or_default();
        index.documents.insert(id.to_owned(), document);
    }
}

/// A status and its body.
type FakeReply = (u16, Value);

fn error(status: u16, error_type: &str) -> FakeReply {
    let reason = format!("{error_type}, with a quote of the document");
    let error = json!({"type": error_type, "reason": reason});
    (status, json!({"error": error, "status": status}))
}

async fn respond(state: &Mutex<FakeState>, request: Request<Incoming>) -> Response<TestHttpBody> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let mut state = state.lock();
    let mut retry_after = None;
    let authorization = head.headers.get(AUTHORIZATION);
    let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
    let (status, reply) = if authorization != state.authorization {
        state.unauthorized += 1;
        error(401, "security_exception")
    } else if head.uri.path() == "/_bulk" && body.len() > state.max_request_bytes {
        let documents = count_actions(&body);
        state.bulk_requests.push(documents);
        error(413, "content_too_long_exception")
    } else {
        let path = head.uri.path().trim_matches('/').to_owned();
        let parts: Vec<&str> = path.split('/').collect();
        match (&head.method, parts.as_slice()) {
            (&Method::GET, [""]) => (200, json!({"version": {"distribution": "opensearch"}})),
            (&Method::POST, ["_bulk"]) => match state.next_request_failure() {
                Some(failure) => {
                    retry_after = failure.retry_after;
                    let documents = count_actions(&body);
                    state.bulk_requests.push(documents);
                    error(failure.status, "rejected_execution_exception")
                }
                None => {
                    assert_eq!(head.headers[CONTENT_TYPE], "application/x-ndjson");
                    state.bulk(&body)
                }
            },
            (&Method::POST, ["_search", "scroll"]) => state.scroll(&parse(&body)),
            (&Method::DELETE, ["_search", "scroll"]) => state.close_scrolls(&parse(&body)),
            (&Method::HEAD, [index]) => match state.indexes.contains_key(*index) {
                true => (200, Value::Null),
                false => (404, Value::Null),
            },
            (&Method::PUT, [index]) => state.create_index(index, &parse(&body)),
            (&Method::POST, [index, "_refresh"]) => match state.indexes.contains_key(*index) {
                true => (200, json!({})),
                false => error(404, "index_not_found_exception"),
            },
            (&Method::POST, [index, "_search"]) => state.search(index, &parse(&body)),
            other => panic!("OpenSearch has no {other:?}"),
        }
    };
    let mut response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json");
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    let body = match head.method {
        Method::HEAD => String::new(),
        _ => reply.to_string(),
    };
    response.body(full_body(body)).unwrap()
}

fn parse(body: &[u8]) -> Value {
    machinery::json::from_slice(body).unwrap()
}

fn lines(body: &Bytes) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
}

fn count_actions(body: &Bytes) -> usize {
    let actions = lines(body).filter(|line| {
        let line = parse(line);
        line["index"].is_object() || line["delete"].is_object()
    });
    actions.count()
}

impl FakeState {
    fn next_request_failure(&mut self) -> Option<RequestFailure> {
        self.request_failures.retain(|failure| failure.times > 0);
        let failure = self.request_failures.first_mut()?;
        failure.times -= 1;
        Some(*failure)
    }

    fn next_document_failure(&mut self, name: &str) -> Option<(u16, &'static str)> {
        let mut of_it = self.document_failures.iter_mut();
        let failure = of_it.find(|failure| failure.name == name && failure.times > 0)?;
        failure.times -= 1;
        Some((failure.status, failure.error_type))
    }

    fn bulk(&mut self, body: &Bytes) -> FakeReply {
        self.bulk_requests.push(count_actions(body));
        if !body.ends_with(b"\n") {
            return error(400, "illegal_argument_exception");
        }
        let mut rest = lines(body);
        let mut items = Vec::new();
        while let Some(action) = rest.next() {
            let action = parse(action);
            let item = match action["index"].is_object() {
                true => {
                    let source = parse(rest.next().unwrap());
                    let result = self.write(&action["index"], Some(source));
                    json!({"index": result})
                }
                false => json!({"delete": self.write(&action["delete"], None)}),
            };
            items.push(item);
        }
        let has_errors = items.iter().any(|item| item.to_string().contains("error"));
        (
            200,
            json!({"took": 1, "errors": has_errors, "items": items}),
        )
    }

    /// Writes or deletes one document; returns its result.
    fn write(&mut self, action: &Value, source: Option<Value>) -> Value {
        let [index, id] = ["_index", "_id"].map(|field| action[field].as_str().unwrap().to_owned());
        assert!(!id.is_empty() && id.len() <= 512, "{id:?}");
        let failed = |status: u16, error_type: &str| {
            let reason = format!("{error_type}, with a quote of the document");
            json!({"_index": index, "_id": id, "status": status,
                "error": {"type": error_type, "reason": reason}})
        };
        if let Some(source) = &source {
            let name = source["metadata"]["name"].as_str().unwrap_or_default();
            if let Some((status, error_type)) = self.next_document_failure(name) {
                return failed(status, error_type);
            }
        }
        let stored = self.indexes.entry(index.clone()).or_default();
        let present = stored.documents.get(&id).map(|document| document.version);
        let former = present.or_else(|| stored.tombstones.get(&id).copied());
        let version = match action["version_type"].as_str() {
            Some("external_gte") => {
                let version = action["version"].as_u64().unwrap();
                if former.is_some_and(|former| former > version) {
                    return failed(409, "version_conflict_engine_exception");
                }
                version
            }
            Some(other) => panic!("version_type {other}"),
            None => former.unwrap_or(0) + 1,
        };
        let (status, result) = match (source, present) {
            (Some(source), _) => {
                stored.tombstones.remove(&id);
                let document = FakeDocument { version, source };
                stored.documents.insert(id.clone(), document);
                match present {
                    None => (201, "created"),
                    Some(_) => (200, "updated"),
                }
            }
            (None, present) => {
                stored.documents.remove(&id);
                stored.tombstones.insert(id.clone(), version);
                match present {
                    None => (404, "not_found"),
                    Some(_) => (200, "deleted"),
                }
            }
        };
        json!({"_index": index, "_id": id, "_version": version, "result": result, "status": status})
    }

    fn create_index(&mut self, index: &str, body: &Value) -> FakeReply {
        if self.indexes.contains_key(index) {
            return error(400, "resource_already_exists_exception");
        }
        if self.refuses_flat_object && body.to_string().contains("flat_object") {
            return error(400, "mapper_parsing_exception");
        }
        let created = FakeIndex {
            mappings: body["mappings"].clone(),
            ..FakeIndex::default()
        };
        self.indexes.insert(index.to_owned(), created);
        (200, json!({"acknowledged": true, "index": index}))
    }

    /// A scan of the documents that match all terms of the query.
    fn search(&mut self, index: &str, body: &Value) -> FakeReply {
        let Some(stored) = self.indexes.get(index) else {
            return error(404, "index_not_found_exception");
        };
        let terms = body["query"]["bool"]["filter"].as_array().unwrap();
        let terms: Vec<(String, &Value)> = terms
            .iter()
            .flat_map(|term| term["term"].as_object().unwrap())
            .map(|(path, value)| {
                let path = path.strip_suffix(".keyword").unwrap();
                (format!("/{}", path.replace('.', "/")), value)
            })
            .collect();
        let matching = stored.documents.iter().filter(|(_, document)| {
            let has =
                |(path, value): &(String, &Value)| document.source.pointer(path) == Some(*value);
            terms.iter().all(has)
        });
        let hits = matching.map(
            |(id, document)| json!({"_index": index, "_id": id, "_version": document.version}),
        );
        let hits: Vec<Value> = hits.collect();
        let size = body["size"].as_u64().unwrap() as usize;
        assert_eq!([&body["version"], &body["_source"]], [true, false]);
        self.next_scroll += 1;
        let id = format!("scroll-{}", self.next_scroll);
        self.scrolls.insert(id.clone(), (size, hits));
        self.scroll(&json!({"scroll_id": id}))
    }

    fn scroll(&mut self, body: &Value) -> FakeReply {
        let id = body["scroll_id"].as_str().unwrap();
        let Some((size, rest)) = self.scrolls.get_mut(id) else {
            return error(404, "search_context_missing_exception");
        };
        let page: Vec<Value> = rest.drain(..(*size).min(rest.len())).collect();
        (200, json!({"_scroll_id": id, "hits": {"hits": page}}))
    }

    fn close_scrolls(&mut self, body: &Value) -> FakeReply {
        for id in body["scroll_id"].as_array().unwrap() {
            self.scrolls.remove(id.as_str().unwrap());
        }
        (200, json!({"succeeded": true}))
    }
}
