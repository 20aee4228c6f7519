//! Computes which permissions of some rules other rules do not grant. Does no I/O.
//!
//! Facts: `component-helpers/auth/rbac/validation/policy_comparator.go` and
//! `pkg/registry/rbac/validation/policy_compact.go` of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use super::rule::{ALL, PolicyRule};

/// Bound on the single permissions that are compared: a rule of 3 MiB can name 10^15.
const MAX_COMPARED_PERMISSIONS: usize = 20_000;
/// Bound on the missing rules that a message lists.
const MAX_DESCRIBED_RULES: usize = 200;

/// Why rules are not covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UncoveredRules {
    /// The missing permissions, compacted and described in the order of their text.
    Missing(Vec<String>),
    /// The rules name more permissions than are compared.
    TooMany,
}

/// The permissions of `expected` that `owned` does not grant, with the verbs of the same
/// resource and name merged. For rules of the server itself, which are not too many.
pub fn uncovered_rules(owned: &[PolicyRule], expected: &[PolicyRule]) -> Vec<PolicyRule> {
    let owned: Vec<&PolicyRule> = owned.iter().collect();
    let missing = expected
        .iter()
        .filter(|rule| !owned.iter().any(|owner| covers(owner, rule)))
        .flat_map(|rule| uncovered_permissions(&owned, rule));
    merge(missing.collect())
}

/// Fails unless every permission of `requested` is granted by one rule of `owned`.
pub(crate) fn check_covered(
    owned: &[&PolicyRule],
    requested: &[PolicyRule],
) -> Result<(), UncoveredRules> {
    let mut missing = Vec::new();
    let mut compared: usize = 0;
    for rule in requested {
        if owned.iter().any(|owner| covers(owner, rule)) {
            continue;
        }
        compared = compared.saturating_add(permission_count(rule));
        if compared > MAX_COMPARED_PERMISSIONS {
            return Err(UncoveredRules::TooMany);
        }
        missing.extend(uncovered_permissions(owned, rule));
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(UncoveredRules::Missing(describe(missing)))
}

fn uncovered_permissions(owned: &[&PolicyRule], rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut permissions = single_permissions(rule);
    permissions.retain(|permission| !owned.iter().any(|owner| covers(owner, permission)));
    permissions
}

fn permission_count(rule: &PolicyRule) -> usize {
    let on_resources = [
        rule.api_groups.len(),
        rule.resources.len(),
        rule.verbs.len(),
        rule.resource_names.len().max(1),
    ]
    .into_iter()
    .fold(1, usize::saturating_mul);
    let on_urls = rule
        .non_resource_urls
        .len()
        .saturating_mul(rule.verbs.len());
    on_resources.saturating_add(on_urls)
}

/// One rule per combination of group, resource, verb and name, and of URL and verb.
fn single_permissions(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut all = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let permission = PolicyRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    ..PolicyRule::default()
                };
                if rule.resource_names.is_empty() {
                    all.push(permission.clone());
                }
                all.extend(rule.resource_names.iter().map(|name| PolicyRule {
                    resource_names: vec![name.clone()],
                    ..permission.clone()
                }));
            }
        }
    }
    for url in &rule.non_resource_urls {
        all.extend(rule.verbs.iter().map(|verb| PolicyRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![url.clone()],
            ..PolicyRule::default()
        }));
    }
    all
}

fn contains_all(set: &[String], values: &[String]) -> bool {
    values.iter().all(|value| set.contains(value))
}

fn all_or_each(set: &[String], values: &[String]) -> bool {
    set.iter().any(|value| value == ALL) || contains_all(set, values)
}

/// Whether one rule grants all that another grants.
fn covers(owner: &PolicyRule, rule: &PolicyRule) -> bool {
    let names = match rule.resource_names.as_slice() {
        [] => owner.resource_names.is_empty(),
        names => owner.resource_names.is_empty() || contains_all(&owner.resource_names, names),
    };
    names
        && all_or_each(&owner.verbs, &rule.verbs)
        && all_or_each(&owner.api_groups, &rule.api_groups)
        && resources_cover(&owner.resources, &rule.resources)
        && rule.non_resource_urls.iter().all(|url| {
            let mut owned = owner.non_resource_urls.iter();
            owned.any(|owned| url_covers(owned, url))
        })
}

fn resources_cover(owned: &[String], resources: &[String]) -> bool {
    if owned.iter().any(|resource| resource == ALL) {
        return true;
    }
    resources.iter().all(|resource| {
        owned.contains(resource)
            || resource
                .split_once('/')
                .is_some_and(|(_, subresource)| owned.contains(&format!("{ALL}/{subresource}")))
    })
}

fn url_covers(owned: &str, url: &str) -> bool {
    owned == url || owned.ends_with('*') && url.starts_with(owned.trim_end_matches('*'))
}

/// Merges the verbs of the same resource and name.
fn merge(permissions: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut merged: BTreeMap<(String, String, Option<String>), PolicyRule> = BTreeMap::new();
    let mut unmerged = Vec::new();
    for rule in permissions {
        match (rule.api_groups.first(), rule.resources.first()) {
            (Some(group), Some(resource)) => {
                let name = rule.resource_names.first().cloned();
                let key = (group.clone(), resource.clone(), name);
                match merged.get_mut(&key) {
                    Some(existing) => existing.verbs.extend(rule.verbs),
                    None => {
                        merged.insert(key, rule);
                    }
                }
            }
            _ => unmerged.push(rule),
        }
    }
    unmerged.extend(merged.into_values());
    unmerged
}

