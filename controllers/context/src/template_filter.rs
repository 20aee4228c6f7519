//! Decides which resources and which namespaces of the control plane hold templates.
//!
//! Source of the exclusions: Karmada's `pkg/util/apigroup.go` and `pkg/detector`.

use client::ApiResource;
use karmada_api::KUBEFED_SCHEDULING_GROUP;
use karmada_api::history::HISTORY_GROUP;
use karmada_api::rollout::ROLLOUT_GROUP;
use karmada_api::well_known_keys::is_reserved_namespace;
use machinery::Gvk;
use regex::Regex;

const SKIPPED_GROUPS: [&str; 13] = [
    "cluster.karmada.io",
    "policy.karmada.io",
    "work.karmada.io",
    "config.karmada.io",
    "networking.karmada.io",
    "autoscaling.karmada.io",
    "remedy.karmada.io",
    "apps.karmada.io",
    KUBEFED_SCHEDULING_GROUP,
    "core.kubefed.io",
    "events.k8s.io",
    ROLLOUT_GROUP,
    HISTORY_GROUP,
];

/// What is not propagated, as users configure it.
#[derive(Clone, Debug)]
pub struct TemplateFilterOptions {
    /// Regular expressions of namespaces that are not propagated; each has to match a whole name.
    pub skipped_namespaces: Vec<String>,
    /// APIs that are never templates, in addition to the built-in list: `group`, `group/version`,
    /// `group/version/Kind,Kind`, `v1/Kind,Kind`.
    pub skipped_apis: Vec<String>,
}

impl Default for TemplateFilterOptions {
    fn default() -> Self {
        Self {
            skipped_namespaces: vec!["kube-.*".into()],
            skipped_apis: Vec::new(),
        }
    }
}

/// Kinds that are excluded from propagation in addition to the built-in list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedResourceConfig(Vec<SkippedApi>);

/// A group, one version of it, or some kinds of that version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SkippedApi {
    group: String,
    version: Option<String>,
    /// Empty: all kinds.
    kinds: Vec<String>,
}

impl SkippedResourceConfig {
    /// Each text is `group`, `group/version`, `group/version/Kind,Kind`, `v1/Kind,Kind` (core
    /// group), or several of these separated by semicolons, as in Karmada's
    /// `--skipped-propagating-apis`.
    pub fn new(texts: &[String]) -> Result<Self, String> {
        let parts = texts.iter().flat_map(|text| text.split(';'));
        let texts = parts.map(str::trim).filter(|text| !text.is_empty());
        Ok(Self(texts.map(SkippedApi::new).collect::<Result<_, _>>()?))
    }

    pub fn is_template(&self, resource: &ApiResource) -> bool {
        let name = &resource.resource;
        let skips = |skip: &SkippedApi| skip.matches(&name.group, &name.version, &resource.kind);
        self.can_hold_templates(resource) && !self.0.iter().any(skips)
    }

    /// Whether the option names a kind.
    pub(crate) fn skips(&self, kind: &Gvk) -> bool {
        let mut skipped = self.0.iter();
        skipped.any(|skip| skip.matches(&kind.group, &kind.version, &kind.kind))
    }

    /// Whether the built-in list allows objects of a resource to be templates.
    pub(crate) fn can_hold_templates(&self, resource: &ApiResource) -> bool {
        let name = &resource.resource;
        let usable = ["list", "watch", "delete"]
            .iter()
            .all(|v| resource.allows(v));
        let event = name.group.is_empty() && resource.kind == "Event";
        let leases = (&*name.group, &*name.version) == ("coordination.k8s.io", "v1");
        usable && !event && !leases && !SKIPPED_GROUPS.contains(&&*name.group)
    }
}

impl SkippedApi {
    fn new(text: &str) -> Result<Self, String> {
        let kinds = |list: &str| list.split(',').map(str::to_owned).collect();
        let parts: Vec<&str> = text.split('/').collect();
        let (group, version, kinds) = match *parts.as_slice() {
            [group] => (group, None, Vec::new()),
            ["v1", list] => ("", Some("v1"), kinds(list)),
            [group, version] => (group, Some(version), Vec::new()),
            [group, version, list] => (group, Some(version), kinds(list)),
            _ => {
                return Err(format!(
                    "invalid API {text:?}: expected group, group/version or group/version/Kind,Kind"
                ));
            }
        };
        Ok(Self {
            group: group.to_owned(),
            version: version.map(str::to_owned),
            kinds,
        })
    }

    fn matches(&self, group: &str, version: &str, kind: &str) -> bool {
        self.group == group
            && self.version.as_ref().is_none_or(|v| v == version)
            && (self.kinds.is_empty() || self.kinds.iter().any(|k| k == kind))
    }
}

/// The namespaces whose objects may be propagated.
#[derive(Clone, Debug)]
pub struct NamespaceFilter {
    skipped: Vec<Regex>,
}

