//! Hostile expressions end: in time, in depth, and without a panic.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::sample;
use crate::environment::Environment;
use crate::error::EvalError;
use crate::program::{PER_CALL_LIMIT, Program};

/// The stack of a thread that serves requests.
const STACK_BYTES: usize = 2 * 1024 * 1024;

fn compile_and_run(expression: &str, x: &Json) -> Option<Result<Json, EvalError>> {
    let environment = Environment::new().with_any("x");
    let program = Program::compile(expression, &environment).ok()?;
    let evaluation = program.evaluate_json(&environment, &[Some(x)]);
    let ended = evaluation.result == Err(EvalError::CostLimitExceeded);
    assert!(evaluation.cost <= PER_CALL_LIMIT || ended, "{expression}");
    Some(evaluation.result)
}

#[test]
fn deep_expressions_fit_a_small_stack() {
    let nested = |open: &str, inner: &str, close: &str| {
        let deepest = 5000;
        [1, 30, 60, 95, 100, 105, 260, deepest]
            .map(|n| format!("{}{inner}{}", open.repeat(n), close.repeat(n)))
    };
    let mut expressions: Vec<String> = Vec::new();
    for (open, inner, close) in [
        ("(", "1", ")"),
        ("[", "", "]"),
        ("{'a': ", "1", "}"),
        ("!", "x.on", ""),
        ("- ", "1", ""),
        ("size([", "1", "])"),
        ("[1].map(i, ", "i", ")"),
        ("[1].all(i, ", "true", ")"),
        ("x.on ? 1 : (", "2", ")"),
        ("x.on ? 1 : ", "2", ""),
        ("x.on && (", "true", ")"),
    ] {
        expressions.extend(nested(open, inner, close));
    }
    for (first, then) in [
        ("1", " + 1"),
        ("x", ".a"),
        ("x", "[0]"),
        ("x.on", " && x.on"),
        ("x.on", " || x.on"),
        ("1", " < 1"),
        ("[1]", ".map(i, i)"),
        ("optional.of(1)", ".optMap(i, i)"),
        ("[1]", ".sortBy(i, i)"),
        ("x.?a", ".?b"),
        ("[1", ",1"),
    ] {
        expressions
            .extend([1, 20, 95, 105, 250, 40_000].map(|n| format!("{first}{}", then.repeat(n))));
    }
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let run = thread.spawn(move || {
        for expression in expressions {
            compile_and_run(&expression, &sample());
        }
    });
    run.unwrap().join().unwrap();
}

#[test]
fn expensive_expressions_are_ended() {
    let long = "a".repeat(100_000);
    let list: Vec<i32> = (0..20_000).collect();
    let x = json!({"long": long, "list": list, "lists": vec![vec![1; 100]; 1000]});
    for expression in [
        "x.list.all(a, x.list.all(b, a + b >= 0))",
        "x.list.map(a, x.list.map(b, x.list.map(c, c)))",
        "x.list.all(a, x.long.contains('b' + x.long) == false)",
        "x.list.all(a, (x.long + x.long + x.long).size() > 0)",
        "x.list.all(a, (x.list + x.list).size() > 0)",
        "x.list.all(a, x.lists == x.lists)",
        "x.list.all(a, x.long.charAt(99999) == 'a')",
        "x.list.all(a, x.long.matches('(a|b)*c') == false)",
        "x.list.map(a, x.long.replace('a', x.long)).size() > 0",
        "x.list.all(a, x.list.distinct().size() > 0)",
        "x.list.all(a, x.list.sort().size() > 0)",
        "lists.range(1000000000).size() > 0",
        "x.list.all(a, '%s'.format([x.lists]).size() > 0)",
        "x.list.all(a, x.list.exists(b, b == -1) == false)",
        "x.list.transformMap(i, v, v).all(k, x.list.transformMap(i, v, v).size() > 0)",
    ] {
        let result = compile_and_run(expression, &x);
        assert_eq!(
            result,
            Some(Err(EvalError::CostLimitExceeded)),
            "{expression}"
        );
    }
}

/// Pieces of which most texts are no expressions, and many are.
const EXPRESSION_FRAGMENTS: &[&str] = &[
    "x",
    "x.name",
    "x.tags",
    "x.numbers",
    "x.labels",
    "x.nested.deep",
    "1",
    "2u",
    "1.5",
    "'a'",
    "b'a'",
    "true",
    "null",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    ",",
    ":",
    "?",
    ".",
    "+",
    "-",
    "*",
    "/",
    "%",
    "<",
    ">",
    "==",
    "!=",
    "&&",
    "||",
    "!",
    " in ",
    ".all(i, ",
    ".exists(i, ",
    ".map(i, ",
    ".filter(i, ",
    "i",
    ".size()",
    ".?name",
    "[?0]",
    "has(x.name)",
    ".orValue(1)",
    "optional.of(",
    "optional.none()",
    "duration('1h')",
    "timestamp('2026-01-01T00:00:00Z')",
    ".split(',')",
    ".join('-')",
    ".sum()",
    "quantity('1Gi')",
    ".add(1)",
    "ip('::1')",
    "cidr('10.0.0.0/8')",
    ".containsIP('10.1.1.1')",
    "type(",
    "string(",
    "int(",
    "dyn(",
    "sets.contains(",
    ".format([1, 'a'])",
    ".matches('a.*')",
    ".transformMap(k, v, v)",
    ".flatten()",
    ".sort()",
    "lists.range(5)",
    "'\\u00e9'",
    "`a`",
    "\\",
    "\u{e9}",
];

fn arbitrary_expression() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(EXPRESSION_FRAGMENTS), 1..24)
        .prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn random_texts_never_panic(expression in arbitrary_expression()) {
        compile_and_run(&expression, &sample());
    }

    #[test]
    fn random_characters_never_panic(expression in "\\PC{0,40}") {
        compile_and_run(&expression, &sample());
    }
}
