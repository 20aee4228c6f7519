//! Tests that expressions evaluate to what cel-go, the library of Kubernetes, makes of them.

use std::path::Path;
use std::process::Command;

use harness::process::run_with_input;
use kubernetes_cel::{Environment, Program};
use serde_json::{Value as Json, json};

/// Expressions of the standard library, about the sample.
const EXPRESSIONS: &[&str] = &[
    "1 + 2 * 3 - 4 / 2 % 3",
    "-7 / 2",
    "-7 % 2",
    "7.5 / 2.0",
    "1 / 0",
    "1 % 0",
    "1.0 / 0.0 > 1.0",
    "9223372036854775807 + 1",
    "-9223372036854775808 - 1",
    "-(-9223372036854775808)",
    "1u - 2u == 0u",
    "0xff == 255",
    "1e3 == 1000.0",
    "!true || !false",
    "!!true",
    "--1",
    "'a' + 'b' == 'ab'",
    "b'a' + b'b' == b'ab'",
    "[1] + [2] == [1, 2]",
    "'abc' < 'abd' && 'Z' < 'a'",
    "1 < 2 && 2 <= 2 && 3 > 2 && 3 >= 3",
    "x.replicas == 3",
    "x.replicas == 3.0",
    "x.replicas < 3.5",
    "x.ratio * 2.0 == 1.0",
    "x.replicas + 1 == 4",
    "x.name + '-1'",
    "x.nothing == null",
    "x.missing",
    "has(x.missing)",
    "has(x.name) && has(x.nested.deep)",
    "x['name']",
    "x['missing']",
    "x.tags[0]",
    "x.tags[3]",
    "x.tags[-1]",
    "x.tags[1.0]",
    "x.tags['0']",
    "'a' in x.tags",
    "'z' in x.tags",
    "'app' in x.labels",
    "1 in [1, 2]",
    "1.0 in [1, 2]",
    "size(x.tags)",
    "x.tags.size()",
    "size('h\u{e9}llo')",
    "size(b'h\\xc3')",
    "x.labels.size() == 2",
    "x.name.startsWith('w')",
    "x.name.endsWith('eb')",
    "x.name.contains('e')",
    "x.name.matches('^w.b$')",
    "'abc'.matches('b')",
    "'a\\d'.matches('\\\\d')",
    "x.tags.all(t, t != 'z')",
    "x.tags.exists(t, t == 'b')",
    "x.tags.exists_one(t, t == 'b')",
    "x.tags.map(t, t + t)",
    "x.numbers.filter(n, n > 1)",
    "x.numbers.map(n, n > 1, n * 10)",
    "x.labels.all(k, k.size() > 2)",
    "x.labels.exists(k, x.labels[k] == 'web')",
    "x.nested.deep.map(e, e.v)",
    "x.nested.deep.filter(e, e.k == 'x')[0].v",
    "x.tags.exists(t, t == 'a' || 1 / 0 == 1)",
    "x.tags.all(t, t == 'q' && 1 / 0 == 1)",
    "[0, 1].exists(i, 1 / i == 1)",
    "[0, 2].all(i, 1 / i == 7)",
    "[0].map(i, 1 / i)",
    "true || 1 / 0 == 1",
    "1 / 0 == 1 || true",
    "false && 1 / 0 == 1",
    "1 / 0 == 1 && false",
    "1 / 0 == 1 || false",
    "1 / 0 == 1 && true",
    "x.name || true",
    "x.name && true",
    "false || x.name",
    "x.on ? 'yes' : 'no'",
    "x.name ? 1 : 2",
    "x.replicas > 2 ? x.tags[9] : x.tags[0]",
    "{'a': 1, 'b': [1, 2]}",
    "{'a': 1}.a",
    "{'a': {'b': 2}}.a.b",
    "{1: 'x', 2: 'y'}[2]",
    "{'a': 1} == {'a': 1.0}",
    "{true: 1}[true]",
    "[1, 2] == [1, 2]",
    "[1, [2, {'k': 3}]] == [1, [2, {'k': 3}]]",
    "[] == []",
    "{} == {}",
    "null == null",
    "dyn(1) == dyn('1')",
    "dyn([1]) == dyn({})",
    "dyn(1u) == dyn(1)",
    "dyn(1) == dyn(1.0)",
    "int('42')",
    "int('4x')",
    "int(3.9)",
    "int(-3.9)",
    "int(1e30)",
    "int(5u)",
    "uint(5)",
    "uint(-1)",
    "uint('7')",
    "double(3)",
    "double('2.5')",
    "double('x')",
    "string(12)",
    "string(1.5)",
    "string(1000000.0)",
    "string(123456789.5)",
    "string(1e21)",
    "string(0.0001)",
    "string(0.00001)",
    "string(100000.0)",
    "string(-0.0)",
    "string(true)",
    "string(b'ab')",
    "bytes('h\u{e9}')",
    "bool('true')",
    "bool('False')",
    "bool('x')",
    "type(1) == int",
    "type('a') == string",
    "type(x) == map",
    "type(x.tags) == list",
    "type(null) == null_type",
    "type(type(1)) == type",
    "type(1) == type(2)",
    "type(1.0) == double",
    "type(timestamp('2026-01-01T00:00:00Z')) == google.protobuf.Timestamp",
    "duration('1h30m') == duration('90m')",
    "string(duration('90s'))",
    "string(duration('1.5s'))",
    "duration('1h').getMinutes()",
    "duration('1500ms').getMilliseconds()",
    "duration('1h') + duration('1m') > duration('1h')",
    "int(duration('1s'))",
    "duration('x')",
    "duration('-1.5h') < duration('0s')",
    "timestamp('2026-01-02T03:04:05Z').getFullYear()",
    "timestamp('2026-01-02T03:04:05Z').getMonth()",
    "timestamp('2026-01-02T03:04:05Z').getDate()",
    "timestamp('2026-01-02T03:04:05Z').getDayOfMonth()",
    "timestamp('2026-01-02T03:04:05Z').getDayOfWeek()",
    "timestamp('2026-12-31T03:04:05Z').getDayOfYear()",
    "timestamp('2026-01-02T03:04:05.678Z').getMilliseconds()",
    "timestamp('2026-01-02T03:04:05Z').getHours('+02:30')",
    "timestamp('2026-01-02T03:04:05Z').getMinutes('-00:30')",
    "int(timestamp('1970-01-01T00:01:00Z'))",
    "string(timestamp('2026-01-02T03:04:05Z'))",
    "string(timestamp('2026-01-02T05:04:05.5Z'))",
    "timestamp('2026-01-01T00:00:00Z') + duration('24h') == timestamp('2026-01-02T00:00:00Z')",
    "string(timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z'))",
    "timestamp('0001-01-01T00:00:00Z') - duration('1s')",
    "timestamp('yesterday')",
    "timestamp(60) == timestamp('1970-01-01T00:01:00Z')",
    "r'a\\b' == 'a\\\\b'",
    "'''a'b''' == \"a'b\"",
    "'\\x41\\u0041\\U00000041\\101' == 'AAAA'",
    "b'\\xff\\377' == b'\\xff\\xff'",
    "'\\a\\b\\f\\n\\r\\t\\v\\\"\\'\\\\\\?\\`'",
    "[1, 2, 3][x.replicas - 1]",
    "x.labels['ti' + 'er']",
    "x.nested.deep.exists(e, e.k == 'y' && e.v == 2)",
    "x.tags.map(t, x.numbers.filter(n, n < 3).map(n, string(n) + t))",
    "x.tags.filter(t, t in ['a', 'c']).size() == 2",
    "x.tags.all(t, x.tags.exists(u, u == t))",
    "[[1, 2], [3]].map(l, l.map(i, i * i))",
    "[1, 2, 3].exists_one(i, i > 1)",
    "[].all(i, 1 / 0 == 1)",
    "x.replicas in [1, 2, 3] ? 'few' : 'many'",
    "(x.replicas > 1 && x.on) != false",
    "x.ratio > 0.4 && x.ratio < 0.6",
    "x == x",
    "x.nested == x.nested",
    "x.tags == ['a', 'b', 'c']",
    "x.labels == {'tier': 'front', 'app': 'web'}",
    "1 == 1 ? 2 == 2 ? 'a' : 'b' : 'c'",
    "1 < 2 == true",
    "2 - 1 - 1 == 0",
    "8 / 4 / 2 == 1",
    "-2 * -3",
    "-x.replicas",
    "!x.on",
    "-'a'",
    "!1",
    "'a' < 1",
    "1 + 'a'",
    "[1] + 1",
    "size(1)",
    "x.foo.bar.baz",
    "unknown",
    "f(1)",
    "x.name.g()",
    "has(x['name'])",
    "x.tags.map(1, 2)",
    "1 +",
    "(1",
    "'a",
    "1 2",
    "x..y",
    "true && ",
];

