//! The authentication and authorization of requests to a standalone server.

use std::sync::Arc;

use auth::oidc::{JwtIssuerConfig, OidcAuthenticator};
use auth::rbac::RbacAuthorizer;
use auth::token::ServiceAccountTokens;
use auth::x509::CertificateVerifier;
use auth::{LocalAuthenticator, RequestAuthorizer};
use client::{Api, TaskGroup};
use flotilla_metrics::MetricsRegistry;
use machinery::time::Clock;

use super::options::StandaloneServerOptions;
use crate::authentication_flags::AuthenticationConfigurationFile;
use crate::authorization_flags::{AuthorizationReload, run_reload_loop};
use crate::file_changes::FileWatch;

pub(super) struct RequestAccess {
    pub(super) authenticator: Arc<LocalAuthenticator>,
    pub(super) rbac: Arc<RbacAuthorizer>,
    pub(super) authorizer: RequestAuthorizer,
    authorization_reload: Option<AuthorizationReload>,
    authentication_configuration: Option<AuthenticationConfigurationFile>,
    jwt_issuers: Vec<JwtIssuerConfig>,
}

impl RequestAccess {
    pub(super) fn new(
        options: &mut StandaloneServerOptions<'_>,
        client_verifier: CertificateVerifier,
        token_signer: &Arc<ServiceAccountTokens>,
        clock: &Arc<dyn Clock>,
        metrics: &MetricsRegistry,
        tasks: &TaskGroup,
    ) -> anyhow::Result<Self> {
        let authentication = std::mem::take(&mut options.authentication);
        let jwt_issuers = authentication.jwt_issuers.clone();
        let authenticator = LocalAuthenticator::new(
            Some(client_verifier),
            Arc::clone(token_signer),
            Arc::clone(clock),
            authentication,
        );
        let rbac = RbacAuthorizer::new();
        let authorization = std::mem::take(&mut options.authorization);
        let authorization = authorization.build(&rbac, metrics, tasks)?;
        Ok(Self {
            authenticator,
            rbac,
            authorizer: authorization.authorizer,
            authorization_reload: authorization.reload,
            authentication_configuration: options.authentication_configuration.take(),
            jwt_issuers,
        })
    }

    /// Connects them to the API that has tokens and roles, and to issuers and the webhook.
    /// Resolves when all roles are known.
    pub(super) async fn start(
        &mut self,
        options: &mut StandaloneServerOptions<'_>,
        api: &Arc<dyn Api>,
        tasks: &TaskGroup,
    ) -> anyhow::Result<()> {
        let authenticator = &self.authenticator;
        authenticator.set_api(Arc::clone(api));
        let issuers = std::mem::take(&mut self.jwt_issuers);
        authenticator.set_oidc(OidcAuthenticator::new(issuers, tasks));
        if let Some(webhook) = options.token_webhook.take() {
            authenticator.set_webhook(webhook.connect(tasks)?);
        }
        let roles = Box::pin(Arc::clone(&self.rbac).run(Arc::clone(api)));
        let shutdown = tasks.shutdown().clone();
        tasks.spawn(async move {
            shutdown.run_until_triggered(roles).await;
        });
        self.rbac.wait_synced().await;
        Ok(())
    }

    /// Reads the files of the configurations again when they change.
    pub(super) fn reload_configurations(&mut self, tasks: &TaskGroup) -> Vec<FileWatch> {
        let mut watches = Vec::new();
        if let Some(file) = self.authentication_configuration.take() {
            watches.extend(file.run_reload_loop(Arc::clone(&self.authenticator), tasks));
        }
        if let Some(reload) = self.authorization_reload.take() {
            watches.extend(run_reload_loop(reload, tasks));
        }
        watches
    }
}
