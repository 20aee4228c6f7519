//! The group versions that are registered at the host, and what is done where another server has
//! one: an error for Flotilla's own groups, a choice of the operator for those of metrics.

use karmada_api::{is_karmada_group, is_kubefed_group};
use metrics_adapter::metrics_api::is_metrics_group;
use registry::ResourceTable;
use serde_json::{Value, json};

use super::host_objects::{ApiServiceTarget, MANAGED_BY_LABEL};

/// The priorities of Karmada's aggregated API server.
const OWN_GROUP_PRIORITY: u32 = 2000;
const TOP_OWN_VERSION_PRIORITY: u32 = 15;
/// The priorities of metrics-server and of Karmada's metrics adapter.
const METRICS_GROUP_PRIORITY: u32 = 100;
const TOP_METRICS_VERSION_PRIORITY: u32 = 200;

/// When the APIServices of metrics are registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsApiServicePolicy {
    /// Where no other server, such as metrics-server, is registered.
    IfNotPresent,
    /// Also in place of another server.
    Always,
    /// Not; those that lead to Flotilla are removed. As long as no member has custom metrics,
    /// `kubectl api-resources` fails at their empty groups, so they are not registered unasked.
    #[default]
    Never,
}

impl MetricsApiServicePolicy {
    /// The policy with the state of the addon, if that is configured: enabled, they are registered
    /// at least where nobody is, and disabled, nowhere.
    pub(super) fn with_addon(self, enabled: Option<bool>) -> Self {
        match (enabled, self) {
            (Some(false), _) => Self::Never,
            (Some(true), Self::Never) => Self::IfNotPresent,
            (_, policy) => policy,
        }
    }
}

/// The way to treat the APIService of a group version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegistrationPolicy {
    /// It is registered; another server in its place is an error.
    Required,
    /// It is registered where no other server or definition of the host is, such as KubeFed's.
    IfNotServed,
    Metrics(MetricsApiServicePolicy),
}

impl RegistrationPolicy {
    /// A host that runs KubeFed goes on to serve KubeFed's groups.
    fn of_own_group(group: &str) -> Self {
        match is_kubefed_group(group) {
            true => Self::IfNotServed,
            false => Self::Required,
        }
    }
}

/// A group version and its priorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedGroupVersion {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) group_priority: u32,
    /// The priority within the group.
    pub(super) priority: u32,
    pub(super) policy: RegistrationPolicy,
}

impl ServedGroupVersion {
    pub(super) fn name(&self) -> String {
        format!("{}.{}", self.version, self.group)
    }

    /// The spec that leads to Flotilla, without its CA bundle.
    pub(super) fn api_service_spec(&self, service: &ApiServiceTarget) -> Value {
        json!({
            "group": self.group,
            "version": self.version,
            "groupPriorityMinimum": self.group_priority,
            "versionPriority": self.priority,
            "insecureSkipTLSVerify": false,
            "service": {
                "namespace": service.namespace,
                "name": service.name,
                "port": service.port,
            },
        })
    }
}

/// The group versions of a resource table that are registered, the preferred version of
/// each group first.
pub fn registered_versions(
    table: &ResourceTable,
    metrics: MetricsApiServicePolicy,
) -> Vec<ServedGroupVersion> {
    let groups = table.groups().iter().filter_map(|group| {
        if is_karmada_group(&group.name) {
            let priorities = (OWN_GROUP_PRIORITY, TOP_OWN_VERSION_PRIORITY);
            return Some((
                group,
                priorities,
                RegistrationPolicy::of_own_group(&group.name),
            ));
        }
        let priorities = (METRICS_GROUP_PRIORITY, TOP_METRICS_VERSION_PRIORITY);
        let policy = RegistrationPolicy::Metrics(metrics);
        is_metrics_group(&group.name).then_some((group, priorities, policy))
    });
    groups
        .flat_map(|(group, (group_priority, top_priority), policy)| {
            let ranked = group.versions.iter().zip((1..=top_priority).rev());
            ranked.map(move |(version, priority)| ServedGroupVersion {
                group: group.name.clone(),
                version: version.version.clone(),
                group_priority,
                priority,
                policy,
            })
        })
        .collect()
}

