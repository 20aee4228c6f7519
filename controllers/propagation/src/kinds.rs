//! Which kinds there are, and which of them are templates.
//!
//! Enters: discovery of the control plane. Leaves: the resource of a kind. Karmada's
//! `pkg/util/apigroup.go` and `pkg/detector` say what is left out.

use std::collections::HashMap;
use std::sync::Arc;

use client::{Api, ApiResource, Error};
use machinery::{Gvk, Gvr};
use openapi::karmada::labels::is_reserved_namespace;
use parking_lot::RwLock;
use regex::Regex;

const SKIPPED_GROUPS: [&str; 10] = [
    "cluster.karmada.io",
    "policy.karmada.io",
    "work.karmada.io",
    "config.karmada.io",
    "networking.karmada.io",
    "autoscaling.karmada.io",
    "remedy.karmada.io",
    "apps.karmada.io",
    "events.k8s.io",
    "coordination.k8s.io",
];

/// A kind and where it is served.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Served {
    pub(crate) gvk: Gvk,
    pub(crate) gvr: Gvr,
    pub(crate) api_version: String,
    pub(crate) namespaced: bool,
}

impl Served {
    pub(crate) fn kind(&self) -> &str {
        &self.gvk.kind
    }
}

#[derive(Default)]
struct State {
    by_kind: HashMap<Gvk, Arc<Served>>,
    templates: Vec<Arc<Served>>,
}

/// The kinds that the control plane serves.
#[derive(Default)]
pub(crate) struct Kinds(RwLock<State>);

impl Kinds {
    /// Asks the server. A group that cannot be read keeps what was known of it.
    pub(crate) async fn refresh(&self, api: &dyn Api) -> Result<(), Error> {
        let found = api.resources().await?;
        for (group, why) in &found.failed {
            tracing::warn!(group, why, "the kinds of a group cannot be read");
        }
        let mut seen: Vec<(String, String)> = Vec::new();
        let mut state = State::default();
        for resource in &found.resources {
            let served = Arc::new(Served {
                gvk: resource.resource.with_kind(resource.kind.clone()),
                gvr: resource.resource.clone(),
                api_version: resource.resource.api_version(),
                namespaced: resource.namespaced,
            });
            // The preferred version comes first; objects are watched in it only.
            let name = (
                resource.resource.group.to_string(),
                resource.resource.resource.to_string(),
            );
            if is_template(resource) && !seen.contains(&name) {
                state.templates.push(Arc::clone(&served));
                seen.push(name);
            }
            state.by_kind.insert(served.gvk.clone(), served);
        }
        let mut old = self.0.write();
        if !found.failed.is_empty() {
            let failed = |s: &Served| found.failed.iter().any(|(gv, _)| *gv == s.api_version);
            for (kind, served) in &old.by_kind {
                if failed(served) {
                    state.by_kind.insert(kind.clone(), Arc::clone(served));
                }
            }
        }
        *old = state;
        Ok(())
    }

    pub(crate) fn find(&self, api_version: &str, kind: &str) -> Option<Arc<Served>> {
        self.of(&Gvk::from_api_version(api_version, kind))
    }

    pub(crate) fn of(&self, kind: &Gvk) -> Option<Arc<Served>> {
        self.0.read().by_kind.get(kind).cloned()
    }

    /// The kinds whose objects may be propagated.
    pub(crate) fn templates(&self) -> Vec<Arc<Served>> {
        self.0.read().templates.clone()
    }
}

fn is_template(resource: &ApiResource) -> bool {
    let name = &resource.resource;
    let usable = ["list", "watch", "delete"]
        .iter()
        .all(|v| resource.allows(v));
    let event = name.group.is_empty() && resource.kind == "Event";
    usable && !event && !SKIPPED_GROUPS.contains(&&*name.group)
}

/// Which namespaces templates are taken from.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    skipped: Vec<Regex>,
}

impl Scope {
    /// Each pattern has to match a whole name.
    pub(crate) fn new(patterns: &[String]) -> Result<Self, String> {
        let whole = |p: &String| Regex::new(&format!("^(?:{p})$")).map_err(|e| e.to_string());
        Ok(Self {
            skipped: patterns.iter().map(whole).collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn takes(&self, namespace: &str) -> bool {
        namespace.is_empty()
            || !(is_reserved_namespace(namespace)
                || self.skipped.iter().any(|r| r.is_match(namespace)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_and_kinds_are_left_out() {
        let scope = Scope::new(&["kube-.*".into()]).unwrap();
        let table = [
            ("", true),
            ("default", true),
            ("kube-system", false),
            ("my-kube-x", true),
            ("karmada-es-m1", false),
            ("karmada-system", false),
        ];
        for (namespace, taken) in table {
            assert_eq!(scope.takes(namespace), taken, "{namespace}");
        }
        assert!(Scope::new(&["(".into()]).is_err());
        let resource = |group: &str, kind: &str, verbs: &[&str]| ApiResource {
            resource: Gvr::new(group, "v1", "things"),
            kind: kind.into(),
            namespaced: true,
            verbs: verbs.iter().map(|&v| v.into()).collect(),
            subresources: vec![],
            categories: vec![],
            short_names: vec![],
        };
        let all = ["list", "watch", "delete"];
        assert!(is_template(&resource("apps", "Deployment", &all)));
        assert!(!is_template(&resource("apps", "Deployment", &["list"])));
        assert!(!is_template(&resource("", "Event", &all)));
        assert!(!is_template(&resource("work.karmada.io", "Work", &all)));
        assert!(is_template(&resource("search.karmada.io", "X", &all)));
    }
}
