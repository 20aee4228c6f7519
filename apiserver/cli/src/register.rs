//! The command `flotilla register`, which registers a cluster in pull mode.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::remote::{ClientCertificate, Redacted, RemoteApi, RestConfig};
use client::{Api, Error, ShutdownToken, TaskGroup};
use clusters::ReportedSecrets;
use clusters::register::{
    AGENT_NAMESPACE, AgentCertificateSpec, AgentDeployment, CertifiedKey, RegisterSpec,
    agent_objects, create_member_objects, preflight, refuse_registered, request_certificate,
};
use karmada_api::FeatureGates;
use karmada_api::agents::{AGENT_SECRET_NAMESPACE, AgentRegistration};
use machinery::bootstrap_token::{BootstrapToken, TOKEN_PATTERN};
use machinery::duration;
use serde_json::json;

use crate::default_image::DEFAULT_IMAGE;
use crate::discovery::{DiscoveryOptions, discover_ca};
use crate::install::encode_manifests;
use crate::output;
use crate::token::random_text;

/// How long a server may take to know the rights of a new agent.
const RIGHTS_TIMEOUT: Duration = Duration::from_secs(10);
const RIGHTS_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Register a cluster to the control plane with Pull mode.
///
/// An agent is installed into the cluster; the control plane does not connect to it.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla register 10.0.0.1:6443 --cluster-name m1 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:..."
)]
pub struct RegisterArgs {
    /// The control plane: HOST:PORT.
    endpoint: String,
    /// Path to the kubeconfig file of the member cluster; $KUBECONFIG or ~/.kube/config by
    /// default.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Name of the cluster context in the kubeconfig file.
    #[arg(long, value_name = "CONTEXT")]
    context: Option<String>,
    /// Namespace the agent is deployed in.
    #[arg(short, long, value_name = "NAMESPACE", default_value = AGENT_NAMESPACE)]
    namespace: String,
    /// The name of the member cluster in the control plane; the cluster of the context by
    /// default.
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// Namespace in the control plane where member cluster secrets are stored. In another namespace
    /// than the default the agent may store none, unless an administrator gives it the right.
    #[arg(long, value_name = "NAMESPACE", default_value = AGENT_SECRET_NAMESPACE)]
    cluster_namespace: String,
    /// Provider of the joining cluster.
    #[arg(long, value_name = "NAME")]
    cluster_provider: Option<String>,
    /// The region of the joining cluster.
    #[arg(long, value_name = "NAME")]
    cluster_region: Option<String>,
    /// The zones of the joining cluster.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    cluster_zones: Vec<String>,
    /// The token used to validate cluster information fetched from the API server.
    #[arg(long, value_name = "TOKEN")]
    token: String,
    /// Validate that the root CA public key matches this hash (format: "<type>:<value>").
    #[arg(long, value_name = "HASH,...", value_delimiter = ',')]
    discovery_token_ca_cert_hash: Vec<String>,
    /// Allow joining without --discovery-token-ca-cert-hash pinning.
    #[arg(long)]
    discovery_token_unsafe_skip_ca_verification: bool,
    /// The timeout to discover the control plane, and for each certificate and the agent.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    discovery_timeout: Duration,
    /// Image of the agent, which contains flotilla.
    #[arg(long, value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    karmada_agent_image: String,
    /// The replicas of the agent. Of several, an elected leader works, and the others wait.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    karmada_agent_replicas: u8,
    /// The secrets that the agent reports to the control plane: KubeCredentials and
    /// KubeImpersonator, or None.
    #[arg(long, value_name = "SECRET,...", default_value_t = ReportedSecrets::ALL)]
    report_secrets: ReportedSecrets,
    /// Feature gates of the agent, as key=value pairs with Karmada's names.
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true, value_parser = feature_gates)]
    feature_gates: String,
    /// The expiration time of the agent's certificate.
    #[arg(long, value_name = "SECONDS", default_value_t = 31_536_000)]
    cert_expiration_seconds: i32,
    /// Renew the certificate of the agent when it is about to expire.
    #[arg(long)]
    enable_cert_rotation: bool,
    /// Address of the proxy server that is used to proxy to the cluster.
    #[arg(long, value_name = "URL")]
    proxy_server_address: Option<String>,
    /// Print the agent's objects, or its kubeconfig, instead of creating the agent; both have the key
    /// of its certificate. The kubeconfig is a value of the chart of the agent.
    #[arg(long, value_name = "WHAT", conflicts_with = "dry_run")]
    print: Option<PrintedPart>,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PrintedPart {
    Manifests,
    Kubeconfig,
}

