//! The command `flotilla console`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use clap::Args;
use client::remote::{Http2FlowControl, RemoteApi, RestConfig};
use client::{ShutdownToken, TaskGroup};
use flotilla_cli::doctor::{self, report::DoctorReport};
use flotilla_cli::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use flotilla_cli::output;
use futures_util::stream::{self, StreamExt};
use tokio::net::TcpListener;

use crate::console::{
    Console, ControlPlaneExaminer, ResponseStream, StreamOpener, UserConnections,
};
use crate::server::ConsoleServer;

/// How long the server and each member may take to answer a question of the page Health.
const EXAMINATION_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Show the fleet in a browser: clusters, workloads, rollouts, and what is wrong.
///
/// Serves pages on loopback until it is interrupted, with the rights of the kubeconfig's user and no
/// others. The printed address opens the pages once; each time it is used, the next one is printed.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla console\n  flotilla console --listen 127.0.0.1:8001 --kubeconfig admin.conf"
)]
pub struct ConsoleArgs {
    /// The address on loopback to listen at; port 0 is any free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = DEFAULT_ADDRESS)]
    listen: SocketAddr,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
}

struct RemoteExaminer(Arc<RemoteApi>);

#[async_trait]
impl ControlPlaneExaminer for RemoteExaminer {
    async fn examine(&self) -> DoctorReport {
        doctor::examine(&self.0, EXAMINATION_TIMEOUT).await
    }
}

/// How long a response may send nothing until that is passed on.
const QUIET_INTERVAL: Duration = Duration::from_secs(15);

struct RemoteStreams(RemoteApi);

#[async_trait]
impl StreamOpener for RemoteStreams {
    async fn open(&self, path: &str) -> client::Result<ResponseStream> {
        let response = self.0.get_raw_stream(path).await?;
        let pieces = stream::unfold(response, |mut response| async move {
            let piece = tokio::time::timeout(QUIET_INTERVAL, response.next()).await;
            let piece = piece.unwrap_or(Ok(Some(Bytes::new())));
            Some((piece.transpose()?, response))
        });
        Ok(pieces.boxed())
    }
}

/// Serves until `interrupted` completes.
pub async fn run(
    arguments: ConsoleArgs,
    interrupted: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    ensure!(
        arguments.listen.ip().is_loopback(),
        "the console serves on loopback only, for it acts with your rights; listen at 127.0.0.1 or [::1] and forward the port (ssh -L) to reach it from elsewhere"
    );
    let config = arguments.control.load_config()?;
    let control_plane = config.server.to_string();
    let tasks = TaskGroup::new(ShutdownToken::new());
    // A browser that does not read its log holds up nothing else.
    let for_streams = RestConfig {
        flow_control: Http2FlowControl::INDEPENDENT_READERS,
        ..config.clone()
    };
    let streams = RemoteStreams(RemoteApi::new(for_streams, &tasks)?);
    let api = Arc::new(RemoteApi::new(config, &tasks)?);
    let listener = TcpListener::bind(arguments.listen).await;
    let listener = listener.with_context(|| {
        format!(
            "cannot listen at {}; name another port with --listen",
            arguments.listen
        )
    })?;
    let address = listener.local_addr()?;
    let connections = UserConnections {
        api: Arc::clone(&api) as Arc<dyn client::Api>,
        streams: Arc::new(streams),
        examiner: Arc::new(RemoteExaminer(api)),
    };
    let console = Console::start(connections, control_plane, &tasks);
    let server = ConsoleServer::new(console, address, Box::new(output::print_line));
    server.print_link();
    server.start(listener, &tasks);
    interrupted.await;
    tasks.stop().await;
    Ok(())
}
