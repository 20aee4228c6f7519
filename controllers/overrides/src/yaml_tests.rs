//! Tests of the YAML writer.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn check(tree: Value, expected: &str) {
    assert_eq!(to_yaml(&tree), expected, "{tree}");
}

#[test]
fn blocks() {
    check(
        json!({"a": {"b": [1, {"c": "d", "e": [[1, 2], ["x"]]}], "empty": {}, "none": []}, "z": null}),
        "a:\n  b:\n  - 1\n  - c: d\n    e:\n    - - 1\n      - 2\n    - - x\n  empty: {}\n  none: []\nz: null\n",
    );
    check(
        json!(["a", ["b"], {"c": {"d": true}}]),
        "- a\n- - b\n- c:\n    d: true\n",
    );
    check(json!({}), "{}\n");
    check(json!("a"), "a\n");
}

#[test]
fn multiline_strings() {
    check(
        json!({"t": "line1\nline2\n", "u": "no end\nx", "v": "two\n\n", "w": " lead\nx\n", "x": "trail \nx",
            "k": ["a\nb\n", {"z": "p\n\nq"}]}),
        "k:\n- |\n  a\n  b\n- z: |-\n    p\n\n    q\nt: |\n  line1\n  line2\nu: |-\n  no end\n  x\nv: |+\n  two\n\nw: |2\n   lead\n  x\nx: \"trail \\nx\"\n",
    );
    check(json!({"\n": 1}), "? |2+\n\n: 1\n");
}

#[test]
fn strings_that_need_quotes() {
    let quoted = [
        ": x", "a: b", "a:", "#x", "a #b", "- x", "-", "? x", "{a}", "%x", "@x", "`x", "\"q\"",
        " lead", "trail ", "---", "--- x", "...a", ",a", "[a", "&a", "*a", "!a", "|a", ">a",
    ];
    for text in quoted {
        check(json!(text), &format!("'{text}'\n"));
    }
    check(json!("a'b: c"), "'a''b: c'\n");
    for text in [
        "a:b", "a#b", "-x", "?x", "a{b}", "it's", "é", "a, b", "10.0.0.1", "v1.2",
    ] {
        check(json!(text), &format!("{text}\n"));
    }
    for text in [
        "1",
        "true",
        "~",
        "",
        "2001-01-01",
        "1.5",
        "y",
        "0755",
        "1:30",
    ] {
        check(json!(text), &format!("\"{text}\"\n"));
    }
    check(
        json!(["\u{1}", "tab\there", "\u{1F600}"]),
        "- \"\\x01\"\n- \"tab\\there\"\n- \"\\U0001F600\"\n",
    );
    check(
        json!({"n": 1, "true": 2, "a b": 3}),
        "a b: 3\n\"n\": 1\n\"true\": 2\n",
    );
}

#[test]
fn long_lines_are_folded() {
    let words = ["word"; 30].join(" ");
    let begin = |count: usize| vec!["word"; count].join(" ");
    check(
        json!({"l": words}),
        &format!("l: {}\n  {}\n", begin(16), begin(14)),
    );
    check(
        json!({"q": format!("'{words}'")}),
        &format!("q: '''{}\n  {}'''\n", begin(16), begin(14)),
    );
    check(
        json!({"d": format!("\t{words}")}),
        &format!("d: \"\\t{}\n  {}\"\n", begin(16), begin(14)),
    );
    let unbroken = "x".repeat(200);
    check(json!({"u": unbroken}), &format!("u: {unbroken}\n"));
    let key = "long key ".repeat(20);
    let expected = "x:\n  ? 'long key long key long key long key long key long key long key long key long\n    key long key long key long key long key long key long key long key long key long\n    key long key long key '\n  : 1\n";
    check(json!({"x": {key: 1}}), expected);
}

#[test]
fn numbers() {
    for (number, expected) in [
        (json!(3), "3"),
        (json!(-1), "-1"),
        (json!(18446744073709551615_u64), "18446744073709551615"),
        (json!(2.0), "2"),
        (json!(1.5), "1.5"),
        (json!(0.0001), "0.0001"),
        (json!(0.00001), "1e-05"),
        (json!(1234567.5), "1.2345675e+06"),
        (json!(123456.5), "123456.5"),
        (json!(1e20), "1e+20"),
    ] {
        check(number, &format!("{expected}\n"));
    }
}

#[test]
fn keys_are_in_natural_order() {
    let mut keys = vec![
        "b", "a10", "a2", "a", "_x", "1", "10", "2", "a-b", "ab", "A", "v1.10", "v1.9",
    ];
    keys.sort_by(|a, b| natural_order(a, b));
    let expected = [
        "_x", "1", "2", "10", "A", "a", "a-b", "a2", "a10", "ab", "b", "v1.9", "v1.10",
    ];
    assert_eq!(keys, expected);
}

fn json_values() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "[a-z:#' \n\"-]{0,12}",
        "[ -~]{0,100}",
        "(y|no|1|0x1|1:30|~|2001-1-1|\\.5|null|---)",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z0-9 :-]{1,10}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn yaml_round_trips(tree in json_values()) {
        let text = to_yaml(&tree);
        let back: Value = serde_saphyr::from_str(&text).map_err(|e| {
            TestCaseError::fail(format!("{e}\n{text}"))
        })?;
        prop_assert_eq!(back, tree, "{}", text);
    }
}
