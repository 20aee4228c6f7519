//! The inputs of the fuzz targets.

use machinery::Gvk;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use super::edits::{edits, unexpected_values};
use super::seeds::{FuzzSeed, native, third_party};

/// A kind with a template, an object in a member, and the statuses that clusters report.
#[derive(Clone, Debug)]
pub(super) struct FuzzCase {
    pub(super) kind: Gvk,
    pub(super) template: Value,
    pub(super) observed: Value,
    /// Null for a status not collected.
    pub(super) statuses: Vec<Value>,
    pub(super) replicas: i64,
}

impl FuzzCase {
    pub(super) fn show(&self) -> String {
        let Self {
            kind,
            template,
            observed,
            statuses,
            replicas,
        } = self;
        let statuses = json!(statuses);
        format!(
            "{kind} to {replicas}\ntemplate {template}\nobserved {observed}\nstatuses {statuses}"
        )
    }
}

fn gvk(kind: &str) -> Gvk {
    let (api, name) = kind.split_once(' ').unwrap();
    let (group, version) = api.split_once('/').unwrap();
    Gvk::new(group.to_owned(), version.to_owned(), name.to_owned())
}

/// Cases from these seeds; one in ten has the objects of one kind under the name of another.
pub(super) fn cases(seeds: Vec<FuzzSeed>) -> impl Strategy<Value = FuzzCase> {
    let other = prop_oneof![9 => Just(None), 1 => any::<Index>().prop_map(Some)];
    let replicas = prop_oneof![0..9_i64, select(vec![-1, i64::MAX, i64::MIN, 1 << 53])];
    let statuses = vec(edits(), 0..4);
    let parts = (any::<Index>(), other, edits(), edits(), statuses, replicas);
    parts.prop_map(
        move |(seed, other, template, observed, statuses, replicas)| {
            let seed = seed.get(&seeds);
            let kind = other.map_or(seed, |other| other.get(&seeds)).kind;
            let status = &seed.object["status"];
            FuzzCase {
                kind: gvk(kind),
                template: template.apply(&seed.object),
                observed: observed.apply(&seed.object),
                statuses: statuses.iter().map(|edits| edits.apply(status)).collect(),
                replicas,
            }
        },
    )
}

/// Any JSON, mostly shaped like Kubernetes objects.
pub(crate) fn json_values() -> impl Strategy<Value = Value> {
    let all = native().into_iter().chain(third_party());
    let all: Vec<Value> = all.map(|seed| seed.object).collect();
    let seed = any::<Index>().prop_map(move |seed| seed.get(&all).clone());
    let start = prop_oneof![4 => seed, 1 => unexpected_values()];
    (start, edits()).prop_map(|(tree, edits)| edits.apply(&tree))
}

/// The bytes of a JSON value, some of them replaced.
pub(crate) fn damaged_bytes() -> impl Strategy<Value = Vec<u8>> {
    let damage = (
        any::<Index>(),
        prop_oneof![any::<u8>(), select(b"{}[]\",:\\nu0e-".to_vec())],
    );
    (json_values(), vec(damage, 0..3)).prop_map(|(tree, damage)| {
        let mut bytes = tree.to_string().into_bytes();
        for (position, byte) in damage {
            let at = position.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}
