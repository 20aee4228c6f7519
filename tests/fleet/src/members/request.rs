//! Parses path and query of a request to a member.

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::discovery::{MemberResource, find_resource};

/// The documents and objects that a member serves.
pub(super) enum MemberPath {
    Health,
    Version,
    CoreDiscovery,
    GroupDiscovery,
    Resource(ResourceTarget),
    Unknown,
}

/// A collection, or an object in it if `name` is not empty.
pub(super) struct ResourceTarget {
    pub(super) resource: &'static MemberResource,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl MemberPath {
    /// Parses the path behind the name of the member.
    pub(super) fn parse(path: &str) -> Self {
        let decode = |segment: &str| percent_decode_str(segment).decode_utf8_lossy().into_owned();
        let segments: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["readyz" | "healthz" | "livez"] => Self::Health,
            ["version"] => Self::Version,
            ["api"] => Self::CoreDiscovery,
            ["apis"] => Self::GroupDiscovery,
            ["api", version, rest @ ..] => Self::parse_resource("", version, rest),
            ["apis", group, version, rest @ ..] => Self::parse_resource(group, version, rest),
            _ => Self::Unknown,
        }
    }

    fn parse_resource(group: &str, version: &str, segments: &[&str]) -> Self {
        let (namespace, plural, name) = match segments {
            ["namespaces", namespace, plural] => (*namespace, *plural, ""),
            ["namespaces", namespace, plural, name] => (*namespace, *plural, *name),
            [plural] => ("", *plural, ""),
            [plural, name] => ("", *plural, *name),
            _ => return Self::Unknown,
        };
        match find_resource(group, version, plural) {
            Some(resource) => Self::Resource(ResourceTarget {
                resource,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            None => Self::Unknown,
        }
    }
}

/// The parameters of a query that members know.
#[derive(Default)]
pub(super) struct MemberQuery(BTreeMap<String, String>);

impl MemberQuery {
    pub(super) fn parse(query: &str) -> Self {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let parameters = query.split('&').filter_map(|pair| pair.split_once('='));
        Self(parameters.map(|(k, v)| (decode(k), decode(v))).collect())
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A number; 0 without one.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_default()
    }

    pub(super) fn is_watch(&self) -> bool {
        matches!(self.text("watch"), "1" | "true")
    }

    /// How long a watch lasts.
    pub(super) fn watch_timeout(&self) -> Duration {
        match self.number("timeoutSeconds") {
            0 => Duration::from_secs(1800),
            seconds => Duration::from_secs(seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_collections_and_objects() {
        let parse = |path: &str| match MemberPath::parse(path) {
            MemberPath::Resource(target) => {
                format!(
                    "{}|{}|{}",
                    target.resource.kind, target.namespace, target.name
                )
            }
            _ => String::new(),
        };
        for (path, expected) in [
            ("/api/v1/nodes", "Node||"),
            ("/api/v1/namespaces/a", "Namespace||a"),
            ("/api/v1/namespaces/a/configmaps", "ConfigMap|a|"),
            ("/apis/apps/v1/namespaces/a/deployments/b", "Deployment|a|b"),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab",
                "ClusterRole||a:b",
            ),
            ("/apis/apps/v2/deployments", ""),
        ] {
            assert_eq!(parse(path), expected, "{path}");
        }
        let query = MemberQuery::parse("watch=1&labelSelector=a%3Db&limit=5");
        assert_eq!(
            (query.is_watch(), query.text("labelSelector")),
            (true, "a=b")
        );
        assert_eq!((query.number("limit"), query.number("continue")), (5, 0));
    }
}
