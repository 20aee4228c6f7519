//! The command `flotilla estimator`, which runs beside a member and tells schedulers how many
//! replicas fit there, by the gRPC protocol of karmada-scheduler-estimator.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use clap::Args;
use client::remote::RemoteApi;
use client::remote::in_cluster::InClusterEnvironment;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::{Api, ShutdownToken, TaskGroup};
use estimator::{EstimatorServer, EstimatorServerOptions, EstimatorTlsServerConfig};
use flotilla_cli::{feature_gate_flags, output};
use flotilla_http::{BindAddress, LOOPBACK_METRICS, ProbeEndpoint, serve_probes};
use karmada_api::KarmadaFeature;

use crate::logs;
use crate::signals::TerminationSignals;

/// Run the scheduler estimator of a member cluster beside that cluster.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla estimator --cluster-name m1 --kubeconfig m1.kubeconfig"
)]
pub(crate) struct EstimatorServerArgs {
    /// Name of the member cluster that the estimator serves for.
    #[arg(long, value_name = "NAME")]
    cluster_name: String,
    /// Path to the kubeconfig of the member; that of the pod by default.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The port on which to serve gRPC; 0 picks a free one.
    #[arg(long, value_name = "PORT", default_value_t = 10352)]
    server_port: u16,
    /// The IP address on which to serve gRPC: by default every address with a certificate, and
    /// 127.0.0.1 without one.
    #[arg(long, value_name = "IP")]
    bind_address: Option<IpAddr>,
    /// SSL certification file used to secure gRPC. Without it, connections are not encrypted.
    #[arg(long, value_name = "FILE", requires = "grpc_auth_key_file")]
    grpc_auth_cert_file: Option<PathBuf>,
    /// SSL key file used to secure gRPC.
    #[arg(long, value_name = "FILE", requires = "grpc_auth_cert_file")]
    grpc_auth_key_file: Option<PathBuf>,
    /// SSL Certificate Authority file used to verify clients.
    #[arg(long, value_name = "FILE")]
    grpc_client_ca_file: Option<PathBuf>,
    /// Do not verify the certificate chains of clients.
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_skip_grpc_client_verify: bool,
    /// The TCP address for serving Prometheus metrics, for example ":8080"; "0" disables it. They
    /// are served without TLS to everyone who reaches the address.
    #[arg(long, value_name = "ADDRESS", default_value = LOOPBACK_METRICS, value_parser = BindAddress::parse)]
    metrics_bind_address: BindAddress,
    /// The TCP address for serving health probes, for example ":10351"; "0" disables it.
    #[arg(long, value_name = "ADDRESS", default_value = ":10351", value_parser = BindAddress::parse)]
    health_probe_bind_address: BindAddress,
    #[command(flatten)]
    gates: feature_gate_flags::FeatureGateArgs,
    #[command(flatten)]
    pub(crate) logs: logs::LoggingArgs,
}

pub(crate) async fn run(arguments: EstimatorServerArgs) -> anyhow::Result<()> {
    let mut signals = TerminationSignals::listen()?;
    let tasks = TaskGroup::new(ShutdownToken::new());
    let running = async {
        start(&arguments, &tasks).await?;
        std::future::pending().await
    };
    let ended: anyhow::Result<Option<()>> = signals.run_unless_signaled(running).await;
    tasks.stop().await;
    ended.map(drop)
}

async fn start(arguments: &EstimatorServerArgs, tasks: &TaskGroup) -> anyhow::Result<()> {
    let tls = tls_config(arguments)?;
    let member = match &arguments.kubeconfig {
        Some(file) => KubeconfigLoadingRules::from_file(file)
            .load()
            .context("the cluster's kubeconfig")?,
        None => InClusterEnvironment::from_environment()?.load()?,
    };
    let member: Arc<dyn Api> = Arc::new(RemoteApi::new(member, tasks)?);
    let ready = Arc::new(AtomicBool::new(false));
    for (address, endpoint) in [
        (arguments.metrics_bind_address, ProbeEndpoint::Metrics),
        (
            arguments.health_probe_bind_address,
            ProbeEndpoint::Health(Arc::clone(&ready)),
        ),
    ] {
        if let Some(listener) = address.bind().await? {
            serve_probes(listener, endpoint, tasks);
        }
    }
    let listener = grpc_address(arguments, tls.is_some()).bind().await?;
    let listener = listener.context("no port to serve gRPC")?;
    let port = listener.local_addr().context("no local address")?.port();
    let scheme = if tls.is_some() { "https" } else { "http" };
    let host = Ipv4Addr::LOCALHOST;
    let gates = arguments.gates.feature_gates;
    let options = EstimatorServerOptions {
        cluster: arguments.cluster_name.clone(),
        tls,
        quotas: gates.enabled(KarmadaFeature::ResourceQuotaEstimate),
    };
    let server = EstimatorServer::sync(&member, options, tasks).await;
    server.map_err(anyhow::Error::msg)?.serve(listener);
    ready.store(true, Ordering::Release);
    let cluster = &arguments.cluster_name;
    output::print_line(format!("ready {scheme}://{host}:{port} cluster={cluster}"));
    Ok(())
}

/// Where gRPC is served. Without TLS anybody who reaches it learns what is free in the member.
fn grpc_address(arguments: &EstimatorServerArgs, has_tls: bool) -> BindAddress {
    let port = arguments.server_port;
    match arguments.bind_address {
        Some(ip) => BindAddress::Address(SocketAddr::new(ip, port)),
        None if has_tls => BindAddress::Port(port),
        None => BindAddress::Address(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)),
    }
}

fn tls_config(arguments: &EstimatorServerArgs) -> anyhow::Result<Option<EstimatorTlsServerConfig>> {
    let (Some(certificate), Some(key)) = (
        &arguments.grpc_auth_cert_file,
        &arguments.grpc_auth_key_file,
    ) else {
        if arguments.grpc_client_ca_file.is_some() {
            bail!("--grpc-client-ca-file needs --grpc-auth-cert-file and --grpc-auth-key-file");
        }
        return Ok(None);
    };
    let client_ca = match arguments.insecure_skip_grpc_client_verify {
        true => None,
        false => Some(arguments.grpc_client_ca_file.clone().context(
            "--grpc-client-ca-file is required unless --insecure-skip-grpc-client-verify is set",
        )?),
    };
    let config = EstimatorTlsServerConfig {
        certificate: certificate.clone(),
        key: key.clone(),
        client_ca,
    };
    let checked = config.check().map_err(anyhow::Error::msg);
    checked.context("certificates for gRPC")?;
    Ok(Some(config))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct EstimatorCommand {
        #[command(flatten)]
        arguments: EstimatorServerArgs,
    }

    // proves: EST-server-loopback
    #[test]
    fn what_is_not_encrypted_is_served_on_loopback_unless_told() {
        let parse = |flags: &[&str]| {
            let line = ["estimator", "--cluster-name=m1"].iter().chain(flags);
            EstimatorCommand::parse_from(line).arguments
        };
        let address = |text: &str| BindAddress::Address(text.parse().unwrap());
        let plain = parse(&[]);
        assert_eq!(grpc_address(&plain, false), address("127.0.0.1:10352"));
        assert_eq!(grpc_address(&plain, true), BindAddress::Port(10352));
        assert_eq!(plain.metrics_bind_address, address("127.0.0.1:8080"));
        let arguments = parse(&["--bind-address=0.0.0.0", "--metrics-bind-address=:8080"]);
        assert_eq!(grpc_address(&arguments, false), address("0.0.0.0:10352"));
        assert_eq!(arguments.metrics_bind_address, BindAddress::Port(8080));
    }
}
