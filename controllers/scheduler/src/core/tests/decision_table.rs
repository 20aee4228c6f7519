//! The format of the decision tables.
//!
//! A line is `clusters | placement | binding | result`; each part is a list of words,
//! and an empty first part means the clusters of the line before. Text after `#` is a
//! comment, except that a line `# proves: ID, ID` is about the row below it.
//!
//! - cluster: `name=PODS`, then any of `/region:r` `/provider:p` `/zone:z+y` `/label:k=v`
//!   `/taint:k=v:Effect` `/cpu:N` (allocatable) `/used:PODS` `/coming:PODS` (allocating)
//!   `/nodes:GRADE*COUNT+…` (with grades 0, 1, 2 of at least 1, 2, 4 cpu)
//!   `/grades:GRADE*COUNT+…` (without resource models) `/bare` (serves no kinds) `/ending`
//!   (terminating) `/silent` (no resource summary); keys of labels and taints may have a slash
//! - placement: `dup` `agg` `dyn` `even` `static:a=1,b=2` `odd` (an unknown preference)
//!   `in:a,b` `not:a` `label:k=v` `field:key:In:x,y` `tol:k=v:Effect` `tol:*`
//!   `spread:field:min-max` `term:name=a,b` with overflow `term:name=a>b>c` `group:key`
//!   (workload affinity by this label key)
//! - binding: `n:REPLICAS` `at:a=1,b=2` (the last result) `evict:a` `cpu:N` `ask:name=N`
//!   `plain` (no replica requirements) `set:2*1,1*3` (components: replicas*cpu)
//!   `fresh` `seen:term` `uid:x` `off:Plugin` `sets` `empties` `nomodels` `claim:k` (the node
//!   label that it selects) `together:a,b` `apart:a` (another binding of its affinity or
//!   anti-affinity group, and its clusters)
//! - result: `a:1 b:2` in order, `(term)` first if terms are tried, or `NoFit`,
//!   `Unschedulable`, `Error` and the text

use karmada_api::binding::WorkloadAffinityGroups;
use karmada_api::{FeatureGates, KarmadaFeature, Placement, ResourceBinding};
use serde_json::{Map, Value, json};

use super::super::workload_affinity::{AffinityPeerClusters, BindingWithAffinityGroups};
use super::super::*;
use super::cluster;
use crate::reconcile::schedule_binding;

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

fn pair(text: &str, by: char) -> (&str, &str) {
    text.split_once(by).unwrap_or((text, ""))
}

fn list(text: &str) -> Vec<&str> {
    text.split(',').filter(|s| !s.is_empty()).collect()
}

fn number(text: &str) -> i64 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn put(into: &mut Value, pointer: &[&str], value: Value) {
    let mut at = into;
    for key in pointer {
        at = &mut at[*key];
    }
    *at = value;
}

fn push(into: &mut Value, pointer: &[&str], value: Value) {
    let mut at = into;
    for key in pointer {
        at = &mut at[*key];
    }
    if !at.is_array() {
        *at = json!([]);
    }
    at.as_array_mut().unwrap().push(value);
}

fn taint(text: &str) -> Value {
    let (tag, effect) = text.rsplit_once(':').unwrap();
    let (key, value) = pair(tag, '=');
    json!({"key": key, "value": value, "effect": effect})
}

/// The parts of a cluster's word, which slashes separate, but not one within the key of a
/// label or taint.
fn cluster_parts(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(word);
    std::iter::from_fn(move || {
        let text = rest?;
        let is_keyed = text.starts_with("label:") || text.starts_with("taint:");
        let key_end = match text.find('=') {
            Some(end) if is_keyed => end,
            None if is_keyed => panic!("{text:?} has a key without a value"),
            _ => 0,
        };
        let Some(slash) = text[key_end..].find('/') else {
            return rest.take();
        };
        rest = Some(&text[key_end + slash + 1..]);
        Some(&text[..key_end + slash])
    })
}

