//! Parses resource arguments as kubectl does (`deploy/web`, `deployments.apps web`) and
//! finds their resource among those that the server serves.

use anyhow::{anyhow, bail};
use client::{ApiResource, ResourcePath};

/// Splits `TYPE/NAME` or `TYPE NAME` into type and name.
pub(crate) fn parse_resource_arg(typed: &[String]) -> anyhow::Result<(&str, &str)> {
    let pair = match typed {
        [one] => one.split_once('/'),
        [kind, name] => Some((kind.as_str(), name.as_str())),
        _ => None,
    };
    match pair {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((kind, name))
        }
        _ => bail!("specify one resource as TYPE/NAME or TYPE NAME, such as deploy/web"),
    }
}

/// The object that the arguments of a command name.
pub(crate) struct ObjectArg {
    pub(crate) resource: ApiResource,
    /// Empty for a cluster-scoped object.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectArg {
    /// Finds the resource of a type and a name, as [`parse_resource_arg`] returns them, among those
    /// that the server serves.
    pub(crate) fn find(
        served: &[ApiResource],
        (kind, name): (&str, &str),
        namespace: String,
    ) -> anyhow::Result<Self> {
        let resource = find_resource(served, kind)?.clone();
        let namespace = match resource.namespaced {
            true => namespace,
            false => String::new(),
        };
        Ok(Self {
            resource,
            namespace,
            name: name.to_owned(),
        })
    }

    pub(crate) fn path(&self) -> ResourcePath<'_> {
        ResourcePath::object(&self.resource.resource, &self.namespace, &self.name)
    }
}

/// The first resource of a type, which can be a plural, singular (the kind in lower case),
/// kind or short name, optionally followed by `.group` or `.version.group`.
pub(crate) fn find_resource<'a>(
    all: &'a [ApiResource],
    typed: &str,
) -> anyhow::Result<&'a ApiResource> {
    let typed = typed.to_lowercase();
    let (name, rest) = match typed.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (typed.as_str(), None),
    };
    let is_named = |r: &&ApiResource| {
        *r.resource.resource == *name
            || r.kind.to_lowercase() == name
            || r.short_names.iter().any(|short| short == name)
    };
    let is_in_group = |r: &&ApiResource| {
        let of = &r.resource;
        rest.is_none_or(|rest| *of.group == *rest || format!("{}.{}", of.version, of.group) == rest)
    };
    all.iter()
        .filter(is_in_group)
        .find(is_named)
        .ok_or_else(|| {
            anyhow!(
                "the server has no resource type {typed:?}; `kubectl api-resources` lists the types"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::Gvr;

    #[test]
    fn resource_arguments_are_those_of_kubectl() {
        let split = |typed: &[&str]| {
            let typed: Vec<String> = typed.iter().map(|t| (*t).to_owned()).collect();
            parse_resource_arg(&typed)
                .map(|(a, b)| format!("{a} {b}"))
                .ok()
        };
        assert_eq!(split(&["deploy/web"]).as_deref(), Some("deploy web"));
        assert_eq!(split(&["deploy", "web"]).as_deref(), Some("deploy web"));
        for wrong in [
            &["web"][..],
            &[],
            &["a/b/c"],
            &["/web"],
            &["deploy/"],
            &["a", "b", "c"],
        ] {
            assert_eq!(split(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_type_is_found_by_any_of_its_names() {
        let resource = |group: &str, plural: &str, kind: &str, short: &str| ApiResource {
            resource: Gvr::new(group, "v1", plural),
            kind: kind.into(),
            namespaced: true,
            verbs: vec![],
            subresources: vec![],
            categories: vec![],
            short_names: vec![short.into()],
        };
        let all = [
            resource("apps", "deployments", "Deployment", "deploy"),
            resource("example.org", "deployments", "Deployment", "dd"),
        ];
        for (typed, group) in [
            ("deploy", Some("apps")),
            ("Deployment", Some("apps")),
            ("deployments", Some("apps")),
            ("deployments.example.org", Some("example.org")),
            ("deployment.v1.example.org", Some("example.org")),
            ("dd", Some("example.org")),
            ("deployments.v2.apps", None),
            ("pods", None),
        ] {
            let resolved = find_resource(&all, typed).ok().map(|r| &*r.resource.group);
            assert_eq!(resolved, group, "{typed}");
        }
    }
}
