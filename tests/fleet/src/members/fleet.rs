//! All members behind one port, on threads of their own.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::anyhow;
use harness::FakeHttpsServer;
use harness::http_client::{TestHttpBody, full_body};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use machinery::Object;
use tokio::runtime::{Builder, Runtime};

use super::api_server::MemberApiServer;
use super::progress::FleetProgress;
use crate::sizes::FleetSize;

/// The name of the members' threads.
pub(crate) const MEMBER_THREADS: &str = "members";
const THREADS: usize = 2;

type MembersByName = BTreeMap<String, MemberApiServer>;

/// The running members. The server stops before its threads.
pub(crate) struct SimulatedFleet {
    server: FakeHttpsServer,
    members: Arc<MembersByName>,
    pub(crate) progress: Arc<FleetProgress>,
    _threads: Runtime,
}

impl SimulatedFleet {
    pub(crate) fn start(size: &FleetSize) -> anyhow::Result<Self> {
        let threads = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name(MEMBER_THREADS)
            .enable_all()
            .build()?;
        let progress = Arc::new(FleetProgress::default());
        let mut members = MembersByName::new();
        for n in 0..size.clusters {
            let member = MemberApiServer::new(n, &progress);
            let member = member.map_err(|status| anyhow!("{}", status.message))?;
            members.insert(size.cluster_name(n), member);
        }
        let members = Arc::new(members);
        let served = Arc::clone(&members);
        let server = threads.block_on(FakeHttpsServer::start(Arc::new(move |request| {
            Box::pin(respond(Arc::clone(&served), request))
        })));
        Ok(Self {
            server,
            members,
            progress,
            _threads: threads,
        })
    }

    /// The endpoint of a member.
    pub(crate) fn endpoint(&self, cluster: &str) -> String {
        format!("https://{}/{cluster}", self.server.address)
    }

    /// The CA bundle of all endpoints, in PEM.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.server.ca_pem
    }

    /// Reads all objects of all members, in an order that is the same in every run.
    pub(crate) fn for_each_object(&self, mut read: impl FnMut(&str, &Object)) {
        for (name, member) in &*self.members {
            member.store.for_each_object(|object| read(name, object));
        }
    }
}

async fn respond(
    members: Arc<MembersByName>,
    request: Request<Incoming>,
) -> Response<TestHttpBody> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().trim_start_matches('/');
    let (name, path) = path.split_once('/').unwrap_or((path, ""));
    let query = head.uri.query().unwrap_or_default();
    match (members.get(name), body.collect().await) {
        (Some(member), Ok(body)) => member.respond(&head.method, path, query, &body.to_bytes()),
        (None, _) => failure(StatusCode::NOT_FOUND),
        (_, Err(_)) => failure(StatusCode::BAD_REQUEST),
    }
}

fn failure(code: StatusCode) -> Response<TestHttpBody> {
    let mut response = Response::new(full_body(code.to_string()));
    *response.status_mut() = code;
    response
}
