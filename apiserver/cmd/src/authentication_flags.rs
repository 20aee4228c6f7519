//! The flags of authentication in a standalone server: certificate authorities of clients,
//! static tokens, and issuers of OpenID Connect.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use auth::LocalAuthenticator;
use auth::authenticator::LocalAuthenticatorOptions;
use auth::oidc::{
    AnonymousRequests, AuthenticationConfiguration, JwtIssuerConfig, OidcAuthenticator,
    OidcFlagValues,
};
use auth::static_tokens::StaticTokens;
use auth::webhook::WebhookTokenAuthenticator;
use clap::Args;
use client::TaskGroup;
use parking_lot::Mutex;
use server_certificates::{CHECK_PERIOD, run_renewal_loop};

use crate::authorization_flags::review_endpoint;
use crate::file_changes::{FileWatch, watch_files};
use crate::flag_modes::EffectiveMode;

/// The heading of the flags of authentication in the help.
pub(crate) const HELP_HEADING: &str = "Authentication flags";
const TOKEN_REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// The flags of authentication, besides `--anonymous-auth` and `--api-audiences`.
#[derive(Args)]
#[command(next_help_heading = HELP_HEADING)]
pub(crate) struct AuthenticationArgs {
    /// If set, any request presenting a client certificate signed by one of the authorities
    /// in this file is authenticated with an identity corresponding to the CommonName of the
    /// client certificate, as those of the server's own authority are. The file is read again
    /// when it changes.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// The file that will be used to secure the secure port of the API server via token
    /// authentication: lines of token, user, uid and optionally groups.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    token_auth_file: Option<PathBuf>,
    /// Enable to allow secrets of type 'bootstrap.kubernetes.io/token' in the 'kube-system'
    /// namespace to be used for TLS bootstrapping authentication. The address in
    /// kube-public/cluster-info has the first name of --tls-san.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, add = EffectiveMode::Standalone)]
    enable_bootstrap_token_auth: bool,
    /// File with webhook configuration for token authentication in kubeconfig format. The API
    /// server sends a TokenReview v1 to the service for tokens that nothing else accepts.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    pub(crate) authentication_token_webhook_config_file: Option<PathBuf>,
    /// File with an AuthenticationConfiguration, which configures the JWT authenticators.
    /// Mutually exclusive with the --oidc-* flags. The file is read again when it changes.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    authentication_config: Option<PathBuf>,
    /// The URL of the OpenID issuer, only the HTTPS scheme is accepted. If set, it is used to
    /// verify the OIDC JSON Web Token (JWT).
    #[arg(long, value_name = "URL", add = EffectiveMode::Standalone)]
    oidc_issuer_url: Option<String>,
    /// The client ID for the OpenID Connect client, must be set if --oidc-issuer-url is set.
    #[arg(long, value_name = "ID", add = EffectiveMode::Standalone)]
    oidc_client_id: Option<String>,
    /// If set, the OpenID server's certificate is verified by one of the authorities in this
    /// file, otherwise the host's root CA set is used.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    oidc_ca_file: Option<PathBuf>,
    /// The OpenID claim to use as the user name.
    #[arg(long, value_name = "CLAIM", default_value = "sub", add = EffectiveMode::Standalone)]
    oidc_username_claim: String,
    /// If provided, all user names are prefixed with this value. By default claims other than
    /// 'email' are prefixed by the issuer URL; '-' means no prefix.
    #[arg(long, value_name = "PREFIX", add = EffectiveMode::Standalone)]
    oidc_username_prefix: Option<String>,
    /// If provided, the name of a custom OpenID Connect claim for specifying user groups. The
    /// claim value is expected to be a string or array of strings.
    #[arg(long, value_name = "CLAIM", add = EffectiveMode::Standalone)]
    oidc_groups_claim: Option<String>,
    /// If provided, all groups are prefixed with this value.
    #[arg(long, value_name = "PREFIX", default_value = "", add = EffectiveMode::Standalone)]
    oidc_groups_prefix: String,
    /// A key=value pair that describes a required claim in the ID token; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', add = EffectiveMode::Standalone)]
    oidc_required_claim: Vec<String>,
    /// Allowed JOSE asymmetric signing algorithms.
    #[arg(
        long,
        value_name = "ALGORITHM",
        value_delimiter = ',',
        default_value = "RS256",
        add = EffectiveMode::Standalone
    )]
    oidc_signing_algs: Vec<String>,
}

