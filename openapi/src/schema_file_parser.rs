//! Parses the schema files `schemas/*.api`, which declare types and kinds in one
//! statement per line, into definitions and kinds. Errors name the file and the line.
//!
//! ```text
//! type io.example.v1.Thing "what it is"
//!   name   string @1 required minLength=1 "what it is called"
//!   parts  []io.example.v1.Part list=map:name patch=merge:name
//!   ...io.example.v1.Base
//! kind example.io/v1 Thing things namespaced type=io.example.v1.Thing status
//!   column Parts integer .status.parts
//! ```

use std::sync::Arc;

use machinery::Gvk;
use machinery::json;
use machinery::names::split_api_version;
use serde_json::Value;

use crate::model::{
    KindInfo, ListType, PrinterColumn, RegexPattern, ScalePaths, SchemaDefinition,
    SchemaDefinitionArena, SchemaField, SchemaNode, SchemaType, ValueValidation,
};

/// The type of `metadata`, which every kind has.
pub(crate) const OBJECT_META_TYPE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Parses all files into one arena. A type may refer to types of any file.
pub(crate) fn parse(
    sources: &[(&str, &str)],
) -> Result<(SchemaDefinitionArena, Vec<Arc<KindInfo>>), String> {
    let mut types: Vec<UnresolvedType<'_>> = Vec::new();
    let mut kinds: Vec<KindInfo> = Vec::new();
    for (file, text) in sources {
        let mut open_statement = OpenStatementKind::None;
        for (number, line) in (1..).zip(text.lines()) {
            parse_statement(line, &mut open_statement, &mut types, &mut kinds)
                .map_err(|e| format!("{file}:{number}: {e}"))?;
        }
    }
    let mut definitions = SchemaDefinitionArena::default();
    for t in &types {
        definitions.add(t.definition.clone())?;
    }
    for index in 0..types.len() {
        resolve_fields(&types, index, &mut definitions)
            .map_err(|e| format!("{}: {e}", types[index].definition.name))?;
    }
    for kind in &kinds {
        add_object_fields(&mut definitions, &kind.definition)
            .map_err(|e| format!("{}: {e}", kind.gvk))?;
    }
    Ok((definitions, kinds.into_iter().map(Arc::new).collect()))
}

/// The kinds that a file declares, without their columns.
pub(crate) fn parse_kind_headers(text: &str) -> impl Iterator<Item = Result<KindInfo, String>> {
    let headers = text.lines().filter_map(|line| line.strip_prefix("kind "));
    headers.map(|header| parse_kind_header(&tokenize(header.trim_start())?))
}

/// A type whose field lines are resolved once all type names are known.
struct UnresolvedType<'t> {
    definition: SchemaDefinition,
    lines: Vec<Vec<SchemaToken<'t>>>,
}

enum OpenStatementKind {
    None,
    Type,
    Kind,
}

fn parse_statement<'t>(
    line: &'t str,
    open_statement: &mut OpenStatementKind,
    types: &mut Vec<UnresolvedType<'t>>,
    kinds: &mut Vec<KindInfo>,
) -> Result<(), String> {
    let trimmed = line.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Ok(());
    }
    let tokens = tokenize(trimmed)?;
    // Fields may be named `type` or `kind`, so only unindented lines start a statement.
    let indented = line.starts_with([' ', '\t']);
    match (indented, tokens[0].text.as_ref(), &open_statement) {
        (false, "type", _) => {
            *open_statement = OpenStatementKind::Type;
            types.push(UnresolvedType {
                definition: parse_type_header(&tokens[1..])?,
                lines: Vec::new(),
            });
        }
        (false, "kind", _) => {
            *open_statement = OpenStatementKind::Kind;
            kinds.push(parse_kind_header(&tokens[1..])?);
        }
        (true, _, OpenStatementKind::Type) => {
            if let Some(last) = types.last_mut() {
                last.lines.push(tokens);
            }
        }
        (true, "column", OpenStatementKind::Kind) => {
            if let Some(last) = kinds.last_mut() {
                last.columns.push(parse_column(&tokens[1..])?);
            }
        }
        (_, other, _) => return Err(format!("unexpected {other:?}")),
    }
    Ok(())
}

/// A word, or a quoted text. `pattern="x"` is one token with an unquoted value.
#[derive(Clone, Debug)]
struct SchemaToken<'t> {
    text: std::borrow::Cow<'t, str>,
    quoted: bool,
}

