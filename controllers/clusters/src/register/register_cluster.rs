//! The steps of a registration on both sides.

use std::time::Duration;

use client::{Api, DeleteOptions, Error, Patch, ResourcePath, WriteOptions, ignore_not_found};
use karmada_api::agents::{AgentRegistration, agent_rbac, karmadactl_agent_rbac};
use karmada_api::resources::CLUSTERS;
use machinery::agent_user::{AGENT_PUBLIC_KEYS, agent_role_name};
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::member_objects::{self, AGENT, AGENT_ACCOUNT, DEPLOYMENTS, KUBECONFIG_SECRET};
use super::register_spec::RegisterSpec;
use crate::NAMESPACES;
use crate::join::objects::{self, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, SECRETS, SERVICE_ACCOUNTS};
use crate::join::wait::{WaitTimeoutError, wait_until};
use crate::join::{agent_preflight, cluster_identity, create_if_absent};

/// Why an agent cannot be installed into the member: what of it exists already, and what is
/// wrong with the member, each with what to do.
pub async fn preflight(member: &dyn Api, spec: &RegisterSpec) -> Vec<String> {
    let namespace = spec.agent_namespace.as_str();
    let failures = agent_preflight(member, namespace).await;
    let unanswered = failures
        .iter()
        .any(|failure| !failure.check.is_after_connection());
    let mut errors: Vec<String> = failures
        .iter()
        .map(|failure| format!("{}; {}", failure.reason, failure.remedy))
        .collect();
    if unanswered {
        return errors;
    }
    for (resource, kind, name) in [
        (&SECRETS, "Secret", KUBECONFIG_SECRET),
        (&SERVICE_ACCOUNTS, "ServiceAccount", AGENT_ACCOUNT),
        (&DEPLOYMENTS, "Deployment", AGENT),
    ] {
        let failures = member
            .get(ResourcePath::object(resource, namespace, name))
            .await;
        match ignore_not_found(failures) {
            Ok(Some(_)) => errors.push(format!("{namespace}/{name} {kind} already exists")),
            Ok(None) => {}
            Err(e) => errors.push(e.to_string()),
        }
    }
    errors
}

/// Fails if a cluster of this name, or this member under another name, is registered. The control
/// plane shows an agent no other Cluster, so it is asked whether it would accept the new one.
pub async fn refuse_registered(
    control: &dyn Api,
    member: &dyn Api,
    name: &str,
    registration: &AgentRegistration,
) -> Result<(), Error> {
    let identity = cluster_identity(member)
        .await
        .map_err(|e| Error::Protocol(e.to_string()))?;
    let at = ResourcePath::object(&CLUSTERS, "", name);
    if ignore_not_found(control.get(at).await)?.is_some() {
        return Err(Error::Protocol(format!(
            "failed to register as cluster with name {name} already exists"
        )));
    }
    let options = WriteOptions {
        dry_run: true,
        ..WriteOptions::default()
    };
    for id in identity.ids() {
        let mut spec = json!({"syncMode": "Pull", "id": id});
        for (field, text) in [
            ("provider", &registration.provider),
            ("region", &registration.region),
        ] {
            if !text.is_empty() {
                spec[field] = text.as_str().into();
            }
        }
        if !registration.zones.is_empty() {
            spec["zones"] = json!(registration.zones);
        }
        let body = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name}, "spec": spec});
        let all = ResourcePath::collection(&CLUSTERS, "");
        control.create(all, body.into(), &options).await?;
    }
    Ok(())
}

/// Creates the roles of the agent, with their namespaces. The registration admits the certificate with
/// this public key from its first moment, and no certificate of an earlier one.
pub async fn create_agent_roles(
    control: &dyn Api,
    cluster: &str,
    cluster_namespace: &str,
    public_key: &str,
) -> Result<(), Error> {
    for mut object in agent_rbac(cluster, cluster_namespace) {
        let namespace = object.namespace.as_str();
        if *object.resource == CLUSTER_ROLES && object.name == agent_role_name(cluster) {
            object.body["metadata"]["annotations"] = json!({AGENT_PUBLIC_KEYS: public_key});
        }
        if !namespace.is_empty() {
            let body = objects::namespace(namespace);
            create_if_absent(control, &NAMESPACES, "", body).await?;
        }
        create_if_absent(control, object.resource, namespace, object.body).await?;
    }
    Ok(())
}