impl AuthenticationArgs {
    /// Completes the options with what the flags configure. The result is the file to read
    /// again.
    pub(crate) fn complete(
        &self,
        options: &mut LocalAuthenticatorOptions,
    ) -> anyhow::Result<Option<AuthenticationConfigurationFile>> {
        if let Some(file) = &self.token_auth_file {
            let parsed = StaticTokens::parse(&read(file)?);
            let tokens = parsed.map_err(anyhow::Error::msg);
            let tokens = tokens.with_context(|| format!("--token-auth-file {}", file.display()))?;
            options.static_tokens = Some(Arc::new(tokens));
        }
        options.bootstrap_tokens = self.enable_bootstrap_token_auth;
        let from_flags = self.issuer_of_flags()?;
        let Some(file) = &self.authentication_config else {
            options.jwt_issuers.extend(from_flags);
            return Ok(None);
        };
        if from_flags.is_some() {
            bail!("--authentication-config and --oidc-issuer-url are mutually exclusive");
        }
        let text = read(file)?;
        let (issuers, anonymous) = parse_configuration(file, &text)?;
        let by_flag = options.anonymous.clone();
        options.jwt_issuers = issuers;
        options.anonymous = anonymous.unwrap_or_else(|| by_flag.clone());
        Ok(Some(AuthenticationConfigurationFile {
            file: file.clone(),
            by_flag,
            in_use: Mutex::new(text),
        }))
    }

    fn issuer_of_flags(&self) -> anyhow::Result<Option<JwtIssuerConfig>> {
        let Some(url) = &self.oidc_issuer_url else {
            if self.oidc_client_id.is_some() {
                bail!("--oidc-issuer-url is required with --oidc-client-id");
            }
            return Ok(None);
        };
        if url == auth::token::ISSUER {
            bail!("--oidc-issuer-url is the issuer of service account tokens");
        }
        let values = OidcFlagValues {
            issuer_url: url.clone(),
            client_id: self.oidc_client_id.clone().unwrap_or_default(),
            ca_pem: self.oidc_ca_file.as_deref().map(read).transpose()?,
            username_claim: self.oidc_username_claim.clone(),
            username_prefix: self.oidc_username_prefix.clone(),
            groups_claim: self.oidc_groups_claim.clone(),
            groups_prefix: self.oidc_groups_prefix.clone(),
            required_claims: self.oidc_required_claim.clone(),
            signing_algs: self.oidc_signing_algs.clone(),
        };
        values.issuer().map(Some).map_err(anyhow::Error::msg)
    }
}

fn parse_configuration(
    file: &Path,
    text: &str,
) -> anyhow::Result<(Vec<JwtIssuerConfig>, Option<AnonymousRequests>)> {
    let context = || format!("--authentication-config {}", file.display());
    let config: AuthenticationConfiguration = serde_saphyr::from_str(text).with_context(context)?;
    let in_file = |reason: String| anyhow::Error::msg(reason).context(context());
    let anonymous = config.anonymous().map_err(in_file)?;
    let issuers = config.issuers(auth::token::ISSUER).map_err(in_file)?;
    Ok((issuers, anonymous))
}

/// The file of `--authentication-config`, which is read again when it changes.
pub(crate) struct AuthenticationConfigurationFile {
    file: PathBuf,
    /// Which requests are anonymous if the file does not say it.
    by_flag: AnonymousRequests,
    /// The content in use.
    in_use: Mutex<String>,
}

impl AuthenticationConfigurationFile {
    /// Reads the file when it changes, and each minute, until `tasks` stop.
    pub(crate) fn run_reload_loop(
        self,
        authenticator: Arc<LocalAuthenticator>,
        tasks: &TaskGroup,
    ) -> Option<FileWatch> {
        let changed = Arc::default();
        let watch = watch_files([self.file.as_path()], &changed);
        let connections = tasks.child();
        run_renewal_loop(
            "issuers of tokens",
            CHECK_PERIOD,
            changed,
            tasks,
            move || {
                let result = self.reload(&authenticator, &connections);
                async move { result }
            },
        );
        watch
    }

    /// Uses the content of the file if it has changed. What cannot be used is an error, and
    /// the former issuers stay.
    fn reload(
        &self,
        authenticator: &LocalAuthenticator,
        connections: &TaskGroup,
    ) -> anyhow::Result<()> {
        let text = read(&self.file)?;
        if *self.in_use.lock() == text {
            return Ok(());
        }
        let (issuers, anonymous) = parse_configuration(&self.file, &text)?;
        authenticator.set_oidc(OidcAuthenticator::new(issuers, connections));
        authenticator.set_anonymous(anonymous.unwrap_or_else(|| self.by_flag.clone()));
        *self.in_use.lock() = text;
        tracing::info!("the issuers of tokens have changed");
        Ok(())
    }
}

/// The webhook of `--authentication-token-webhook-config-file`.
pub(crate) struct TokenWebhookOptions {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) cache_ttl: Duration,
}

impl TokenWebhookOptions {
    /// Connections belong to `tasks`.
    pub(crate) fn connect(self, tasks: &TaskGroup) -> anyhow::Result<WebhookTokenAuthenticator> {
        let endpoint = review_endpoint(&self.kubeconfig, TOKEN_REVIEW_TIMEOUT, tasks)?;
        Ok(WebhookTokenAuthenticator::new(endpoint, self.cache_ttl))
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