fn member(word: &str) -> ClusterInfo {
    let mut parts = cluster_parts(word);
    let (name, pods) = pair(parts.next().unwrap(), '=');
    let mut more = json!({});
    for part in parts {
        let (what, how) = pair(part, ':');
        match what {
            "region" | "provider" => put(&mut more, &["spec", what], how.into()),
            "zone" => put(
                &mut more,
                &["spec", "zones"],
                json!(how.split('+').collect::<Vec<_>>()),
            ),
            "label" => {
                let (key, value) = pair(how, '=');
                put(&mut more, &["metadata", "labels", key], value.into());
            }
            "taint" => push(&mut more, &["spec", "taints"], taint(how)),
            "cpu" => put(
                &mut more,
                &["status", "resourceSummary", "allocatable", "cpu"],
                how.into(),
            ),
            "used" => put(
                &mut more,
                &["status", "resourceSummary", "allocated", "pods"],
                number(how).into(),
            ),
            "coming" => put(
                &mut more,
                &["status", "resourceSummary", "allocating", "pods"],
                number(how).into(),
            ),
            "nodes" | "grades" => {
                for grade in how.split('+') {
                    let (grade, count) = pair(grade, '*');
                    let grade = json!({"grade": number(grade), "count": number(count)});
                    push(
                        &mut more,
                        &["status", "resourceSummary", "allocatableModelings"],
                        grade,
                    );
                }
                if what == "grades" {
                    continue;
                }
                let model = |grade: i64, min: &str| json!({"grade": grade, "ranges": [{"name": "cpu", "min": min, "max": "100"}]});
                put(
                    &mut more,
                    &["spec", "resourceModels"],
                    json!([model(0, "1"), model(1, "2"), model(2, "4")]),
                );
            }
            "bare" => put(&mut more, &["status", "apiEnablements"], json!([])),
            "ending" => put(
                &mut more,
                &["metadata", "deletionTimestamp"],
                "2026-01-01T00:00:00Z".into(),
            ),
            "silent" => put(&mut more, &["status", "resourceSummary"], Value::Null),
            _ => panic!("{part:?} says nothing of a cluster"),
        }
    }
    ClusterInfo::new(cluster(name, number(pods), more)).unwrap()
}

fn toleration(text: &str) -> Value {
    if text == "*" {
        return json!({"operator": "Exists"});
    }
    let (tag, effect) = text.rsplit_once(':').unwrap_or((text, ""));
    match tag.split_once('=') {
        Some((key, value)) => json!({"key": key, "value": value, "effect": effect}),
        None => json!({"key": tag, "operator": "Exists", "effect": effect}),
    }
}

fn divided(preference: &str, weights: Value) -> Value {
    let mut scheduling =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": preference});
    if !weights.is_null() {
        scheduling["weightPreference"] = weights;
    }
    scheduling
}

fn affinity(names: &str) -> Map<String, Value> {
    Map::from_iter([("clusterNames".to_owned(), json!(list(names)))])
}

fn term(text: &str) -> Value {
    let (name, clusters) = pair(text, '=');
    let mut tiers = clusters.split('>');
    let mut term = affinity(tiers.next().unwrap());
    term.insert("affinityName".into(), name.into());
    let overflow: Vec<Value> = tiers
        .enumerate()
        .map(|(at, names)| {
            let mut tier = affinity(names);
            tier.insert("affinityName".into(), format!("{name}-{at}").into());
            tier.into()
        })
        .collect();
    if !overflow.is_empty() {
        term.insert("overflowAffinities".into(), overflow.into());
    }
    term.into()
}

