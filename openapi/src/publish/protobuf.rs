//! Encodes the version 2 document as protobuf (`openapi.v2.Document`).
//!
//! Field numbers are those of gnostic's `openapiv2/OpenAPIv2.proto`. Keys that start with
//! `x-` become vendor extensions, with their value as YAML (of which JSON is a subset).

use serde_json::{Map, Value};

/// How deep schemas may be nested; deeper ones are cut off.
const MAX_SCHEMA_DEPTH: usize = 200;

/// Encodes a version 2 document.
pub fn v2_protobuf(document: &Value) -> Vec<u8> {
    let mut out = ProtobufMessageBuilder::default();
    out.text(1, document.get("swagger"));
    if let Some(info) = document.get("info") {
        out.message(2, |m| {
            m.text(1, info.get("title"));
            m.text(2, info.get("version"));
        });
    }
    out.message(8, |paths| {
        for (path, item) in entries(document.get("paths")) {
            paths.named_value(2, path, |m| write_path_item(m, item));
        }
    });
    out.message(9, |definitions| {
        for (name, definition) in entries(document.get("definitions")) {
            definitions.named_value(1, name, |m| write_schema(m, definition, 0));
        }
    });
    out.0
}

fn entries(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn write_path_item(out: &mut ProtobufMessageBuilder, item: &Value) {
    for (method, number) in [
        ("get", 2),
        ("put", 3),
        ("post", 4),
        ("delete", 5),
        ("options", 6),
        ("head", 7),
        ("patch", 8),
    ] {
        if let Some(value) = item.get(method) {
            out.message(number, |m| write_operation(m, value));
        }
    }
    for value in items(item.get("parameters")) {
        out.message(9, |m| m.message(1, |m| write_parameter(m, value)));
    }
    write_extensions(out, 10, item);
}

fn write_operation(out: &mut ProtobufMessageBuilder, value: &Value) {
    out.texts(1, value.get("tags"));
    out.text(3, value.get("description"));
    out.text(5, value.get("operationId"));
    out.texts(6, value.get("produces"));
    out.texts(7, value.get("consumes"));
    for value in items(value.get("parameters")) {
        out.message(8, |m| m.message(1, |m| write_parameter(m, value)));
    }
    out.message(9, |responses| {
        for (code, value) in entries(value.get("responses")) {
            responses.named_value(1, code, |m| m.message(1, |m| write_response(m, value)));
        }
    });
    write_extensions(out, 13, value);
}

fn write_response(out: &mut ProtobufMessageBuilder, value: &Value) {
    out.text(1, value.get("description"));
    if let Some(schema) = value.get("schema") {
        out.message(2, |m| m.message(1, |m| write_schema(m, schema, 0)));
    }
}

fn write_parameter(out: &mut ProtobufMessageBuilder, value: &Value) {
    match value.get("in").and_then(Value::as_str) {
        Some("body") => out.message(1, |m| {
            m.text(1, value.get("description"));
            m.text(2, value.get("name"));
            m.text(3, value.get("in"));
            m.flag(4, value.get("required"));
            if let Some(schema) = value.get("schema") {
                m.message(5, |m| write_schema(m, schema, 0));
            }
        }),
        Some("path") => out.message(2, |m| {
            m.message(4, |m| {
                write_common_parameter_fields(m, value);
                m.text(5, value.get("type"));
                m.flag(19, value.get("uniqueItems"));
            });
        }),
        _ => out.message(2, |m| {
            m.message(3, |m| {
                write_common_parameter_fields(m, value);
                m.text(6, value.get("type"));
                m.flag(20, value.get("uniqueItems"));
            });
        }),
    }
}

/// The fields that path and query parameters share.
fn write_common_parameter_fields(out: &mut ProtobufMessageBuilder, value: &Value) {
    out.flag(1, value.get("required"));
    out.text(2, value.get("in"));
    out.text(3, value.get("description"));
    out.text(4, value.get("name"));
}

fn write_schema(out: &mut ProtobufMessageBuilder, value: &Value, depth: usize) {
    if depth > MAX_SCHEMA_DEPTH {
        return;
    }
    out.text(1, value.get("$ref"));
    out.text(2, value.get("format"));
    out.text(3, value.get("title"));
    out.text(4, value.get("description"));
    out.any(5, value.get("default"));
    out.double(6, value.get("multipleOf"));
    out.double(7, value.get("maximum"));
    out.flag(8, value.get("exclusiveMaximum"));
    out.double(9, value.get("minimum"));
    out.flag(10, value.get("exclusiveMinimum"));
    out.number(11, value.get("maxLength"));
    out.number(12, value.get("minLength"));
    out.text(13, value.get("pattern"));
    out.number(14, value.get("maxItems"));
    out.number(15, value.get("minItems"));
    out.flag(16, value.get("uniqueItems"));
    out.number(17, value.get("maxProperties"));
    out.number(18, value.get("minProperties"));
    out.texts(19, value.get("required"));
    for allowed in items(value.get("enum")) {
        out.any(20, Some(allowed));
    }
    match value.get("additionalProperties") {
        Some(allowed @ Value::Bool(_)) => out.message(21, |m| m.flag(2, Some(allowed))),
        Some(schema) => out.message(21, |m| m.message(1, |m| write_schema(m, schema, depth + 1))),
        None => {}
    }
    if value.get("type").is_some() {
        out.message(22, |m| m.text(1, value.get("type")));
    }
    if let Some(schema) = value.get("items") {
        out.message(23, |m| m.message(1, |m| write_schema(m, schema, depth + 1)));
    }
    if value.get("properties").is_some() {
        out.message(25, |m| {
            for (name, property) in entries(value.get("properties")) {
                m.named_value(1, name, |m| write_schema(m, property, depth + 1));
            }
        });
    }
    write_extensions(out, 31, value);
}

/// Writes the `x-…` keys.
fn write_extensions(out: &mut ProtobufMessageBuilder, number: u32, value: &Value) {
    let map: Option<&Map<String, Value>> = value.as_object();
    for (key, value) in map.into_iter().flatten() {
        if key.starts_with("x-") {
            out.message(number, |m| {
                m.bytes(1, key.as_bytes());
                m.any(2, Some(value));
            });
        }
    }
}

/// A protobuf message under construction.
#[derive(Default)]
struct ProtobufMessageBuilder(Vec<u8>);

impl ProtobufMessageBuilder {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn key(&mut self, number: u32, wire: u32) {
        self.varint(u64::from(number << 3 | wire));
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.key(number, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(number, &inner.0);
    }

    /// Writes a named value: a message of name (1) and value (2).
    fn named_value(&mut self, number: u32, name: &str, write: impl FnOnce(&mut Self)) {
        self.message(number, |pair| {
            pair.bytes(1, name.as_bytes());
            pair.message(2, write);
        });
    }

    fn text(&mut self, number: u32, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str).filter(|t| !t.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u32, value: Option<&Value>) {
        for text in items(value) {
            self.text(number, Some(text));
        }
    }

    fn flag(&mut self, number: u32, value: Option<&Value>) {
        if value == Some(&Value::Bool(true)) {
            self.key(number, 0);
            self.varint(1);
        }
    }

    fn number(&mut self, number: u32, value: Option<&Value>) {
        if let Some(n) = value.and_then(Value::as_u64).filter(|n| *n != 0) {
            self.key(number, 0);
            self.varint(n);
        }
    }

    fn double(&mut self, number: u32, value: Option<&Value>) {
        if let Some(n) = value.and_then(Value::as_f64).filter(|n| *n != 0.0) {
            self.key(number, 1);
            self.0.extend_from_slice(&n.to_le_bytes());
        }
    }

    /// Writes an `Any`, of which only the YAML text is set.
    fn any(&mut self, number: u32, value: Option<&Value>) {
        if let Some(value) = value {
            self.message(number, |m| m.bytes(2, value.to_string().as_bytes()));
        }
    }
}
