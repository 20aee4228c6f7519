//! Connects the subresources `pods/log`, `pods/exec`, `pods/attach` and `pods/portforward` of a
//! simulated cluster to the containers of its hollow pods.

use std::sync::Arc;

use async_trait::async_trait;
use client::{Api, TaskGroup};
use flotilla_http::{
    ServerResponseBody, SubresourceConnectRequest, SubresourceConnector, SubresourceConnectors,
};
use futures_util::StreamExt;
use hollow::containers::{
    CHANNEL_PROTOCOL, PORT_FORWARD_PROTOCOL, PROTOCOL_HEADER, PodExecOptions, PodLogOptions,
    PodLogStream, SPDY_PROTOCOL, StartedContainer, check_pod_running, negotiate_protocol,
    run_port_forward, run_session,
};
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::Status;
use machinery::time::Clock;
use serde_json::{Value, json};

/// The connectors for the container subresources of pods. Sessions are child tasks of
/// `tasks`.
pub(crate) fn container_connectors(
    api: &Arc<dyn Api>,
    clock: &Arc<dyn Clock>,
    tasks: &TaskGroup,
) -> SubresourceConnectors {
    let key = |subresource: &str| (String::new(), "pods".to_owned(), subresource.to_owned());
    let log = PodLogConnector {
        api: Arc::clone(api),
        clock: Arc::clone(clock),
    };
    let tasks = tasks.child();
    let exec = |attach| PodExecOrAttachConnector {
        api: Arc::clone(api),
        tasks: tasks.clone(),
        attach,
    };
    let forward = PodPortForwardConnector {
        api: Arc::clone(api),
        tasks: tasks.clone(),
    };
    SubresourceConnectors::from([
        (key("portforward"), Arc::new(forward) as _),
        (key("log"), Arc::new(log) as _),
        (key("exec"), Arc::new(exec(false)) as _),
        (key("attach"), Arc::new(exec(true)) as _),
    ])
}

/// The container of a request.
async fn find_container(
    api: &dyn Api,
    connection: &SubresourceConnectRequest,
) -> Result<StartedContainer, Status> {
    let requested = connection.param("container");
    let (namespace, pod) = (&connection.namespace, &connection.name);
    StartedContainer::find(api, namespace, pod, requested.as_deref()).await
}

struct PodLogConnector {
    api: Arc<dyn Api>,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl SubresourceConnector for PodLogConnector {
    fn connect_options(&self, _: &SubresourceConnectRequest) -> Option<Value> {
        None
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let container = find_container(&*self.api, &connection).await?;
        let options = PodLogOptions::parse(
            |name| connection.param(name),
            |name| connection.flag(name),
            self.clock.now(),
        )?;
        let (api, clock) = (Arc::clone(&self.api), Arc::clone(&self.clock));
        let log = PodLogStream::open(api, clock, connection.shutdown, container, options)?;
        let chunks = log.into_chunks();
        let frames = chunks.map(|chunk| Ok::<_, std::convert::Infallible>(Frame::data(chunk)));
        let mut response = Response::new(ServerResponseBody::proxied(StreamBody::new(frames)));
        let text = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(CONTENT_TYPE, text);
        Ok(response)
    }
}

struct PodExecOrAttachConnector {
    api: Arc<dyn Api>,
    /// The tasks of the sessions.
    tasks: TaskGroup,
    attach: bool,
}

#[async_trait]
impl SubresourceConnector for PodExecOrAttachConnector {
    fn connect_options(&self, connection: &SubresourceConnectRequest) -> Option<Value> {
        let kind = match self.attach {
            true => "PodAttachOptions",
            false => "PodExecOptions",
        };
        let mut options = json!({"apiVersion": "v1", "kind": kind});
        for stream in ["stdin", "stdout", "stderr", "tty"] {
            if connection.flag(stream) {
                options[stream] = true.into();
            }
        }
        if let Some(container) = connection.param("container") {
            options["container"] = container.into();
        }
        let command = connection.params("command");
        if !command.is_empty() {
            options["command"] = command.into();
        }
        Some(options)
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let container = find_container(&*self.api, &connection).await?;
        container.check_running()?;
        negotiate_protocol(connection.request.headers(), CHANNEL_PROTOCOL)?;
        let args = connection.params("command");
        let command = PodExecOptions::parse(args, |name| connection.flag(name), self.attach)?;
        let mut request = connection.request;
        let upgrade = hyper::upgrade::on(&mut request);
        let shutdown = connection.shutdown;
        self.tasks.spawn(async move {
            let session = shutdown.run_until_triggered(upgrade_and_run(upgrade, command));
            if let Some(Err(error)) = session.await {
                tracing::debug!(%error, "an exec session failed");
            }
        });
        Ok(switching_protocols(CHANNEL_PROTOCOL))
    }
}

struct PodPortForwardConnector {
    api: Arc<dyn Api>,
    /// The tasks of the sessions.
    tasks: TaskGroup,
}

#[async_trait]
impl SubresourceConnector for PodPortForwardConnector {
    fn connect_options(&self, _: &SubresourceConnectRequest) -> Option<Value> {
        Some(json!({"apiVersion": "v1", "kind": "PodPortForwardOptions"}))
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        check_pod_running(&*self.api, &connection.namespace, &connection.name).await?;
        negotiate_protocol(connection.request.headers(), PORT_FORWARD_PROTOCOL)?;
        let mut request = connection.request;
        let upgrade = hyper::upgrade::on(&mut request);
        let shutdown = connection.shutdown;
        self.tasks.spawn(async move {
            let session = async {
                let stream = upgrade.await.map_err(std::io::Error::other)?;
                run_port_forward(TokioIo::new(stream)).await
            };
            if let Some(Err(error)) = shutdown.run_until_triggered(session).await {
                tracing::debug!(%error, "a session of forwarded ports failed");
            }
        });
        Ok(switching_protocols(PORT_FORWARD_PROTOCOL))
    }
}

async fn upgrade_and_run(upgrade: OnUpgrade, command: PodExecOptions) -> std::io::Result<()> {
    let stream = upgrade.await.map_err(std::io::Error::other)?;
    run_session(TokioIo::new(stream), command).await
}

fn switching_protocols(protocol: &'static str) -> Response<ServerResponseBody> {
    let mut response = Response::new(ServerResponseBody::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(SPDY_PROTOCOL));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(protocol));
    response
}