pub(crate) fn placement(text: &str) -> Placement {
    let mut placement = json!({});
    for word in words(text) {
        let (what, how) = pair(word, ':');
        let own = |key: &'static str| ["clusterAffinity", key];
        match what {
            "dup" => {
                placement["replicaScheduling"] = json!({"replicaSchedulingType": "Duplicated"})
            }
            "agg" => placement["replicaScheduling"] = divided("Aggregated", Value::Null),
            "dyn" => {
                placement["replicaScheduling"] =
                    divided("Weighted", json!({"dynamicWeight": "AvailableReplicas"}))
            }
            "even" => placement["replicaScheduling"] = divided("Weighted", Value::Null),
            "odd" => placement["replicaScheduling"] = divided("", Value::Null),
            "static" => {
                let weights = list(how).into_iter().map(|entry| {
                    let (names, weight) = pair(entry, '=');
                    json!({"targetCluster": {"clusterNames": names.split('+').collect::<Vec<_>>()}, "weight": number(weight)})
                });
                let weights = json!({"staticWeightList": weights.collect::<Vec<_>>()});
                placement["replicaScheduling"] = divided("Weighted", weights);
            }
            "in" => put(&mut placement, &own("clusterNames"), json!(list(how))),
            "not" => put(&mut placement, &own("exclude"), json!(list(how))),
            "label" => {
                let (key, value) = pair(how, '=');
                put(
                    &mut placement,
                    &own("labelSelector"),
                    json!({"matchLabels": {key: value}}),
                );
            }
            "field" => {
                let mut parts = how.split(':');
                let (key, operator, values) =
                    (parts.next(), parts.next(), parts.next().unwrap_or(""));
                let requirement = json!({"key": key, "operator": operator, "values": list(values)});
                push(
                    &mut placement,
                    &["clusterAffinity", "fieldSelector", "matchExpressions"],
                    requirement,
                );
            }
            "tol" => push(&mut placement, &["clusterTolerations"], toleration(how)),
            "spread" => {
                let (field, bounds) = pair(how, ':');
                let (min, max) = pair(bounds, '-');
                let constraint = json!({"spreadByField": field, "minGroups": number(min), "maxGroups": number(max)});
                push(&mut placement, &["spreadConstraints"], constraint);
            }
            "term" => push(&mut placement, &["clusterAffinities"], term(how)),
            "group" => put(
                &mut placement,
                &["workloadAffinity", "affinity", "groupByLabelKey"],
                how.into(),
            ),
            _ => panic!("{word:?} says nothing of a placement"),
        }
    }
    serde_json::from_value(placement).unwrap()
}

pub(crate) struct DecisionTableBinding {
    pub(crate) binding: ResourceBinding,
    pub(crate) settings: SchedulingSettings,
    pub(crate) fresh: bool,
    pub(crate) peers: AffinityPeerClusters,
}

/// The other bindings of a binding's groups: how they belong to it, and their clusters.
fn peers(others: &[(&str, Vec<&str>)]) -> AffinityPeerClusters {
    let groups = |with: &str, against: &str| WorkloadAffinityGroups {
        affinity_group: with.into(),
        anti_affinity_group: against.into(),
    };
    let (own, with, against) = (groups("w", "a"), groups("w", ""), groups("", "a"));
    let peer = |name, groups| BindingWithAffinityGroups {
        namespace: "n",
        name,
        groups: Some(groups),
    };
    let others = others.iter().map(|(how, clusters)| {
        let groups = if *how == "together" { &with } else { &against };
        (peer("other", groups), clusters.clone())
    });
    AffinityPeerClusters::new(peer("own", &own), others)
}

