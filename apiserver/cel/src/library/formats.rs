//! Named formats of strings (`k8s.io/apiserver/pkg/cel/library/format.go`).

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::named_format::NamedFormat;
use crate::value::{EvaluationResult, Opaque, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    (
        "format-validate",
        "<kubernetes.NamedFormat>.validate(string) optional(list(string))",
        validate,
    ),
    (
        "format-named",
        "format.named(string) optional(kubernetes.NamedFormat)",
        named,
    ),
    (
        "format.dns1123Label",
        "format.dns1123Label() kubernetes.NamedFormat",
        dns1123_label,
    ),
    (
        "format.dns1123Subdomain",
        "format.dns1123Subdomain() kubernetes.NamedFormat",
        dns1123_subdomain,
    ),
    (
        "format.dns1035Label",
        "format.dns1035Label() kubernetes.NamedFormat",
        dns1035_label,
    ),
    (
        "format.qualifiedName",
        "format.qualifiedName() kubernetes.NamedFormat",
        qualified_name,
    ),
    (
        "format.dns1123LabelPrefix",
        "format.dns1123LabelPrefix() kubernetes.NamedFormat",
        dns1123_label_prefix,
    ),
    (
        "format.dns1123SubdomainPrefix",
        "format.dns1123SubdomainPrefix() kubernetes.NamedFormat",
        dns1123_subdomain_prefix,
    ),
    (
        "format.dns1035LabelPrefix",
        "format.dns1035LabelPrefix() kubernetes.NamedFormat",
        dns1035_label_prefix,
    ),
    (
        "format.labelValue",
        "format.labelValue() kubernetes.NamedFormat",
        label_value,
    ),
    ("format.uri", "format.uri() kubernetes.NamedFormat", uri),
    ("format.uuid", "format.uuid() kubernetes.NamedFormat", uuid),
    ("format.byte", "format.byte() kubernetes.NamedFormat", byte),
    ("format.date", "format.date() kubernetes.NamedFormat", date),
    (
        "format.datetime",
        "format.datetime() kubernetes.NamedFormat",
        datetime,
    ),
];

fn validate<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::Opaque(opaque), Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let Opaque::Format(format) = &**opaque else {
        return Err(EvalError::NoSuchOverload);
    };
    let error = (format.errors)(text.as_str());
    Ok(Value::optional(
        error.map(|message| Value::list(vec![Value::string(message)])),
    ))
}

fn named<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::String(name)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let format = NamedFormat::by_name(name.as_str());
    Ok(Value::optional(
        format.map(|f| Value::opaque(Opaque::Format(f))),
    ))
}

fn constant<'a>(name: &str) -> EvaluationResult<'a> {
    let format = NamedFormat::by_name(name).ok_or(EvalError::NoSuchOverload)?;
    Ok(Value::opaque(Opaque::Format(format)))
}

macro_rules! constants {
    ($($function:ident $name:literal),*) => {
        $(fn $function<'a>(_: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
            constant($name)
        })*
    };
}

constants! {
    dns1123_label "dns1123Label",
    dns1123_subdomain "dns1123Subdomain",
    dns1035_label "dns1035Label",
    qualified_name "qualifiedName",
    dns1123_label_prefix "dns1123LabelPrefix",
    dns1123_subdomain_prefix "dns1123SubdomainPrefix",
    dns1035_label_prefix "dns1035LabelPrefix",
    label_value "labelValue",
    uri "uri",
    uuid "uuid",
    byte "byte",
    date "date",
    datetime "datetime"
}
