//! The flags of authorization in a standalone server: the authorizers, and the webhooks that
//! are asked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use auth::authorization_configuration::{
    AuthorizationConfiguration, ConfiguredAuthorizer, ConfiguredWebhook,
};
use auth::authorizer_chain::{AuthorizerChain, ChainedAuthorizer};
use auth::rbac::RbacAuthorizer;
use auth::webhook::{MatchConditions, ReviewEndpoint, WebhookAuthorizer, WebhookAuthorizerOptions};
use auth::{AuthorizerMetrics, RequestAuthorizer};
use clap::Args;
use client::TaskGroup;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use flotilla_metrics::MetricsRegistry;
use parking_lot::Mutex;
use server_certificates::{CHECK_PERIOD, run_renewal_loop};

use crate::file_changes::{FileWatch, watch_files};
use crate::flag_modes::EffectiveMode;

/// The heading of the flags of authorization in the help.
pub(crate) const HELP_HEADING: &str = "Authorization flags";

/// The timeout of the webhook of `--authorization-webhook-config-file`.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
const RBAC: &str = "RBAC";

/// The flags of authorization.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = HELP_HEADING)]
pub(crate) struct AuthorizationArgs {
    /// Ordered list of plug-ins to do authorization on secure port: AlwaysAllow, AlwaysDeny,
    /// Webhook, RBAC. Defaults to RBAC. Node and ABAC are not served.
    #[arg(long, value_name = "MODE", value_delimiter = ',', add = EffectiveMode::Standalone)]
    authorization_mode: Vec<String>,
    /// File with webhook configuration in kubeconfig format, used with
    /// --authorization-mode=Webhook. The API server sends a SubjectAccessReview v1 to the
    /// service to determine access on the API server's secure port.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    authorization_webhook_config_file: Option<PathBuf>,
    /// File with an AuthorizationConfiguration, which configures the authorizers in order, and
    /// webhooks with match conditions. Mutually exclusive with --authorization-mode and
    /// --authorization-webhook-config-file. The file is read again when it changes.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["authorization_mode", "authorization_webhook_config_file"],
        add = EffectiveMode::Standalone
    )]
    authorization_config: Option<PathBuf>,
}

/// How long answers of the webhook of the flags are cached.
#[derive(Clone, Copy, Default)]
pub(crate) struct AuthorizationCacheTtls {
    pub(crate) authorized: Duration,
    pub(crate) unauthorized: Duration,
}

/// The settings of a server's authorizers.
#[derive(Clone, Default)]
pub(crate) struct AuthorizationOptions {
    pub(crate) flags: AuthorizationArgs,
    pub(crate) cache_ttls: AuthorizationCacheTtls,
}

/// The authorizers of a server, and what reads them again.
pub(crate) struct ServerAuthorization {
    pub(crate) authorizer: RequestAuthorizer,
    pub(crate) reload: Option<AuthorizationReload>,
}

impl AuthorizationOptions {
    /// Builds the authorizers. Connections belong to `tasks`.
    pub(crate) fn build(
        self,
        rbac: &Arc<RbacAuthorizer>,
        metrics: &MetricsRegistry,
        tasks: &TaskGroup,
    ) -> anyhow::Result<ServerAuthorization> {
        let metrics = AuthorizerMetrics::new(metrics);
        if let Some(file) = &self.flags.authorization_config {
            let file = file.clone();
            let text = read(&file)?;
            let parsed = parse_configuration(&file, &text)?;
            let has_rbac = has_rbac(&parsed);
            let built = connect(parsed, &metrics, tasks)?;
            let chain = AuthorizerChain::new(Arc::clone(rbac), built, &metrics);
            return Ok(ServerAuthorization {
                authorizer: RequestAuthorizer::Chain(Arc::clone(&chain)),
                reload: Some(AuthorizationReload {
                    chain,
                    metrics,
                    tasks: tasks.clone(),
                    has_rbac,
                    in_use: Mutex::new(text),
                    file,
                }),
            });
        }
        let modes = self.configured_modes()?;
        let authorizer = match modes.as_slice() {
            // Without a chain, a decision awaits nothing.
            [ConfiguredAuthorizer::Rbac { .. }] => RequestAuthorizer::from(Arc::clone(rbac)),
            _ => {
                let built = connect(modes, &metrics, tasks)?;
                RequestAuthorizer::Chain(AuthorizerChain::new(Arc::clone(rbac), built, &metrics))
            }
        };
        Ok(ServerAuthorization {
            authorizer,
            reload: None,
        })
    }