fn tokenize(line: &str) -> Result<Vec<SchemaToken<'_>>, String> {
    let mut tokens = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let mut end = rest.find([' ', '\t', '"']).unwrap_or(rest.len());
        if !precedes_quoted_value(&rest[..end]) {
            // A quote inside a word, as in a JSON path.
            end = rest.find([' ', '\t']).unwrap_or(rest.len());
        }
        let (word, after) = rest.split_at(end);
        if after.starts_with('"') {
            let deserializer = json::str_deserializer(after).map_err(|e| e.to_string())?;
            let mut stream = deserializer.into_iter::<String>();
            let text = match stream.next() {
                Some(Ok(text)) => text,
                _ => return Err(format!("bad quoted text in {line:?}")),
            };
            rest = &after[stream.byte_offset()..];
            // default="x" keeps its quotes, since a default is JSON.
            let value = match word {
                "default=" => &after[..after.len() - rest.len()],
                _ => &text,
            };
            tokens.push(SchemaToken {
                text: format!("{word}{value}").into(),
                quoted: word.is_empty(),
            });
        } else {
            rest = after;
            tokens.push(SchemaToken {
                text: word.into(),
                quoted: false,
            });
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// Whether a quote after this word begins a quoted value: the word is empty or `key=`.
fn precedes_quoted_value(word: &str) -> bool {
    word.strip_suffix('=')
        .unwrap_or(word)
        .chars()
        .all(|c| c.is_ascii_alphabetic())
        && (word.is_empty() || word.ends_with('='))
}

fn parse_type_header(tokens: &[SchemaToken<'_>]) -> Result<SchemaDefinition, String> {
    let [name, rest @ ..] = tokens else {
        return Err("a type needs a name".into());
    };
    let mut definition = SchemaDefinition {
        name: name.text.as_ref().into(),
        native: true,
        ..SchemaDefinition::default()
    };
    for token in rest {
        match token.text.as_ref() {
            text if token.quoted => definition.description = text.into(),
            "atomic" => definition.atomic = true,
            "preserve" => definition.preserve_unknown = true,
            other => return Err(format!("unknown attribute {other:?}")),
        }
    }
    Ok(definition)
}

/// Adds the fields that the lines of one type declare.
fn resolve_fields(
    types: &[UnresolvedType<'_>],
    index: usize,
    definitions: &mut SchemaDefinitionArena,
) -> Result<(), String> {
    let mut fields = Vec::new();
    collect_fields(types, index, definitions, &mut fields, 0)?;
    let id = definitions
        .id(&types[index].definition.name)
        .ok_or("lost definition")?;
    for field in fields {
        definitions.get_mut(id).push_field(field)?;
    }
    Ok(())
}

fn collect_fields(
    types: &[UnresolvedType<'_>],
    index: usize,
    definitions: &SchemaDefinitionArena,
    fields: &mut Vec<SchemaField>,
    depth: usize,
) -> Result<(), String> {
    if depth > 8 {
        return Err("inlined types form a cycle".into());
    }
    for line in &types[index].lines {
        match line[0].text.strip_prefix("...") {
            Some(name) => {
                let other = types
                    .iter()
                    .position(|t| *t.definition.name == *name)
                    .ok_or_else(|| format!("no type {name}"))?;
                let first = fields.len();
                collect_fields(types, other, definitions, fields, depth + 1)?;
                for field in &mut fields[first..] {
                    field.number = 0;
                }
            }
            None => fields.push(parse_field(line, definitions)?),
        }
    }
    Ok(())
}

fn parse_field(
    tokens: &[SchemaToken<'_>],
    definitions: &SchemaDefinitionArena,
) -> Result<SchemaField, String> {
    let [name, ty, attributes @ ..] = tokens else {
        return Err(format!("a field needs a name and a type: {tokens:?}"));
    };
    let mut field = SchemaField {
        name: name.text.as_ref().into(),
        number: 0,
        required: false,
        description: "".into(),
        node: SchemaNode::from_type(parse_type(&ty.text, definitions)?),
    };
    for token in attributes {
        if token.quoted {
            field.description = token.text.as_ref().into();
        } else {
            parse_field_attribute(&mut field, &token.text)
                .map_err(|e| format!("{}: {e}", name.text))?;
        }
    }
    Ok(field)
}

fn parse_type(text: &str, definitions: &SchemaDefinitionArena) -> Result<SchemaType, String> {
    if let Some(item) = text.strip_prefix("[]") {
        return Ok(SchemaType::Array(Box::new(SchemaNode::from_type(
            parse_type(item, definitions)?,
        ))));
    }
    if let Some(value) = text.strip_prefix("map[").and_then(|t| t.strip_suffix(']')) {
        return Ok(SchemaType::Map(Box::new(SchemaNode::from_type(
            parse_type(value, definitions)?,
        ))));
    }
    Ok(match text {
        "string" => SchemaType::String,
        "int32" => SchemaType::Int32,
        "int64" => SchemaType::Int64,
        "bool" => SchemaType::Bool,
        "number" => SchemaType::Number,
        "bytes" => SchemaType::Bytes,
        "quantity" => SchemaType::Quantity,
        "int-or-string" => SchemaType::IntOrString,
        "time" => SchemaType::Time,
        "micro-time" => SchemaType::MicroTime,
        "duration" => SchemaType::Duration,
        "any" => SchemaType::Any,
        "object" => SchemaType::Object,
        name => SchemaType::Ref(
            definitions
                .id(name)
                .ok_or_else(|| format!("no type {name}"))?,
        ),
    })
}

fn parse_field_attribute(field: &mut SchemaField, text: &str) -> Result<(), String> {
    if let Some(number) = text.strip_prefix('@') {
        field.number = parse_field_number(number).ok_or_else(|| format!("not a number: {text}"))?;
        return Ok(());
    }
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let node = &mut field.node;
    match key {
        "required" => field.required = true,
        "nullable" => node.nullable = true,
        "pointer" => node.pointer = true,
        "format" => node.format = value.into(),
        "default" => {
            let parsed: Value = json::from_str(value).map_err(|e| format!("default: {e}"))?;
            node.default = Some(parsed.into());
        }
        "list" => node.list = parse_list_type(value)?,
        "map" if value == "atomic" => node.atomic_map = true,
        "patch" => {
            for part in value.split(',') {
                parse_patch_strategy(node, part)?;
            }
        }
        _ => parse_validation(node.rules_mut(), key, value)?,
    }
    Ok(())
}

/// Parses `5`, or `2.5`: field 5 of the message in field 2, or `2.3.5`, one message further in.
fn parse_field_number(text: &str) -> Option<u32> {
    let (outer, inner) = text.rsplit_once('.').unwrap_or(("0", text));
    let (first, second) = outer.split_once('.').unwrap_or(("0", outer));
    let (first, second): (u8, u8) = (first.parse().ok()?, second.parse().ok()?);
    let inner: u16 = inner.parse().ok()?;
    Some(u32::from(first) << 24 | u32::from(second) << 16 | u32::from(inner))
}

fn parse_list_type(value: &str) -> Result<ListType, String> {
    match value.split_once(':').unwrap_or((value, "")) {
        ("atomic", "") => Ok(ListType::Atomic),
        ("set", "") => Ok(ListType::Set),
        ("map", keys) if !keys.is_empty() => {
            Ok(ListType::Map(keys.split(',').map(Into::into).collect()))
        }
        _ => Err(format!("unknown list type {value:?}")),
    }
}

fn parse_patch_strategy(node: &mut SchemaNode, part: &str) -> Result<(), String> {
    match part.split_once(':').unwrap_or((part, "")) {
        ("merge", key) => {
            node.patch.merge = true;
            node.patch.merge_key = key.into();
        }
        ("replace", "") => node.patch.replace = true,
        ("retainKeys", "") => node.patch.retain_keys = true,
        _ => return Err(format!("unknown patch strategy {part:?}")),
    }
    Ok(())
}

fn parse_validation(rules: &mut ValueValidation, key: &str, value: &str) -> Result<(), String> {
    let integer = || {
        value
            .parse::<u64>()
            .map_err(|_| format!("not a number: {value}"))
    };
    let decimal = || {
        value
            .parse::<f64>()
            .map_err(|_| format!("not a number: {value}"))
    };
    match key {
        "enum" => rules.enum_values = value.split('|').map(Value::from).collect(),
        "min" => rules.minimum = Some(decimal()?),
        "max" => rules.maximum = Some(decimal()?),
        "minItems" => rules.min_items = Some(integer()?),
        "maxItems" => rules.max_items = Some(integer()?),
        "minLength" => rules.min_length = Some(integer()?),
        "maxLength" => rules.max_length = Some(integer()?),
        "pattern" => rules.pattern = Some(RegexPattern::new(value)),
        _ => return Err(format!("unknown attribute {key:?}")),
    }
    Ok(())
}

fn parse_kind_header(tokens: &[SchemaToken<'_>]) -> Result<KindInfo, String> {
    let [api_version, name, plural, scope, attributes @ ..] = tokens else {
        return Err("a kind needs apiVersion, name, plural and scope".into());
    };
    let (group, _) = split_api_version(&api_version.text);
    let gvk = Gvk::from_api_version(&api_version.text, &name.text);
    let mut kind = KindInfo {
        gvr: machinery::Gvr {
            group: gvk.group.clone(),
            version: gvk.version.clone(),
            resource: plural.text.to_string().into(),
        },
        gvk,
        list_kind: format!("{}List", name.text),
        singular: name.text.to_lowercase(),
        namespaced: match scope.text.as_ref() {
            "namespaced" => true,
            "cluster" => false,
            other => return Err(format!("unknown scope {other:?}")),
        },
        storage_prefix: KindInfo::default_storage_prefix(group, &plural.text),
        ..KindInfo::default()
    };
    for token in attributes {
        parse_kind_attribute(&mut kind, &token.text)?;
    }
    match kind.definition.is_empty() {
        true => Err("a kind needs type=".into()),
        false => Ok(kind),
    }
}

fn parse_kind_attribute(kind: &mut KindInfo, text: &str) -> Result<(), String> {
    let words = |value: &str| value.split(',').map(str::to_owned).collect::<Vec<_>>();
    match text.split_once('=').unwrap_or((text, "")) {
        ("type", name) => kind.definition = name.to_owned(),
        ("short", names) => kind.short_names = words(names),
        ("categories", names) => kind.categories = words(names),
        ("singular", name) => kind.singular = name.to_owned(),
        ("verbs", verbs) => kind.verbs = words(verbs),
        ("deprecated", warning) => kind.deprecation_warning = Some(warning.to_owned()),
        ("key", prefix) => kind.storage_prefix = format!("{}/", prefix.trim_end_matches('/')),
        ("scale", paths) => {
            let [spec, status, rest @ ..] = &words(paths)[..] else {
                return Err("scale= needs two or three paths".into());
            };
            kind.scale = Some(ScalePaths {
                spec: spec.clone(),
                status: status.clone(),
                selector: rest.first().cloned().unwrap_or_default(),
            });
        }
        ("status", "") => kind.status = true,
        ("proto", "") => kind.protobuf = true,
        ("computed", "") => kind.computed = true,
        ("strategic", "") => kind.strategic_merge_patch = true,
        ("unconditional-update", "") => kind.allow_unconditional_update = true,
        ("create-on-update", "") => kind.allow_create_on_update = true,
        ("returns-deleted", "") => kind.returns_deleted_object = true,
        _ => return Err(format!("unknown attribute {text:?}")),
    }
    Ok(())
}

fn parse_column(tokens: &[SchemaToken<'_>]) -> Result<PrinterColumn, String> {
    let [name, ty, path, attributes @ ..] = tokens else {
        return Err("a column needs a name, a type and a path".into());
    };
    let mut column = PrinterColumn::new(&name.text, &ty.text, &path.text)?;
    for token in attributes {
        match token.text.split_once('=') {
            _ if token.quoted => column.description = token.text.to_string(),
            Some(("priority", n)) => {
                column.priority = n.parse().map_err(|_| format!("not a number: {n}"))?;
            }
            Some(("format", format)) => column.format = format.to_owned(),
            _ => return Err(format!("unknown attribute {:?}", token.text)),
        }
    }
    Ok(column)
}

/// Adds the fields that every object has to the type of a kind.
fn add_object_fields(definitions: &mut SchemaDefinitionArena, name: &str) -> Result<(), String> {
    let id = definitions
        .id(name)
        .ok_or_else(|| format!("no type {name}"))?;
    let meta = parse_type(OBJECT_META_TYPE, definitions)?;
    let definition = definitions.get_mut(id);
    for field in object_fields(meta) {
        if definition.field(&field.name).is_none() {
            definition.push_field(field)?;
        }
    }
    Ok(())
}

/// The fields `apiVersion`, `kind` and `metadata`, the latter of type `meta`.
pub(crate) fn object_fields(meta: SchemaType) -> [SchemaField; 3] {
    let field = |name: &str, number, ty, description: &str| SchemaField {
        name: name.into(),
        number,
        required: false,
        description: description.into(),
        node: SchemaNode::from_type(ty),
    };
    [
        field(
            "apiVersion",
            0,
            SchemaType::String,
            "Group and version of the schema that this representation follows.",
        ),
        field(
            "kind",
            0,
            SchemaType::String,
            "Name of the type of this object, in CamelCase.",
        ),
        field("metadata", 1, meta, "Standard metadata of the object."),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str =
        "type io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta \"m\"\n  name string @1\n";

    #[test]
    fn statements_become_definitions_and_kinds() {
        let text = r#"
# a comment
type a.Base
  base string @7 "from below"
type a.Thing atomic "a thing"
  name string @1 required minLength=1 pattern="^a b$" default="x y" "called"
  kind string enum=A|B
  parts []a.Thing @2 list=map:x,y patch=merge:x,retainKeys minItems=1
  sizes map[quantity] map=atomic
  n int32 default=3 min=1 max=5 nullable
  ...a.Base
kind g/v1 Thing things namespaced type=a.Thing short=t,th categories=all status scale=.spec.r,.status.r proto
  column "Two Words" integer .spec.n[?(@.a=="b")] priority=1 "about it"
kind v1 Base bases cluster type=a.Base verbs=get,list key=/registry/other
"#;
        let (definitions, kinds) = parse(&[("meta", META), ("test", text)]).unwrap();
        let thing_definition = definitions.get(definitions.id("a.Thing").unwrap());
        let names: Vec<_> = thing_definition.fields.iter().map(|f| &*f.name).collect();
        assert_eq!(
            names,
            [
                "name",
                "kind",
                "parts",
                "sizes",
                "n",
                "base",
                "apiVersion",
                "metadata"
            ]
        );
        assert!(thing_definition.atomic && thing_definition.native);
        let name = thing_definition.field("name").unwrap();
        assert_eq!(
            (name.number, name.required, &*name.description),
            (1, true, "called")
        );
        assert_eq!(name.node.default.as_deref(), Some(&"x y".into()));
        let rules = name.node.validation.as_ref().unwrap();
        assert_eq!(&*rules.pattern.as_ref().unwrap().source, "^a b$");
        let parts = &thing_definition.field("parts").unwrap().node;
        assert_eq!(parts.list, ListType::Map(["x".into(), "y".into()].into()));
        assert!(parts.patch.merge && parts.patch.retain_keys && &*parts.patch.merge_key == "x");
        assert_eq!(thing_definition.field("base").unwrap().number, 0);
        assert_eq!(&*thing_definition.field_by_number(2).unwrap().name, "parts");
        let [first, second] = &kinds[..] else {
            panic!("two kinds")
        };
        assert_eq!(first.columns[0].name, "Two Words");
        assert_eq!(first.storage_prefix, "/registry/g/things/");
        assert_eq!(first.list_kind, "ThingList");
        assert_eq!(first.scale.as_ref().unwrap().selector, "");
        assert_eq!(second.storage_prefix, "/registry/other/");
        assert_eq!(second.verbs, ["get", "list"]);
    }

    #[test]
    fn mistakes_are_named() {
        let table = [
            ("type a.A\n  x a.Unknown\n", "a.A: no type a.Unknown"),
            (
                "type a.A\n  x string what=1\n",
                "a.A: x: unknown attribute \"what\"",
            ),
            ("type a.A\ntype a.A\n", "a.A is defined twice"),
            (
                "type a.A\n  x string\n  x string\n",
                "a.A: field x is declared twice",
            ),
            (
                "kind v1 A as here type=a.A\n",
                "test:1: unknown scope \"here\"",
            ),
            ("type a.A\n  ...a.A\n", "a.A: inlined types form a cycle"),
            ("column x\n", "test:1: unexpected \"column\""),
            (
                "type a.A \"open\n",
                "test:1: bad quoted text in \"type a.A \\\"open\"",
            ),
        ];
        for (text, error) in table {
            assert_eq!(parse(&[("test", text)]).unwrap_err(), error);
        }
    }
}
