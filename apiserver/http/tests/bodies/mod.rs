//! Bodies that are large where errors repeat them, or many times larger as a tree.

/// How large the bodies are that repeat a part.
const REPEATED_BYTES: usize = 80_000;

/// Bodies from which others are made by edits.
pub(crate) const SMALL_BODIES: [&str; 4] = [
    r#"{"metadata":{"name":"a","labels":{"b":"c"}},"data":{"x":"y","x":"z"},"what":{"else":[1,{}]}}"#,
    r#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"e","value":"v"}],"ports":[{"containerPort":80}]}],"volumes":[{"name":"v","emptyDir":{}}]}}"#,
    r#"{"metadata":{"name":"a"},"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"Pod","labelSelector":{"matchLabels":{"a":"b"}}}],"placement":{"clusterAffinity":{"clusterNames":["m"]}}}}"#,
    r#"[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"copy","from":"/metadata","path":"/data"},{"op":"test","path":"/kind","value":"X"}]"#,
];

/// A part as often as it makes a large body.
fn repeated(before: &str, part: &str, after: &str) -> String {
    let parts = vec![part; REPEATED_BYTES / (part.len() + 1)];
    format!("{before}{}{after}", parts.join(","))
}

/// As [`repeated`], with parts that differ.
fn numbered(before: &str, part: impl Fn(usize) -> String, after: &str) -> String {
    let parts: Vec<String> = (0..REPEATED_BYTES / 20).map(part).collect();
    format!("{before}{}{after}", parts.join(","))
}

fn long(part: &str) -> String {
    part.repeat(REPEATED_BYTES / part.len())
}

/// Bodies with long or many names, keys and values that are wrong.
pub(crate) fn large_bodies() -> Vec<(&'static str, String)> {
    let mut bodies = with_wrong_keys();
    bodies.extend(with_wrong_metadata());
    bodies.extend(with_wrong_items());
    bodies.extend(malformed_or_dense());
    bodies
}

/// Bodies of YAML that are many times larger as a tree, or repeat themselves.
pub(crate) fn large_yaml_bodies() -> Vec<(&'static str, String)> {
    let keys = |count: usize| -> String { (0..count).map(|i| format!("k{i}: 1, ")).collect() };
    let head = "metadata: {name: a}\n";
    let lines = |first: &str, line: &str| {
        let count = REPEATED_BYTES / line.len();
        format!("{head}{first}\nx:\n{}", line.repeat(count))
    };
    vec![
        ("maps", lines("", "- a: b\n")),
        ("empty maps", lines("", "- {}\n")),
        ("lists", lines("", "- - 0\n")),
        ("aliases of a map", lines("y: &y {a: b}", "- *y\n")),
        (
            "aliases of a large map",
            lines(&format!("y: &y {{{}}}", keys(500)), "- *y\n"),
        ),
        (
            "aliases of a text",
            lines(&format!("y: &y {}", "x".repeat(5_000)), "- *y\n"),
        ),
        (
            "merges",
            lines(&format!("y: &y {{{}}}", keys(100)), "- {<<: *y}\n"),
        ),
        (
            "few aliases",
            format!("{head}y: &y {{{}}}\nx: [{}]\n", keys(500), "*y, ".repeat(3)),
        ),
        (
            "nested merges",
            format!(
                "{head}x: {}{}{}\n",
                "{<<: ".repeat(50),
                "{a: b}",
                "}".repeat(50)
            ),
        ),
    ]
}

