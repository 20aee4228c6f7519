//! The options of a standalone server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use auth::authenticator;
use interpreter::LuaLimits;
use karmada_api::FeatureGates;
use registry::ComputedResourceProviders;
use scheduler::core::SchedulingSettings;
use storage::encryption::ResourceTransformers;

use crate::audit_flags::AuditConfig;
use crate::authentication_flags::{AuthenticationConfigurationFile, TokenWebhookOptions};
use crate::authorization_flags::AuthorizationOptions;
use crate::certificate_files::CertificateFiles;
use crate::request_limit_flags::RequestLimitArgs;
use crate::service_account_keys::ServiceAccountKeyArgs;
use crate::storage_engine::StorageBackendConfig;

/// The options of a standalone server.
pub(crate) struct StandaloneServerOptions<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) listen: SocketAddr,
    pub(crate) storage_backend: StorageBackendConfig,
    /// The encryption of stored values.
    pub(crate) encryption: Option<ResourceTransformers>,
    /// Whether a port selected for port 0 is used again at the next start.
    pub(crate) reuse_port: bool,
    /// Whether Karmada's groups are served in addition to the built-in kinds.
    pub(crate) federation: bool,
    /// The scheduler's settings.
    pub(crate) scheduling_settings: SchedulingSettings,
    /// The providers of computed kinds.
    pub(crate) computed_resources: ComputedResourceProviders,
    /// Whether a simulated cluster serves annotations as custom and external metrics.
    pub(crate) annotated_metrics: bool,
    /// Additional names in the serving certificate.
    pub(crate) names: &'a [String],
    /// Anonymous requests and the audiences of tokens.
    pub(crate) authentication: authenticator::LocalAuthenticatorOptions,
    /// The file of the issuers of tokens, to read again.
    pub(crate) authentication_configuration: Option<AuthenticationConfigurationFile>,
    /// Further authorities of client certificates.
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Serving certificates and the cluster's authority, if files provide them.
    pub(crate) certificate_files: CertificateFiles,
    pub(crate) service_account_keys: ServiceAccountKeyArgs,
    /// The webhook that reviews tokens.
    pub(crate) token_webhook: Option<TokenWebhookOptions>,
    pub(crate) authorization: AuthorizationOptions,
    /// How long requests are still accepted after the signal to stop.
    pub(crate) shutdown_delay: Duration,
    pub(crate) request_limits: RequestLimitArgs,
    /// Whether profiles of the process are served.
    pub(crate) profiling: bool,
    pub(crate) audit: Option<AuditConfig>,
    /// Whether ClusterTaintPolicies may use the effect NoExecute.
    pub(crate) allow_no_execute: bool,
    /// Whether agents are registered as Karmada does.
    pub(crate) insecure_agent_registration: bool,
    pub(crate) scripts: LuaLimits,
    /// The feature gates.
    pub(crate) gates: FeatureGates,
}

impl<'a> StandaloneServerOptions<'a> {
    /// The options of a control plane of built-in and Karmada's kinds without flags.
    pub(crate) fn new(
        dir: &'a Path,
        listen: SocketAddr,
        storage_backend: StorageBackendConfig,
    ) -> Self {
        Self {
            dir,
            listen,
            storage_backend,
            encryption: None,
            reuse_port: false,
            federation: true,
            scheduling_settings: SchedulingSettings::default(),
            computed_resources: ComputedResourceProviders::default(),
            annotated_metrics: false,
            names: &[],
            authentication: authenticator::LocalAuthenticatorOptions::default(),
            authentication_configuration: None,
            client_ca_file: None,
            certificate_files: CertificateFiles::default(),
            service_account_keys: ServiceAccountKeyArgs::default(),
            token_webhook: None,
            authorization: AuthorizationOptions::default(),
            shutdown_delay: Duration::ZERO,
            request_limits: RequestLimitArgs::default(),
            profiling: false,
            audit: None,
            allow_no_execute: false,
            insecure_agent_registration: false,
            scripts: LuaLimits::default(),
            gates: FeatureGates::default(),
        }
    }
}
