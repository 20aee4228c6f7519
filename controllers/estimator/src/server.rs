//! The server of a member's estimator, which schedulers ask by Karmada's gRPC protocol.
//!
//! Nodes, pods and quotas of the member are tracked by [`MemberCluster`], as in the control
//! plane; the server accepts connections only when they are listed. Source of the rules:
//! Karmada's `pkg/estimator/server/server.go`.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use client::{Api, TaskGroup};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use machinery::time::{Clock, SystemClock};
use members::{MemberCluster, MemberTrackingOptions};
use prost::Message;
use scheduler::core::AccurateEstimate;
use scheduler::{EstimateRequest, EstimateSubject};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::server::Grpc;
use tonic_prost::ProstCodec;

use crate::grpc_client::{
    MAX_AVAILABLE_COMPONENT_SETS_PATH, MAX_AVAILABLE_REPLICAS_PATH, OBJECT_METADATA_KEY,
    TaskGroupExecutor, UNSCHEDULABLE_REPLICAS_PATH,
};
use crate::local_estimate::estimate_locally;
use crate::metrics;
use crate::protobuf::{
    AssumedWorkloadMessage, MaxAvailableComponentSetsRequest, MaxAvailableComponentSetsResponse,
    MaxAvailableReplicasRequest, MaxAvailableReplicasResponse, UnschedulableReplicasRequest,
    UnschedulableReplicasResponse,
};
use crate::requirements_decoding::{
    decode_components, decode_replica_requirements, decode_workloads,
};
use crate::server_tls::EstimatorTlsServerConfig;
use crate::unschedulable_replicas::count_unschedulable_replicas;

const MAX_CONNECTIONS: usize = 256;
const MAX_STREAMS_PER_CONNECTION: u32 = 100;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Components of a request and of its assumed workloads together: each is matched against
/// every node.
const MAX_COMPONENTS: usize = 10_000;
/// How often the server looks whether the member is listed, before it serves.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After a failure to accept, as when the process has no file descriptors left.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The services of an estimator.
#[derive(Clone, Debug)]
pub struct EstimatorServerOptions {
    /// The member's name; requests for other clusters are rejected.
    pub cluster: String,
    /// Without it connections are not encrypted.
    pub tls: Option<EstimatorTlsServerConfig>,
    /// Estimates respect the member's ResourceQuotas.
    pub quotas: bool,
}

struct EstimatorServerInner {
    member: Arc<MemberCluster>,
    options: EstimatorServerOptions,
    tasks: TaskGroup,
}

/// Answers schedulers for one member. Clones are the same.
#[derive(Clone)]
pub struct EstimatorServer(Arc<EstimatorServerInner>);

impl EstimatorServer {
    /// Starts to track the member, and waits until its nodes, pods and quotas are listed.
    pub async fn sync(
        api: &Arc<dyn Api>,
        options: EstimatorServerOptions,
        tasks: &TaskGroup,
    ) -> Result<Self, String> {
        metrics::register();
        let tracking = MemberTrackingOptions {
            individual_nodes: true,
            quotas: options.quotas,
        };
        let member = MemberCluster::beside(&options.cluster, api, tracking, tasks)?;
        let is_listed = || {
            let quotas = !options.quotas || member.quotas("").is_some();
            member.with_nodes(|_| ()).is_some() && quotas
        };
        while !is_listed() {
            tokio::time::sleep(SYNC_POLL_INTERVAL).await;
        }
        Ok(Self(Arc::new(EstimatorServerInner {
            member,
            options,
            tasks: tasks.clone(),
        })))
    }

    /// Serves connections until the tasks shut down.
    pub fn serve(&self, listener: TcpListener) {
        let (server, shutdown) = (self.clone(), self.0.tasks.shutdown().clone());
        self.0.tasks.spawn(async move {
            shutdown.run_until_triggered(server.accept(listener)).await;
        });
    }

