//! The admission policies of the host. It evaluates none for requests that it proxies, so they
//! are evaluated here, as by every extension API server.
//!
//! Older hosts do not serve all kinds of policies: those that the host serves when this server
//! starts are followed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use admission::ExpressionAuthorizer;
use admission::policies::{KindResources, PolicyDispatcher, PolicyParamReader};
use admission::webhooks::NamespaceLookup;
use admission_configuration::{ADMISSION_GROUP, ConfigurationSource, watch_served_policies};
use client::{Api, InformerFactory, TaskGroup};
use flotilla_runtime::RestMapper;
use machinery::{Gvk, Gvr};
use tokio::sync::Notify;

use super::host_requests::retry_until_answered;

/// The least time between two discoveries of the kinds of parameters.
const REDISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

pub struct HostPolicies {
    pub dispatcher: Arc<PolicyDispatcher>,
    /// Whether it is known which kinds of policies the host serves.
    is_discovered: AtomicBool,
}

/// The kinds of the host, discovered when a policy first has parameters of an unknown one.
struct HostKindResources {
    rest_mapper: RestMapper,
    unknown_kind: Notify,
}

impl KindResources for HostKindResources {
    fn resource_of(&self, kind: &Gvk) -> Option<(Gvr, bool)> {
        let Some(mapping) = self.rest_mapper.get(kind) else {
            self.unknown_kind.notify_one();
            return None;
        };
        Some((mapping.gvr.clone(), mapping.namespaced))
    }
}

impl HostKindResources {
    async fn discover_unknown_kinds(&self) {
        loop {
            self.unknown_kind.notified().await;
            if let Err(error) = self.rest_mapper.refresh().await {
                tracing::warn!(%error, "failed to discover the kinds of parameters of policies");
            }
            tokio::time::sleep(REDISCOVERY_INTERVAL).await;
        }
    }
}

impl HostPolicies {
    /// Follows the policies of the host in `tasks`.
    pub(super) fn start(
        host: &Arc<dyn Api>,
        namespaces: Arc<dyn NamespaceLookup>,
        authorizer: Arc<dyn ExpressionAuthorizer>,
        informers: &InformerFactory,
        tasks: &TaskGroup,
    ) -> Arc<Self> {
        let kinds = Arc::new(HostKindResources {
            rest_mapper: RestMapper::new(Arc::clone(host)),
            unknown_kind: Notify::new(),
        });
        let params = PolicyParamReader::new(Arc::clone(host), Arc::clone(&kinds) as _);
        let policies = Arc::new(Self {
            dispatcher: PolicyDispatcher::new(
                namespaces,
                params,
                authorizer,
                registry::apply_policy_patch,
            ),
            is_discovered: AtomicBool::new(false),
        });
        let (follower, host, informers) =
            (Arc::clone(&policies), Arc::clone(host), informers.clone());
        let stop = tasks.shutdown().clone();
        tasks.spawn(async move {
            let follow = async {
                follower.watch_served_kinds(&host, &informers).await;
                kinds.discover_unknown_kinds().await;
            };
            stop.run_until_triggered(follow).await;
        });
        policies
    }

    async fn watch_served_kinds(&self, host: &Arc<dyn Api>, informers: &InformerFactory) {
        let in_group: client::GroupFilter<'_> = &|group| group == ADMISSION_GROUP;
        let discovered = retry_until_answered("discovery of admission policies", || {
            host.discover_groups(in_group)
        });
        match discovered.await {
            Ok(served) => {
                let serves = |resource: &Gvr| {
                    let mut resources = served.resources.iter();
                    resources.any(|candidate| candidate.resource == *resource)
                };
                let source = ConfigurationSource::Host;
                watch_served_policies(source, host, informers, &self.dispatcher, serves);
                self.is_discovered.store(true, Ordering::Release);
            }
            Err(error) => {
                tracing::error!(%error, "the host refuses discovery of its admission policies");
            }
        }
    }

