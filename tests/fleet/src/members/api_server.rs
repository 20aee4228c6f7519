//! One member: answers the requests of a control plane.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use harness::http_client::{TestHttpBody, full_body};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Method, Response};
use machinery::selector::LabelSelector;
use machinery::{Object, Status};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::discovery::{CORE_DISCOVERY, GROUP_DISCOVERY, find_resource};
use super::progress::FleetProgress;
use super::request::{MemberPath, MemberQuery, ResourceTarget};
use super::store::{MemberStore, ObjectPage};

const NODES: usize = 2;

/// A body that is complete, or grows with events.
enum MemberReply {
    Document(Bytes),
    Created(Bytes),
    Watch(UnboundedReceiver<Bytes>),
}

/// A member with a few nodes.
pub(super) struct MemberApiServer {
    pub(super) store: MemberStore,
    progress: Arc<FleetProgress>,
}

impl MemberApiServer {
    pub(super) fn new(member: usize, progress: &Arc<FleetProgress>) -> Result<Self, Status> {
        let server = Self {
            store: MemberStore::new(member, Arc::clone(progress)),
            progress: Arc::clone(progress),
        };
        let nodes = find_resource("", "v1", "nodes").ok_or_else(Status::path_not_found)?;
        for n in 0..NODES {
            let target = ResourceTarget {
                resource: nodes,
                namespace: String::new(),
                name: String::new(),
            };
            server.store.create(&target, node(n))?;
        }
        Ok(server)
    }

    /// Answers a request; `path` is the one behind the name of the member.
    pub(super) fn respond(
        &self,
        method: &Method,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> Response<TestHttpBody> {
        self.progress.record_received(body.len());
        let query = MemberQuery::parse(query);
        let reply = self.reply(method, path, &query, body);
        if !matches!(*method, Method::GET) {
            self.progress.record_write(reply.is_ok());
        }
        let (code, body) = match reply {
            Ok(MemberReply::Document(body)) => (200, body),
            Ok(MemberReply::Created(body)) => (201, body),
            Ok(MemberReply::Watch(events)) => {
                return json_response(200, self.watch_body(events, &query));
            }
            Err(status) => (status.code, status.to_json().to_string().into()),
        };
        self.progress.record_sent(body.len());
        json_response(code, full_body(body))
    }

    fn reply(
        &self,
        method: &Method,
        path: &str,
        query: &MemberQuery,
        body: &[u8],
    ) -> Result<MemberReply, Status> {
        let target = match MemberPath::parse(path) {
            MemberPath::Health => return Ok(MemberReply::Document("ok".into())),
            MemberPath::Version => {
                let version = r#"{"major":"1","minor":"36","gitVersion":"v1.36.0"}"#;
                return Ok(MemberReply::Document(version.into()));
            }
            MemberPath::CoreDiscovery => return Ok(MemberReply::Document(CORE_DISCOVERY.clone())),
            MemberPath::GroupDiscovery => {
                return Ok(MemberReply::Document(GROUP_DISCOVERY.clone()));
            }
            MemberPath::Resource(target) => target,
            MemberPath::Unknown => return Err(Status::path_not_found()),
        };
        let is_collection = target.name.is_empty();
        match *method {
            Method::GET if !is_collection => Ok(document(&self.store.get(&target)?)),
            Method::GET if query.is_watch() => {
                let revision = query.number("resourceVersion");
                let events = self.store.watch(&target, selector(query)?, revision)?;
                Ok(MemberReply::Watch(events))
            }
            Method::GET => self.list(&target, query),
            Method::POST if is_collection => {
                let object = self.store.create(&target, parse_body(body)?)?;
                Ok(MemberReply::Created(object.bytes()))
            }
            Method::PUT if !is_collection => {
                Ok(document(&self.store.update(&target, parse_body(body)?)?))
            }
            Method::DELETE if !is_collection => {
                let options = match body {
                    [] => Value::Null,
                    body => parse_body(body)?,
                };
                self.store.delete(&target, &options)?;
                let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
                Ok(MemberReply::Document(gone.to_string().into()))
            }
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// A list, page by page: the token of a page is the revision of the first one and the last key.
    fn list(&self, target: &ResourceTarget, query: &MemberQuery) -> Result<MemberReply, Status> {
        let limit = match query.number("limit") {
            0 => usize::MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        let (first_revision, after) = query.text("continue").split_once(':').unwrap_or_default();
        let page = self.store.list(target, &selector(query)?, after, limit);
        let ObjectPage {
            objects,
            revision,
            last_key,
        } = page;
        let revision = match first_revision {
            "" => revision.to_string(),
            first => first.to_owned(),
        };
        let token = last_key.map_or_else(String::new, |key| format!("{revision}:{key}"));
        let metadata = json!({"resourceVersion": revision, "continue": token});
        let (api_version, kind) = (target.resource.gvr.api_version(), target.resource.kind);
        let head = format!(
            r#"{{"apiVersion":"{api_version}","kind":"{kind}List","metadata":{metadata},"items":["#
        );
        let mut body = head.into_bytes();
        for (n, object) in objects.iter().enumerate() {
            if n > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&object.bytes());
        }
        body.extend_from_slice(b"]}");
        Ok(MemberReply::Document(body.into()))
    }

    fn watch_body(
        &self,
        mut events: UnboundedReceiver<Bytes>,
        query: &MemberQuery,
    ) -> TestHttpBody {
        let progress = Arc::clone(&self.progress);
        let mut end = Box::pin(tokio::time::sleep(query.watch_timeout()));
        let frames = stream::poll_fn(move |context| {
            if end.as_mut().poll(context).is_ready() {
                return std::task::Poll::Ready(None);
            }
            events.poll_recv(context).map(|event| {
                let event = event?;
                progress.record_sent(event.len());
                Some(Ok(Frame::data(event)))
            })
        });
        StreamBody::new(frames).boxed()
    }
}

fn selector(query: &MemberQuery) -> Result<LabelSelector, Status> {
    LabelSelector::parse(query.text("labelSelector")).map_err(Status::bad_request)
}

fn document(object: &Object) -> MemberReply {
    MemberReply::Document(object.bytes())
}

fn parse_body(body: &[u8]) -> Result<Value, Status> {
    machinery::json::from_slice(body).map_err(|error| Status::bad_request(error.to_string()))
}

fn json_response(code: u16, body: TestHttpBody) -> Response<TestHttpBody> {
    let mut response = Response::new(body);
    *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or_default();
    let json = hyper::header::HeaderValue::from_static("application/json");
    let headers = response.headers_mut();
    headers.insert(hyper::header::CONTENT_TYPE, json);
    response
}

fn node(n: usize) -> Value {
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{n}")},
        "status": {
            "capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}
