//! Numbers at the edges of every type and format: which are refused, and what is stored of others.

use serde_json::{Map, json};

use crate::differential::case::CaseStep;
use crate::differential::comparison::compare_case;
use crate::differential::crd;
use crate::differential::request::CaseContext;
use crate::differential::servers::ServerPair;

const GROUP: &str = "numbers.example.com";

const FIELDS: [&str; 8] = [
    "integer",
    "int32",
    "int64",
    "number",
    "float",
    "double",
    "intOrString",
    "any",
];

const NUMBERS: [&str; 26] = [
    "0",
    "-0.0",
    "1.0",
    "1e3",
    "1.5",
    "1.0000000001",
    "2147483647",
    "2147483648",
    "9007199254740991.0",
    "9007199254740992.0",
    "9007199254740993",
    "1e15",
    "1e16",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "1e19",
    "123456789.123456789",
    "3.4028234663852886e+38",
    "3.4028235677973366e38",
    "1e39",
    "-1e39",
    "1.7976931348623157e308",
    "5e-324",
];

fn definition() -> serde_json::Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "integer": {"type": "integer"},
        "int32": {"type": "integer", "format": "int32"},
        "int64": {"type": "integer", "format": "int64"},
        "number": {"type": "number"},
        "float": {"type": "number", "format": "float"},
        "double": {"type": "number", "format": "double"},
        "intOrString": {"x-kubernetes-int-or-string": true},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
    }}}});
    crd::expand(
        GROUP,
        "numbers",
        &json!({"kind": "Number", "schema": schema}),
    )
}

fn steps() -> Vec<CaseStep> {
    let mut steps = Vec::new();
    let mut add = |title: &str, body: String| {
        steps.push(CaseStep::from([(title.to_owned(), body.into())]));
    };
    for (n, field) in FIELDS.iter().enumerate() {
        for (m, number) in NUMBERS.iter().enumerate() {
            let object = |name: &str| {
                format!(
                    r#"{{"apiVersion":"{GROUP}/v1","kind":"Number","metadata":{{"name":"{name}"}},"spec":{{"{field}":{number}}}}}"#
                )
            };
            add("POST v1/numbers", object(&format!("a{n}-{m}")));
            let applied = format!("b{n}-{m}");
            add(&format!("APPLY:a v1/numbers/{applied}"), object(&applied));
            add(&format!("GET v1/numbers/{applied}"), String::new());
        }
    }
    steps
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_stored_and_refused_alike() {
    compare_numbers().await;
}

async fn compare_numbers() {
    let Some(pair) = ServerPair::shared().await else {
        return;
    };
    let servers = pair.connect().await;
    for server in &servers {
        crd::create(server, &definition()).await;
    }
    let mut kinds = Map::new();
    kinds.insert("numbers".to_owned(), "Number".into());
    let context = CaseContext {
        namespace: "numbers",
        group: GROUP,
        kinds: &kinds,
    };
    let differences = compare_case(&servers, &steps(), &context, true).await;
    assert!(differences.is_none(), "{}", differences.unwrap_or_default());
}
