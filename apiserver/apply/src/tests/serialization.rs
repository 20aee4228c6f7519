//! `FieldsV1` JSON.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::field_set::FieldSet;

fn check(read: &str, written: &str) {
    let set = FieldSet::from_fields_v1(read).unwrap();
    assert_eq!(serde_json::to_string(&set).unwrap(), written);
    // From a tree it is the same set.
    let tree: Value = machinery::json::from_str(read).unwrap();
    assert_eq!(FieldSet::deserialize(&tree).unwrap(), set);
}

#[test]
fn canonical_sets_are_read_and_written() {
    for canonical in [
        "{}",
        r#"{"f:aaa":{},"f:aab":{},"k:{\"name\":\"first\"}":{},"k:{\"name\":\"second\"}":{},"k:{\"port\":443,\"protocol\":\"tcp\"}":{},"k:{\"port\":443,\"protocol\":\"udp\"}":{},"v:1":{},"v:2":{},"v:\"aa\"":{},"v:\"ab\"":{},"v:true":{},"i:1":{},"i:2":{}}"#,
        r#"{"f:aaa":{"k:{\"name\":\"second\"}":{"v:3":{"f:aab":{}}},"v:3":{},"v:true":{}},"f:aab":{"f:aaa":{},"f:aaf":{"k:{\"port\":443,\"protocol\":\"udp\"}":{"k:{\"port\":443,\"protocol\":\"tcp\"}":{}}}},"i:4":{"v:\"aa\"":{"f:aab":{"k:{\"name\":\"second\"}":{}}}}}"#,
        r#"{"f:spec":{".":{},"f:apps":{".":{},"k:{\"name\":\" app-💻\"}":{".":{},"f:image":{},"f:name":{}}}}}"#,
    ] {
        check(canonical, canonical);
    }
}

#[test]
fn other_sets_are_normalized() {
    check(
        r#" { "f:b" : {} , "f:a":{"v: 3":{}, ".":{}, "v:1":{}}, "k:{ \"b\":1,\"a\":2}":{} }
        "#,
        r#"{"f:a":{".":{},"v:1":{},"v:3":{}},"f:b":{},"k:{\"a\":2,\"b\":1}":{}}"#,
    );
    // Elements of an unknown type are ignored; a node without known children is a leaf.
    check(r#"{"f:a":{"r:new":{"f:b":{}}},"z:":{}}"#, r#"{"f:a":{}}"#);
    check(r#"{"f:a":null,".":{}}"#, r#"{"f:a":{}}"#);
    check(r#"{"f:a":{".":{}}}"#, r#"{"f:a":{}}"#);
}

#[test]
fn malformed_sets_are_rejected() {
    for malformed in [
        "",
        "   ",
        "[]",
        "42",
        r#""text""#,
        r"{1:{}}",
        r#"{"f:a":{},}"#,
        r#"{"f:a":1}"#,
        r#"{"f:a":[]}"#,
        r#"{"f:a":{}},"#,
        r#"{"f:a":{},,"f:b":{}}"#,
        r#"{"f:a":{} "f:b":{}}"#,
        r#"{"f:a"}"#,
        r#"{"":{}}"#,
        r#"{"x":{}}"#,
        r#"{":":{}}"#,
        r#"{"i:x":{}}"#,
        r#"{"k:{":{}}"#,
        "{",
        r#"{"f:a":{"f:b":{}"#,
        r#"{"f:\u00"#,
        r#"{"f:a":{}}{}"#,
        r#"{"f:a":{}}  "x""#,
    ] {
        assert!(FieldSet::from_fields_v1(malformed).is_err(), "{malformed}");
    }
}

#[test]
fn deep_and_large_sets_are_rejected() {
    let deep = format!(
        "{}{}",
        r#"{"f:a":"#.repeat(1_100),
        "{}".to_owned() + &"}".repeat(1_100)
    );
    assert!(FieldSet::from_fields_v1(&deep).is_err());
    let keys: Vec<String> = (0..100_001).map(|i| format!(r#""f:{i}":{{}}"#)).collect();
    let large = format!("{{{}}}", keys.join(","));
    assert!(FieldSet::from_fields_v1(&large).is_err());
}

/// Reading costs no more for entries that are repeated or in the wrong order.
#[test]
fn repeated_and_unsorted_keys_are_united() {
    let keys = |range: std::ops::Range<usize>| {
        let keys = range.rev().map(|i| format!(r#""f:{i:06}":{{}}"#));
        keys.collect::<Vec<_>>().join(",")
    };
    let unsorted = FieldSet::from_fields_v1(&format!("{{{}}}", keys(0..90_000))).unwrap();
    assert_eq!(unsorted.len(), 90_000);
    let repeated: Vec<String> = (0..40_000)
        .map(|i| format!(r#""f:a":{{"f:{i}":{{}}}}"#))
        .collect();
    let repeated = FieldSet::from_fields_v1(&format!("{{{}}}", repeated.join(","))).unwrap();
    assert_eq!((repeated.nodes().len(), repeated.len()), (1, 40_000));
    let set = FieldSet::from_fields_v1(r#"{"f:b":{},"f:a":{"f:y":{}},"f:a":{".":{},"f:x":{}}}"#);
    assert_eq!(set.unwrap().to_string(), ".a\n.b\n.a.x\n.a.y");
}

#[test]
fn leaves_have_nothing_below_them() {
    let set =
        FieldSet::deserialize(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}, "f:d": {"f:e": {}}}))
            .unwrap();
    assert_eq!(set.len(), 4);
    assert_eq!(
        serde_json::to_value(set.leaves()).unwrap(),
        json!({"f:a": {"f:b": {}}, "f:c": {}, "f:d": {"f:e": {}}})
    );
    assert_eq!(set.to_string(), ".a\n.c\n.a.b\n.d.e");
}

#[test]
fn a_recursive_difference_removes_what_lies_below() {
    let set = |value: Value| FieldSet::deserialize(&value).unwrap();
    let full_set =
        set(json!({"f:a": {".": {}, "f:b": {"f:c": {}}}, "f:d": {"f:e": {}, "f:f": {}}}));
    let removed = set(json!({"f:a": {"f:b": {}}, "f:d": {"f:e": {}}}));
    assert_eq!(
        full_set.recursive_difference(&removed),
        set(json!({"f:a": {}, "f:d": {"f:f": {}}}))
    );
    assert_eq!(
        full_set.difference(&removed),
        set(json!({"f:a": {".": {}, "f:b": {"f:c": {}}}, "f:d": {"f:f": {}}}))
    );
}
