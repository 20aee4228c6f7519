//! The identity of the user of a request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Group of the built-in superusers; authorization is skipped for them.
pub const SYSTEM_PRIVILEGED_GROUP: &str = "system:masters";
/// Group of all users whose credentials were accepted.
pub const ALL_AUTHENTICATED: &str = "system:authenticated";
/// Group of users of requests without credentials.
pub const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";
/// User name of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";

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
    /// The identity of the controllers of this process.
    pub fn internal() -> Self {
        Self {
            name: "system:apiserver".into(),
            groups: vec![SYSTEM_PRIVILEGED_GROUP.into(), ALL_AUTHENTICATED.into()],
            ..Self::default()
        }
    }

    /// Whether the user belongs to a group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}