/// An object for expressions to look into.
fn sample() -> Json {
    json!({
        "name": "web", "replicas": 3, "ratio": 0.5, "on": true, "nothing": null,
        "tags": ["a", "b", "c"], "numbers": [3, 1, 2],
        "labels": {"app": "web", "tier": "front"},
        "nested": {"deep": [{"k": "x", "v": 1}, {"k": "y", "v": 2}]},
    })
}

/// The value of an expression about the variable `x`, or its error.
fn evaluate(expression: &str, x: &Json) -> Result<Json, String> {
    let environment = Environment::new().with_any("x");
    let program = Program::compile(expression, &environment)?;
    let evaluation = program.evaluate_json(&environment, &[Some(x)]);
    evaluation.result.map_err(|message| message.to_string())
}

fn evaluate_with_cel_go(program: &Path, expressions: &[&str], x: &Json) -> Vec<String> {
    let lines: String = expressions
        .iter()
        .map(|e| format!("{}\n", json!({"expression": e, "variables": {"x": x}})))
        .collect();
    let out = run_with_input(&Command::new(program), lines.as_bytes());
    assert!(out.status.success(), "{out:?}");
    let output = String::from_utf8(out.stdout).unwrap();
    output.lines().map(str::to_owned).collect()
}

/// Numbers in JSON are equal when their amounts are: Go writes 1.0 as 1.
fn same(actual: &Json, expected: &Json) -> bool {
    match (actual, expected) {
        (Json::Number(a), Json::Number(b)) => a.as_f64() == b.as_f64(),
        (Json::Array(a), Json::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w)))
        }
        _ => actual == expected,
    }
}

#[test]
fn cel_go_evaluates_alike() {
    let Some([program]) = harness::tools(["cel-eval"]) else {
        return;
    };
    let x = sample();
    let expected = evaluate_with_cel_go(&program, EXPRESSIONS, &x);
    assert_eq!(expected.len(), EXPRESSIONS.len());
    let mut wrong = Vec::new();
    for (expression, expected) in EXPRESSIONS.iter().zip(&expected) {
        let actual = evaluate(expression, &x);
        let alike = match (&actual, machinery::json::from_str::<Json>(expected)) {
            (Ok(actual), Ok(expected)) => same(actual, &expected),
            (Err(_), Err(_)) => expected.starts_with("error: "),
            _ => false,
        };
        if !alike {
            wrong.push(format!("{expression}: {actual:?}, cel-go: {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
