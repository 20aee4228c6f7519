//! The command `flotilla token`, which manages the bootstrap tokens that clusters register
//! with.

use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use client::remote::RestConfig;
use client::{
    Api, DeleteOptions, Error, ListOptions, ResourcePath, ShutdownToken, TaskGroup, WriteOptions,
    ignore_not_found,
};
use jiff::Timestamp;
use karmada_api::agents::TOKEN_CLUSTER;
use machinery::bootstrap_token::{
    BootstrapToken, CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, GROUP_PATTERN, KUBECONFIG_KEY,
    StoredBootstrapToken, TOKEN_ID_PATTERN, TOKEN_NAMESPACE, TOKEN_SECRET_TYPE, USAGES,
    is_bootstrap_group, is_token_id, secret_name,
};
use machinery::certificate_request::public_key_pins;
use machinery::time::{Clock, SystemClock, rfc3339_seconds};
use machinery::{Gvr, duration, time};
use rand::Rng;
use serde_json::{Value, json};
use table_printers::human_duration;

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::output;
use crate::printers::format_table;

static API_SERVICES: Gvr = Gvr::from_static("apiregistration.k8s.io", "v1", "apiservices");
static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
const TOKEN_CHARACTERS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const COLUMNS: [&str; 6] = [
    "TOKEN",
    "TTL",
    "EXPIRES",
    "USAGES",
    "DESCRIPTION",
    "EXTRA GROUPS",
];

/// Manage bootstrap tokens, which establish trust between a cluster that is about to register
/// and the control plane.
#[derive(Args)]
#[command(after_help = "Example:\n  flotilla token create --print-register-command")]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Create a bootstrap token and print it.
    Create(CreateTokenArgs),
    /// List the bootstrap tokens of the control plane.
    List(ListTokensArgs),
    /// Delete bootstrap tokens.
    Delete(DeleteTokensArgs),
}

#[derive(Args)]
#[command(after_help = "Example:\n  flotilla token create --ttl 1h --description 'for the edge'")]
struct CreateTokenArgs {
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    /// Instead of printing only the token, print the full 'flotilla register' command needed to
    /// register the member cluster using the token.
    #[arg(long)]
    print_register_command: bool,
    /// The duration before the token is automatically deleted (e.g. 1s, 2m, 3h). If set to '0',
    /// the token will never expire.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration::parse)]
    ttl: Duration,
    /// The ways in which this token can be used: signing, authentication.
    #[arg(long, value_name = "USAGE,...", value_delimiter = ',', default_values = USAGES)]
    usages: Vec<String>,
    /// Extra groups that this token will authenticate as when used for authentication.
    #[arg(
        long,
        value_name = "GROUP,...",
        value_delimiter = ',',
        default_value = "system:bootstrappers:karmada:default-cluster-token"
    )]
    groups: Vec<String>,
    /// The cluster that is registered with the token. A token without it is bound to the first cluster
    /// that it registers.
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// A human friendly description of how this token is used.
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
}

#[derive(Args)]
#[command(after_help = "Example:\n  flotilla token list")]
struct ListTokensArgs {
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
}

#[derive(Args)]
#[command(after_help = "Example:\n  flotilla token delete abcdef")]
struct DeleteTokensArgs {
    /// Tokens, or their ids.
    #[arg(required = true, value_name = "TOKEN")]
    tokens: Vec<String>,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
}

pub async fn run(arguments: TokenArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let result = match arguments.command {
        TokenCommand::Create(arguments) => create(&arguments, &tasks).await,
        TokenCommand::List(arguments) => list(&arguments, &tasks).await,
        TokenCommand::Delete(arguments) => delete(&arguments, &tasks).await,
    };
    tasks.stop().await;
    result
}

async fn create(arguments: &CreateTokenArgs, tasks: &TaskGroup) -> anyhow::Result<()> {
    let stored = new_token(arguments, SystemClock.now())?;
    let mut register_command = match arguments.print_register_command {
        true => Some(register_command(&arguments.control, &stored.token)?),
        false => None,
    };
    let mut secret = stored.to_secret();
    if let Some(cluster) = &arguments.cluster_name {
        clusters::check_cluster_name(cluster)?;
        secret["metadata"]["annotations"] = json!({TOKEN_CLUSTER: cluster});
        if let Some(command) = &mut register_command {
            command.push_str(&format!(" --cluster-name {cluster}"));
        }
    }
    let api = arguments.control.connect(tasks)?;
    let at = ResourcePath::collection(&SECRETS, TOKEN_NAMESPACE);
    let options = WriteOptions::default();
    let created = api.create(at, secret.into(), &options).await;
    created.context("failed to create the bootstrap token")?;
    if stored.has_usage("signing") {
        publish_cluster_info(&*api, &arguments.control.load_config()?).await;
    }
    output::print_line(register_command.unwrap_or_else(|| stored.token.to_string()));
    Ok(())
}

