//! The tasks that an aggregated server leaves to its host: authentication, authorization, namespaces,
//! policies and the configurations of webhooks.

use std::sync::Arc;

use admission::webhooks::WebhookDispatcher;
use admission_configuration::{ConfigurationSource, watch_webhook_configurations};
use auth::delegated::{DelegatedAuthOptions, DelegatingAuthenticator, DelegatingAuthorizer};
use client::{Api, InformerFactory, TaskGroup};
use flotilla_http::{ApiServer, ApiServerOptions, HealthCheck, HealthProbe};
use machinery::time::Clock;
use registry::Registry;
use webhook_client::{ServiceRouting, WebhookClientManager};

use super::host_namespaces::HostNamespaceLookup;
use super::host_policies::HostPolicies;

pub struct HostDelegation {
    /// Informers of the host's objects.
    pub informers: InformerFactory,
    pub(super) authenticator: Arc<DelegatingAuthenticator>,
    pub authorizer: Arc<DelegatingAuthorizer>,
    pub namespaces: Arc<HostNamespaceLookup>,
    pub webhooks: Arc<WebhookDispatcher>,
    pub policies: Arc<HostPolicies>,
}

impl HostDelegation {
    /// Starts to follow the host in `tasks`; connections to webhooks are made in
    /// `connection_tasks`.
    pub fn start(
        host: &Arc<dyn Api>,
        clock: &Arc<dyn Clock>,
        options: &DelegatedAuthOptions,
        connection_tasks: &TaskGroup,
        tasks: &TaskGroup,
    ) -> Self {
        let informers = InformerFactory::new(tasks);
        let authenticator =
            DelegatingAuthenticator::new(Arc::clone(host), Arc::clone(clock), options);
        tasks.spawn(authenticator.run(Arc::clone(host), tasks.shutdown().clone()));
        let authorizer = DelegatingAuthorizer::new(Arc::clone(host), options);
        let namespaces = HostNamespaceLookup::new(host, &informers);
        let expressions = admission_configuration::expression_authorizer(Arc::clone(&authorizer));
        let policies = HostPolicies::start(
            host,
            Arc::clone(&namespaces) as _,
            Arc::clone(&expressions),
            &informers,
            tasks,
        );
        let webhooks = watch_webhook_configurations(
            ConfigurationSource::Host,
            host,
            &informers,
            Arc::clone(&namespaces) as _,
            WebhookClientManager::new(host, ServiceRouting::ClusterIp, connection_tasks),
            expressions,
        );
        Self {
            informers,
            authenticator,
            authorizer,
            namespaces,
            webhooks,
            policies,
        }
    }

    /// A probe that fails until the `store`, the trust in the host and the informers are ready.
    pub fn readiness_probe(&self, store: HealthProbe) -> HealthProbe {
        let (authenticator, informers) = (Arc::clone(&self.authenticator), self.informers.clone());
        let policies = Arc::clone(&self.policies);
        Arc::new(move || {
            store()?;
            authenticator.ready()?;
            policies.ready()?;
            informers.check_synced()
        })
    }

    pub fn health_checks(&self) -> [HealthCheck; 2] {
        let (authenticator, informers) = (Arc::clone(&self.authenticator), self.informers.clone());
        let policies = Arc::clone(&self.policies);
        [
            HealthCheck::readiness("host-trust", move || authenticator.ready()),
            HealthCheck::readiness("host-sync", move || {
                policies.ready()?;
                informers.check_synced()
            }),
        ]
    }

    /// A server of the registry, with the host's authentication and authorization.
    pub fn http_server(&self, registry: Arc<Registry>, options: ApiServerOptions) -> ApiServer {
        let (authenticator, authorizer) = (&self.authenticator, &self.authorizer);
        ApiServer::new(
            registry,
            Arc::clone(authenticator),
            Arc::clone(authorizer),
            options,
        )
    }
}
