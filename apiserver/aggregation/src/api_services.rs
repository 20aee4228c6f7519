//! Registers an APIService at the host for each group version that Flotilla serves, and
//! reconciles it.
//!
//! An APIService that the host created for definitions without objects is taken over. One
//! that leads to another server is an error, which is found before anything is written.

use std::sync::Arc;
use std::time::Duration;

use addons::AddonSwitches;
use anyhow::{Context, bail};
use auth::ca_bundle::merge_bundles;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::{Api, DeleteOptions, Patch, ResourcePath, TaskGroup, WriteOptions, ignore_not_found};
use karmada_api::addons::Addon;
use machinery::conditions::is_condition_true;
use machinery::time::{Clock, rfc3339_seconds};
use machinery::{FailureLogLimiter, Gvr, Object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api_service_body::{desired_api_service, owner_references};
use super::group_versions::{
    ApiServiceOwner, MetricsApiServicePolicy, RegistrationPolicy, ServedGroupVersion,
    foreign_server,
};
use super::host_crds::{AUTOMANAGED_LABEL, crds_without_objects, is_automanaged};
use super::host_objects::{ApiServiceTarget, contains};
use super::host_requests::retry_until_answered;
use super::serving_certificate::ServingCertificateSecretManager;
use super::takeover::TakeoverFollower;
use super::{agent_restriction, deletion_protection};

static API_SERVICES: Gvr = Gvr::from_static("apiregistration.k8s.io", "v1", "apiservices");
static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");

/// The time at which the host was made to check the availability again.
const PROBED_AT_ANNOTATION: &str = "flotilla.io/probed-at";
/// The name of the admission that is registered, in logs.
const ADMISSION: &str = "deletion protection and rules for agents";
/// The interval at which the APIServices are compared, and at which unavailable ones are
/// checked again.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(30);
/// How long after a change of the CA bundle another replica may still use a certificate
/// of the earlier CA.
const BUNDLE_OVERLAP: Duration = Duration::from_secs(10);
/// The first interval between checks while some APIServices are unavailable; it doubles
/// each time.
const FIRST_CHECK_INTERVAL: Duration = Duration::from_secs(1);

struct ApiServiceControllerInner {
    host: Arc<dyn Api>,
    service: ApiServiceTarget,
    served: Vec<ServedGroupVersion>,
    serving: ServingCertificateSecretManager,
    clock: Arc<dyn Clock>,
    addons: AddonSwitches,
    /// Of a takeover, whose phase says whether anything is registered.
    takeover: Option<TakeoverFollower>,
}

/// Registers and reconciles the APIServices. Clones share their state.
#[derive(Clone)]
pub struct ApiServiceController(Arc<ApiServiceControllerInner>);

impl ApiServiceController {
    pub fn new(
        host: Arc<dyn Api>,
        service: ApiServiceTarget,
        served: Vec<ServedGroupVersion>,
        serving: ServingCertificateSecretManager,
        clock: Arc<dyn Clock>,
        addons: AddonSwitches,
        takeover: Option<TakeoverFollower>,
    ) -> Self {
        Self(Arc::new(ApiServiceControllerInner {
            host,
            service,
            served,
            serving,
            clock,
            addons,
            takeover,
        }))
    }

    /// Registers everything once, and makes the host check unavailable APIServices again. In a
    /// takeover, everything is registered when its phase says so.
    pub async fn register_all(&self) -> anyhow::Result<()> {
        if self.0.takeover.is_some() {
            return Ok(());
        }
        let checks = self.0.served.iter().map(|v| self.0.check_owner(v));
        futures_util::future::try_join_all(checks).await?;
        let bundle = self.0.serving.bundle().borrow().clone();
        let passes = self
            .0
            .served
            .iter()
            .map(|v| self.0.reconcile(v, &bundle, true));
        futures_util::future::try_join_all(passes).await?;
        let protect = || self.0.ensure_admission(&bundle);
        retry_until_answered(ADMISSION, protect)
            .await
            .context(ADMISSION)
    }

    /// Reconciles until the tasks stop.
    pub fn run(&self, tasks: &TaskGroup) {
        let (shared, stop) = (Arc::clone(&self.0), tasks.shutdown().clone());
        tasks.spawn(async move {
            stop.run_until_triggered(shared.reconcile_loop()).await;
        });
    }
}

impl ApiServiceControllerInner {
    async fn reconcile_loop(&self) {
        let mut bundle = self.serving.bundle();
        let mut addons = self.addons.subscribe();
        let mut pause = FIRST_CHECK_INTERVAL;
        let mut settled_at = Instant::now() + BUNDLE_OVERLAP;
        let failures = FailureLogLimiter::new();
        loop {
            tokio::select! {
                changed = bundle.changed() => match changed {
                    Ok(()) => settled_at = Instant::now() + BUNDLE_OVERLAP,
                    Err(_) => return,
                },
                Ok(()) = addons.changed() => {}
                () = self.wait_for_next_check(pause) => {}
            }
            if !self.may_register().await {
                pause = FIRST_CHECK_INTERVAL;
                continue;
            }
            let trusted = bundle.borrow_and_update().clone();
            let keep_earlier = Instant::now() < settled_at;
            let mut all = true;
            for version in &self.served {
                match self.reconcile(version, &trusted, keep_earlier).await {
                    Ok(available) => {
                        all &= available;
                        if failures.record_success(&version.name()) {
                            tracing::info!(version = version.name(), "registered again");
                        }
                    }
                    Err(error) => {
                        all = false;
                        let error = format!("{error:#}");
                        if failures.record_failure(&version.name(), &error) {
                            tracing::warn!(error, "registration");
                        }
                    }
                }
            }
            match self.ensure_admission(&trusted).await {
                Ok(()) => {
                    if failures.record_success(ADMISSION) {
                        tracing::info!(
                            "deletion protection and rules for agents are registered again"
                        );
                    }
                }
                Err(error) => {
                    all = false;
                    if failures.record_failure(ADMISSION, &error.to_string()) {
                        tracing::warn!(%error, "{ADMISSION}");
                    }
                }
            }
            pause = match all {
                true if keep_earlier => BUNDLE_OVERLAP,
                true => RECONCILE_INTERVAL,
                false => (pause * 2).min(RECONCILE_INTERVAL),
            };
        }
    }

    /// Waits until the next check, or until the phase of a takeover begins to allow it.
    async fn wait_for_next_check(&self, pause: Duration) {
        let end = Instant::now() + pause;
        let Some(takeover) = &self.takeover else {
            return tokio::time::sleep_until(end).await;
        };
        let mut registers = true;
        while Instant::now() < end {
            let poll = Instant::now() + FIRST_CHECK_INTERVAL;
            tokio::time::sleep_until(poll.min(end)).await;
            let registers_now = takeover.registers().await;
            if registers_now && !registers {
                return;
            }
            registers = registers_now;
        }
    }

    /// Whether the phase of a takeover, if there is one, allows to write APIServices.
    async fn may_register(&self) -> bool {
        match &self.takeover {
            Some(takeover) => takeover.registers().await,
            None => true,
        }
    }

    /// Registers the deletion protection and the rules for agents at the host.
    async fn ensure_admission(&self, bundle: &str) -> client::Result<()> {
        let owners = owner_references(self.owner_role().await?.as_ref());
        deletion_protection::ensure(&self.host, &self.service, bundle, &owners).await?;
        agent_restriction::ensure(&self.host, &self.service, bundle, &owners).await
    }

    /// The registered APIService of a group version.
    async fn check_owner(&self, version: &ServedGroupVersion) -> anyhow::Result<ApiServiceOwner> {
        let name = version.name();
        let context = || format!("APIService {name}");
        let at = ResourcePath::object(&API_SERVICES, "", &name);
        let existing = match retry_until_answered("registration", || self.host.get(at)).await {
            Ok(existing) => Some(existing.value()?),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error).with_context(context),
        };
        match version.policy {
            RegistrationPolicy::Required => match existing {
                None => Ok(ApiServiceOwner::None),
                Some(existing) => self.check_required(version, existing).await,
            },
            RegistrationPolicy::IfNotServed => {
                let policy = MetricsApiServicePolicy::IfNotPresent;
                Ok(ApiServiceOwner::of_metrics(policy, existing, &self.service))
            }
            RegistrationPolicy::Metrics(policy) => {
                let policy = policy.with_addon(self.addons.state(Addon::MetricsAdapter));
                Ok(ApiServiceOwner::of_metrics(policy, existing, &self.service))
            }
        }
    }

    /// Fails when another server or a definition with objects serves a group of Flotilla, unless
    /// a takeover has moved the objects.
    async fn check_required(
        &self,
        version: &ServedGroupVersion,
        existing: Value,
    ) -> anyhow::Result<ApiServiceOwner> {
        let name = version.name();
        if self.takeover.is_some() {
            tracing::debug!(name, "superseded by a takeover");
        } else if is_automanaged(&existing) {
            let definitions = crds_without_objects(&self.host, &version.group, &version.version);
            let definitions = definitions
                .await
                .with_context(|| format!("APIService {name}"))?;
            tracing::debug!(name, ?definitions, "registered by the host");
        } else if let Some(who) = foreign_server(&existing, &self.service) {
            bail!(
                "{name} is served by {who}; remove it (and move its objects) before Flotilla can serve this group"
            );
        }
        Ok(ApiServiceOwner::Flotilla(existing))
    }

    /// Removes an APIService of metrics that leads to Flotilla. Returns whether it is gone.
    async fn unregister(
        &self,
        version: &ServedGroupVersion,
        existing: &Value,
    ) -> anyhow::Result<bool> {
        let name = version.name();
        let at = ResourcePath::object(&API_SERVICES, "", &name);
        let read = existing["metadata"]["resourceVersion"].as_str();
        let options = DeleteOptions {
            resource_version: read.map(str::to_owned),
            ..DeleteOptions::default()
        };
        match ignore_not_found(self.host.delete(at, &options).await) {
            // The next check compares.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error).with_context(|| format!("APIService {name}")),
            Ok(_) => {
                tracing::info!(name, "no longer registered");
                Ok(true)
            }
        }
    }

    /// Takes over an APIService that the host created for its definitions, by removing the
    /// label of automanaged ones.
    async fn take_over(
        &self,
        version: &ServedGroupVersion,
        existing: &Value,
        bundle: &str,
    ) -> anyhow::Result<()> {
        let name = version.name();
        let owner = self.wait_for_owner_role().await?;
        let mut change = desired_api_service(version, &self.service, bundle, owner.as_ref());
        change["metadata"]["labels"][AUTOMANAGED_LABEL] = Value::Null;
        change["metadata"]["resourceVersion"] = existing["metadata"]["resourceVersion"].clone();
        let at = ResourcePath::object(&API_SERVICES, "", &name);
        let options = WriteOptions::default();
        match self.host.patch(at, Patch::Merge(change), &options).await {
            // The next check compares.
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error).with_context(|| format!("APIService {name}")),
            Ok(_) => {
                tracing::info!(name, "taken over from definitions of the host");
                Ok(())
            }
        }
    }

    /// Creates or updates one APIService; with `keep_earlier` its present CA bundle stays
    /// trusted. Returns whether the host reports it as available.
    async fn reconcile(
        &self,
        version: &ServedGroupVersion,
        bundle: &str,
        keep_earlier: bool,
    ) -> anyhow::Result<bool> {
        let name = version.name();
        let at = ResourcePath::object(&API_SERVICES, "", &name);
        let context = || format!("APIService {name}");
        let existing = match self.check_owner(version).await? {
            ApiServiceOwner::Flotilla(existing) => Some(existing),
            ApiServiceOwner::None => None,
            ApiServiceOwner::Unwanted(existing) => {
                return self.unregister(version, &existing).await;
            }
            ApiServiceOwner::Other => return Ok(true),
        };
        // Whoever gives it back changes the phase first, and then what was read above.
        if !self.may_register().await {
            return Ok(false);
        }
        let Some(existing) = existing else {
            let owner = self.wait_for_owner_role().await?;
            let body = desired_api_service(version, &self.service, bundle, owner.as_ref());
            let options = WriteOptions::default();
            let all = ResourcePath::collection(&API_SERVICES, "");
            return match self.host.create(all, body.into(), &options).await {
                // Another replica has created it; the next check compares.
                Err(e) if !e.is_already_exists() => Err(e).with_context(context),
                _ => Ok(false),
            };
        };
        if is_automanaged(&existing) {
            self.take_over(version, &existing, bundle).await?;
            return Ok(false);
        }
        let earlier = existing["spec"]["caBundle"].as_str().unwrap_or_default();
        let earlier = STANDARD.decode(earlier).unwrap_or_default();
        let bundle = match keep_earlier {
            true => merge_bundles(bundle, &String::from_utf8_lossy(&earlier), self.clock.now()),
            false => bundle.to_owned(),
        };
        let mut change = desired_api_service(version, &self.service, &bundle, None);
        let available = is_condition_true(&existing, "Available");
        if contains(&existing, &change) {
            if available {
                return Ok(true);
            }
            // The host checks a changed APIService at once, others twice a minute.
            let now = rfc3339_seconds(self.clock.now());
            change = json!({"metadata": {"annotations": {PROBED_AT_ANNOTATION: now}}});
        }
        if version.policy != RegistrationPolicy::Required || self.takeover.is_some() {
            // Another server may have registered itself since.
            change["metadata"]["resourceVersion"] = existing["metadata"]["resourceVersion"].clone();
        }
        let options = WriteOptions::default();
        match self.host.patch(at, Patch::Merge(change), &options).await {
            // The next check compares.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error).with_context(context),
            Ok(_) => Ok(available),
        }
    }

    /// The ClusterRole of the installation. It owns the APIServices, so that garbage
    /// collection removes them when Flotilla is uninstalled.
    async fn owner_role(&self) -> client::Result<Option<Object>> {
        let at = ResourcePath::object(&CLUSTER_ROLES, "", &self.service.name);
        ignore_not_found(self.host.get(at).await)
    }

    /// The owner, as soon as the host answers.
    async fn wait_for_owner_role(&self) -> anyhow::Result<Option<Object>> {
        retry_until_answered("registration", || self.owner_role())
            .await
            .with_context(|| format!("ClusterRole {}", self.service.name))
    }
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;
    use machinery::Status;
    use machinery::time::SystemClock;

    use super::super::host_objects::MANAGED_BY_LABEL;
    use super::super::testing::service;
    use super::*;

    fn versions() -> Vec<ServedGroupVersion> {
        let version = |version: &str, priority| ServedGroupVersion {
            group: "work.karmada.io".into(),
            version: version.into(),
            group_priority: 2000,
            priority,
            policy: RegistrationPolicy::Required,
        };
        vec![version("v1alpha2", 15), version("v1alpha1", 14)]
    }

    async fn registration(fake: &Arc<FakeApi>) -> ApiServiceController {
        let host: Arc<dyn Api> = fake.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let serving = ServingCertificateSecretManager::open(&host, &service(), &clock)
            .await
            .unwrap();
        let addons = AddonSwitches::none();
        ApiServiceController::new(host, service(), versions(), serving, clock, addons, None)
    }

    fn set_available(fake: &FakeApi, name: &str) {
        let mut existing = fake.get_object(&API_SERVICES, "", name).unwrap();
        existing["status"] = json!({"conditions": [{"type": "Available", "status": "True"}]});
        fake.seed(&API_SERVICES, existing);
    }

    #[tokio::test]
    async fn registered_api_services_are_kept() {
        let fake = FakeApi::new();
        fake.seed(
            &CLUSTER_ROLES,
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                   "metadata": {"name": "flotilla", "uid": "u"}}),
        );
        let registration = registration(&fake).await;
        registration.register_all().await.unwrap();
        let created = fake
            .get_object(&API_SERVICES, "", "v1alpha2.work.karmada.io")
            .unwrap();
        assert_eq!(created["spec"]["versionPriority"], 15);
        assert_eq!(created["spec"]["service"]["port"], 443);
        assert_eq!(created["metadata"]["ownerReferences"][0]["uid"], "u");
        for version in versions() {
            set_available(&fake, &version.name());
        }
        fake.clear_writes();
        registration.register_all().await.unwrap();
        assert_eq!(fake.writes(), []);
        let mut drifted = created;
        drifted["spec"]["service"]["port"] = json!(1);
        fake.seed(&API_SERVICES, drifted);
        registration.register_all().await.unwrap();
        let healed = fake
            .get_object(&API_SERVICES, "", "v1alpha2.work.karmada.io")
            .unwrap();
        assert_eq!(healed["spec"]["service"]["port"], 443);
    }

    #[tokio::test]
    async fn unavailable_api_services_are_checked_again() {
        let fake = FakeApi::new();
        let registration = registration(&fake).await;
        registration.register_all().await.unwrap();
        set_available(&fake, "v1alpha1.work.karmada.io");
        fake.clear_writes();
        registration.register_all().await.unwrap();
        let poked: Vec<String> = fake.writes().into_iter().map(|w| w.name).collect();
        assert_eq!(poked, ["v1alpha2.work.karmada.io"]);
    }

    #[tokio::test]
    async fn groups_of_other_servers_are_not_taken_over() {
        let name = "v1alpha2.work.karmada.io";
        let api_service = |spec: Value| {
            json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                   "metadata": {"name": name}, "spec": spec})
        };
        for (spec, who) in [
            (
                json!({"group": "work.karmada.io"}),
                "CustomResourceDefinition",
            ),
            (
                json!({"service": {"namespace": "karmada-system", "name": "other"}}),
                "other",
            ),
        ] {
            let fake = FakeApi::new();
            fake.seed(&API_SERVICES, api_service(spec));
            let error = registration(&fake).await.register_all().await.unwrap_err();
            assert!(error.to_string().contains(who), "{error}");
            let existing = fake.get_object(&API_SERVICES, "", name).unwrap();
            assert!(existing["spec"]["caBundle"].is_null());
        }
    }

    #[tokio::test]
    async fn only_a_missing_role_means_no_owner() {
        let fake = FakeApi::new();
        let registration = registration(&fake).await;
        fake.on_call(|call| {
            let reads_role = call.verb == "get" && call.resource == Some(&CLUSTER_ROLES);
            reads_role.then(|| Status::failure(403, "Forbidden", "no".to_owned()).into())
        });
        let error = registration.register_all().await.unwrap_err();
        assert!(
            format!("{error:#}").contains("ClusterRole flotilla"),
            "{error:#}"
        );
        assert_eq!(fake.list_objects(&API_SERVICES), [] as [Value; 0]);
        fake.on_call(|_| None);
        registration.register_all().await.unwrap();
        let created = fake.list_objects(&API_SERVICES);
        assert!(
            created
                .iter()
                .all(|o| o["metadata"]["ownerReferences"].is_null())
        );
        assert_eq!(created.len(), versions().len());
    }

    /// An APIService that a host registers for its definitions.
    fn automanaged(name: &str) -> Value {
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": name, "labels": {AUTOMANAGED_LABEL: "true"}},
            "spec": {"group": "work.karmada.io", "version": name.split('.').next(),
                     "groupPriorityMinimum": 1000, "versionPriority": 100}})
    }

    fn definition_of_works() -> Value {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "works.work.karmada.io"},
            "spec": {"group": "work.karmada.io", "names": {"plural": "works", "kind": "Work"},
                     "versions": [{"name": "v1alpha1", "served": true, "storage": true}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}})
    }

    static DEFINITIONS: Gvr =
        Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    static WORKS: Gvr = Gvr::from_static("work.karmada.io", "v1alpha1", "works");

    #[tokio::test]
    async fn definitions_without_objects_are_taken_over() {
        let name = "v1alpha1.work.karmada.io";
        let fake = FakeApi::new();
        fake.seed(&API_SERVICES, automanaged(name));
        fake.seed(&DEFINITIONS, definition_of_works());
        let registration = registration(&fake).await;
        registration.register_all().await.unwrap();
        let service = fake.get_object(&API_SERVICES, "", name).unwrap();
        assert_eq!(service["spec"]["service"]["name"], "flotilla");
        assert_eq!(service["metadata"]["labels"][MANAGED_BY_LABEL], "flotilla");
        assert_eq!(service["metadata"]["labels"].get(AUTOMANAGED_LABEL), None);
        for version in versions() {
            set_available(&fake, &version.name());
        }
        fake.clear_writes();
        registration.register_all().await.unwrap();
        assert_eq!(fake.writes(), []);
        assert!(
            fake.get_object(&DEFINITIONS, "", "works.work.karmada.io")
                .is_some()
        );
    }

    #[tokio::test]
    async fn definitions_with_objects_are_errors_before_any_write() {
        let fake = FakeApi::new();
        fake.seed(&API_SERVICES, automanaged("v1alpha1.work.karmada.io"));
        fake.seed(&API_SERVICES, automanaged("v1alpha2.work.karmada.io"));
        fake.seed(&DEFINITIONS, definition_of_works());
        let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": "w", "namespace": "ns"}});
        fake.seed(&WORKS, work);
        let registration = registration(&fake).await;
        fake.clear_writes();
        let error = registration.register_all().await.unwrap_err();
        let text = format!("{error:#}");
        for part in [
            "CustomResourceDefinition works.work.karmada.io",
            "ns/w",
            "kubectl get works.work.karmada.io --all-namespaces",
            "kubectl delete crd works.work.karmada.io",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(fake.writes(), []);
    }
}
