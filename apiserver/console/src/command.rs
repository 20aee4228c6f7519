//! The command `flotilla console`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use clap::Args;
use client::{ShutdownToken, TaskGroup};
use flotilla_cli::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use flotilla_cli::output;
use tokio::net::TcpListener;

use crate::access::{ConsoleAccess, LinkAccess};
use crate::console::{Console, ConsoleSubject};
use crate::external_url::ExternalUrl;
use crate::guard::RequestGuard;
use crate::remote_connections::{TokenConnector, connect};
use crate::server::{ConsoleServer, ListenerOptions};
use crate::tls::CertificateFiles;
use crate::users::ConsoleUsers;

const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Show the fleet in a browser: clusters, workloads, rollouts, and what is wrong.
///
/// Serves pages on loopback until it is interrupted, with the rights of the kubeconfig's user and no
/// others. The printed address opens the pages once; each time it is used, the next one is printed.
///
/// With --external-url it serves many users, as in a cluster. It has no rights of its own then: each user logs in
/// with a bearer token of the control plane, or comes through a proxy that adds the token to requests.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla console\n  flotilla console --listen 127.0.0.1:8001 --kubeconfig admin.conf\n  flotilla console --external-url https://console.example.com --listen 0.0.0.0:8443 \\\n    --server https://plane.example.com:6443 --certificate-authority ca.crt --tls-cert-file tls.crt --tls-private-key-file tls.key"
)]
pub struct ConsoleArgs {
    /// The address to listen at, on loopback unless --external-url is set; port 0 is any free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = DEFAULT_ADDRESS)]
    listen: SocketAddr,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    #[command(flatten)]
    users: UserArgs,
}

/// The flags of a console for many users.
#[derive(Args)]
struct UserArgs {
    /// The URL by which browsers reach the console, for users who log in with a token of their own.
    /// Requests to another host are refused.
    #[arg(long, value_name = "URL", requires = "server",
          conflicts_with_all = ["kubeconfig", "context"], value_parser = ExternalUrl::parse)]
    external_url: Option<ExternalUrl>,
    /// The address and port of the control plane, to which the users' tokens are sent.
    #[arg(long, value_name = "URL", requires = "external_url")]
    server: Option<String>,
    /// Path to a cert file for the certificate authority of --server; the system's by default.
    #[arg(long, value_name = "FILE", requires = "external_url")]
    certificate_authority: Option<PathBuf>,
    /// File containing the x509 certificate for HTTPS, with intermediate certificates after it. It
    /// is read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_private_key_file",
        requires = "external_url"
    )]
    tls_cert_file: Option<PathBuf>,
    /// File containing the x509 private key matching --tls-cert-file.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// Serve without TLS, behind a proxy that serves --external-url. Who can read between the
    /// two has the tokens.
    #[arg(long, requires = "external_url", conflicts_with = "tls_cert_file")]
    insecure_http: bool,
}

/// Serves until `interrupted` completes.
pub async fn run(
    arguments: ConsoleArgs,
    interrupted: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    match arguments.users.external_url.clone() {
        None => serve_own_user(&arguments, &tasks).await?,
        Some(url) => serve_users(arguments, &url, &tasks).await?,
    }
    interrupted.await;
    tasks.stop().await;
    Ok(())
}

/// Starts to serve the user of the kubeconfig.
async fn serve_own_user(arguments: &ConsoleArgs, tasks: &TaskGroup) -> anyhow::Result<()> {
    ensure!(
        arguments.listen.ip().is_loopback(),
        "the console serves on loopback only, for it acts with your rights; listen at 127.0.0.1 or [::1] and forward the port (ssh -L) to reach it from elsewhere, or let each user log in with --external-url"
    );
    let config = arguments.control.load_config()?;
    let subject = ConsoleSubject {
        control_plane: config.server.to_string(),
        user_name: None,
        namespace: config.namespace.clone(),
    };
    let connections = connect(config, tasks)?;
    let (listener, address) = listen(arguments.listen).await?;
    let console = Console::start(connections, subject, tasks);
    let access = LinkAccess::new(console, address, Box::new(output::print_line));
    let server = Arc::new(ConsoleServer {
        access: ConsoleAccess::Link(access),
        guard: RequestGuard::loopback(address),
    });
    server.start(listener, ListenerOptions::LOOPBACK, tasks);
    Ok(())
}

/// Starts to serve users with tokens of their own.
async fn serve_users(
    arguments: ConsoleArgs,
    url: &ExternalUrl,
    tasks: &TaskGroup,
) -> anyhow::Result<()> {
    let flags = arguments.users;
    let tls = match (flags.tls_cert_file, flags.tls_private_key_file) {
        (Some(certificate), Some(key)) => {
            let files = CertificateFiles { certificate, key };
            Some(files.acceptor(tasks).await?)
        }
        _ if flags.insecure_http => None,
        _ => bail!(
            "--external-url requires --tls-cert-file and --tls-private-key-file, or --insecure-http behind a proxy that serves the URL"
        ),
    };
    let server = flags.server.unwrap_or_default();
    let connector = TokenConnector::new(&server, flags.certificate_authority).await?;
    let control_plane = connector.server.server.to_string();
    let users = ConsoleUsers::new(Box::new(connector), control_plane, tasks);
    let (listener, address) = listen(arguments.listen).await?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let server = Arc::new(ConsoleServer {
        access: ConsoleAccess::Tokens(users),
        guard: RequestGuard::external(url),
    });
    server.start(listener, ListenerOptions::for_users(tls), tasks);
    output::print_line(format!(
        "ready {scheme}://{address} external-url={}",
        url.origin()
    ));
    Ok(())
}

async fn listen(address: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await;
    let listener = listener
        .with_context(|| format!("cannot listen at {address}; name another port with --listen"))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
