//! Roles and bindings in memory, indexed by subject. Does no I/O.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use machinery::agent_user::{
    AGENT_PUBLIC_KEYS, PUBLIC_KEY_EXTRA, agent_keys, cluster_of_agent_cluster_role,
    cluster_of_agent_user,
};
use machinery::user::split_service_account_username;
use machinery::{Object, UserInfo};
use serde::Deserialize;

use super::rule::PolicyRule;

/// The four RBAC kinds, in the order of their bits in `synced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RbacKind {
    ClusterRole,
    Role,
    ClusterRoleBinding,
    RoleBinding,
}

/// Namespace (empty at the cluster scope) and name.
type RbacObjectKey = (Box<str>, Box<str>);

struct RbacBinding {
    role_namespace: Option<Box<str>>,
    role: Box<str>,
    /// The keys of the subjects in `by_subject`.
    subjects: Vec<String>,
}

/// A binding that grants access, as reasons show it.
pub(super) struct RbacAllowReason {
    namespace: String,
    binding: String,
    role_kind: &'static str,
    role: String,
    subject: String,
}

impl fmt::Display for RbacAllowReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "ClusterRoleBinding {:?}", self.binding)?;
        } else {
            write!(
                f,
                "RoleBinding {:?}",
                format!("{}/{}", self.binding, self.namespace)
            )?;
        }
        write!(
            f,
            " of {} {:?} to {}",
            self.role_kind, self.role, self.subject
        )
    }
}

#[derive(Default)]
pub(super) struct RbacPolicy {
    roles: HashMap<RbacObjectKey, Arc<[PolicyRule]>>,
    bindings: HashMap<RbacObjectKey, RbacBinding>,
    by_subject: HashMap<String, BTreeSet<RbacObjectKey>>,
    /// The annotation [`AGENT_PUBLIC_KEYS`], by the cluster of the agent.
    agent_keys: HashMap<Box<str>, Box<str>>,
}

#[derive(Deserialize)]
struct RoleRules {
    #[serde(default)]
    rules: Option<Vec<PolicyRule>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RoleBindingJson {
    role_ref: RbacRoleRef,
    #[serde(default)]
    subjects: Option<Vec<RbacSubject>>,
}

#[derive(Deserialize)]
struct RbacRoleRef {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: Box<str>,
}

#[derive(Deserialize)]
struct RbacSubject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
}

impl RbacSubject {
    fn index_key(&self, binding_namespace: &str) -> Option<String> {
        match self.kind.as_str() {
            "User" => Some(user_key(&self.name)),
            "Group" => Some(group_key(&self.name)),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() {
                    binding_namespace
                } else {
                    &self.namespace
                };
                (!namespace.is_empty()).then(|| {
                    user_key(&crate::token::service_account_username(
                        namespace, &self.name,
                    ))
                })
            }
            _ => None,
        }
    }
}

fn user_key(name: &str) -> String {
    format!("u{name}")
}

fn group_key(name: &str) -> String {
    format!("g{name}")
}

fn object_key(object: &Object) -> RbacObjectKey {
    (object.namespace().into(), object.name().into())
}

impl RbacPolicy {
    /// Applies an added or changed object. A malformed one grants nothing.
    pub(super) fn apply(&mut self, kind: RbacKind, object: &Object) {
        let key = object_key(object);
        match kind {
            RbacKind::ClusterRole | RbacKind::Role => {
                let rules = machinery::json::from_slice::<RoleRules>(&object.bytes())
                    .ok()
                    .and_then(|v| v.rules)
                    .unwrap_or_default();
                self.roles.insert(key, rules.into());
                if kind == RbacKind::ClusterRole {
                    self.record_agent_keys(object);
                }
            }
            RbacKind::ClusterRoleBinding | RbacKind::RoleBinding => {
                self.unbind(&key);
                if let Ok(view) = machinery::json::from_slice::<RoleBindingJson>(&object.bytes()) {
                    self.bind(key, view);
                }
            }
        }
    }

    pub(super) fn delete(&mut self, kind: RbacKind, namespace: &str, name: &str) {
        let key = (namespace.into(), name.into());
        match kind {
            RbacKind::ClusterRole | RbacKind::Role => {
                self.roles.remove(&key);
                if let Some(cluster) = cluster_of_agent_cluster_role(name)
                    && kind == RbacKind::ClusterRole
                {
                    self.agent_keys.remove(cluster);
                }
            }
            RbacKind::ClusterRoleBinding | RbacKind::RoleBinding => self.unbind(&key),
        }
    }

    fn record_agent_keys(&mut self, role: &Object) {
        let Some(cluster) = cluster_of_agent_cluster_role(role.name()) else {
            return;
        };
        match role.annotation(AGENT_PUBLIC_KEYS) {
            Some(keys) => _ = self.agent_keys.insert(cluster.into(), keys.into()),
            None => _ = self.agent_keys.remove(cluster),
        }
    }

    /// Whether the user has the certificate of an agent whose registration has ended, and the cluster
    /// has been registered again with others.
    pub(super) fn is_former_agent(&self, user: &UserInfo) -> bool {
        let Some(cluster) = cluster_of_agent_user(user) else {
            return false;
        };
        let key = user
            .extra
            .get(PUBLIC_KEY_EXTRA)
            .and_then(|keys| keys.first());
        let Some((key, admitted)) = key.zip(self.agent_keys.get(cluster)) else {
            return false;
        };
        !agent_keys(admitted).any(|admitted| admitted == key)
    }