impl RegisterArgs {
    /// Prints progress: to standard error, if standard output has the result.
    fn print_progress(&self, text: &str) {
        match self.print {
            Some(_) => output::print_progress(text),
            None => output::print_line(text),
        }
    }
}

fn feature_gates(text: &str) -> Result<String, String> {
    let parsed: Result<FeatureGates, _> = text.parse();
    parsed.map(|_| text.to_owned()).map_err(|e| e.to_string())
}

pub async fn run(arguments: RegisterArgs) -> anyhow::Result<()> {
    let token = BootstrapToken::parse(&arguments.token)
        .with_context(|| format!("the bootstrap token was not of the form {TOKEN_PATTERN:?}"))?;
    if !arguments.discovery_token_unsafe_skip_ca_verification
        && arguments.discovery_token_ca_cert_hash.is_empty()
    {
        bail!("need to verify CACertHashes, or set --discovery-token-unsafe-skip-ca-verification");
    }
    let tasks = TaskGroup::new(ShutdownToken::new());
    let result = Box::pin(register(&arguments, &token, &tasks)).await;
    tasks.stop().await;
    result
}

async fn register(
    arguments: &RegisterArgs,
    token: &BootstrapToken,
    tasks: &TaskGroup,
) -> anyhow::Result<()> {
    let rules = member_rules(arguments);
    let name = match &arguments.cluster_name {
        Some(name) => name.clone(),
        None => rules.cluster_name()?,
    };
    clusters::check_cluster_name(&name)?;
    let member_config = rules.load().context("the cluster's kubeconfig")?;
    let spec = register_spec(arguments, name, &member_config);
    let member = RemoteApi::new(member_config, tasks)?;
    arguments.print_progress("[preflight] Running pre-flight checks");
    let errors = preflight(&member, &spec).await;
    if !errors.is_empty() {
        let lines: Vec<String> = errors.iter().map(|e| format!("\t[ERROR]: {e}")).collect();
        bail!(
            "error execution phase preflight: [preflight] Some fatal errors occurred:\n{}\n[preflight] Please check the above errors",
            lines.join("\n")
        );
    }
    arguments.print_progress("[preflight] All pre-flight checks were passed");
    if arguments.dry_run {
        return Ok(());
    }
    arguments.print_progress("[karmada-agent-start] Waiting to perform the TLS Bootstrap");
    let discovery = DiscoveryOptions {
        endpoint: &arguments.endpoint,
        token,
        ca_cert_hashes: &arguments.discovery_token_ca_cert_hash,
        timeout: arguments.discovery_timeout,
    };
    let ca = discover_ca(&discovery, tasks).await;
    let ca = ca.context("couldn't validate the identity of the API Server")?;
    let mut control = RestConfig::new(&format!("https://{}", arguments.endpoint))?;
    control.ca = Some(ca);
    create_agent(arguments, &spec, &control, &member, tasks).await?;
    if arguments.print.is_none() {
        output::print_line(format!("\ncluster({}) is joined successfully", spec.name));
    }
    Ok(())
}

