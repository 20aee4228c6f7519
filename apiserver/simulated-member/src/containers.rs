//! Connects the subresources `pods/log`, `pods/exec`, `pods/attach` and `pods/portforward` of a
//! simulated cluster to the containers of its hollow pods.

use std::sync::Arc;

use async_trait::async_trait;
use client::remote::{WebSocketRole, websocket_byte_stream};
use client::{Api, TaskGroup};
use flotilla_http::{
    ServerResponseBody, SubresourceConnectRequest, SubresourceConnector, SubresourceConnectors,
    accept_websocket, is_websocket_request,
};
use futures_util::StreamExt;
use hollow::containers::{
    CHANNEL_PROTOCOL, EXEC_SUBPROTOCOLS, PORT_FORWARD_CHANNELS, PORT_FORWARD_PROTOCOL,
    PORT_FORWARD_TUNNEL, PROTOCOL_HEADER, PodExecOptions, PodLogOptions, PodLogStream,
    SPDY_PROTOCOL, StartedContainer, check_pod_running, negotiate_spdy_protocol,
    parse_forwarded_ports, run_port_forward, run_session, run_websocket_port_forward,
    run_websocket_session,
};
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use machinery::time::Clock;
use machinery::{Gvk, Status};
use registry::SubresourceInfo;
use serde_json::{Value, json};

/// The connectors for the container subresources of pods. Sessions are child tasks of
/// `tasks`.
pub fn container_connectors(
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

    fn discovered(&self) -> Option<SubresourceInfo> {
        Some(SubresourceInfo {
            name: "log",
            kind: Gvk::from_static("", "v1", "Pod"),
            verbs: &["get"],
        })
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

    fn discovered(&self) -> Option<SubresourceInfo> {
        let (name, kind) = match self.attach {
            true => ("attach", "PodAttachOptions"),
            false => ("exec", "PodExecOptions"),
        };
        Some(connected_subresource(name, kind))
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        let container = find_container(&*self.api, &connection).await?;
        container.check_running()?;
        let args = connection.params("command");
        let command = PodExecOptions::parse(args, |name| connection.flag(name), self.attach)?;
        let headers = connection.request.headers();
        if is_websocket_request(headers) {
            let (response, subprotocol) = accept_websocket(headers, &EXEC_SUBPROTOCOLS)?;
            let run = |stream| run_websocket_session(stream, command, subprotocol);
            spawn_session(&self.tasks, connection, run);
            return Ok(response);
        }
        negotiate_spdy_protocol(headers, CHANNEL_PROTOCOL)?;
        spawn_session(&self.tasks, connection, |stream| {
            run_session(stream, command)
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

    fn discovered(&self) -> Option<SubresourceInfo> {
        Some(connected_subresource(
            "portforward",
            "PodPortForwardOptions",
        ))
    }

    async fn connect(
        &self,
        connection: SubresourceConnectRequest,
    ) -> Result<Response<ServerResponseBody>, Status> {
        check_pod_running(&*self.api, &connection.namespace, &connection.name).await?;
        let headers = connection.request.headers();
        if !is_websocket_request(headers) {
            negotiate_spdy_protocol(headers, PORT_FORWARD_PROTOCOL)?;
            spawn_session(&self.tasks, connection, run_port_forward);
            return Ok(switching_protocols(PORT_FORWARD_PROTOCOL));
        }
        let supported = [PORT_FORWARD_TUNNEL, PORT_FORWARD_CHANNELS];
        let (response, subprotocol) = accept_websocket(headers, &supported)?;
        if subprotocol == PORT_FORWARD_TUNNEL {
            spawn_session(&self.tasks, connection, |stream| async {
                let tunnel = websocket_byte_stream(stream, WebSocketRole::Server).await;
                run_port_forward(tunnel).await
            });
            return Ok(response);
        }
        let ports = connection.params("ports");
        let ports = parse_forwarded_ports(&ports).map_err(Status::bad_request)?;
        spawn_session(&self.tasks, connection, |stream| async move {
            run_websocket_port_forward(stream, &ports).await
        });
        Ok(response)
    }
}

/// A subresource to which clients connect with GET or POST.
fn connected_subresource(name: &'static str, kind: &'static str) -> SubresourceInfo {
    SubresourceInfo {
        name,
        kind: Gvk::from_static("", "v1", kind),
        verbs: &["create", "get"],
    }
}

/// Runs a session on the upgraded connection until it ends or the server stops.
fn spawn_session<F>(
    tasks: &TaskGroup,
    mut connection: SubresourceConnectRequest,
    run: impl FnOnce(TokioIo<Upgraded>) -> F + Send + 'static,
) where
    F: Future<Output = std::io::Result<()>> + Send,
{
    let upgrade = hyper::upgrade::on(&mut connection.request);
    let shutdown = connection.shutdown;
    tasks.spawn(async move {
        let session = async {
            let stream = upgrade.await.map_err(std::io::Error::other)?;
            run(TokioIo::new(stream)).await
        };
        if let Some(Err(error)) = shutdown.run_until_triggered(session).await {
            tracing::debug!(%error, "a session with a container failed");
        }
    });
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
