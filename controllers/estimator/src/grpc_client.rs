//! A gRPC client of a cluster's own estimator, with a timeout per call.
//!
//! Source of the rules: Karmada's `pkg/estimator/client/accurate.go`.

use std::future::Future;
use std::time::Duration;

use client::TaskGroup;
use client::remote::server_name;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use rustls_pki_types::ServerName;
use scheduler::core::AssumedWorkload;
use scheduler::{EstimateRequest, EstimateSubject};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use crate::protobuf::{
    self, MaxAvailableComponentSetsResponse, MaxAvailableReplicasResponse, ObjectReferenceMessage,
    UnschedulableReplicasRequest, UnschedulableReplicasResponse,
};
use crate::service_address::EstimatorAddress;
use crate::tls::EstimatorTlsClientConfig;

/// Timeout of a connection attempt.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that does not answer a ping is gone after 15 + 15 seconds.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

pub(crate) static MAX_AVAILABLE_REPLICAS_PATH: &str =
    "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator/MaxAvailableReplicas";
pub(crate) static MAX_AVAILABLE_COMPONENT_SETS_PATH: &str =
    "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator/MaxAvailableComponentSets";
pub(crate) static UNSCHEDULABLE_REPLICAS_PATH: &str =
    "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator/GetUnschedulableReplicas";
/// Metadata key that names the template, for the server's logs.
pub(crate) const OBJECT_METADATA_KEY: &str = "object";

trait AsyncReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> AsyncReadWrite for T {}

/// Why a call returned no estimate.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct EstimateError {
    pub(crate) text: String,
    /// The server may be gone.
    pub(crate) connection_lost: bool,
}

/// A connection that reconnects on demand.
#[derive(Clone, Debug)]
pub(crate) struct EstimatorClient {
    channel: Channel,
    timeout: Duration,
}

/// Runs connection tasks in a task group, so that they have an owner.
#[derive(Clone)]
pub(crate) struct TaskGroupExecutor(pub(crate) TaskGroup);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for TaskGroupExecutor {
    fn execute(&self, work: F) {
        let shutdown = self.0.shutdown().clone();
        self.0.spawn(async move {
            shutdown.run_until_triggered(work).await;
        });
    }
}

impl EstimatorClient {
    /// Connects to the first of the addresses that is reachable.
    pub(crate) async fn connect(
        addresses: &[EstimatorAddress],
        tls: Option<&EstimatorTlsClientConfig>,
        timeout: Duration,
        tasks: &TaskGroup,
    ) -> Result<Self, String> {
        let mut failures = Vec::new();
        for address in addresses {
            let dialed = tokio::time::timeout(CONNECT_TIMEOUT, dial(address, tls, tasks)).await;
            let dialed = dialed.unwrap_or_else(|_| Err("no connection in time".into()));
            match dialed {
                Ok(channel) => return Ok(Self { channel, timeout }),
                Err(reason) => failures.push(format!("dial {address} error: {reason}")),
            }
        }
        Err(failures.join(", "))
    }

    /// The estimator's number of replicas or sets; negative if it does not know.
    pub(crate) async fn max_available(
        &self,
        cluster: &str,
        question: &EstimateRequest<'_>,
        assumed: &[impl AsRef<AssumedWorkload>],
    ) -> Result<i64, EstimateError> {
        let encoding_error = |text| EstimateError {
            text,
            connection_lost: false,
        };
        let object = &question.object;
        let available = match question.subject {
            EstimateSubject::Replicas(requirements) => {
                let request = protobuf::replicas_request(cluster, requirements, assumed)
                    .map_err(encoding_error)?;
                let response: MaxAvailableReplicasResponse = self
                    .call(MAX_AVAILABLE_REPLICAS_PATH, request, object)
                    .await?;
                response.max_replicas
            }
            EstimateSubject::Sets {
                namespace,
                components,
            } => {
                let request =
                    protobuf::component_sets_request(cluster, namespace, components, assumed);
                let request = request.map_err(encoding_error)?;
                let response: MaxAvailableComponentSetsResponse = self
                    .call(MAX_AVAILABLE_COMPONENT_SETS_PATH, request, object)
                    .await?;
                response.max_sets
            }
        };
        Ok(available.into())
    }

    /// The replicas of the workload that the cluster's scheduler has failed to place for longer
    /// than `threshold`; negative if the estimator does not know.
    pub(crate) async fn unschedulable_replicas(
        &self,
        cluster: &str,
        workload: ObjectReferenceMessage,
        threshold: Duration,
    ) -> Result<i32, EstimateError> {
        let ObjectReferenceMessage {
            kind,
            namespace,
            name,
            ..
        } = &workload;
        let object = format!("kind={kind}, name={namespace}/{name}");
        let request = UnschedulableReplicasRequest {
            cluster: cluster.to_owned(),
            resource: Some(workload),
            unschedulable_threshold: i64::try_from(threshold.as_nanos()).unwrap_or(i64::MAX),
        };
        let response: UnschedulableReplicasResponse = self
            .call(UNSCHEDULABLE_REPLICAS_PATH, request, &object)
            .await?;
        Ok(response.unschedulable_replicas)
    }

    async fn call<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        object: &str,
    ) -> Result<A, EstimateError>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut request = Request::new(message);
        request.set_timeout(self.timeout);
        if let Ok(object) = AsciiMetadataValue::try_from(object) {
            request.metadata_mut().insert(OBJECT_METADATA_KEY, object);
        }
        let mut grpc = Grpc::new(self.channel.clone());
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let call = async {
            if let Err(e) = grpc.ready().await {
                return Err(tonic::Status::unavailable(e.to_string()));
            }
            grpc.unary(request, path, codec).await
        };
        match tokio::time::timeout(self.timeout, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(EstimateError {
                connection_lost: matches!(
                    status.code(),
                    Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
                ),
                text: format!("{}: {}", status.code(), status.message()),
            }),
            Err(_) => Err(EstimateError {
                text: format!("no answer within {:?}", self.timeout),
                connection_lost: true,
            }),
        }
    }
}

async fn dial(
    address: &EstimatorAddress,
    tls: Option<&EstimatorTlsClientConfig>,
    tasks: &TaskGroup,
) -> Result<Channel, String> {
    let tls = match tls {
        None => None,
        Some(files) => Some((files.connector()?, server_name(&address.host)?)),
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let text = |e: http::uri::InvalidUri| e.to_string();
    let origin: Uri = format!("{scheme}://{address}").parse().map_err(text)?;
    // The connector itself does TLS; for an https URI tonic would insist on its own TLS.
    let endpoint =
        Endpoint::from_shared(format!("http://{address}")).map_err(|e| root_cause(&e))?;
    let endpoint = endpoint
        .origin(origin)
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_INTERVAL)
        .executor(TaskGroupExecutor(tasks.clone()));
    let to = address.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let (to, tls) = (to.clone(), tls.clone());
        async move { open(&to, tls).await.map(TokioIo::new) }
    });
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|e| root_cause(&e))
}

async fn open(
    to: &EstimatorAddress,
    tls: Option<(TlsConnector, ServerName<'static>)>,
) -> std::io::Result<Box<dyn AsyncReadWrite>> {
    let stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => Ok(Box::new(stream)),
        Some((tls, name)) => Ok(Box::new(tls.connect(name, stream).await?)),
    }
}

/// The innermost cause; the outer errors only wrap it.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
