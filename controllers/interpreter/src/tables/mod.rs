//! Tests each kind and operation by tables of cases, through [`Interpreter`].
//!
//! `*.yaml` beside this file ──► cases ──► [`Interpreter`] ──► compared with the expected results
//!
//! A file is a list of tables. The file of a sample begins with the customization under test. Every
//! rule of every kind must have cases: the lists below name the rules, and
//! [`every_rule_has_cases`] counts.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use machinery::{Gvk, Object};
use openapi::karmada::Dependency;
use openapi::karmada::binding::AggregatedItem;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::wellknown::tests::{KINDS, NOW};
use crate::{Interpreter, Limits, Operation};

const NATIVE_FILES: [&str; 2] = [
    include_str!("native.yaml"),
    include_str!("native-status.yaml"),
];
const WELL_KNOWN_FILES: [&str; 4] = [
    include_str!("kruise.yaml"),
    include_str!("flux.yaml"),
    include_str!("batch.yaml"),
    include_str!("ray.yaml"),
];
const SAMPLES: [(&str, &str); 3] = [
    ("deployment", include_str!("sample-deployment.yaml")),
    ("workload", include_str!("sample-workload.yaml")),
    ("components", include_str!("sample-components.yaml")),
];

/// Kind, and the letters of its rules as defined in `TABLE.md` of the third-party rules.
const NATIVE: [(&str, &str); 16] = [
    ("apps/v1 Deployment", "HSARVTD"),
    ("apps/v1 ReplicaSet", "HSARVD"),
    ("apps/v1 StatefulSet", "HSARVD"),
    ("apps/v1 DaemonSet", "HSAD"),
    ("batch/v1 Job", "SARVTD"),
    ("batch/v1 CronJob", "SAD"),
    ("v1 Pod", "HSARTD"),
    ("v1 Service", "HSAT"),
    ("networking.k8s.io/v1 Ingress", "HSAD"),
    ("v1 ServiceAccount", "ST"),
    ("v1 PersistentVolumeClaim", "HSAT"),
    ("v1 PersistentVolume", "SAT"),
    ("v1 Secret", "ST"),
    ("policy/v1 PodDisruptionBudget", "HSA"),
    ("autoscaling/v2 HorizontalPodAutoscaler", "SA"),
    ("multicluster.x-k8s.io/v1alpha1 ServiceImport", "SD"),
];

/// The states that the cases of a health rule must cover.
const STATES: [&str; 4] = ["healthy", "unhealthy", "progressing", "missing status"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The cases apply to each of these kinds.
    of: Vec<String>,
    operation: String,
    cases: Vec<Case>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    says: String,
    #[serde(default)]
    given: Value,
    observed: Option<Value>,
    /// The statuses of clusters a, b, c …; null for one not collected.
    items: Option<Vec<Value>>,
    to: Option<i64>,
    #[serde(default)]
    gives: Value,
    fails: Option<String>,
}

fn operation(table: &Table) -> Operation {
    let mut all = Operation::ALL.into_iter();
    let found = all.find(|operation| format!("{operation:?}") == table.operation);
    found.unwrap_or_else(|| panic!("unknown operation {}", table.operation))
}

const LETTERS: [(char, Operation); 8] = [
    ('H', Operation::InterpretHealth),
    ('S', Operation::InterpretStatus),
    ('A', Operation::AggregateStatus),
    ('R', Operation::InterpretReplica),
    ('V', Operation::ReviseReplica),
    ('C', Operation::InterpretComponent),
    ('T', Operation::Retain),
    ('D', Operation::InterpretDependency),
];

fn by_letter(letter: char) -> Operation {
    let mut all = LETTERS.into_iter();
    all.find(|(one, _)| *one == letter).unwrap().1
}

fn tables(file: &str) -> Vec<Table> {
    serde_saphyr::from_str(file).unwrap()
}

/// The customization of a sample, and its tables.
fn sample(file: &str) -> (Object, Vec<Table>) {
    let (customization, rest) = file.split_once("\n---\n").unwrap();
    let customization: Value = serde_saphyr::from_str(customization).unwrap();
    (Object::from_value(&customization).unwrap(), tables(rest))
}

