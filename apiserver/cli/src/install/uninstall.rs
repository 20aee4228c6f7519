//! Uninstalls Flotilla from a cluster.
//!
//! The order matters. While a process of Flotilla runs, it would treat the deletion of a
//! member's execution namespace as the deletion of its Works and remove their objects from
//! the member. And an APIService without a server would keep every namespace from being
//! deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use aggregation::{RECORD_CONFIG_MAP, TakeoverPhase, TakeoverRecord};
use anyhow::{Context, bail};
use client::{
    Api, DeleteOptions, DeletionPropagation, Error, ListOptions, ResourcePath, ignore_not_found,
};
use karmada_api::addons::CONFIG_MAPS;
use karmada_api::names::cluster_of_execution_space;
use karmada_api::resources::WORKS;
use karmada_api::well_known_keys::SYSTEM;
use machinery::{Gvr, Object};
use serde_json::Value;
use tokio::time::Instant;

use super::apply::DEPLOYMENTS;
use super::manifests::NAME;
use crate::output;

static PODS: Gvr = Gvr::from_static("", "v1", "pods");
static NAMESPACES: Gvr = Gvr::from_static("", "v1", "namespaces");
static DEFINITIONS: Gvr =
    Gvr::from_static("apiextensions.k8s.io", "v1", "customresourcedefinitions");
static API_SERVICES: Gvr = Gvr::from_static("apiregistration.k8s.io", "v1", "apiservices");
static ROLE_BINDINGS: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "rolebindings");
static ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "roles");
static CLUSTER_ROLE_BINDINGS: Gvr =
    Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterrolebindings");
static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
const ADMISSION_GROUP: &str = "admissionregistration.k8s.io";
/// The namespace in which `flotilla join` stores the credentials of members.
const MEMBER_CREDENTIALS_NAMESPACE: &str = "karmada-cluster";
/// The role that grants access to members through the proxy.
const PROXY_ADMIN_ROLE: &str = "cluster-proxy-admin";
/// The role that lets viewers read the usage of nodes and pods.
const METRICS_READER_ROLE: &str = "flotilla-metrics-reader";
/// The roles by which Flotilla creates those of agents, and passes requests on as their users.
const AGENTS_ROLE: &str = "flotilla-agents";
const IMPERSONATOR_ROLE: &str = "flotilla-impersonator";
/// The beginning of the roles that members in pull mode are registered with.
const AGENT_ROLE_PREFIX: &str = "system:karmada:";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const POLL_INTERVAL: Duration = Duration::from_millis(250);

struct Uninstaller<'a> {
    host: &'a dyn Api,
    namespace: &'a str,
    deadline: Instant,
    /// Whether a Karmada is installed in the cluster, whose namespaces and roles of members have the
    /// names of Flotilla's.
    has_karmada: bool,
}

/// Removes everything but what a Karmada in the cluster has or may have. An object that is gone already
/// is not an error.
pub(super) async fn uninstall_all(
    host: &dyn Api,
    namespace: &str,
    wait: Duration,
) -> anyhow::Result<()> {
    let removal = Uninstaller {
        host,
        namespace,
        deadline: Instant::now() + wait,
        has_karmada: has_karmada(host).await?,
    };
    removal.ensure_given_back().await?;
    removal.delete_deployment().await?;
    removal.delete_registrations().await?;
    removal.delete_roles_of_agents().await?;
    removal.delete_namespaces().await?;
    removal
        .delete(ResourcePath::object(
            &ROLE_BINDINGS,
            "kube-system",
            "flotilla-auth-reader",
        ))
        .await?;
    for name in [
        NAME,
        "flotilla-auth-delegator",
        AGENTS_ROLE,
        IMPERSONATOR_ROLE,
    ] {
        let at = ResourcePath::object(&CLUSTER_ROLE_BINDINGS, "", name);
        removal.delete(at).await?;
    }
    // The names are Karmada's: roles of a Karmada installation stay.
    let is_own = |role: &Object| {
        let named = role.name() == PROXY_ADMIN_ROLE || role.name().starts_with(AGENT_ROLE_PREFIX);
        named && role.meta().label("app.kubernetes.io/name") == Some(NAME)
    };
    for resource in [
        &CLUSTER_ROLE_BINDINGS,
        &CLUSTER_ROLES,
        &ROLE_BINDINGS,
        &ROLES,
    ] {
        removal.delete_where(resource, is_own).await?;
    }
    for name in [METRICS_READER_ROLE, NAME, AGENTS_ROLE, IMPERSONATOR_ROLE] {
        let at = ResourcePath::object(&CLUSTER_ROLES, "", name);
        removal.delete(at).await?;
    }
    Ok(())
}

/// Whether the cluster has Karmada's definition of Works, with which it stores them.
async fn has_karmada(host: &dyn Api) -> anyhow::Result<bool> {
    let name = WORKS.group_resource();
    let at = ResourcePath::object(&DEFINITIONS, "", &name);
    let definition = ignore_not_found(host.get(at).await).context(name.clone())?;
    Ok(definition.is_some())
}