    /// Replaces all objects of a kind with a complete list.
    pub(super) fn replace(&mut self, kind: RbacKind, objects: &[Object]) {
        let listed: BTreeSet<RbacObjectKey> = objects.iter().map(object_key).collect();
        let clustered = matches!(kind, RbacKind::ClusterRole | RbacKind::ClusterRoleBinding);
        let is_stale =
            |key: &&RbacObjectKey| key.0.is_empty() == clustered && !listed.contains(*key);
        let stale: Vec<RbacObjectKey> = match kind {
            RbacKind::ClusterRole | RbacKind::Role => {
                self.roles.keys().filter(is_stale).cloned().collect()
            }
            _ => self.bindings.keys().filter(is_stale).cloned().collect(),
        };
        for (namespace, name) in stale {
            self.delete(kind, &namespace, &name);
        }
        for object in objects {
            self.apply(kind, object);
        }
    }

    fn bind(&mut self, key: RbacObjectKey, view: RoleBindingJson) {
        let subjects: Vec<String> = view
            .subjects
            .unwrap_or_default()
            .iter()
            .filter_map(|s| s.index_key(&key.0))
            .collect();
        for subject in &subjects {
            self.by_subject
                .entry(subject.clone())
                .or_default()
                .insert(key.clone());
        }
        let role_namespace = match view.role_ref.kind.as_str() {
            "Role" => Some(key.0.clone()),
            _ => None,
        };
        let binding = RbacBinding {
            role_namespace,
            role: view.role_ref.name,
            subjects,
        };
        self.bindings.insert(key, binding);
    }

    fn unbind(&mut self, key: &RbacObjectKey) {
        let Some(binding) = self.bindings.remove(key) else {
            return;
        };
        for subject in binding.subjects {
            if let Some(keys) = self.by_subject.get_mut(&subject) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_subject.remove(&subject);
                }
            }
        }
    }

    /// Every binding of a user: the cluster-wide ones first, then the ones of the namespace.
    fn bindings_of<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a RbacObjectKey, &'a RbacBinding, Option<&'a str>)> {
        let scopes = [Some(""), (!namespace.is_empty()).then_some(namespace)];
        scopes.into_iter().flatten().flat_map(move |scope| {
            let subjects = std::iter::once((user_key(&user.name), None)).chain(
                user.groups
                    .iter()
                    .map(|group| (group_key(group), Some(group.as_str()))),
            );
            subjects.flat_map(move |(subject, group)| {
                self.by_subject
                    .get(&subject)
                    .into_iter()
                    .flatten()
                    .filter(move |key| *key.0 == *scope)
                    .filter_map(move |key| Some((key, self.bindings.get(key)?, group)))
            })
        })
    }

    /// The first grant with a rule that `predicate` accepts.
    pub(super) fn first_grant(
        &self,
        user: &UserInfo,
        namespace: &str,
        mut predicate: impl FnMut(&PolicyRule) -> bool,
    ) -> Option<RbacAllowReason> {
        for (key, binding, group) in self.bindings_of(user, namespace) {
            let Some(rules) = self.rules_of(binding) else {
                continue;
            };
            if rules.iter().any(&mut predicate) {
                return Some(RbacAllowReason {
                    namespace: key.0.to_string(),
                    binding: key.1.to_string(),
                    role_kind: match binding.role_namespace {
                        Some(_) => "Role",
                        None => "ClusterRole",
                    },
                    role: binding.role.to_string(),
                    subject: match group {
                        Some(group) => format!("Group {group:?}"),
                        None => subject_description(&user.name),
                    },
                });
            }
        }
        None
    }

    /// The rules of every role that is bound to a user, cluster-wide ones included.
    pub(super) fn rules_of_user(&self, user: &UserInfo, namespace: &str) -> Vec<Arc<[PolicyRule]>> {
        self.bindings_of(user, namespace)
            .filter_map(|(_, binding, _)| self.rules_of(binding).cloned())
            .collect()
    }

    fn rules_of(&self, binding: &RbacBinding) -> Option<&Arc<[PolicyRule]>> {
        let namespace = binding.role_namespace.clone().unwrap_or_default();
        self.roles.get(&(namespace, binding.role.clone()))
    }

    /// The error for roles that a user's bindings reference and that do not exist, as
    /// reviews report it.
    pub(super) fn missing_roles(&self, user: &UserInfo, namespace: &str) -> String {
        let missing: Vec<String> = self
            .bindings_of(user, namespace)
            .filter(|(_, binding, _)| self.rules_of(binding).is_none())
            .map(|(_, binding, _)| {
                let resource = match binding.role_namespace {
                    Some(_) => "role",
                    None => "clusterrole",
                };
                format!(
                    "{resource}.rbac.authorization.k8s.io {:?} not found",
                    binding.role
                )
            })
            .collect();
        match missing.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        }
    }
}

fn subject_description(name: &str) -> String {
    match split_service_account_username(name) {
        Some((namespace, account)) => {
            format!("ServiceAccount {:?}", format!("{account}/{namespace}"))
        }
        None => format!("User {name:?}"),
    }
}