    async fn accept(&self, listener: TcpListener) {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
                    continue;
                }
            };
            let (server, shutdown) = (self.clone(), self.0.tasks.shutdown().clone());
            self.0.tasks.spawn(async move {
                let connection = server.serve_connection(stream);
                if let Some(Err(reason)) = shutdown.run_until_triggered(connection).await {
                    tracing::debug!(reason, "a connection of a scheduler failed");
                }
                drop(permit);
            });
        }
    }

    async fn serve_connection(&self, stream: TcpStream) -> Result<(), String> {
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let Some(tls) = &self.0.options.tls else {
            return self.serve_stream(stream).await;
        };
        let acceptor = tls.acceptor().inspect_err(|reason| {
            tracing::warn!(reason, "the certificates of the estimator cannot be used");
        })?;
        let accepted = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
        let accepted = accepted.map_err(|_| "no TLS handshake in time".to_owned())?;
        self.serve_stream(accepted.map_err(|e| e.to_string())?)
            .await
    }

    async fn serve_stream(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(), String> {
        let server = self.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.handle(request).await) }
        });
        http2::Builder::new(TaskGroupExecutor(self.0.tasks.clone()))
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
            .serve_connection(TokioIo::new(stream), service)
            .await
            .map_err(|e| e.to_string())
    }

    async fn handle(self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        if path == MAX_AVAILABLE_REPLICAS_PATH {
            let estimate = move |object, message| async move { self.max_replicas(object, message) };
            unary(request, estimate).await
        } else if path == MAX_AVAILABLE_COMPONENT_SETS_PATH {
            let estimate = move |object, message| async move { self.max_sets(object, message) };
            unary(request, estimate).await
        } else if path == UNSCHEDULABLE_REPLICAS_PATH {
            let count = move |_, message| self.unschedulable_replicas(message);
            unary(request, count).await
        } else {
            Status::unimplemented(format!("unknown method {path}")).into_http()
        }
    }

    fn check_cluster(&self, requested: &str) -> Result<(), Status> {
        let own = &self.0.options.cluster;
        if requested == own {
            return Ok(());
        }
        let text = format!("cluster name does not match, got: {requested}, desire: {own}");
        Err(Status::unknown(text))
    }

    fn max_replicas(
        &self,
        object: String,
        message: MaxAvailableReplicasRequest,
    ) -> Result<MaxAvailableReplicasResponse, Status> {
        self.check_cluster(&message.cluster)?;
        let failed = |reason| Status::unknown(format!("failed to estimate replicas: {reason}"));
        let requirements = message.replica_requirements.as_ref();
        let requirements = requirements.map(decode_replica_requirements).transpose();
        let requirements = requirements.map_err(failed)?;
        let subject = EstimateSubject::Replicas(requirements.as_ref());
        let max_replicas = self.estimate(object, subject, &message.assumed_workloads);
        Ok(MaxAvailableReplicasResponse {
            max_replicas: max_replicas.map_err(failed)?,
        })
    }

    fn max_sets(
        &self,
        object: String,
        message: MaxAvailableComponentSetsRequest,
    ) -> Result<MaxAvailableComponentSetsResponse, Status> {
        self.check_cluster(&message.cluster)?;
        let failed =
            |reason| Status::unknown(format!("failed to estimate component sets: {reason}"));
        let components = decode_components(&message.components).map_err(failed)?;
        let subject = EstimateSubject::Sets {
            namespace: &message.namespace,
            components: &components,
        };
        let max_sets = self.estimate(object, subject, &message.assumed_workloads);
        Ok(MaxAvailableComponentSetsResponse {
            max_sets: max_sets.map_err(failed)?,
        })
    }

    fn estimate(
        &self,
        object: String,
        subject: EstimateSubject<'_>,
        assumed: &[AssumedWorkloadMessage],
    ) -> Result<i32, String> {
        let assumed = decode_workloads(assumed)?;
        let requested = match subject {
            EstimateSubject::Replicas(_) => 1,
            EstimateSubject::Sets { components, .. } => components.len(),
        };
        let components = assumed.iter().map(|w| w.components.len()).sum::<usize>() + requested;
        if components > MAX_COMPONENTS {
            let text = format!("{components} components, at most {MAX_COMPONENTS} are allowed");
            return Err(text);
        }
        let assumed: Vec<_> = assumed.into_iter().map(Arc::new).collect();
        let request = EstimateRequest { object, subject };
        match estimate_locally(&self.0.member, &request, &assumed, self.0.options.quotas) {
            AccurateEstimate::Available(replicas, _) => {
                i32::try_from(replicas).map_err(|e| e.to_string())
            }
            AccurateEstimate::Unknown => Err("nodes and pods are not listed yet".into()),
            AccurateEstimate::Failed => Err("the replica requirements are invalid".into()),
        }
    }

    async fn unschedulable_replicas(
        self,
        message: UnschedulableReplicasRequest,
    ) -> Result<UnschedulableReplicasResponse, Status> {
        self.check_cluster(&message.cluster)?;
        let workload = message.resource.unwrap_or_default();
        let threshold = u64::try_from(message.unschedulable_threshold).unwrap_or(0);
        let threshold = Duration::from_nanos(threshold);
        let api = &**self.0.member.api();
        let now = SystemClock.now();
        let count = count_unschedulable_replicas(api, &workload, threshold, now).await;
        Ok(UnschedulableReplicasResponse {
            unschedulable_replicas: count.map_err(Status::unknown)?,
        })
    }
}

/// Answers one unary call; `answer` gets the object that the metadata names, and the message.
async fn unary<Q, A, F>(
    request: Request<Incoming>,
    answer: impl FnOnce(String, Q) -> F + Clone,
) -> Response<Body>
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: Future<Output = Result<A, Status>>,
{
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default());
    let service = tower::service_fn(move |request: tonic::Request<Q>| {
        let object = object_of(request.metadata());
        let answer = answer.clone()(object, request.into_inner());
        async move { answer.await.map(tonic::Response::new) }
    });
    grpc.unary(service, request).await
}

fn object_of(metadata: &MetadataMap) -> String {
    let object = metadata.get(OBJECT_METADATA_KEY);
    let object = object.and_then(|value| value.to_str().ok());
    object.unwrap_or_default().to_owned()
}