impl Uninstaller<'_> {
    /// Fails while Flotilla has what it took over from the Karmada of the cluster.
    async fn ensure_given_back(&self) -> anyhow::Result<()> {
        if !self.has_karmada {
            return Ok(());
        }
        let at = ResourcePath::object(&CONFIG_MAPS, self.namespace, RECORD_CONFIG_MAP);
        let map = ignore_not_found(self.host.get(at).await).context(RECORD_CONFIG_MAP)?;
        let Some(map) = map else {
            return Ok(());
        };
        let record = TakeoverRecord::from_config_map(&map).map_err(anyhow::Error::msg)?;
        match record.phase {
            TakeoverPhase::Check | TakeoverPhase::Returned => Ok(()),
            phase => bail!(
                "Flotilla has taken over the Karmada of this cluster (phase {phase}): \
                `flotilla takeover --back` gives it back, which has to come first. Who gives up what \
                Flotilla has deletes the ConfigMap {RECORD_CONFIG_MAP} in the namespace {}",
                self.namespace
            ),
        }
    }

    /// Deletes the Deployment and waits until its pods are gone.
    async fn delete_deployment(&self) -> anyhow::Result<()> {
        self.delete(ResourcePath::object(&DEPLOYMENTS, self.namespace, NAME))
            .await?;
        let select = ListOptions {
            label_selector: "app.kubernetes.io/name=flotilla,app.kubernetes.io/component=apiserver"
                .into(),
            ..ListOptions::default()
        };
        let at = ResourcePath::collection(&PODS, self.namespace);
        loop {
            let left = self.host.list(at, &select).await.context("pods")?.items;
            if left.is_empty() {
                return Ok(());
            }
            let names: Vec<&str> = left.iter().map(Object::name).collect();
            let names = names.join(", ");
            self.wait_or_fail(|| {
                format!("pods {names} are still running; nothing else was removed")
            })
            .await?;
        }
    }

    /// Removes the APIServices and webhooks that lead to Flotilla, and its policies.
    async fn delete_registrations(&self) -> anyhow::Result<()> {
        let is_own = |object: &Object| {
            let value = object.value().unwrap_or_default();
            is_flotilla_service(&value["spec"]["service"], self.namespace)
        };
        self.delete_where(&API_SERVICES, is_own).await?;
        for resource in [
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicies",
        ] {
            let resource = Gvr::new(ADMISSION_GROUP, "v1", resource);
            let is_own = |object: &Object| {
                let value = object.value().unwrap_or_default();
                let hooks = value["webhooks"].as_array().into_iter().flatten();
                let mut services = hooks.map(|hook| &hook["clientConfig"]["service"]);
                object.meta().label(MANAGED_BY) == Some(NAME)
                    || services.any(|service| is_flotilla_service(service, self.namespace))
            };
            self.delete_where(&resource, is_own).await?;
        }
        Ok(())
    }

    /// Removes the roles of agents whose members have an execution space here. Their roles in
    /// namespaces go with these.
    async fn delete_roles_of_agents(&self) -> anyhow::Result<()> {
        if self.has_karmada {
            return Ok(());
        }
        let namespaces = self.list(&NAMESPACES).await?;
        let system = namespaces
            .iter()
            .filter(|namespace| namespace.meta().label(SYSTEM) == Some("true"));
        let roles: BTreeSet<String> = system
            .filter_map(|namespace| cluster_of_execution_space(namespace.name()))
            .map(|cluster| format!("{AGENT_ROLE_PREFIX}{cluster}:agent"))
            .collect();
        for resource in [&CLUSTER_ROLE_BINDINGS, &CLUSTER_ROLES] {
            self.delete_where(resource, |role| roles.contains(role.name()))
                .await?;
        }
        Ok(())
    }

    /// Removes the namespaces of members and Flotilla's own namespace, and waits until they
    /// are gone. With those of its members, a Karmada would remove their objects.
    async fn delete_namespaces(&self) -> anyhow::Result<()> {
        let is_of_members = |object: &Object| {
            let name = object.name();
            object.meta().label(SYSTEM) == Some("true")
                && (name == MEMBER_CREDENTIALS_NAMESPACE
                    || cluster_of_execution_space(name).is_some())
        };
        let is_own = |object: &Object| {
            object.name() == self.namespace || (!self.has_karmada && is_of_members(object))
        };
        if self.has_karmada {
            let all = self.list(&NAMESPACES).await?;
            let kept = all.iter().filter(|o| is_of_members(o)).count();
            output::print_progress(format!(
                "{kept} namespaces of members stay, with their roles: the cluster has Karmada's definitions"
            ));
        }
        self.delete_where(&NAMESPACES, is_own).await?;
        loop {
            let all = self.list(&NAMESPACES).await?;
            let left: Vec<&str> = all.iter().filter(|o| is_own(o)).map(Object::name).collect();
            if left.is_empty() {
                return Ok(());
            }
            let names = left.join(", ");
            self.wait_or_fail(|| {
                format!(
                    "namespaces {names} still exist; check their status, then run this command again"
                )
            })
            .await?;
        }
    }

    async fn list(&self, resource: &Gvr) -> anyhow::Result<Vec<Object>> {
        let listed = self
            .host
            .list(
                ResourcePath::collection(resource, ""),
                &ListOptions::default(),
            )
            .await;
        match listed {
            Ok(list) => Ok(list.items),
            // The cluster does not serve this kind.
            Err(e) if e.is_not_found() => Ok(Vec::new()),
            Err(e) => Err(e).with_context(|| resource.resource.to_string()),
        }
    }

    async fn delete_where(
        &self,
        resource: &Gvr,
        which: impl Fn(&Object) -> bool,
    ) -> anyhow::Result<()> {
        for object in self.list(resource).await?.iter().filter(|o| which(o)) {
            self.delete(ResourcePath::of_object(resource, object))
                .await?;
        }
        Ok(())
    }

    async fn delete(&self, at: ResourcePath<'_>) -> anyhow::Result<()> {
        let options = DeleteOptions {
            propagation: Some(DeletionPropagation::Background),
            ..DeleteOptions::default()
        };
        let description = format!("{} {}", at.resource.resource, at.name);
        match self.host.delete(at, &options).await {
            Ok(_) => output::print_progress(format!("{description} deleted")),
            Err(Error::Status(status)) if status.code == 404 => {}
            Err(e) => return Err(e).context(description),
        }
        Ok(())
    }

    /// Waits a moment; fails with `why` after the timeout.
    async fn wait_or_fail(&self, why: impl Fn() -> String) -> anyhow::Result<()> {
        if Instant::now() >= self.deadline {
            bail!(why());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        Ok(())
    }
}