    fn configured_modes(&self) -> anyhow::Result<Vec<ConfiguredAuthorizer>> {
        let mut modes: Vec<&str> = self.flags.authorization_mode.iter().map(|m| &**m).collect();
        if modes.is_empty() {
            modes.push(RBAC);
        }
        let mut distinct = BTreeSet::new();
        let webhook_file = self.flags.authorization_webhook_config_file.as_ref();
        if webhook_file.is_some() && !modes.contains(&"Webhook") {
            bail!("cannot specify --authorization-webhook-config-file without mode Webhook");
        }
        let mut configured = Vec::new();
        for mode in modes {
            if !distinct.insert(mode) {
                bail!("authorization-mode {mode:?} has mode specified more than once");
            }
            let name = mode.to_ascii_lowercase();
            configured.push(match mode {
                RBAC => ConfiguredAuthorizer::Rbac { name },
                "AlwaysAllow" => ConfiguredAuthorizer::AlwaysAllow { name },
                "AlwaysDeny" => ConfiguredAuthorizer::AlwaysDeny { name },
                "Webhook" => ConfiguredAuthorizer::Webhook(ConfiguredWebhook {
                    name: "default".to_owned(),
                    kubeconfig: webhook_file.cloned().context(
                        "authorization-mode Webhook's authorization config file not passed: --authorization-webhook-config-file",
                    )?,
                    timeout: WEBHOOK_TIMEOUT,
                    authorized_cache_ttl: Some(self.cache_ttls.authorized),
                    unauthorized_cache_ttl: Some(self.cache_ttls.unauthorized),
                    deny_on_failure: false,
                    match_conditions: MatchConditions::default(),
                }),
                "Node" => bail!(
                    "authorization-mode \"Node\" is not served: nodes get their rights by RBAC"
                ),
                "ABAC" => bail!("authorization-mode \"ABAC\" is not served: use RBAC or Webhook"),
                other => bail!("authorization-mode {other:?} is not a valid mode"),
            });
        }
        Ok(configured)
    }
}

/// Reads the file of `--authorization-config` again.
pub(crate) struct AuthorizationReload {
    file: PathBuf,
    chain: Arc<AuthorizerChain>,
    metrics: AuthorizerMetrics,
    tasks: TaskGroup,
    /// Whether roles decide, which a reload may not change, as in Kubernetes.
    has_rbac: bool,
    /// The content in use.
    in_use: Mutex<String>,
}

impl AuthorizationReload {
    /// Uses the content of the file if it has changed. What cannot be used is an error, and
    /// the former authorizers stay.
    fn reload(&self) -> anyhow::Result<()> {
        let text = read(&self.file)?;
        if *self.in_use.lock() == text {
            return Ok(());
        }
        let parsed = parse_configuration(&self.file, &text)?;
        if has_rbac(&parsed) != self.has_rbac {
            bail!(
                "--authorization-config {}: the type RBAC cannot be added or removed while the server runs",
                self.file.display()
            );
        }
        self.chain
            .replace(connect(parsed, &self.metrics, &self.tasks)?);
        *self.in_use.lock() = text;
        tracing::info!("the authorizers have changed");
        Ok(())
    }
}

/// Reads the file when it changes, and each minute, until `tasks` stop.
pub(crate) fn run_reload_loop(reload: AuthorizationReload, tasks: &TaskGroup) -> Option<FileWatch> {
    let changed = Arc::default();
    let watch = watch_files([reload.file.as_path()], &changed);
    let reload = Arc::new(reload);
    run_renewal_loop("authorizers", CHECK_PERIOD, changed, tasks, move || {
        let reload = Arc::clone(&reload);
        async move { reload.reload() }
    });
    watch
}

fn parse_configuration(file: &Path, text: &str) -> anyhow::Result<Vec<ConfiguredAuthorizer>> {
    let context = || format!("--authorization-config {}", file.display());
    let config: AuthorizationConfiguration = serde_saphyr::from_str(text).with_context(context)?;
    config
        .authorizers()
        .map_err(|reason| anyhow!(reason).context(context()))
}

fn has_rbac(authorizers: &[ConfiguredAuthorizer]) -> bool {
    let is_rbac = |a: &ConfiguredAuthorizer| matches!(a, ConfiguredAuthorizer::Rbac { .. });
    authorizers.iter().any(is_rbac)
}

fn connect(
    authorizers: Vec<ConfiguredAuthorizer>,
    metrics: &AuthorizerMetrics,
    tasks: &TaskGroup,
) -> anyhow::Result<Vec<ChainedAuthorizer>> {
    let authorizers = authorizers.into_iter().map(|authorizer| {
        Ok(match authorizer {
            ConfiguredAuthorizer::Rbac { name } => ChainedAuthorizer::Rbac { name },
            ConfiguredAuthorizer::AlwaysAllow { name } => ChainedAuthorizer::AlwaysAllow { name },
            ConfiguredAuthorizer::AlwaysDeny { name } => ChainedAuthorizer::AlwaysDeny { name },
            ConfiguredAuthorizer::Webhook(webhook) => {
                ChainedAuthorizer::Webhook(Box::new(connect_webhook(webhook, metrics, tasks)?))
            }
        })
    });
    authorizers.collect()
}

fn connect_webhook(
    webhook: ConfiguredWebhook,
    metrics: &AuthorizerMetrics,
    tasks: &TaskGroup,
) -> anyhow::Result<WebhookAuthorizer> {
    let endpoint = review_endpoint(&webhook.kubeconfig, webhook.timeout, tasks)?;
    let options = WebhookAuthorizerOptions {
        name: webhook.name,
        authorized_cache_ttl: webhook.authorized_cache_ttl,
        unauthorized_cache_ttl: webhook.unauthorized_cache_ttl,
        deny_on_failure: webhook.deny_on_failure,
        match_conditions: webhook.match_conditions,
    };
    Ok(WebhookAuthorizer::new(endpoint, options, metrics))
}

/// The webhook that a kubeconfig names.
pub(crate) fn review_endpoint(
    kubeconfig: &Path,
    timeout: Duration,
    tasks: &TaskGroup,
) -> anyhow::Result<ReviewEndpoint> {
    let context = || format!("the webhook of {}", kubeconfig.display());
    let config = KubeconfigLoadingRules::from_file(kubeconfig)
        .load()
        .with_context(context)?;
    ReviewEndpoint::new(config, timeout, tasks).with_context(context)
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
