//! A fake estimator of one cluster that speaks Karmada's protocol.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::TaskGroup;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tonic::Status;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;

use crate::protobuf::{
    MaxAvailableComponentSetsRequest, MaxAvailableComponentSetsResponse,
    MaxAvailableReplicasRequest, MaxAvailableReplicasResponse, UnschedulableReplicasRequest,
    UnschedulableReplicasResponse,
};

const SERVICE: &str = "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator/";

/// How it responds to every call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FakeEstimatorResponse {
    Available(i32),
    Error,
    Nothing,
}

struct FakeEstimatorState {
    cluster: String,
    response: Mutex<FakeEstimatorResponse>,
    requests: Mutex<Vec<String>>,
}

#[derive(Clone)]
pub(crate) struct FakeEstimator {
    pub(crate) address: SocketAddr,
    state: Arc<FakeEstimatorState>,
    tasks: TaskGroup,
}

impl FakeEstimator {
    pub(crate) async fn start(
        cluster: &str,
        says: FakeEstimatorResponse,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), cluster, says, tls).await
    }

    pub(crate) async fn start_at(
        address: SocketAddr,
        cluster: &str,
        says: FakeEstimatorResponse,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let estimator = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::new(FakeEstimatorState {
                cluster: cluster.to_owned(),
                response: Mutex::new(says),
                requests: Mutex::default(),
            }),
            tasks: TaskGroup::new(client::ShutdownToken::new()),
        };
        let (peer, shutdown) = (estimator.clone(), estimator.tasks.shutdown().clone());
        estimator.tasks.spawn(async move {
            while let Some(Ok((stream, _))) = shutdown.run_until_triggered(listener.accept()).await
            {
                let (estimator, ends) = (peer.clone(), shutdown.clone());
                let serving = peer.clone().serve(stream, tls.clone());
                estimator.tasks.spawn(async move {
                    ends.run_until_triggered(serving).await;
                });
            }
        });
        estimator
    }

    pub(crate) fn set_response(&self, says: FakeEstimatorResponse) {
        *self.state.response.lock() = says;
    }

    /// Method, cluster and object of each call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.state.requests.lock())
    }

    pub(crate) async fn stop(&self) {
        self.tasks.stop().await;
    }

    async fn serve(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        let service = service_fn(move |request| {
            let estimator = self.clone();
            async move { Ok::<_, Infallible>(estimator.handle(request).await) }
        });
        let http = http2::Builder::new(TokioExecutor::new());
        // A client that is gone needs no response.
        let _ = match tls {
            None => http.serve_connection(TokioIo::new(stream), service).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => http.serve_connection(TokioIo::new(stream), service).await,
                Err(_) => return,
            },
        };
    }

    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        match path.strip_prefix(SERVICE) {
            Some(method @ "MaxAvailableReplicas") => {
                let answer = |room| MaxAvailableReplicasResponse { max_replicas: room };
                let cluster = |r: &MaxAvailableReplicasRequest| r.cluster.clone();
                self.unary(method, request, cluster, answer).await
            }
            Some(method @ "MaxAvailableComponentSets") => {
                let answer = |room| MaxAvailableComponentSetsResponse { max_sets: room };
                let cluster = |r: &MaxAvailableComponentSetsRequest| r.cluster.clone();
                self.unary(method, request, cluster, answer).await
            }
            Some(method @ "GetUnschedulableReplicas") => {
                let answer = |replicas| UnschedulableReplicasResponse {
                    unschedulable_replicas: replicas,
                };
                let cluster = |r: &UnschedulableReplicasRequest| r.cluster.clone();
                self.unary(method, request, cluster, answer).await
            }
            _ => Status::unimplemented(path).into_http(),
        }
    }

    async fn unary<Q, A>(
        &self,
        method: &str,
        request: Request<Incoming>,
        cluster: impl Fn(&Q) -> String,
        answer: impl Fn(i32) -> A,
    ) -> Response<Body>
    where
        Q: Message + Default + 'static,
        A: Message + 'static,
    {
        let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
        let service = tower::service_fn(|request: tonic::Request<Q>| {
            let object = request
                .metadata()
                .get("object")
                .map(|o| o.to_str().unwrap());
            let requested = cluster(request.get_ref());
            let entry = format!("{method} {requested} {}", object.unwrap_or_default());
            self.state.requests.lock().push(entry);
            let (says, own) = (*self.state.response.lock(), &self.state.cluster);
            let response = match says {
                _ if requested != *own => Err(Status::unknown(format!(
                    "cluster name does not match, got: {requested}, desire: {own}"
                ))),
                FakeEstimatorResponse::Available(room) => Ok(tonic::Response::new(answer(room))),
                FakeEstimatorResponse::Error => Err(Status::internal("broken")),
                FakeEstimatorResponse::Nothing => Err(Status::cancelled("late")),
            };
            async move {
                if matches!(says, FakeEstimatorResponse::Nothing) {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                }
                response
            }
        });
        grpc.unary(service, request).await
    }
}
