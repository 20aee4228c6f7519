//! Parses what `flotilla get` is to print: types and names, as kubectl reads them.

use anyhow::{bail, ensure};
use client::ApiResource;

use crate::resource_args::find_resource;

/// Types, each with the names to get; without names all objects are listed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceSelection {
    pub(super) types: Vec<SelectedType>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct SelectedType {
    /// A plural, singular, kind or short name, or a category.
    pub(super) name: String,
    pub(super) objects: Vec<String>,
}

impl ResourceSelection {
    pub(super) fn parse(arguments: &[String]) -> anyhow::Result<Self> {
        let Some((first, names)) = arguments.split_first() else {
            bail!(
                "You must specify the type of resource to get. Use \"flotilla api-resources\" for a complete list of supported resources."
            );
        };
        if arguments.iter().any(|argument| argument.contains('/')) {
            return Self::parse_pairs(arguments);
        }
        let types = first.split(',').map(|name| SelectedType {
            name: name.to_owned(),
            objects: names.to_vec(),
        });
        let selection = Self {
            types: types.collect(),
        };
        ensure!(
            selection.types.iter().all(|t| !t.name.is_empty()),
            "arguments in resource/name form must have a single resource and name"
        );
        Ok(selection)
    }

    /// `TYPE/NAME ...`; the names of one type are kept together.
    fn parse_pairs(arguments: &[String]) -> anyhow::Result<Self> {
        let mut selection = Self::default();
        for argument in arguments {
            let Some((kind, name)) = argument.split_once('/') else {
                bail!(
                    "there is no need to specify a resource type as a separate argument when passing arguments in resource/name form (e.g. 'flotilla get resource/<resource_name>' instead of 'flotilla get resource resource/<resource_name>')"
                );
            };
            ensure!(
                !kind.is_empty() && !name.is_empty() && !name.contains('/'),
                "arguments in resource/name form must have a single resource and name"
            );
            match selection.types.iter_mut().find(|t| t.name == kind) {
                Some(existing) => existing.objects.push(name.to_owned()),
                None => selection.types.push(SelectedType {
                    name: kind.to_owned(),
                    objects: vec![name.to_owned()],
                }),
            }
        }
        Ok(selection)
    }

    pub(super) fn validate(&self, all_namespaces: bool, has_selector: bool) -> anyhow::Result<()> {
        if self.types.iter().all(|t| t.objects.is_empty()) {
            return Ok(());
        }
        ensure!(
            !all_namespaces,
            "a resource cannot be retrieved by name across all namespaces"
        );
        ensure!(
            !has_selector,
            "name cannot be provided when a selector is specified"
        );
        Ok(())
    }

    /// Whether exactly one object is asked for, which is then printed without a list.
    pub(super) fn is_single_object(&self) -> bool {
        matches!(self.types.as_slice(), [one] if one.objects.len() == 1)
    }
}

/// The resources of a type: one, or all that can be listed of a category such as `all`.
pub(super) fn find_resources<'a>(
    served: &'a [ApiResource],
    typed: &SelectedType,
) -> anyhow::Result<Vec<&'a ApiResource>> {
    let result = find_resource(served, &typed.name);
    if result.is_ok() {
        return Ok(vec![result?]);
    }
    let is_member = |r: &&ApiResource| r.categories.contains(&typed.name) && r.allows("list");
    let members: Vec<&ApiResource> = served.iter().filter(is_member).collect();
    if members.is_empty() {
        return Ok(vec![result?]);
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<String, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let parsed = ResourceSelection::parse(&arguments).map_err(|e| e.to_string())?;
        let text = |t: &SelectedType| format!("{}[{}]", t.name, t.objects.join(","));
        Ok(parsed.types.iter().map(text).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn types_and_names_are_read_as_kubectl_reads_them() {
        for (line, expected) in [
            ("pods", "pods[]"),
            ("rs,services", "rs[] services[]"),
            ("deploy web api", "deploy[web,api]"),
            ("deploy/web svc/a deploy/api", "deploy[web,api] svc[a]"),
        ] {
            assert_eq!(parse(line).unwrap(), expected);
        }
        for (line, message) in [
            ("", "You must specify the type of resource to get."),
            (
                "deploy svc/a",
                "there is no need to specify a resource type",
            ),
            ("deploy/", "arguments in resource/name form"),
            ("a,,b", "arguments in resource/name form"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.starts_with(message), "{line}: {error}");
        }
    }

    #[test]
    fn names_exclude_selectors_and_all_namespaces() {
        let named = ResourceSelection::parse(&["deploy/web".to_owned()]).unwrap();
        let listed = ResourceSelection::parse(&["deploy".to_owned()]).unwrap();
        assert!(listed.validate(true, true).is_ok());
        assert!(named.validate(false, false).is_ok());
        assert!(named.validate(true, false).is_err());
        assert!(named.validate(false, true).is_err());
    }
}
