//! The subjects that may use the proxy of a cluster: whom its impersonator must be able to act as.
//!
//! Pure. The controller of impersonation rights and the proxy itself decide by the same rules.
//! Source: Karmada's `pkg/util/rbac.go`.

use std::collections::BTreeSet;
use std::sync::Arc;

use machinery::user::SYSTEM_PRIVILEGED_GROUP;
use serde::Deserialize;

const SERVICE_ACCOUNTS_GROUP: &str = "system:serviceaccounts";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClusterRoleGrant {
    metadata: ClusterRoleMetadataName,
    rules: Option<Vec<PolicyRuleWithoutVerbs>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ClusterRoleMetadataName {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PolicyRuleWithoutVerbs {
    api_groups: Option<Vec<String>>,
    resources: Option<Vec<String>>,
    resource_names: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RoleBindingSubjects {
    role_ref: RoleRef,
    subjects: Option<Vec<ProxySubject>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RoleRef {
    kind: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProxySubject {
    kind: String,
    name: String,
}

impl PolicyRuleWithoutVerbs {
    fn allows(&self, group: &str, resource: &str, subresource: &str) -> bool {
        let has = |list: &Option<Vec<String>>, matches: &dyn Fn(&str) -> bool| {
            list.iter().flatten().any(|entry| matches(entry))
        };
        has(&self.api_groups, &|g| g == "*" || g == group)
            && has(&self.resources, &|r| match r.split_once('/') {
                None => r == "*",
                Some((of, sub)) => (of == "*" || of == resource) && sub == subresource,
            })
    }

    /// Whether the rule grants access to the proxy of a cluster; `None`: of any cluster.
    fn grants_proxy(&self, cluster: Option<&str>) -> bool {
        let cluster_names = self.resource_names.as_deref().unwrap_or_default();
        let allows_cluster = match cluster {
            Some(cluster) => cluster_names.is_empty() || cluster_names.iter().any(|n| n == cluster),
            None => true,
        };
        (allows_cluster && self.allows("cluster.karmada.io", "clusters", "proxy"))
            || self.allows("search.karmada.io", "proxying", "proxy")
    }
}

impl ClusterRoleGrant {
    /// Whether the role grants access to the proxy of a cluster; `None`: of any cluster.
    pub fn grants_proxy(&self, cluster: Option<&str>) -> bool {
        self.rules.iter().flatten().any(|r| r.grants_proxy(cluster))
    }
}

impl RoleBindingSubjects {
    /// The ClusterRole that is bound; `None` for other roles.
    pub fn cluster_role(&self) -> Option<&str> {
        (self.role_ref.kind == "ClusterRole").then_some(self.role_ref.name.as_str())
    }
}

/// The names of the subjects that may use the proxy of a cluster. Those of service accounts are
/// without their namespaces, as in Karmada.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxySubjects {
    pub users: BTreeSet<String>,
    pub service_accounts: BTreeSet<String>,
    pub groups: BTreeSet<String>,
}

impl ProxySubjects {
    /// The subjects that ClusterRoleBindings bind to roles with access to the cluster's proxy.
    pub fn of_cluster(
        roles: &[Arc<ClusterRoleGrant>],
        bindings: &[Arc<RoleBindingSubjects>],
        cluster: &str,
    ) -> Self {
        let opening: BTreeSet<&str> = roles
            .iter()
            .filter(|role| role.grants_proxy(Some(cluster)))
            .map(|role| role.metadata.name.as_str())
            .collect();
        let mut subjects_of_cluster = Self::default();
        let bound = bindings
            .iter()
            .filter(|b| b.cluster_role().is_some_and(|role| opening.contains(role)));
        for subject in bound.flat_map(|b| b.subjects.iter().flatten()) {
            let names = match subject.kind.as_str() {
                "User" => &mut subjects_of_cluster.users,
                "ServiceAccount" => &mut subjects_of_cluster.service_accounts,
                "Group" => &mut subjects_of_cluster.groups,
                _ => continue,
            };
            names.insert(subject.name.clone());
        }
        subjects_of_cluster
    }

    /// Whether service accounts are bound through a group of theirs.
    pub fn binds_groups_of_service_accounts(&self) -> bool {
        self.groups
            .iter()
            .any(|group| is_group_of_service_accounts(group) || is_group_of_all(group))
    }

    /// Whether users are bound through a group. Members of `system:masters`, which the bootstrap
    /// role `cluster-admin` binds everywhere, have to be bound by name.
    pub fn binds_groups_of_users(&self) -> bool {
        let of_users =
            |group: &str| group != SYSTEM_PRIVILEGED_GROUP && !is_group_of_service_accounts(group);
        self.groups.iter().any(|group| of_users(group))
    }
}

fn is_group_of_all(group: &str) -> bool {
    group == machinery::user::ALL_AUTHENTICATED
}

fn is_group_of_service_accounts(group: &str) -> bool {
    group
        .strip_prefix(SERVICE_ACCOUNTS_GROUP)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_service_accounts_are_told_from_those_of_users() {
        for (group, accounts, users) in [
            ("system:serviceaccounts", true, false),
            ("system:serviceaccounts:ns", true, false),
            ("system:serviceaccounts-x", false, true),
            ("system:authenticated", true, true),
            ("system:masters", false, false),
            ("dev", false, true),
        ] {
            let subjects = ProxySubjects {
                groups: BTreeSet::from([group.to_owned()]),
                ..ProxySubjects::default()
            };
            let actual = (
                subjects.binds_groups_of_service_accounts(),
                subjects.binds_groups_of_users(),
            );
            assert_eq!(actual, (accounts, users), "{group}");
        }
        assert!(!ProxySubjects::default().binds_groups_of_users());
    }
}