/// Whether an APIService leads to Flotilla's Service.
pub(super) fn leads_to(existing: &Value, service: &ApiServiceTarget) -> bool {
    let backend = &existing["spec"]["service"];
    backend["namespace"] == *service.namespace && backend["name"] == *service.name
}

/// The other server that an APIService leads to, if it is not Flotilla.
pub(super) fn foreign_server(existing: &Value, service: &ApiServiceTarget) -> Option<String> {
    let backend = &existing["spec"]["service"];
    if !backend.is_object() {
        return Some("a CustomResourceDefinition of the host".into());
    }
    let is_managed = existing["metadata"]["labels"][MANAGED_BY_LABEL] == "flotilla";
    (!leads_to(existing, service) && !is_managed)
        .then(|| format!("Service {}/{}", backend["namespace"], backend["name"]))
}

/// Who has the APIService of a group version.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ApiServiceOwner {
    /// Nobody; it is to be created.
    None,
    /// Flotilla, or who is to be replaced.
    Flotilla(Value),
    /// Flotilla, which is to have it no more.
    Unwanted(Value),
    /// Another server, or nobody, and that is to stay so.
    Other,
}

impl ApiServiceOwner {
    pub(super) fn of_metrics(
        policy: MetricsApiServicePolicy,
        existing: Option<Value>,
        service: &ApiServiceTarget,
    ) -> Self {
        use MetricsApiServicePolicy::{Always, IfNotPresent, Never};
        match (policy, existing) {
            (IfNotPresent | Always, None) => Self::None,
            (Always, Some(existing)) => Self::Flotilla(existing),
            (IfNotPresent, Some(existing)) if leads_to(&existing, service) => {
                Self::Flotilla(existing)
            }
            (Never, Some(existing)) if leads_to(&existing, service) => Self::Unwanted(existing),
            (IfNotPresent | Never, _) => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addon_decides_before_the_flag() {
        use MetricsApiServicePolicy::{Always, IfNotPresent, Never};
        for (policy, addon, expected) in [
            (Always, None, Always),
            (Never, None, Never),
            (Always, Some(false), Never),
            (Always, Some(true), Always),
            (Never, Some(true), IfNotPresent),
        ] {
            assert_eq!(policy.with_addon(addon), expected, "{policy:?} {addon:?}");
        }
    }

    // proves: DET-type-config-host
    #[test]
    fn groups_of_kubefed_are_left_to_a_host_that_serves_them() {
        use RegistrationPolicy::{IfNotServed, Required};
        let policy = RegistrationPolicy::of_own_group;
        assert_eq!(policy("core.kubefed.io"), IfNotServed);
        assert_eq!(policy("policy.karmada.io"), Required);
    }

    #[test]
    fn metrics_of_other_servers_are_taken_over_only_if_asked() {
        use MetricsApiServicePolicy::{Always, IfNotPresent, Never};
        let service = ApiServiceTarget {
            namespace: "flotilla-system".into(),
            name: "flotilla".into(),
            port: 443,
        };
        let leading_to = |namespace: &str, name: &str| {
            json!({"metadata": {"labels": {MANAGED_BY_LABEL: "flotilla"}},
                "spec": {"service": {"namespace": namespace, "name": name}}})
        };
        let own = leading_to("flotilla-system", "flotilla");
        // metrics-server's manifest, applied later, leaves the labels.
        let other = leading_to("kube-system", "metrics-server");
        let of_definition = json!({"spec": {}});
        let flotilla = |existing: &Value| ApiServiceOwner::Flotilla(existing.clone());
        for (policy, existing, expected) in [
            (IfNotPresent, None, ApiServiceOwner::None),
            (IfNotPresent, Some(&own), flotilla(&own)),
            (IfNotPresent, Some(&other), ApiServiceOwner::Other),
            (IfNotPresent, Some(&of_definition), ApiServiceOwner::Other),
            (Always, None, ApiServiceOwner::None),
            (Always, Some(&own), flotilla(&own)),
            (Always, Some(&other), flotilla(&other)),
            (Never, None, ApiServiceOwner::Other),
            (Never, Some(&own), ApiServiceOwner::Unwanted(own.clone())),
            (Never, Some(&other), ApiServiceOwner::Other),
        ] {
            let owner = ApiServiceOwner::of_metrics(policy, existing.cloned(), &service);
            assert_eq!(owner, expected, "{policy:?} {existing:?}");
        }
    }
}