/// Whether a reference to a Service means Flotilla's.
fn is_flotilla_service(service: &Value, namespace: &str) -> bool {
    service["name"] == NAME && service["namespace"] == *namespace
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;
    use serde_json::json;

    use super::*;

    // proves: TKO-uninstall
    #[tokio::test]
    async fn what_a_karmada_in_the_cluster_has_is_not_deleted() {
        let all = ["karmada-cluster", "karmada-es-m1"];
        for (has_definition, phase, refusal, kept) in [
            (false, None, None, &[][..]),
            (false, Some(TakeoverPhase::Serve), None, &[]),
            (true, None, None, &all),
            (true, Some(TakeoverPhase::Check), None, &all),
            (true, Some(TakeoverPhase::Returned), None, &all),
            (
                true,
                Some(TakeoverPhase::Serve),
                Some("takeover --back"),
                &["flotilla-system", "karmada-cluster", "karmada-es-m1"],
            ),
            (
                true,
                Some(TakeoverPhase::GiveBack),
                Some("phase GiveBack"),
                &["flotilla-system", "karmada-cluster", "karmada-es-m1"],
            ),
        ] {
            let host = FakeApi::new();
            let seed = |resource: &Gvr, name: &str, namespace: &str| {
                let meta =
                    json!({"name": name, "namespace": namespace, "labels": {SYSTEM: "true"}});
                host.seed(resource, json!({"metadata": meta}));
            };
            for name in ["flotilla-system", "karmada-cluster", "karmada-es-m1"] {
                seed(&NAMESPACES, name, "");
            }
            seed(&CLUSTER_ROLES, "system:karmada:m1:agent", "");
            if has_definition {
                seed(&DEFINITIONS, "works.work.karmada.io", "");
            }
            if let Some(phase) = phase {
                let record = TakeoverRecord {
                    phase,
                    ..TakeoverRecord::default()
                };
                let mut map = record.command_data();
                map["metadata"] =
                    json!({"name": RECORD_CONFIG_MAP, "namespace": "flotilla-system"});
                host.seed(&CONFIG_MAPS, map);
            }
            let outcome = uninstall_all(&*host, "flotilla-system", Duration::ZERO).await;
            let case = format!("{has_definition} {phase:?}: {outcome:?}");
            let message = outcome.err().map(|error| error.to_string());
            assert_eq!(message.is_some(), refusal.is_some(), "{case}");
            assert!(
                refusal.is_none_or(|text| message.unwrap().contains(text)),
                "{case}"
            );
            let namespaces = host.list_objects(&NAMESPACES);
            let names: Vec<&str> = namespaces
                .iter()
                .map(|namespace| namespace["metadata"]["name"].as_str().unwrap())
                .collect();
            assert_eq!(names, kept, "{case}");
            let roles = host.list_objects(&CLUSTER_ROLES);
            assert_eq!(roles.len(), usize::from(has_definition), "{case}");
        }
    }
}