/// The rules as text, after [`merge`].
fn describe(missing: Vec<PolicyRule>) -> Vec<String> {
    let described: BTreeSet<String> = merge(missing).iter().map(rule_text).collect();
    let omitted = described.len().saturating_sub(MAX_DESCRIBED_RULES);
    let mut lines: Vec<String> = described.into_iter().take(MAX_DESCRIBED_RULES).collect();
    if omitted > 0 {
        lines.push(format!("and {omitted} more"));
    }
    lines
}

/// A rule as Kubernetes' `CompactString` shows it.
fn rule_text(rule: &PolicyRule) -> String {
    let fields = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let fields: Vec<String> = fields
        .into_iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(name, values)| format!("{name}:{}", quoted_list(values)))
        .collect();
    format!("{{{}}}", fields.join(", "))
}

/// A list as Go's `%q` prints it: `["a" "b"]`.
pub(crate) fn quoted_list(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &str) -> Vec<String> {
        match list {
            "" => Vec::new(),
            list => list.split(',').map(|w| w.replace("core", "")).collect(),
        }
    }

    /// `verbs groups resources names`; for URLs `verbs urls`. A dash is an empty list.
    fn rule(text: &str) -> PolicyRule {
        let text = text.replace('-', "");
        let fields: Vec<&str> = text.split(' ').collect();
        match fields[..] {
            [verbs, groups, resources, names] => PolicyRule {
                verbs: words(verbs),
                api_groups: words(groups),
                resources: words(resources),
                resource_names: words(names),
                ..PolicyRule::default()
            },
            [verbs, urls] => PolicyRule {
                verbs: words(verbs),
                non_resource_urls: words(urls),
                ..PolicyRule::default()
            },
            _ => panic!("{text}"),
        }
    }

    fn missing(owned: &[&str], requested: &[&str]) -> Vec<String> {
        let owned: Vec<PolicyRule> = owned.iter().map(|text| rule(text)).collect();
        let owned: Vec<&PolicyRule> = owned.iter().collect();
        let requested: Vec<PolicyRule> = requested.iter().map(|text| rule(text)).collect();
        match check_covered(&owned, &requested) {
            Ok(()) => Vec::new(),
            Err(UncoveredRules::Missing(lines)) => lines,
            Err(UncoveredRules::TooMany) => vec!["too many".into()],
        }
    }

    #[test]
    fn covered_rules_miss_nothing() {
        let table: [(&[&str], &[&str]); 12] = [
            (&["* * * -"], &["get,escalate core,apps pods,x/y a,b"]),
            (&["get core pods -"], &["get core pods a"]),
            // Several rules together, none of them alone.
            (
                &["get core pods -", "list core pods -", "get core nodes -"],
                &["get,list core pods -", "get core nodes,pods -"],
            ),
            (&["get core pods a,b"], &["get core pods b"]),
            (&["get * pods -"], &["get core,apps pods -"]),
            (&["get core */status -"], &["get core pods/status -"]),
            (&["get core * -"], &["get core pods/status -"]),
            (&["get /api*"], &["get /api,/apis,/api/*"]),
            (&["* *"], &["get /anything/*"]),
            (&[], &["- core pods -"]),
            (&[], &[]),
            (&["get *"], &["get *"]),
        ];
        for (owned, requested) in table {
            let lines = missing(owned, requested);
            assert!(lines.is_empty(), "{owned:?} {requested:?}: {lines:?}");
        }
    }

    #[test]
    fn missing_permissions_are_compacted_and_sorted() {
        let table: [(&[&str], &[&str], &[&str]); 10] = [
            (
                &[],
                &["get,list core pods -"],
                &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#],
            ),
            (
                &["get core pods -"],
                &["get,list core pods -", "delete core pods -"],
                &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "delete"]}"#],
            ),
            // A permission on one name does not cover all names.
            (
                &["get core pods a"],
                &["get core pods -"],
                &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
            ),
            (
                &["get core pods a"],
                &["get core pods a,b"],
                &[r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}"#],
            ),
            // A resource is not its subresource, and the reverse.
            (
                &["get core pods -"],
                &["get core pods/log -"],
                &[r#"{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}"#],
            ),
            (
                &["get core */log -"],
                &["get core pods -"],
                &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#],
            ),
            (
                &["get core pods,nodes -"],
                &["* core pods -"],
                &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#],
            ),
            (
                &["get core pods -"],
                &["get core * -"],
                &[r#"{APIGroups:[""], Resources:["*"], Verbs:["get"]}"#],
            ),
            (
                &["get /api"],
                &["get /api,/apis", "get core b -"],
                &[
                    r#"{APIGroups:[""], Resources:["b"], Verbs:["get"]}"#,
                    r#"{NonResourceURLs:["/apis"], Verbs:["get"]}"#,
                ],
            ),
            // Rights on resources are no rights on URLs.
            (
                &["* * * -"],
                &["get /metrics"],
                &[r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#],
            ),
        ];
        for (owned, requested, expected) in table {
            let lines = missing(owned, requested);
            assert_eq!(lines, expected, "{owned:?} {requested:?}");
        }
    }

    #[test]
    fn huge_rules_are_refused_before_they_are_expanded() {
        let names =
            |name: &str| -> Vec<String> { (0..3000).map(|i| format!("{name}{i}")).collect() };
        let huge = PolicyRule {
            verbs: names("v"),
            api_groups: names("g"),
            resources: names("r"),
            resource_names: names("n"),
            ..PolicyRule::default()
        };
        let requested = std::slice::from_ref(&huge);
        assert_eq!(check_covered(&[], requested), Err(UncoveredRules::TooMany));
        assert_eq!(check_covered(&[&huge], requested), Ok(()));
    }
}