impl NamespaceFilter {
    /// Each pattern has to match a whole namespace name.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let anchored = |p: &String| Regex::new(&format!("^(?:{p})$")).map_err(|e| e.to_string());
        Ok(Self {
            skipped: patterns.iter().map(anchored).collect::<Result<_, _>>()?,
        })
    }

    pub fn allows(&self, namespace: &str) -> bool {
        namespace.is_empty()
            || !(is_reserved_namespace(namespace)
                || self.skipped.iter().any(|r| r.is_match(namespace)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::Gvr;

    /// Checks for each namespace of the table whether the patterns allow it.
    fn check_namespace_filter(patterns: &[&str], table: &[(&str, bool)]) {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let scope = NamespaceFilter::new(&patterns).unwrap();
        for (namespace, is_template) in table {
            assert_eq!(
                scope.allows(namespace),
                *is_template,
                "{patterns:?} {namespace}"
            );
        }
    }

    // proves: DET-reserved-namespaces
    #[test]
    fn reserved_namespaces_hold_no_templates() {
        let table = [
            ("", true),
            ("default", true),
            ("karmada-es-m1", false),
            ("karmada-system", false),
            ("karmada-cluster", false),
        ];
        check_namespace_filter(&[], &table);
    }

    // proves: DET-skipped-namespaces
    #[test]
    fn patterns_match_whole_namespace_names() {
        let defaults = TemplateFilterOptions::default().skipped_namespaces;
        let defaults: Vec<&str> = defaults.iter().map(String::as_str).collect();
        let system = [("kube-system", false), ("my-kube-x", true), ("kube", true)];
        check_namespace_filter(&defaults, &system);
        let own = [
            ("a", false),
            ("ab", true),
            ("xb", false),
            ("kube-system", true),
        ];
        check_namespace_filter(&["a", ".b|c"], &[own[0], own[2], own[3], ("cc", true)]);
        check_namespace_filter(&["a|b"], &[own[0], own[1], ("b", false), ("cb", true)]);
        assert!(NamespaceFilter::new(&["(".into()]).is_err());
    }

    fn resource(group: &str, version: &str, kind: &str, verbs: &[&str]) -> ApiResource {
        ApiResource {
            resource: Gvr::new(group.to_owned(), version.to_owned(), "things"),
            kind: kind.into(),
            namespaced: true,
            verbs: verbs.iter().map(|&v| v.into()).collect(),
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        }
    }

    const TEMPLATE_VERBS: [&str; 3] = ["list", "watch", "delete"];

    // proves: DET-verbs
    #[test]
    fn templates_can_be_listed_watched_and_deleted() {
        let skips = SkippedResourceConfig::default();
        let takes = |verbs: &[&str]| skips.is_template(&resource("apps", "v1", "X", verbs));
        assert!(takes(&["get", "list", "watch", "delete"]));
        for (at, missing) in TEMPLATE_VERBS.iter().enumerate() {
            let mut verbs = TEMPLATE_VERBS.to_vec();
            verbs.remove(at);
            assert!(!takes(&verbs), "without {missing}");
        }
    }

    // proves: DET-skipped-groups
    #[test]
    fn karmada_kinds_events_and_leases_are_no_templates() {
        let skips = SkippedResourceConfig::default();
        for (group, version, kind, is_template) in [
            ("apps", "v1", "Deployment", true),
            ("", "v1", "Event", false),
            ("events.k8s.io", "v1", "Event", false),
            ("coordination.k8s.io", "v1", "Lease", false),
            ("coordination.k8s.io", "v1beta1", "Lease", true),
            (
                "scheduling.kubefed.io",
                "v1alpha1",
                "ReplicaSchedulingPreference",
                false,
            ),
            ("search.karmada.io", "v1alpha1", "ResourceRegistry", true),
            ("operator.karmada.io", "v1alpha1", "Karmada", true),
            ("core.kubefed.io", "v1beta1", "FederatedTypeConfig", false),
        ] {
            let actual = skips.is_template(&resource(group, version, kind, &TEMPLATE_VERBS));
            assert_eq!(actual, is_template, "{group} {version} {kind}");
        }
        for group in [
            "cluster",
            "policy",
            "work",
            "config",
            "networking",
            "autoscaling",
            "remedy",
            "apps",
        ] {
            let group = format!("{group}.karmada.io");
            assert!(
                !skips.is_template(&resource(&group, "v1alpha1", "X", &TEMPLATE_VERBS)),
                "{group}"
            );
        }
    }

    // proves: DET-skipped-flag
    #[test]
    fn further_apis_are_skipped_by_group_version_and_kind() {
        let skips =
            SkippedResourceConfig::new(&["a.io; b.io/v1 ;c.io/v1/X,Y;v1/Secret".into()]).unwrap();
        for (group, version, kind, is_template) in [
            ("a.io", "v1", "X", false),
            ("a.io", "v2", "Y", false),
            ("b.io", "v1", "X", false),
            ("b.io", "v2", "X", true),
            ("c.io", "v1", "Y", false),
            ("c.io", "v1", "Z", true),
            ("c.io", "v2", "X", true),
            ("", "v1", "Secret", false),
            ("", "v1", "ConfigMap", true),
        ] {
            let actual = skips.is_template(&resource(group, version, kind, &TEMPLATE_VERBS));
            assert_eq!(actual, is_template, "{group} {version} {kind}");
        }
        assert!(SkippedResourceConfig::new(&["a/b/c/d".into()]).is_err());
    }
}