fn member_rules(arguments: &RegisterArgs) -> KubeconfigLoadingRules {
    let source = match &arguments.kubeconfig {
        Some(path) => KubeconfigLoadingRules::from_file(path),
        None => KubeconfigLoadingRules::from_environment(),
    };
    KubeconfigLoadingRules {
        context: arguments.context.clone(),
        ..source
    }
}

fn register_spec(arguments: &RegisterArgs, name: String, member: &RestConfig) -> RegisterSpec {
    let endpoint = member.server.to_string();
    let mut flags = vec![
        format!("--cluster-api-endpoint={}", endpoint.trim_end_matches('/')),
        format!("--cluster-namespace={}", arguments.cluster_namespace),
        format!("--report-secrets={}", arguments.report_secrets),
    ];
    for (flag, value) in [
        ("cluster-provider", arguments.cluster_provider.clone()),
        ("cluster-region", arguments.cluster_region.clone()),
        (
            "proxy-server-address",
            arguments.proxy_server_address.clone(),
        ),
        (
            "cluster-zones",
            Some(arguments.cluster_zones.join(",")).filter(|zones| !zones.is_empty()),
        ),
        (
            "feature-gates",
            Some(arguments.feature_gates.clone()).filter(|gates| !gates.is_empty()),
        ),
    ] {
        flags.extend(value.map(|value| format!("--{flag}={value}")));
    }
    if arguments.karmada_agent_replicas > 1 {
        flags.push("--leader-elect".to_owned());
        // It exists behind every host to which agents were given access.
        let namespace = &arguments.cluster_namespace;
        flags.push(format!("--leader-elect-resource-namespace={namespace}"));
    }
    if arguments.enable_cert_rotation {
        flags.push("--enable-cert-rotation".to_owned());
    }
    RegisterSpec {
        name,
        cluster_namespace: arguments.cluster_namespace.clone(),
        agent_namespace: arguments.namespace.clone(),
        deployment: AgentDeployment {
            image: arguments.karmada_agent_image.clone(),
            replicas: arguments.karmada_agent_replicas,
            flags,
        },
    }
}

/// Obtains the certificate of the agent with the token, and creates the agent. The control plane
/// creates the roles of the agent when it approves the certificate.
async fn create_agent(
    arguments: &RegisterArgs,
    spec: &RegisterSpec,
    control: &RestConfig,
    member: &RemoteApi,
    tasks: &TaskGroup,
) -> anyhow::Result<()> {
    let mut with_token = control.clone();
    with_token.auth.token = Some(Redacted(arguments.token.clone()));
    let bootstrap = RemoteApi::new(with_token, tasks)?;
    arguments
        .print_progress("[karmada-agent-start] Assign the necessary RBAC permissions to the agent");
    arguments.print_progress("[karmada-agent-start] Waiting to construct karmada-agent kubeconfig");
    let agent = issue(arguments, &bootstrap, &spec.name).await?;
    let kubeconfig = agent_kubeconfig(&arguments.endpoint, &spec.name, control, &agent)?;
    let mut with_certificate = control.clone();
    with_certificate.auth.client_certificate = Some(ClientCertificate {
        certificate: agent.certificate_pem.into_bytes(),
        key: Redacted(agent.key_pem.into_bytes()),
    });
    let agent = RemoteApi::new(with_certificate, tasks)?;
    arguments.print_progress("[karmada-agent-start] Waiting to check cluster exists");
    let registration = registration(arguments);
    check_not_registered(&agent, member, &spec.name, &registration).await?;
    if let Some(part) = arguments.print {
        output::print_line(match part {
            PrintedPart::Kubeconfig => kubeconfig,
            PrintedPart::Manifests => encode_manifests(&agent_objects(spec, &kubeconfig), false)?,
        });
        return Ok(());
    }
    arguments.print_progress("[karmada-agent-start] Waiting the necessary secret and RBAC");
    arguments.print_progress("[karmada-agent-start] Waiting karmada-agent Deployment");
    let timeout = arguments.discovery_timeout;
    create_member_objects(member, spec, &kubeconfig, timeout)
        .await
        .context("cannot create the agent in the member cluster")
}