    /// Fails until it is known which kinds of policies the host serves.
    pub(super) fn ready(&self) -> Result<(), String> {
        match self.is_discovered.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err("the host's admission policies are not discovered yet".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use admission::webhooks::{EquivalentVersions, VersionConverter};
    use admission::{AdmissionAttributes, AdmissionOperation, OperationOptions};
    use async_trait::async_trait;
    use client::{ApiResource, ShutdownToken};
    use client_fake::FakeApi;
    use kubernetes_cel::{AuthorizationCheck, AuthorizationDecision};
    use machinery::{Object, Status, UserInfo};
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    static POLICIES: Gvr = Gvr::from_static(ADMISSION_GROUP, "v1", "validatingadmissionpolicies");
    static BINDINGS: Gvr =
        Gvr::from_static(ADMISSION_GROUP, "v1", "validatingadmissionpolicybindings");
    static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");

    struct Nothing;

    #[async_trait]
    impl NamespaceLookup for Nothing {
        async fn get_namespace(&self, name: &str) -> Result<Option<Object>, Status> {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            Ok(Object::from_value(&namespace).ok())
        }
    }

    #[async_trait]
    impl ExpressionAuthorizer for Nothing {
        async fn authorize(&self, _: &UserInfo, _: &AuthorizationCheck) -> AuthorizationDecision {
            AuthorizationDecision::default()
        }
    }

    #[async_trait]
    impl VersionConverter for Nothing {
        async fn to_version(&self, _: usize, object: &Value) -> Result<Value, Status> {
            Ok(object.clone())
        }

        async fn to_requested_version(&self, _: usize, object: Value) -> Result<Value, Status> {
            Ok(object)
        }

        fn merge_configuration(&self, _: usize, _: &Value, _: &Value) -> Result<Value, String> {
            Err("nothing is merged here".into())
        }
    }

    struct HostFixture {
        fake: Arc<FakeApi>,
        tasks: TaskGroup,
        informers: InformerFactory,
        policies: Arc<HostPolicies>,
    }

    fn served(resource: &Gvr, kind: &str, namespaced: bool) -> ApiResource {
        ApiResource {
            resource: resource.clone(),
            kind: kind.into(),
            namespaced,
            verbs: vec!["list".into(), "watch".into()],
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        }
    }

    impl HostFixture {
        /// A host with a policy for the groups of Karmada, whose parameters are a ConfigMap.
        async fn start(serves_policies: bool) -> Self {
            let fake = FakeApi::new();
            fake.add_resource(served(&CONFIG_MAPS, "ConfigMap", true));
            if serves_policies {
                fake.add_resource(served(&POLICIES, "ValidatingAdmissionPolicy", false));
                fake.add_resource(served(&BINDINGS, "ValidatingAdmissionPolicyBinding", false));
            }
            let rule = json!({"apiGroups": ["policy.karmada.io"], "apiVersions": ["*"],
                "operations": ["*"], "resources": ["*"]});
            let spec = json!({"matchConstraints": {"resourceRules": [rule]},
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "validations": [{"expression": "object.metadata.name != params.data.name"}]});
            fake.seed(
                &POLICIES,
                json!({"metadata": {"name": "names"}, "spec": spec}),
            );
            let reference = json!({"name": "denied", "namespace": "rules",
                "parameterNotFoundAction": "Deny"});
            let binding = json!({"policyName": "names", "validationActions": ["Deny"],
                "paramRef": reference});
            fake.seed(
                &BINDINGS,
                json!({"metadata": {"name": "names"}, "spec": binding}),
            );
            let params = json!({"metadata": {"name": "denied", "namespace": "rules"},
                "data": {"name": "bad"}});
            fake.seed(&CONFIG_MAPS, params);
            let host: Arc<dyn Api> = fake.clone();
            let tasks = TaskGroup::new(ShutdownToken::new());
            let informers = InformerFactory::new(&tasks);
            let (namespaces, authorizer) = (Arc::new(Nothing), Arc::new(Nothing));
            let policies = HostPolicies::start(&host, namespaces, authorizer, &informers, &tasks);
            while policies.ready().is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            informers.wait_for_cache_sync().await;
            Self {
                fake,
                tasks,
                informers,
                policies,
            }
        }

        async fn validate(&self, name: &str) -> Result<(), Status> {
            let gvk = Gvk::from_static("policy.karmada.io", "v1alpha1", "OverridePolicy");
            let gvr = Gvr::from_static("policy.karmada.io", "v1alpha1", "overridepolicies");
            let user = UserInfo::default();
            let attributes = AdmissionAttributes {
                gvk: &gvk,
                gvr: &gvr,
                namespace: "n",
                name,
                subresource: "",
                operation: AdmissionOperation::Create,
                user: &user,
                dry_run: false,
                options: OperationOptions::None,
                audit_annotations: None,
            };
            let versions = EquivalentVersions {
                kinds: vec![(gvk.clone(), gvr.clone())],
                converter: &Nothing,
            };
            let new = json!({"metadata": {"name": name, "namespace": "n"}});
            let dispatcher = &self.policies.dispatcher;
            dispatcher
                .validate(&attributes, &versions, &new, None, &mut Vec::new())
                .await
        }
    }

    #[tokio::test]
    async fn policies_of_the_host_are_evaluated() {
        let host = HostFixture::start(true).await;
        let verbs: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorded_verbs = Arc::clone(&verbs);
        host.fake.on_call(move |call| {
            let of_params = call.resource.is_some_and(|r| *r == CONFIG_MAPS);
            recorded_verbs
                .lock()
                .extend(of_params.then(|| call.verb.to_owned()));
            None
        });
        // The kind of the parameters is discovered by the first request that needs it.
        let denial = host.validate("good").await.unwrap_err();
        assert!(denial.message.contains("paramKind"), "{}", denial.message);
        while host.validate("good").await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let denial = host.validate("bad").await.unwrap_err();
        let message = "denied request: failed expression: object.metadata.name != params.data.name";
        assert!(denial.message.ends_with(message), "{}", denial.message);
        let mut verbs = std::mem::take(&mut *verbs.lock());
        verbs.dedup();
        assert_eq!(verbs, ["list"], "the role of the installation may not get");
        host.fake.remove(&POLICIES, "", "names");
        while host.validate("bad").await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        host.tasks.stop().await;
    }

    #[tokio::test]
    async fn a_host_without_policies_is_not_asked_for_them() {
        let host = HostFixture::start(false).await;
        assert!(host.informers.unsynced().is_empty());
        host.validate("bad").await.unwrap();
        host.tasks.stop().await;
    }
}
