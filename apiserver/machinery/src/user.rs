//! The identity of the user of a request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::{validate_dns1123_label, validate_dns1123_subdomain};

/// Group of the built-in superusers; authorization is skipped for them.
pub const SYSTEM_PRIVILEGED_GROUP: &str = "system:masters";
/// Group of all users whose credentials were accepted.
pub const ALL_AUTHENTICATED: &str = "system:authenticated";
/// Group of users of requests without credentials.
pub const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";
/// User name of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";

/// Splits `system:serviceaccount:NAMESPACE:NAME` into namespace and name (kube-apiserver's
/// `SplitUsername`). `None` if no account can have the name.
pub fn split_service_account_username(user: &str) -> Option<(&str, &str)> {
    let account = user.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = account.split_once(':')?;
    validate_dns1123_label(namespace).ok()?;
    validate_dns1123_subdomain(name).ok()?;
    Some((namespace, name))
}

/// An authenticated identity (`authentication.k8s.io` UserInfo).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    #[serde(rename = "username")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// The identity of this server itself, as of kube-apiserver's loopback client.
    pub fn internal() -> Self {
        Self {
            name: "system:apiserver".into(),
            groups: vec![SYSTEM_PRIVILEGED_GROUP.into(), ALL_AUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// The identity of Karmada's controllers and scheduler, with all rights, as Karmada's
    /// installation gives them.
    pub fn karmada_controllers() -> Self {
        Self {
            name: "system:karmada:karmada-controller-manager".into(),
            ..Self::internal()
        }
    }

    /// The identity of one of kube-controller-manager's controllers: its account in
    /// `kube-system` (`--use-service-account-credentials`).
    pub fn kube_controller(account: &str) -> Self {
        Self {
            name: format!("system:serviceaccount:kube-system:{account}"),
            groups: vec![
                "system:serviceaccounts".into(),
                "system:serviceaccounts:kube-system".into(),
                ALL_AUTHENTICATED.into(),
            ],
            ..Self::default()
        }
    }

    /// Whether the user belongs to a group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_have_names_that_an_account_can_have() {
        for (user, account) in [
            ("system:serviceaccount:ns:bot", Some(("ns", "bot"))),
            ("system:serviceaccount:ns:a.b-c", Some(("ns", "a.b-c"))),
            ("system:serviceaccount:n.s:bot", None),
            ("system:serviceaccount:ns:../x", None),
            ("system:serviceaccount:../x:bot", None),
            ("system:serviceaccount:ns:Bot", None),
            ("system:serviceaccount:ns:bot:x", None),
            ("system:serviceaccount:ns:", None),
            ("system:serviceaccount::bot", None),
            ("system:serviceaccount:ns", None),
            ("system:serviceaccounts:ns:bot", None),
        ] {
            assert_eq!(split_service_account_username(user), account, "{user}");
        }
        let long_name = format!("system:serviceaccount:{}:bot", "n".repeat(64));
        assert_eq!(split_service_account_username(&long_name), None);
    }
}
