//! Serves `clusters/{name}/proxy/{path}`: forwards requests to a member cluster and
//! impersonates the user there.
//!
//! request ──► permit of the cluster's backend ──► path, headers ──► member
//!         ◄── streamed body, or a tunnel after 101 ◄──
//!
//! The request was authorized on `clusters/proxy`. The client gets the member's
//! response, or a `Status` when the member is unreachable. Nothing is buffered: bodies
//! are forwarded frame by frame in both directions, tunnels byte by byte. Karmada:
//! `pkg/registry/cluster/storage/proxy.go`, `pkg/util/proxy`.

mod all;
mod figures;
mod headers;
mod path;
mod stream;
mod tunnel;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use client::Tasks;
use client::remote::{Body as ForwardedRequestBody, Unreachable};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use machinery::Status;
use members::{Gateways, Place, Refused};
use openapi::karmada::resources::CLUSTERS;

use crate::body::Body;
use crate::connect::{Connect, Connection};
use figures::{Figures, Metrics};
use stream::{End, Passing};

/// Group, resource and subresource under which [`ClusterProxy`] is registered.
pub const CLUSTER_PROXY: (&str, &str, &str) = ("cluster.karmada.io", "clusters", "proxy");

/// Forwards requests to member clusters.
pub struct ClusterProxy {
    gateways: Gateways,
    metrics: Metrics,
    /// Owns the tunnels.
    tasks: Tasks,
}

/// A proxied request: its backend permit, and its metrics until it ends.
struct Held {
    place: Place,
    figures: Figures,
}

/// The member's response, with both ends of a tunnel when the member agreed to upgrade.
struct Answer {
    response: Response<Body>,
    tunnel: Option<Ends>,
}

/// The upgraded connections of client and member.
struct Ends {
    client: OnUpgrade,
    member: OnUpgrade,
}

/// The request to send to the member.
struct Outgoing {
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
    body: Incoming,
}

impl ClusterProxy {
    /// `tasks` owns the tunnels; the metrics are registered with `registry`.
    pub fn new(gateways: Gateways, tasks: &Tasks, registry: &flotilla_metrics::Registry) -> Arc<Self> {
        Arc::new(Self {
            gateways,
            metrics: Metrics::new(registry),
            tasks: tasks.child(),
        })
    }

    async fn enter(&self, cluster: &str) -> Result<Held, Status> {
        let permit = self.gateways.enter(cluster).await.map_err(refused)?;
        let metrics = self.metrics.begin(permit.cluster());
        Ok(Held {
            place: permit,
            figures: metrics,
        })
    }

    async fn forward(&self, connection: Connection) -> Result<Response<Body>, Status> {
        let path = path::below(&connection.tail, connection.request.uri().query())?;
        let guard = self.enter(&connection.name).await?;
        let began = Instant::now();
        let shutdown = connection.closing.clone();
        let answered = self.ask(connection, path, &guard).await;
        let code = match &answered {
            Ok(answer) => answer.response.status().as_u16(),
            Err(status) => status.code,
        };
        guard.figures.answered(code, began.elapsed());
        let Answer {
            mut response,
            tunnel,
        } = answered?;
        match tunnel {
            Some(ends) => {
                let removed = guard.place.gone().clone();
                self.tasks.spawn(async move {
                    shutdown
                        .unless(removed.unless(tunnel::run(ends, guard)))
                        .await;
                });
            }
            None => response.body_mut().keep(guard),
        }
        Ok(response)
    }