/// Publishes the address and the authority of a host that has no `kube-public/cluster-info`; its
/// kube-controller-manager signs it. A standalone control plane publishes its own.
async fn publish_cluster_info(api: &dyn Api, config: &RestConfig) {
    if let Err(error) = try_publish_cluster_info(api, config).await {
        output::print_progress(format!(
            "the ConfigMap {CLUSTER_INFO_NAMESPACE}/{CLUSTER_INFO}, by which clusters that register trust the control plane, is not known to exist: {error}"
        ));
    }
}

async fn try_publish_cluster_info(api: &dyn Api, config: &RestConfig) -> client::Result<()> {
    let at = ResourcePath::object(&CONFIG_MAPS, CLUSTER_INFO_NAMESPACE, CLUSTER_INFO);
    if ignore_not_found(api.get(at).await)?.is_some() || !is_behind_host(api).await? {
        return Ok(());
    }
    let Some(ca) = &config.ca else {
        return Err(Error::Protocol(
            "the kubeconfig has no CA to publish".into(),
        ));
    };
    let all = ResourcePath::collection(&CONFIG_MAPS, CLUSTER_INFO_NAMESPACE);
    let body = cluster_info(config, ca);
    api.create(all, body.into(), &WriteOptions::default())
        .await
        .map(drop)
}

/// Whether another API server stands in front of the one of the control plane's kinds.
async fn is_behind_host(api: &dyn Api) -> client::Result<bool> {
    let at = ResourcePath::object(&API_SERVICES, "", "v1alpha1.cluster.karmada.io");
    let Some(registration) = ignore_not_found(api.get(at).await)? else {
        return Ok(false);
    };
    Ok(registration.value()?["spec"]["service"].is_object())
}

/// The kubeconfig in it has no user; JSON is YAML too.
fn cluster_info(config: &RestConfig, ca: &[u8]) -> Value {
    let server = config.server.to_string();
    let ca = STANDARD.encode(ca);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "", "preferences": {},
        "clusters": [{"name": "", "cluster": {"server": server.trim_end_matches('/'),
            "certificate-authority-data": ca}}],
        "contexts": null, "users": null,
    });
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CLUSTER_INFO, "namespace": CLUSTER_INFO_NAMESPACE},
        "data": {KUBECONFIG_KEY: kubeconfig.to_string()}})
}

fn new_token(arguments: &CreateTokenArgs, now: Timestamp) -> anyhow::Result<StoredBootstrapToken> {
    for usage in &arguments.usages {
        if !USAGES.contains(&usage.as_str()) {
            bail!(
                "invalid bootstrap token usage {usage:?}, valid options: {}",
                USAGES.join(",")
            );
        }
    }
    let groups: Vec<String> = arguments
        .groups
        .iter()
        .filter(|g| !g.is_empty())
        .cloned()
        .collect();
    if let Some(group) = groups.iter().find(|group| !is_bootstrap_group(group)) {
        bail!("bootstrap group {group:?} is invalid (must match {GROUP_PATTERN})");
    }
    let expiration = match arguments.ttl {
        Duration::ZERO => String::new(),
        ttl => rfc3339_seconds(now.checked_add(ttl).context("--ttl is too long")?),
    };
    Ok(StoredBootstrapToken {
        token: BootstrapToken {
            id: random_text(6),
            secret: random_text(16),
        },
        description: arguments.description.clone(),
        expiration,
        usages: arguments.usages.clone(),
        groups,
    })
}

pub(crate) fn random_text(length: usize) -> String {
    let mut random = rand::rng();
    let mut character = || TOKEN_CHARACTERS[random.random_range(0..TOKEN_CHARACTERS.len())];
    (0..length).map(|_| char::from(character())).collect()
}

