//! Tests each kind and operation by tables of cases, through [`Interpreter`].
//!
//! `*.yaml` beside this file ──► cases ──► [`Interpreter`] ──► compared with the expected results
//!
//! A file is a list of tables. The file of a sample begins with the customization under test. Every
//! rule of every kind must have cases: the lists below name the rules, and
//! [`every_rule_has_cases`] counts.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use karmada_api::DependentObjectReference;
use karmada_api::binding::AggregatedStatusItem;
use machinery::{Gvk, Object};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::thirdparty::tests::{NOW, THIRD_PARTY_RULES};
use crate::{InterpreterOperation, LuaLimits, ResourceInterpreter};

const NATIVE_FILES: [&str; 2] = [
    include_str!("native.yaml"),
    include_str!("native-status.yaml"),
];
const THIRD_PARTY_FILES: [&str; 4] = [
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
const NATIVE_RULES: [(&str, &str); 16] = [
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
const HEALTH_STATES: [&str; 4] = ["healthy", "unhealthy", "progressing", "missing status"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterpreterCaseTable {
    /// The cases apply to each of these kinds.
    of: Vec<String>,
    operation: String,
    cases: Vec<InterpreterCase>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InterpreterCase {
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

fn operation(table: &InterpreterCaseTable) -> InterpreterOperation {
    let mut all = InterpreterOperation::ALL.into_iter();
    let operation_of_table = all.find(|operation| format!("{operation:?}") == table.operation);
    operation_of_table.unwrap_or_else(|| panic!("unknown operation {}", table.operation))
}

const RULE_LETTERS: [(char, InterpreterOperation); 8] = [
    ('H', InterpreterOperation::InterpretHealth),
    ('S', InterpreterOperation::InterpretStatus),
    ('A', InterpreterOperation::AggregateStatus),
    ('R', InterpreterOperation::InterpretReplica),
    ('V', InterpreterOperation::ReviseReplica),
    ('C', InterpreterOperation::InterpretComponent),
    ('T', InterpreterOperation::Retain),
    ('D', InterpreterOperation::InterpretDependency),
];

fn operation_of_letter(letter: char) -> InterpreterOperation {
    let mut all = RULE_LETTERS.into_iter();
    all.find(|(one, _)| *one == letter).unwrap().1
}

fn tables(file: &str) -> Vec<InterpreterCaseTable> {
    serde_saphyr::from_str(file).unwrap()
}

/// The customization of a sample, and its tables.
fn sample(file: &str) -> (Object, Vec<InterpreterCaseTable>) {
    let (customization, rest) = file.split_once("\n---\n").unwrap();
    let customization: Value = serde_saphyr::from_str(customization).unwrap();
    (Object::from_value(&customization).unwrap(), tables(rest))
}

fn built_in() -> Vec<InterpreterCaseTable> {
    let files = NATIVE_FILES.into_iter().chain(THIRD_PARTY_FILES);
    files.flat_map(tables).collect()
}

fn kind(text: &str) -> Gvk {
    let (api, kind) = text.split_once(' ').unwrap();
    Gvk::from_api_version(api, kind)
}

/// The object of a case, with a name, a namespace and a generation added.
fn object(input: &Value) -> Object {
    let mut complete = json!({"metadata": {"name": "x", "namespace": "n", "generation": 1}});
    for (field, value) in input.as_object().into_iter().flatten() {
        if field == "metadata" {
            let named = complete["metadata"].as_object_mut().unwrap();
            named.extend(value.as_object().unwrap().clone());
        } else {
            complete[field] = value.clone();
        }
    }
    Object::from_value(&complete).unwrap()
}

fn items(reported: &[Value]) -> Vec<AggregatedStatusItem> {
    let clusters = ["a", "b", "c", "d"].into_iter().zip(reported);
    let item = |(cluster, status): (&str, &Value)| AggregatedStatusItem {
        cluster_name: cluster.to_owned(),
        status: (!status.is_null()).then(|| status.clone()),
        ..AggregatedStatusItem::default()
    };
    clusters.map(item).collect()
}

/// `Kind namespace/name`; a dependency with a label selector as full JSON.
fn dependency_summary(dependency: DependentObjectReference) -> Value {
    match &dependency.label_selector {
        Some(_) => json!(dependency),
        None => {
            let DependentObjectReference {
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
async fn interpret(
    interpreter: &ResourceInterpreter,
    kind: &Gvk,
    operation: InterpreterOperation,
    case: &InterpreterCase,
) -> Result<Value, crate::Error> {
    let input = || object(&case.given);
    let now: Timestamp = NOW.parse().unwrap();
    Ok(match operation {
        InterpreterOperation::InterpretReplica => match interpreter.replicas(kind, &input()).await?
        {
            Some(result) => match result.requirements {
                Some(requires) => json!({"count": result.count, "requires": requires}),
                None => json!({"count": result.count}),
            },
            None => Value::Null,
        },
        InterpreterOperation::InterpretComponent => {
            json!(interpreter.components(kind, &input()).await?)
        }
        InterpreterOperation::ReviseReplica => {
            let to = case.to.unwrap();
            interpreter
                .revise_replica(kind, case.given.clone(), to)
                .await?
        }
        InterpreterOperation::Retain => {
            let observed = case.observed.as_ref().unwrap();
            interpreter
                .retain(kind, case.given.clone(), observed)
                .await?
        }
        InterpreterOperation::InterpretStatus => {
            json!(interpreter.reflect_status(kind, &input()).await?)
        }
        InterpreterOperation::AggregateStatus => {
            let items = items(case.items.as_ref().unwrap());
            let scheduled = items.iter().map(|item| &*item.cluster_name).collect();
            let template = input();
            let status = interpreter.aggregate_status(kind, &template, &items, &scheduled, now);
            let mut status = json!(status.await?);
            // The conditions of native kinds have tables of their own.
            if !kind.group.contains('.')
                && case.gives.get("conditions").is_none()
                && let Some(fields) = status.as_object_mut()
            {
                fields.remove("conditions");
            }
            status
        }
        InterpreterOperation::InterpretHealth => {
            json!(interpreter.interpret_health(kind, &input()).await?)
        }
        InterpreterOperation::InterpretDependency => {
            let result = interpreter.dependencies(kind, &input()).await?;
            json!(result.map(|all| all.into_iter().map(dependency_summary).collect::<Vec<_>>()))
        }
    })
}

/// The cases whose result differs from the expected one.
async fn mismatches(
    interpreter: &ResourceInterpreter,
    tables: &[InterpreterCaseTable],
) -> Vec<String> {
    let mut mismatches = Vec::new();
    for table in tables {
        for name in &table.of {
            for case in &table.cases {
                let result = interpret(interpreter, &kind(name), operation(table), case).await;
                let right = match (&result, &case.fails) {
                    (Ok(value), None) => *value == case.gives,
                    (Err(reason), Some(expected)) => reason.to_string().contains(expected),
                    _ => false,
                };
                if !right {
                    let result = result.map(|value| value.to_string());
                    let result = result.unwrap_or_else(|reason| format!("fails: {reason}"));
                    let says = &case.says;
                    mismatches.push(format!("{name} {} {says}: {result}", table.operation));
                }
            }
        }
    }
    mismatches
}

#[tokio::test]
async fn built_in_rules_match_the_tables() {
    let actual = mismatches(&ResourceInterpreter::default(), &built_in()).await;
    assert!(actual.is_empty(), "{}", actual.join("\n"));
}

// proves: LUA-samples
#[tokio::test]
async fn sample_customizations_match_their_tables() {
    for (name, file) in SAMPLES {
        let (customization, tables) = sample(file);
        let interpreter =
            ResourceInterpreter::from_customizations(&[customization], LuaLimits::default());
        let actual = mismatches(&interpreter, &tables).await;
        assert!(actual.is_empty(), "{name}: {}", actual.join("\n"));
    }
}

/// The names of the cases, by kind and operation.
type CaseNames = BTreeMap<(String, InterpreterOperation), BTreeSet<String>>;

fn case_names(tables: &[InterpreterCaseTable]) -> CaseNames {
    let mut names = CaseNames::new();
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
    let names = case_names(&built_in());
    let (mut missing, mut expected) = (Vec::new(), BTreeSet::new());
    for (kinds, least) in [(&NATIVE_RULES[..], 3), (&THIRD_PARTY_RULES[..], 1)] {
        for (kind, letters) in kinds {
            for letter in letters.chars() {
                let pair = ((*kind).to_owned(), operation_of_letter(letter));
                let cases = names.get(&pair).map_or(0, BTreeSet::len);
                if cases < least {
                    missing.push(format!("{kind} {:?}: {cases} of {least}", pair.1));
                }
                expected.insert(pair);
            }
        }
    }
    for (kind, letters) in THIRD_PARTY_RULES {
        let has = |letter: char, state: &str| {
            let cases = names.get(&(kind.to_owned(), operation_of_letter(letter)));
            cases.is_some_and(|cases| cases.contains(state))
        };
        let mut required = Vec::new();
        if letters.contains('H') {
            required.extend(HEALTH_STATES.map(|state| ('H', state)));
        }
        if letters.contains('A') {
            required.extend([('A', "several members"), ('A', "missing status")]);
        }
        for (letter, state) in required {
            if !has(letter, state) {
                missing.push(format!("{kind} {:?}: {state}", operation_of_letter(letter)));
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
        let fields = scripts
            .keys()
            .map(|f| InterpreterOperation::from_customization_field(f).unwrap());
        let fields: BTreeSet<InterpreterOperation> = fields.collect();
        let of: BTreeSet<InterpreterOperation> = tables.iter().map(operation).collect();
        assert_eq!(fields, of, "{name}");
        tried.extend(of);
    }
    assert_eq!(tried, InterpreterOperation::ALL.into_iter().collect());
}

/// An operation without a rule gives no result, whatever the object.
// proves: NAT-unanswered
#[tokio::test]
async fn native_kinds_have_no_other_rules() {
    let interpreter = ResourceInterpreter::default();
    let tables: Vec<InterpreterCaseTable> = NATIVE_FILES.into_iter().flat_map(tables).collect();
    for (name, letters) in NATIVE_RULES {
        let own = tables
            .iter()
            .filter(|table| table.of.iter().any(|k| k == name));
        for case in own.flat_map(|table| &table.cases) {
            for letter in ['H', 'A', 'R', 'C', 'D'] {
                let same = InterpreterCase {
                    given: case.given.clone(),
                    items: Some(vec![json!({})]),
                    ..InterpreterCase::default()
                };
                if !letters.contains(letter) {
                    let result = interpret(
                        &interpreter,
                        &kind(name),
                        operation_of_letter(letter),
                        &same,
                    )
                    .await;
                    assert_eq!(result.unwrap(), Value::Null, "{name} {letter}");
                }
            }
        }
    }
}