fn with_wrong_keys() -> Vec<(&'static str, String)> {
    let key = "k".repeat(REPEATED_BYTES / 4);
    let keys: Vec<String> = (0..100)
        .map(|i| format!(r#""{i}{}":1"#, "k".repeat(REPEATED_BYTES / 200)))
        .collect();
    let keys = keys.join(",");
    vec![
        ("duplicates of long keys", format!("{{{keys},{keys}}}")),
        (
            "duplicates under a long key",
            repeated(&format!(r#"{{"{key}":{{"#), r#""a":1"#, "}}"),
        ),
        ("a hundred duplicates under a long key", {
            let pairs: Vec<String> = (0..100).map(|i| format!(r#""{i}":1,"{i}":1"#)).collect();
            format!(r#"{{"{key}":{{{}}}}}"#, pairs.join(","))
        }),
        (
            "unknown fields",
            numbered("{", |i| format!(r#""a{i}":1"#), "}"),
        ),
        ("unknown fields a thousand levels deep", {
            let opened = r#""n":{"#.repeat(1_000);
            numbered(
                &format!("{{{opened}"),
                |i| format!(r#""a{i}":1"#),
                &"}".repeat(1_001),
            )
        }),
        (
            "unknown fields under a long key",
            numbered(
                &format!(r#"{{"metadata":{{"annotations":{{}},"{key}":{{"#),
                |i| format!(r#""a{i}":{{}}"#),
                "}}}",
            ),
        ),
        (
            "wrong keys of data",
            numbered(
                r#"{"metadata":{"name":"a"},"data":{"#,
                |i| format!(r#""{i}/":"x""#),
                "}}",
            ),
        ),
    ]
}

fn with_wrong_metadata() -> Vec<(&'static str, String)> {
    let metadata = |field: &str| format!(r#"{{"metadata":{{"name":"a","{field}":"#);
    vec![
        (
            "labels",
            numbered(
                &format!("{}{{", metadata("labels")),
                |i| format!(r#""{i}/":"-""#),
                "}}}",
            ),
        ),
        (
            "annotations",
            numbered(
                &format!("{}{{", metadata("annotations")),
                |i| format!(r#""{i}/":"-""#),
                "}}}",
            ),
        ),
        (
            "finalizers",
            repeated(&format!("{}[", metadata("finalizers")), r#""/""#, "]}}"),
        ),
        (
            "owners",
            numbered(
                &format!("{}[", metadata("ownerReferences")),
                |i| format!(r#"{{"kind":"{i}","controller":true}}"#),
                "]}}",
            ),
        ),
        (
            "repeated owners",
            repeated(
                &format!("{}[", metadata("ownerReferences")),
                r#"{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}"#,
                "]}}",
            ),
        ),
        (
            "a long name",
            format!(r#"{{"metadata":{{"name":"{}"}}}}"#, long("\\u0001")),
        ),
        (
            "a long kind",
            format!(r#"{{"apiVersion":"v1","kind":"{}"}}"#, long("K")),
        ),
        (
            "a long version",
            format!(r#"{{"apiVersion":"{}","kind":"Pod"}}"#, long("/")),
        ),
        (
            "metadata of the wrong type",
            format!(r#"{{"metadata":"{}"}}"#, long("x")),
        ),
    ]
}

fn with_wrong_items() -> Vec<(&'static str, String)> {
    let spec = |field: &str| format!(r#"{{"metadata":{{"name":"a"}},"spec":{{{field}["#);
    vec![
        (
            "containers",
            repeated(&spec(r#""containers":"#), r#"{"name":"-"}"#, "]}}"),
        ),
        (
            "environment",
            repeated(
                &spec(r#""containers":[{"name":"a","image":"i","env":"#),
                r#"{"name":""}"#,
                "]}]}}",
            ),
        ),
        (
            "selectors",
            repeated(&spec(r#""resourceSelectors":"#), r#"{"kind":"X"}"#, "]}}"),
        ),
        (
            "a long wrong value",
            format!(
                r#"{{"metadata":{{"name":"a"}},"spec":{{"nodeName":"{}","restartPolicy":"{0}"}}}}"#,
                long("\\n")
            ),
        ),
        (
            "copies",
            repeated(
                r#"[{"op":"add","path":"/data","value":{"a":"b"}},"#,
                r#"{"op":"copy","from":"/metadata","path":"/metadata/a"}"#,
                "]",
            ),
        ),
        (
            "unknown members of operations",
            numbered("[{", |i| format!(r#""{i}":1"#), "}]"),
        ),
        (
            "a long path",
            format!(r#"[{{"op":"remove","path":"{}"}}]"#, long("/a")),
        ),
    ]
}

fn malformed_or_dense() -> Vec<(&'static str, String)> {
    vec![
        (
            "nested objects",
            format!("{}1{}", r#"{"a":"#.repeat(100), "}".repeat(100)),
        ),
        ("small objects", repeated(r#"{"x":["#, r#"{"":0}"#, "]}")),
        ("empty objects", repeated(r#"{"x":["#, "{}", "]}")),
        ("empty lists", repeated(r#"{"x":["#, "[]", "]}")),
        ("nulls", repeated(r#"{"x":["#, "null", "]}")),
        (
            "null values",
            numbered("{", |i| format!(r#""{i}":null"#), "}"),
        ),
        (
            "objects in a map",
            numbered(r#"{"data":{"#, |i| format!(r#""{i}":{{}}"#), "}}"),
        ),
        (
            "environment of small objects",
            repeated(
                r#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"a","image":"i","env":["#,
                r#"{"name":"a"}"#,
                "]}]}}",
            ),
        ),
        (
            "deep lists",
            repeated(
                r#"{"x":["#,
                &format!("{}{}", "[".repeat(50), "]".repeat(50)),
                "]}",
            ),
        ),
        ("small lists", repeated(r#"{"x":["#, "[0]", "]}")),
        ("numbers", repeated(r#"{"x":["#, "0", "]}")),
        ("a text", long("x")),
        ("an unfinished text", format!("{{\"{}", long("x"))),
    ]
}