/// Fails if the member is registered. The rights of the agent are new: servers that do not know
/// them yet are asked again.
async fn check_not_registered(
    agent: &dyn Api,
    member: &dyn Api,
    name: &str,
    registration: &AgentRegistration,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + RIGHTS_TIMEOUT;
    loop {
        match refuse_registered(agent, member, name, registration).await {
            Err(Error::Status(status))
                if status.code == 403 && tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(RIGHTS_POLL_INTERVAL).await;
            }
            checked => return Ok(checked?),
        }
    }
}

fn registration(arguments: &RegisterArgs) -> AgentRegistration {
    AgentRegistration {
        provider: arguments.cluster_provider.clone().unwrap_or_default(),
        region: arguments.cluster_region.clone().unwrap_or_default(),
        zones: arguments.cluster_zones.clone(),
    }
}

async fn issue(
    arguments: &RegisterArgs,
    bootstrap: &RemoteApi,
    cluster: &str,
) -> anyhow::Result<CertifiedKey> {
    let registration = registration(arguments);
    let spec = AgentCertificateSpec {
        name: &format!("{cluster}-{}", random_text(5)),
        cluster,
        expiration_seconds: arguments.cert_expiration_seconds,
        registration: Some(&registration),
    };
    let issued = request_certificate(bootstrap, &spec, arguments.discovery_timeout).await;
    issued.with_context(|| format!("no certificate for the agent of {cluster}"))
}

/// The kubeconfig of the agent.
fn agent_kubeconfig(
    endpoint: &str,
    cluster: &str,
    control: &RestConfig,
    agent: &CertifiedKey,
) -> anyhow::Result<String> {
    const SERVER: &str = "karmada-apiserver";
    let context = format!("{cluster}@{SERVER}");
    let ca = STANDARD.encode(control.ca.as_deref().unwrap_or_default());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": context,
        "clusters": [{"name": SERVER, "cluster": {
            "server": format!("https://{endpoint}"), "certificate-authority-data": ca}}],
        "contexts": [{"name": context, "context": {"cluster": SERVER, "user": cluster}}],
        "users": [{"name": cluster, "user": {
            "client-certificate-data": STANDARD.encode(&agent.certificate_pem),
            "client-key-data": STANDARD.encode(&agent.key_pem)}}],
    });
    let options = serde_saphyr::ser_options! {
        // Each value stays on the line of its field, where scripts look for it.
        prefer_block_scalars: false,
    };
    Ok(serde_saphyr::to_string_with_options(&kubeconfig, options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_an_agent_are_each_on_one_line() {
        let pem = |name: &str| format!("-----BEGIN {name}-----\n{}", "MIIE\n".repeat(2_000));
        let agent = CertifiedKey {
            certificate_pem: pem("CERTIFICATE"),
            key_pem: pem("PRIVATE KEY"),
        };
        let mut control = RestConfig::new("https://192.0.2.1:6443").unwrap();
        control.ca = Some(pem("CA").into_bytes());
        let text = agent_kubeconfig("192.0.2.1:6443", "m1", &control, &agent).unwrap();
        for (field, value) in [
            ("certificate-authority-data", pem("CA")),
            ("client-certificate-data", agent.certificate_pem.clone()),
            ("client-key-data", agent.key_pem.clone()),
        ] {
            let line = format!("{field}: {}\n", STANDARD.encode(value));
            assert!(text.contains(&line), "{field} in {text}");
        }
        let config = KubeconfigLoadingRules::parse(&text).unwrap();
        let certificate = config.auth.client_certificate.unwrap();
        assert_eq!(certificate.certificate, agent.certificate_pem.as_bytes());
        assert_eq!(certificate.key.0, agent.key_pem.as_bytes());
        assert_eq!((config.ca, config.server), (control.ca, control.server));
    }
}
