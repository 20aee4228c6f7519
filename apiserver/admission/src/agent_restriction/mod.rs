//! Keeps an agent to its own objects, which its rights alone cannot: RBAC has no names for creations.
//! As Kubernetes' NodeRestriction does for kubelets. Does no I/O.
//!
//! An agent creates its own Pull Cluster as it was registered, its own leases and Secrets, and
//! certificate requests for itself. In its execution namespace it reports EndpointSlices, and changes
//! nothing by which a Work belongs to a binding. Its events are about these objects, and about the
//! templates of its Works. No finalizer or owner that it sets keeps anything from going.
//!
//! The rules are applied here to what this server stores, and in a webhook to what a host stores.

mod agent_write;
mod cluster_status;
mod generator;
mod ownership;
mod reviews;
mod work;

use karmada_api::agents::{AGENT_SECRET_NAMESPACE, AgentRegistration};
use karmada_api::names::{execution_space_name, impersonation_secret_name, work_name};
use machinery::UserInfo;
use machinery::agent_user::{AGENTS_GROUP, RBAC_GENERATOR, cluster_of_agent};
use serde_json::Value;

use crate::attributes::AdmissionOperation;
use crate::builtin;
use crate::unstructured::{entries, get, text};

pub(crate) use agent_write::AgentWrite;
use agent_write::shown;
pub(crate) use generator::mark_generated_role;
pub use reviews::{WEBHOOK_NAME, WEBHOOK_PATH, review_agent_write};

/// The reasons of an agent's events about templates.
const TEMPLATE_EVENT_REASONS: [&str; 2] = ["SyncSucceed", "SyncFailed"];

/// The lookup that a decision about a write needs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequiredLookup {
    None,
    /// The Cluster agrees with its registration, if one was recorded.
    Registration,
    /// The Work of this name, in the execution namespace of the agent, exists.
    Work {
        namespace: String,
        name: String,
    },
    /// The Cluster of the agent has this UID.
    ClusterUid {
        cluster: String,
        uid: String,
    },
}

/// Decides about a write of an agent; the error says what it may do. Users who are no agents, and
/// kinds that agents do not write, are left to their rights.
pub(crate) fn check_agent_write(
    user: &UserInfo,
    write: &AgentWrite<'_>,
) -> Result<RequiredLookup, String> {
    if !user.in_group(AGENTS_GROUP) {
        return Ok(RequiredLookup::None);
    }
    if user.name == RBAC_GENERATOR {
        return generator::check_generator(write).map(|()| RequiredLookup::None);
    }
    let Some(cluster) = cluster_of_agent(&user.name) else {
        return Ok(RequiredLookup::None);
    };
    let agent = AgentIdentity { cluster };
    let mut lookup = RequiredLookup::None;
    match (write.group, write.kind) {
        ("cluster.karmada.io", "Cluster") => lookup = agent.check_cluster(write)?,
        ("", "Event") | ("events.k8s.io", "Event") => lookup = agent.check_event(write)?,
        ("work.karmada.io", "Work") => work::check_work(&agent.space(), write)?,
        ("coordination.k8s.io", "Lease") => agent.check_lease(write.namespace, write.name)?,
        ("", "Secret") => agent.check_secret(write)?,
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            agent.check_certificate_request(user, write)?;
        }
        _ => return Ok(lookup),
    }
    // Objects whose owner is the Cluster need no other lookup.
    match ownership::check_ownership(cluster, write)? {
        Some(uid) => Ok(RequiredLookup::ClusterUid {
            cluster: cluster.to_owned(),
            uid,
        }),
        None => Ok(lookup),
    }
}

/// Fails unless the new Cluster is what was registered.
pub(crate) fn check_registration(
    cluster: &Value,
    registered: &AgentRegistration,
) -> Result<(), String> {
    let requested = AgentRegistration::of_cluster(cluster);
    if requested == *registered {
        return Ok(());
    }
    Err("spec.provider, spec.region and spec.zones must be those of the registration".into())
}

/// The agent of a cluster.
struct AgentIdentity<'a> {
    cluster: &'a str,
}