/// Gives the roles that `rbac-generator` created before a registration the rules of the agent. Whoever
/// has a bootstrap token creates them for any name, also with fewer rules, which would leave the agent
/// without rights.
pub async fn complete_generated_roles(
    control: &dyn Api,
    cluster: &str,
    cluster_namespace: &str,
) -> Result<(), Error> {
    for object in karmadactl_agent_rbac(cluster, cluster_namespace) {
        let rules = &object.body["rules"];
        let at = ResourcePath::object(object.resource, &object.namespace, &object.name);
        if rules.is_null() {
            continue;
        }
        let Some(role) = ignore_not_found(control.get(at).await)? else {
            continue;
        };
        if role.value()?["metadata"]["annotations"][AGENT_PUBLIC_KEYS] != "" {
            continue;
        }
        let mut patch = json!({"rules": rules});
        // The mark of the ClusterRole goes with the first key that is recorded on it.
        if !object.namespace.is_empty() {
            patch["metadata"]["annotations"] = json!({AGENT_PUBLIC_KEYS: null});
        }
        let options = WriteOptions::default();
        control.patch(at, Patch::Merge(patch), &options).await?;
    }
    Ok(())
}

/// Deletes the roles of the agent of a cluster.
pub async fn delete_agent_roles(
    control: &dyn Api,
    cluster: &str,
    cluster_namespace: &str,
) -> Result<(), Error> {
    for object in agent_rbac(cluster, cluster_namespace) {
        let at = ResourcePath::object(object.resource, &object.namespace, &object.name);
        let deleted = control.delete(at, &DeleteOptions::default()).await;
        ignore_not_found(deleted)?;
    }
    Ok(())
}

/// An object of the agent in the member, with its resource and namespace.
type MemberObject<'a> = (&'static Gvr, &'a str, Value);

fn resources_of_agent<'a>(spec: &'a RegisterSpec, kubeconfig: &str) -> [MemberObject<'a>; 8] {
    let namespace = spec.agent_namespace.as_str();
    [
        (&NAMESPACES, "", objects::namespace(namespace)),
        (
            &SECRETS,
            namespace,
            member_objects::kubeconfig_secret(namespace, kubeconfig),
        ),
        (&CLUSTER_ROLES, "", member_objects::cluster_role()),
        (
            &SERVICE_ACCOUNTS,
            namespace,
            member_objects::service_account(namespace),
        ),
        (
            &CLUSTER_ROLE_BINDINGS,
            "",
            member_objects::cluster_role_binding(namespace),
        ),
        (&CLUSTER_ROLES, "", member_objects::fleet_cache_role()),
        (
            &CLUSTER_ROLE_BINDINGS,
            "",
            member_objects::fleet_cache_role_binding(),
        ),
        (&DEPLOYMENTS, namespace, member_objects::deployment(spec)),
    ]
}

/// The objects of the agent in the member, in the order in which they are created.
pub fn agent_objects(spec: &RegisterSpec, kubeconfig: &str) -> Vec<Value> {
    let resources = resources_of_agent(spec, kubeconfig).into_iter();
    resources.map(|(_, _, body)| body).collect()
}

/// Creates the agent in the member, and waits until its Deployment is available.
pub async fn create_member_objects(
    member: &dyn Api,
    spec: &RegisterSpec,
    kubeconfig: &str,
    timeout: Duration,
) -> Result<(), Error> {
    let namespace = spec.agent_namespace.as_str();
    for (resource, namespace, body) in resources_of_agent(spec, kubeconfig) {
        create_if_absent(member, resource, namespace, body).await?;
    }
    let at = ResourcePath::object(&DEPLOYMENTS, namespace, AGENT);
    let available = |observed: Option<&Object>| {
        let value = observed?.value().ok()?;
        let current = value["status"]["observedGeneration"] == value["metadata"]["generation"];
        let ready = value["status"]["availableReplicas"]
            .as_i64()
            .unwrap_or_default();
        (current && ready > 0).then_some(())
    };
    let waited = wait_until(member, at, timeout, available).await;
    waited.map_err(|WaitTimeoutError(last)| {
        last.unwrap_or_else(|| {
            Error::Protocol(format!(
                "the Deployment {namespace}/{AGENT} was not available within {} s",
                timeout.as_secs()
            ))
        })
    })
}