    async fn ask(
        &self,
        connection: Connection,
        path: PathAndQuery,
        guard: &Held,
    ) -> Result<Answer, Status> {
        let user = connection.user;
        let end = End {
            deadline: connection.deadline,
            closing: connection.closing,
        };
        let mut request = connection.request;
        let protocol = headers::upgrade(&request);
        let client = protocol.is_some().then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let outgoing = Outgoing {
            headers: headers::request(&parts.headers, &user, protocol.as_ref())?,
            method: parts.method,
            path,
            body,
        };
        let cluster = guard.place.cluster().to_owned();
        let answered = match client {
            Some(client) => self.upgraded(outgoing, client, end, guard).await,
            None => self.streamed(outgoing, end, guard).await,
        };
        let mut answer = answered.map_err(|why| self.unreachable(&cluster, &why))?;
        let response = &mut answer.response;
        if response.status() == StatusCode::UNAUTHORIZED {
            // The member refused our token, not the user's credentials.
            let why = format!("cluster {cluster:?} refused the token of its impersonator");
            return Err(unavailable(why, "ImpersonatorRefused"));
        }
        let forwarder = guard.place.forwarder();
        let prefix = format!(
            "/apis/{}/{}/{}/{cluster}/proxy",
            CLUSTERS.group, CLUSTERS.version, CLUSTERS.resource
        );
        headers::response(response.status(), response.headers_mut(), &|location| {
            path::moved(location, forwarder.authority(), forwarder.base(), &prefix)
        });
        Ok(answer)
    }

    /// Sends an ordinary request; its response body is streamed.
    async fn streamed(
        &self,
        outgoing: Outgoing,
        end: End,
        guard: &Held,
    ) -> Result<Answer, Unreachable> {
        let body = if outgoing.body.is_end_stream() {
            ForwardedRequestBody::whole(Bytes::new())
        } else {
            let sent = guard.figures.sent.clone();
            ForwardedRequestBody::passed(outgoing.body.map_frame(move |frame| {
                sent.inc_by(frame.data_ref().map_or(0, |d| d.len() as u64));
                frame
            }))
        };
        let mut request = Request::new(body);
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = Uri::from(outgoing.path);
        *request.headers_mut() = outgoing.headers;
        let response = guard.place.forwarder().send(request).await?;
        let received = guard.figures.received.clone();
        Ok(Answer {
            response: response.map(|body| Body::foreign(Passing::new(body, received, end))),
            tunnel: None,
        })
    }

    /// Sends an upgrade request. When the member switches protocols, the response holds
    /// both ends of the tunnel.
    async fn upgraded(
        &self,
        outgoing: Outgoing,
        client: OnUpgrade,
        end: End,
        guard: &Held,
    ) -> Result<Answer, Unreachable> {
        let mut request = Request::new(ForwardedRequestBody::whole(Bytes::new()));
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = Uri::from(outgoing.path);
        *request.headers_mut() = outgoing.headers;
        let mut response = guard.place.forwarder().upgrade(request).await?;
        let tunnel = (response.status() == StatusCode::SWITCHING_PROTOCOLS).then(|| Ends {
            client,
            member: hyper::upgrade::on(&mut response),
        });
        let received = guard.figures.received.clone();
        let pass = |body| match tunnel {
            Some(_) => Body::empty(),
            None => Body::foreign(Passing::new(body, received, end)),
        };
        Ok(Answer {
            response: response.map(pass),
            tunnel,
        })
    }

    fn unreachable(&self, cluster: &str, why: &Unreachable) -> Status {
        let condition = self.gateways.trouble(cluster);
        let last_seen = match condition.as_str() {
            "" => String::new(),
            condition => format!(" (last seen as {condition})"),
        };
        let text = match why.unsent {
            true => format!("cluster {cluster:?} cannot be reached: {why}{last_seen}"),
            false => format!("cluster {cluster:?} did not respond: {why}{last_seen}"),
        };
        unavailable(text, "ClusterNotReachable")
    }
}

/// 503 without `Retry-After`: the client decides when to retry.
fn unavailable(text: String, reason: &str) -> Status {
    Status::failure(503, "ServiceUnavailable", text.clone()).cause(reason, text, "")
}

fn refused(why: Refused) -> Status {
    match why {
        Refused::Unknown(name) => Status::not_found(&CLUSTERS, &name),
        Refused::Unusable(text) => Status::internal(text),
        Refused::Host(error) => {
            Status::unavailable(format!("the cluster cannot be looked up: {error}"))
        }
        Refused::Full(_) => Status::too_many_requests(why.to_string(), 1),
    }
}

#[async_trait]
impl Connect for ClusterProxy {
    async fn connect(&self, connection: Connection) -> Result<Response<Body>, Status> {
        if connection.name == all::ALL {
            return Box::pin(self.forward_to_all(connection)).await;
        }
        Box::pin(self.forward(connection)).await
    }
}