fn built_in() -> Vec<Table> {
    let files = NATIVE_FILES.into_iter().chain(WELL_KNOWN_FILES);
    files.flat_map(tables).collect()
}

fn kind(text: &str) -> Gvk {
    let (api, kind) = text.split_once(' ').unwrap();
    Gvk::from_api_version(api, kind)
}

/// The object of a case, with a name, a namespace and a generation added.
fn object(given: &Value) -> Object {
    let mut complete = json!({"metadata": {"name": "x", "namespace": "n", "generation": 1}});
    for (field, value) in given.as_object().into_iter().flatten() {
        if field == "metadata" {
            let named = complete["metadata"].as_object_mut().unwrap();
            named.extend(value.as_object().unwrap().clone());
        } else {
            complete[field] = value.clone();
        }
    }
    Object::from_value(&complete).unwrap()
}

fn items(reported: &[Value]) -> Vec<AggregatedItem> {
    let clusters = ["a", "b", "c", "d"].into_iter().zip(reported);
    let item = |(cluster, status): (&str, &Value)| AggregatedItem {
        cluster_name: cluster.to_owned(),
        status: (!status.is_null()).then(|| status.clone()),
        ..AggregatedItem::default()
    };
    clusters.map(item).collect()
}

/// `Kind namespace/name`; a dependency with a label selector as full JSON.
fn short(dependency: Dependency) -> Value {
    match &dependency.label_selector {
        Some(_) => json!(dependency),
        None => {
            let Dependency {
                kind,
                namespace,
                name,
                ..
            } = dependency;
            json!(format!("{kind} {namespace}/{name}"))
        }
    }
}

/// The result of an operation as JSON; null for `None`.
async fn answer(
    it: &Interpreter,
    kind: &Gvk,
    operation: Operation,
    case: &Case,
) -> Result<Value, crate::Error> {
    let given = || object(&case.given);
    let now: Timestamp = NOW.parse().unwrap();
    Ok(match operation {
        Operation::InterpretReplica => match it.replicas(kind, &given()).await? {
            Some(found) => match found.requirements {
                Some(requires) => json!({"count": found.count, "requires": requires}),
                None => json!({"count": found.count}),
            },
            None => Value::Null,
        },
        Operation::InterpretComponent => json!(it.components(kind, &given()).await?),
        Operation::ReviseReplica => {
            let to = case.to.unwrap();
            it.revise(kind, case.given.clone(), to).await?
        }
        Operation::Retain => {
            let observed = case.observed.as_ref().unwrap();
            it.retain(kind, case.given.clone(), observed).await?
        }
        Operation::InterpretStatus => json!(it.reflect(kind, &given()).await?),
        Operation::AggregateStatus => {
            let items = items(case.items.as_ref().unwrap());
            json!(it.aggregate(kind, &given(), &items, now).await?)
        }
        Operation::InterpretHealth => json!(it.healthy(kind, &given()).await?),
        Operation::InterpretDependency => {
            let found = it.dependencies(kind, &given()).await?;
            json!(found.map(|all| all.into_iter().map(short).collect::<Vec<_>>()))
        }
    })
}

/// The cases whose result differs from the expected one.
async fn differences(it: &Interpreter, tables: &[Table]) -> Vec<String> {
    let mut found = Vec::new();
    for table in tables {
        for name in &table.of {
            for case in &table.cases {
                let result = answer(it, &kind(name), operation(table), case).await;
                let right = match (&result, &case.fails) {
                    (Ok(value), None) => *value == case.gives,
                    (Err(why), Some(expected)) => why.to_string().contains(expected),
                    _ => false,
                };
                if !right {
                    let result = result.map(|value| value.to_string());
                    let result = result.unwrap_or_else(|why| format!("fails: {why}"));
                    let says = &case.says;
                    found.push(format!("{name} {} {says}: {result}", table.operation));
                }
            }
        }
    }
    found
}