impl AgentIdentity<'_> {
    fn space(&self) -> String {
        execution_space_name(self.cluster)
    }

    fn check_cluster(&self, write: &AgentWrite<'_>) -> Result<RequiredLookup, String> {
        if write.name != self.cluster {
            return Err(format!(
                "an agent may only write the Cluster {:?}",
                self.cluster
            ));
        }
        match (write.operation, write.subresource) {
            (AdmissionOperation::Create, "") => {}
            (AdmissionOperation::Update, "") => {
                return Err("an agent may not change its Cluster".into());
            }
            (AdmissionOperation::Update, "status") => {
                let checked = cluster_status::check_cluster_status(write.new, write.old);
                return checked.map(|()| RequiredLookup::None);
            }
            _ => return Ok(RequiredLookup::None),
        }
        if text(write.new, "/spec/syncMode") != "Pull" {
            return Err("spec.syncMode: must be Pull for the Cluster of an agent".into());
        }
        for map in ["/metadata/labels", "/metadata/annotations"] {
            if let Some((key, _)) = entries(write.new, map).next() {
                let (map, key) = (map[1..].replace('/', "."), shown(key));
                return Err(format!("{map}[{key}]: an agent sets none on its Cluster"));
            }
        }
        for field in ["secretRef", "impersonatorSecretRef"] {
            let reference = get(write.new, &format!("/spec/{field}"));
            let name = text(reference, "/name");
            if !reference.is_null() && !self.is_own_secret(name) {
                return Err(format!("spec.{field}: must be a Secret of the agent"));
            }
        }
        Ok(RequiredLookup::Registration)
    }

    /// The lease of the cluster, and that for the election of a leader of its agents.
    fn check_lease(&self, namespace: &str, name: &str) -> Result<(), String> {
        let is_election = name.strip_prefix("karmada-agent-") == Some(self.cluster);
        if is_election || (name == self.cluster && namespace == AGENT_SECRET_NAMESPACE) {
            return Ok(());
        }
        Err(format!(
            "an agent may only write the Leases {AGENT_SECRET_NAMESPACE}/{0} and karmada-agent-{0}",
            self.cluster
        ))
    }

    fn is_own_secret(&self, name: &str) -> bool {
        name == self.cluster || name == impersonation_secret_name(self.cluster)
    }

    fn check_secret(&self, write: &AgentWrite<'_>) -> Result<(), String> {
        if !self.is_own_secret(write.name) {
            let own_secret = impersonation_secret_name(self.cluster);
            return Err(format!(
                "an agent may only write the Secrets {:?} and {own_secret:?}",
                self.cluster
            ));
        }
        // The control plane itself fills in Secrets of other types, with tokens of its accounts.
        let kind = text(write.new, "/type");
        if !write.new.is_null() && !matches!(kind, "" | "Opaque") {
            return Err("type: must be Opaque for a Secret of an agent".into());
        }
        Ok(())
    }

    fn check_certificate_request(
        &self,
        user: &UserInfo,
        write: &AgentWrite<'_>,
    ) -> Result<(), String> {
        let request = builtin::certificate_request(write.new);
        let is_own = write.operation == AdmissionOperation::Create
            && text(write.new, "/spec/signerName") == "kubernetes.io/kube-apiserver-client"
            && request.is_ok_and(|request| request.common_name == user.name);
        match is_own {
            true => Ok(()),
            false => Err("an agent may only request its own client certificate".into()),
        }
    }

    fn check_event(&self, write: &AgentWrite<'_>) -> Result<RequiredLookup, String> {
        let mut lookup = RequiredLookup::None;
        for event in [write.old, write.new] {
            if !event.is_null() {
                let field = if write.group.is_empty() {
                    "/involvedObject"
                } else {
                    "/regarding"
                };
                let object_lookup = self.check_involved(
                    write.namespace,
                    get(event, field),
                    text(event, "/reason"),
                )?;
                if object_lookup != RequiredLookup::None {
                    lookup = object_lookup;
                }
            }
        }
        Ok(lookup)
    }

    fn check_involved(
        &self,
        namespace: &str,
        object: &Value,
        reason: &str,
    ) -> Result<RequiredLookup, String> {
        let [kind, involved_namespace, name] =
            ["/kind", "/namespace", "/name"].map(|field| text(object, field));
        let is_cluster = kind == "Cluster" && name == self.cluster && involved_namespace.is_empty();
        let is_lease = kind == "Lease"
            && self.check_lease(involved_namespace, name).is_ok()
            && involved_namespace == namespace;
        let space = self.space();
        if is_lease
            || (is_cluster && namespace == "default")
            || (involved_namespace == space && namespace == space)
        {
            return Ok(RequiredLookup::None);
        }
        // The events of templates without a namespace are in `default`.
        let object_namespace = if involved_namespace.is_empty() {
            "default"
        } else {
            involved_namespace
        };
        if TEMPLATE_EVENT_REASONS.contains(&reason) && object_namespace == namespace {
            return Ok(RequiredLookup::Work {
                namespace: space,
                name: work_name(kind, name, involved_namespace),
            });
        }
        Err(
            "an agent may only write events about its own objects and the templates of its Works"
                .into(),
        )
    }
}

#[cfg(test)]
mod tests;