pub(crate) fn parse_binding(text: &str) -> DecisionTableBinding {
    let mut spec = json!({"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "d"}});
    let mut status = json!({});
    let (mut fresh, mut plugins, mut gates, mut empties) =
        (false, vec!["*".to_owned()], FeatureGates::default(), false);
    let mut others = Vec::new();
    for word in words(text) {
        let (what, how) = pair(word, ':');
        match what {
            "n" => {
                put(&mut spec, &["replicas"], number(how).into());
                put(&mut spec, &["replicaRequirements", "namespace"], "n".into());
            }
            "object" => spec["replicas"] = 0.into(),
            "plain" => spec["replicaRequirements"] = Value::Null,
            "at" => {
                for target in list(how) {
                    let (name, replicas) = pair(target, '=');
                    push(
                        &mut spec,
                        &["clusters"],
                        json!({"name": name, "replicas": number(replicas)}),
                    );
                }
            }
            "evict" => {
                for name in list(how) {
                    push(
                        &mut spec,
                        &["gracefulEvictionTasks"],
                        json!({"fromCluster": name}),
                    );
                }
            }
            "cpu" => put(
                &mut spec,
                &["replicaRequirements", "resourceRequest", "cpu"],
                how.into(),
            ),
            "ask" => {
                let (name, amount) = pair(how, '=');
                put(
                    &mut spec,
                    &["replicaRequirements", "resourceRequest", name],
                    amount.into(),
                );
            }
            "set" => {
                for (at, part) in list(how).into_iter().enumerate() {
                    let (replicas, cpu) = pair(part, '*');
                    let part = json!({"name": format!("part{at}"), "replicas": number(replicas),
                        "replicaRequirements": {"resourceRequest": {"cpu": cpu}}});
                    push(&mut spec, &["components"], part);
                }
            }
            "fresh" => fresh = true,
            "seen" => status["schedulerObservingAffinityName"] = how.into(),
            "uid" => put(&mut spec, &["resource", "uid"], how.into()),
            "off" => plugins.push(format!("-{how}")),
            "sets" => {
                gates = gates.with_feature(KarmadaFeature::MultiplePodTemplatesScheduling, true)
            }
            "nomodels" => {
                gates = gates.with_feature(KarmadaFeature::CustomizedClusterResourceModeling, false)
            }
            "empties" => empties = true,
            "claim" => put(
                &mut spec,
                &["replicaRequirements", "nodeClaim", "nodeSelector", how],
                "x".into(),
            ),
            "together" | "apart" => {
                gates = gates.with_feature(KarmadaFeature::WorkloadAffinity, true);
                others.push((what, list(how)));
            }
            _ => panic!("{word:?} says nothing of a binding"),
        }
    }
    let binding = json!({"spec": spec, "status": status});
    DecisionTableBinding {
        binding: serde_json::from_value(binding).unwrap(),
        settings: SchedulingSettings::new(
            gates,
            SchedulerPluginSet::parse(&plugins).unwrap(),
            empties,
        ),
        fresh,
        peers: peers(&others),
    }
}

/// A parsed line.
pub(super) struct DecisionCase<'t> {
    pub(super) line: usize,
    pub(super) snapshot: ClusterSnapshot,
    pub(super) placement: Placement,
    pub(super) binding_case: DecisionTableBinding,
    pub(super) result: &'t str,
}

pub(super) fn parse_cases(text: &str) -> Vec<DecisionCase<'_>> {
    let mut cases = Vec::new();
    let mut clusters = "";
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap().trim();
        if line.is_empty() {
            continue;
        }
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [given_clusters, placed, binding, result] = parts[..] else {
            panic!("line {}: {line}", at + 1);
        };
        if !given_clusters.is_empty() {
            clusters = given_clusters;
        }
        let binding_case = parse_binding(binding);
        let members = words(clusters).filter(|w| *w != "none").map(member);
        cases.push(DecisionCase {
            line: at + 1,
            snapshot: members
                .collect::<ClusterSnapshot>()
                .with_settings(binding_case.settings),
            placement: placement(placed),
            binding_case,
            result,
        });
    }
    cases
}

pub(super) fn format_result(case: &DecisionCase<'_>) -> String {
    let DecisionTableBinding { binding, fresh, .. } = &case.binding_case;
    let context = SchedulingContext {
        peers: &case.binding_case.peers,
        ..SchedulingContext::from_snapshot(&case.snapshot)
    };
    let outcome = schedule_binding(binding, &case.placement, *fresh, &context, &mut |_| {});
    match outcome.failure {
        Some(SchedulingFailure::NoFit(text)) => format!("NoFit {text}"),
        Some(SchedulingFailure::Unschedulable(text)) => format!("Unschedulable {text}"),
        Some(SchedulingFailure::Error(text)) => format!("Error {text}"),
        None => {
            let term = outcome.term.map(|term| format!("({term})"));
            let targets = outcome.targets.iter().map(|target| {
                let parts: Vec<String> = target
                    .components
                    .iter()
                    .map(|c| format!("{}*{}", c.name, c.replicas))
                    .collect();
                let parts = if parts.is_empty() {
                    String::new()
                } else {
                    format!("[{}]", parts.join(","))
                };
                format!("{}:{}{parts}", target.name, target.replicas)
            });
            term.into_iter()
                .chain(targets)
                .collect::<Vec<_>>()
                .join(" ")
        }
    }
}

/// Runs a table; panics with every line that fails.
fn check(name: &str, text: &str, at_least: usize) {
    let cases = parse_cases(text);
    assert!(cases.len() >= at_least, "{name}: {} cases", cases.len());
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let result = format_result(case);
            (result != case.result).then(|| {
                format!(
                    "{name}:{}\n  expected {}\n  got      {result}",
                    case.line, case.result
                )
            })
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

pub(super) const FILTER: &str = include_str!("filter.txt");
pub(super) const SPREAD: &str = include_str!("spread.txt");
pub(super) const DIVISION: &str = include_str!("division.txt");
pub(super) const RESCHEDULING: &str = include_str!("rescheduling.txt");

#[test]
fn filters() {
    check("filter.txt", FILTER, 70);
}

#[test]
fn spread_constraints() {
    check("spread.txt", SPREAD, 70);
}

#[test]
fn division() {
    check("division.txt", DIVISION, 110);
}

#[test]
fn rescheduling() {
    check("rescheduling.txt", RESCHEDULING, 60);
}
