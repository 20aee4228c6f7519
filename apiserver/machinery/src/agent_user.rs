//! Names the users of the agents of pull-mode clusters, and tells the certificates of a
//! registration from the certificates of an earlier registration with the same name.
//!
//! A registration is the ClusterRole of the agent: it begins with the approval of the first
//! certificate, ends with the Cluster, and has the public keys of the certificates that it admits.

use crate::UserInfo;
use crate::certificate_request::public_key_digest;

/// The group of all agents.
pub const AGENTS_GROUP: &str = "system:karmada:agents";
/// The user who creates the roles of agents for `karmadactl register`.
pub const RBAC_GENERATOR: &str = "system:karmada:agent:rbac-generator";
/// The annotation of the ClusterRole of an agent with the public keys of its certificates.
pub const AGENT_PUBLIC_KEYS: &str = "flotilla.io/agent-public-keys";
/// The annotation of the ClusterRole of an agent with the UID of its Cluster, as soon as there is one.
pub const AGENT_CLUSTER_UID: &str = "flotilla.io/cluster-uid";
/// The extra of the user of a certificate of an agent with its public key.
pub const PUBLIC_KEY_EXTRA: &str = "flotilla.io/public-key";

const AGENT_USER_PREFIX: &str = "system:karmada:agent:";
const ROLE_PREFIX: &str = "system:karmada:";
const AGENT_ROLE: &str = "agent";
/// The maximum number of keys of a registration: the key in use and the keys of renewals that were
/// not used yet.
const MAX_AGENT_KEYS: usize = 4;

/// The user of the agent of a cluster.
pub fn agent_user(cluster: &str) -> String {
    format!("{AGENT_USER_PREFIX}{cluster}")
}

/// The cluster of an agent, by its user.
pub fn cluster_of_agent(user: &str) -> Option<&str> {
    let cluster = user.strip_prefix(AGENT_USER_PREFIX)?;
    Some(cluster).filter(|cluster| !cluster.is_empty())
}

/// The cluster of a user who is an agent. The user who creates the roles of agents is none.
pub fn cluster_of_agent_user(user: &UserInfo) -> Option<&str> {
    let is_agent = user.in_group(AGENTS_GROUP) && user.name != RBAC_GENERATOR;
    cluster_of_agent(&user.name).filter(|_| is_agent)
}

/// The ClusterRole of the agent of a cluster.
pub fn agent_role_name(cluster: &str) -> String {
    format!("{ROLE_PREFIX}{cluster}:{AGENT_ROLE}")
}

/// The cluster for whose agent a role or binding of this name is.
pub fn cluster_of_agent_role(name: &str) -> Option<&str> {
    let (cluster, part) = name.strip_prefix(ROLE_PREFIX)?.split_once(':')?;
    matches!(part, AGENT_ROLE | "agent-secret" | "agent-work").then_some(cluster)
}

/// The cluster whose agent has this ClusterRole.
pub fn cluster_of_agent_cluster_role(name: &str) -> Option<&str> {
    cluster_of_agent_role(name).filter(|cluster| agent_role_name(cluster) == name)
}

/// The id of an encoded public key.
pub fn public_key_id(public_key_der: &[u8]) -> String {
    format!("SHA256={}", public_key_digest(public_key_der))
}

/// The keys of an annotation [`AGENT_PUBLIC_KEYS`].
pub fn agent_keys(annotation: &str) -> impl Iterator<Item = &str> {
    annotation.split(',').filter(|key| !key.is_empty())
}

/// The annotation with one more key. The key of the requester stays in any case, others go when
/// there are too many.
pub fn add_agent_key(annotation: &str, requester: Option<&str>, key: &str) -> String {
    let is_other = |other: &&str| *other != key && Some(*other) != requester;
    let mut keys: Vec<&str> = agent_keys(annotation).filter(is_other).collect();
    keys.extend(requester.filter(|requester| *requester != key));
    keys.push(key);
    let surplus = keys.len().saturating_sub(MAX_AGENT_KEYS);
    keys.split_off(surplus).join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_requester_stays() {
        let keys = add_agent_key("", None, "a");
        assert_eq!(keys, "a");
        let mut keys = add_agent_key(&keys, None, "a");
        assert_eq!(keys, "a");
        for key in ["b", "c", "d", "e"] {
            keys = add_agent_key(&keys, Some("a"), key);
        }
        assert_eq!(keys, "c,d,a,e");
        assert_eq!(add_agent_key("b,c", Some("c"), "c"), "b,c");
    }

    #[test]
    fn roles_name_the_cluster_of_their_agent() {
        for (name, cluster, has_registration) in [
            ("system:karmada:edge:agent", Some("edge"), true),
            ("system:karmada:edge:agent-work", Some("edge"), false),
            ("system:karmada:edge:admin", None, false),
            ("system:karmada:edge", None, false),
            ("edge", None, false),
        ] {
            assert_eq!(cluster_of_agent_role(name), cluster, "{name}");
            let registered = cluster_of_agent_cluster_role(name);
            assert_eq!(registered, cluster.filter(|_| has_registration), "{name}");
        }
    }

    #[test]
    fn agents_are_known_by_group_and_name() {
        let user = |name: &str, group: &str| UserInfo {
            name: name.into(),
            groups: vec![group.into()],
            ..UserInfo::default()
        };
        for (name, group, cluster) in [
            ("system:karmada:agent:edge", AGENTS_GROUP, Some("edge")),
            ("system:karmada:agent:edge", "system:authenticated", None),
            (RBAC_GENERATOR, AGENTS_GROUP, None),
            ("edge", AGENTS_GROUP, None),
        ] {
            assert_eq!(cluster_of_agent_user(&user(name, group)), cluster, "{name}");
        }
    }
}