#[tokio::test]
async fn built_in_rules_match_the_tables() {
    let found = differences(&Interpreter::default(), &built_in()).await;
    assert!(found.is_empty(), "{}", found.join("\n"));
}

// proves: LUA-samples
#[tokio::test]
async fn sample_customizations_match_their_tables() {
    for (name, file) in SAMPLES {
        let (customization, tables) = sample(file);
        let it = Interpreter::under(&[customization], Limits::default());
        let found = differences(&it, &tables).await;
        assert!(found.is_empty(), "{name}: {}", found.join("\n"));
    }
}

/// The names of the cases, by kind and operation.
type Said = BTreeMap<(String, Operation), BTreeSet<String>>;

fn said(tables: &[Table]) -> Said {
    let mut names = Said::new();
    for table in tables {
        for kind in &table.of {
            let of = names.entry((kind.clone(), operation(table))).or_default();
            for case in &table.cases {
                assert!(of.insert(case.says.clone()), "{kind}: {} twice", case.says);
            }
        }
    }
    names
}

#[test]
fn every_rule_has_cases() {
    let names = said(&built_in());
    let (mut missing, mut expected) = (Vec::new(), BTreeSet::new());
    for (kinds, least) in [(&NATIVE[..], 3), (&KINDS[..], 1)] {
        for (kind, letters) in kinds {
            for letter in letters.chars() {
                let pair = ((*kind).to_owned(), by_letter(letter));
                let cases = names.get(&pair).map_or(0, BTreeSet::len);
                if cases < least {
                    missing.push(format!("{kind} {:?}: {cases} of {least}", pair.1));
                }
                expected.insert(pair);
            }
        }
    }
    for (kind, letters) in KINDS {
        let has = |letter: char, state: &str| {
            let cases = names.get(&(kind.to_owned(), by_letter(letter)));
            cases.is_some_and(|cases| cases.contains(state))
        };
        let mut required = Vec::new();
        if letters.contains('H') {
            required.extend(STATES.map(|state| ('H', state)));
        }
        if letters.contains('A') {
            required.extend([('A', "several members"), ('A', "missing status")]);
        }
        for (letter, state) in required {
            if !has(letter, state) {
                missing.push(format!("{kind} {:?}: {state}", by_letter(letter)));
            }
        }
    }
    for (kind, operation) in names.keys() {
        if !expected.contains(&(kind.clone(), *operation)) {
            missing.push(format!("{kind} {operation:?}: not in the lists"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// The tables of a sample cover each of its scripts.
#[test]
fn samples_cover_every_operation() {
    let mut tried = BTreeSet::new();
    for (name, file) in SAMPLES {
        let (customization, tables) = sample(file);
        let tree = customization.value().unwrap();
        let scripts = tree["spec"]["customizations"].as_object().unwrap();
        let fields = scripts.keys().map(|f| Operation::of_field(f).unwrap());
        let fields: BTreeSet<Operation> = fields.collect();
        let of: BTreeSet<Operation> = tables.iter().map(operation).collect();
        assert_eq!(fields, of, "{name}");
        tried.extend(of);
    }
    assert_eq!(tried, Operation::ALL.into_iter().collect());
}

/// An operation without a rule gives no result, whatever the object.
// proves: NAT-unanswered
#[tokio::test]
async fn native_kinds_have_no_other_rules() {
    let it = Interpreter::default();
    let tables: Vec<Table> = NATIVE_FILES.into_iter().flat_map(tables).collect();
    for (name, letters) in NATIVE {
        let own = tables
            .iter()
            .filter(|table| table.of.iter().any(|k| k == name));
        for case in own.flat_map(|table| &table.cases) {
            for letter in ['H', 'A', 'R', 'C', 'D'] {
                let same = Case {
                    given: case.given.clone(),
                    items: Some(vec![json!({})]),
                    ..Case::default()
                };
                if !letters.contains(letter) {
                    let result = answer(&it, &kind(name), by_letter(letter), &same).await;
                    assert_eq!(result.unwrap(), Value::Null, "{name} {letter}");
                }
            }
        }
    }
}