/// The command that registers a cluster with the server of the kubeconfig.
fn register_command(
    control: &KubeconfigArgs<ControlPlaneFlags>,
    token: &BootstrapToken,
) -> anyhow::Result<String> {
    let config = control.load_config()?;
    let ca = config
        .ca
        .context("no CA certificates found in kubeconfig")?;
    let ca = String::from_utf8(ca).context("the CA in the kubeconfig is not PEM")?;
    let pins = public_key_pins(&ca).map_err(anyhow::Error::msg);
    let pins = pins.context("failed to parse CA certificate from kubeconfig")?;
    let server = config.server.to_string();
    let server = server.trim_start_matches("https://").trim_end_matches('/');
    Ok(format!(
        "flotilla register {server} --token {token} --discovery-token-ca-cert-hash {}",
        pins.join(",")
    ))
}

async fn list(arguments: &ListTokensArgs, tasks: &TaskGroup) -> anyhow::Result<()> {
    let api = arguments.control.connect(tasks)?;
    let options = ListOptions {
        field_selector: format!("type={TOKEN_SECRET_TYPE}"),
        ..ListOptions::default()
    };
    let at = ResourcePath::collection(&SECRETS, TOKEN_NAMESPACE);
    let secrets = api.list(at, &options).await;
    let secrets = secrets.context("failed to list bootstrap tokens")?;
    let now = SystemClock.now();
    let mut rows = Vec::new();
    for secret in &secrets.items {
        match StoredBootstrapToken::from_secret(&secret.value()?) {
            Ok(stored) => rows.push(row(&stored, now)),
            Err(reason) => output::print_progress(reason),
        }
    }
    output::print_line(format_table(&COLUMNS, &rows));
    Ok(())
}

fn row(stored: &StoredBootstrapToken, now: Timestamp) -> Vec<String> {
    let or = |text: String, absent: &str| match text.is_empty() {
        true => absent.to_owned(),
        false => text,
    };
    let ttl = match time::parse(&stored.expiration) {
        Ok(at) => human_duration(at.duration_since(now)),
        Err(_) => String::new(),
    };
    vec![
        stored.token.to_string(),
        or(ttl, "<forever>"),
        or(stored.expiration.clone(), "<never>"),
        or(stored.usages.join(","), "<none>"),
        or(stored.description.clone(), "<none>"),
        or(stored.groups.join(","), "<none>"),
    ]
}

async fn delete(arguments: &DeleteTokensArgs, tasks: &TaskGroup) -> anyhow::Result<()> {
    let mut ids = Vec::new();
    for text in &arguments.tokens {
        let id = match is_token_id(text) {
            true => Some(text.clone()),
            false => BootstrapToken::parse(text).map(|token| token.id),
        };
        // The text may be a secret.
        let id = id.with_context(|| {
            format!(
                "given token didn't match pattern {TOKEN_ID_PATTERN:?}, nor is it a whole token"
            )
        })?;
        ids.push(id);
    }
    let api = arguments.control.connect(tasks)?;
    for id in ids {
        let name = secret_name(&id);
        let at = ResourcePath::object(&SECRETS, TOKEN_NAMESPACE, &name);
        let deleted = api.delete(at, &DeleteOptions::default()).await;
        deleted.with_context(|| format!("failed to delete bootstrap token {id:?}"))?;
        output::print_line(format!("bootstrap token {id:?} deleted"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        create: CreateTokenArgs,
    }

    fn token(line: &[&str]) -> anyhow::Result<StoredBootstrapToken> {
        let line = std::iter::once("x").chain(line.iter().copied());
        let now = "2026-01-01T00:00:00Z".parse()?;
        new_token(&TestCli::try_parse_from(line)?.create, now)
    }

    #[test]
    fn tokens_have_the_defaults_of_karmadactl() {
        let stored = token(&[]).unwrap();
        assert_eq!(
            BootstrapToken::parse(&stored.token.to_string()),
            Some(stored.token.clone())
        );
        assert_eq!(stored.expiration, "2026-01-02T00:00:00Z");
        assert_eq!(stored.usages, ["signing", "authentication"]);
        assert_eq!(
            stored.groups,
            ["system:bootstrappers:karmada:default-cluster-token"]
        );
        assert_ne!(token(&[]).unwrap().token, stored.token);
    }

    #[test]
    fn flags_that_make_no_token_are_refused() {
        for line in [
            ["--usages", "signing,other"],
            ["--groups", "system:masters"],
            ["--ttl", "soon"],
        ] {
            assert!(token(&line).is_err(), "{line:?}");
        }
        let stored = token(&["--ttl", "0", "--groups", ""]).unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let cells = row(&stored, now);
        assert_eq!(cells[1..3], ["<forever>", "<never>"]);
        assert_eq!(cells[3..], ["signing,authentication", "<none>", "<none>"]);
    }
}
