//! Named formats of strings (`k8s.io/apiserver/pkg/cel/library/format.go`).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use machinery::names::{
    validate_dns1035_label, validate_dns1123_label, validate_dns1123_subdomain,
    validate_label_value, validate_qualified_name,
};

use crate::error::EvalError;
use crate::library::time;
use crate::library::url::Url;
use crate::meter::Meter;
use crate::overloads::Declared;
use crate::value::{Opaque, Result, Value};

pub(super) const OVERLOADS: &[Declared] = &[
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

/// A format, by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedFormat {
    name: &'static str,
    /// The length of the pattern that the cost of a validation is computed from.
    pub(crate) pattern_length: u64,
    errors: fn(&str) -> Option<String>,
}

impl PartialEq for NamedFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A generated name may end with a dash: a suffix follows.
fn prefix(text: &str, validate: fn(&str) -> std::result::Result<(), String>) -> Option<String> {
    let completed = text.strip_suffix('-').map(|stem| format!("{stem}a"));
    validate(completed.as_deref().unwrap_or(text)).err()
}

fn is_uuid(text: &str) -> bool {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit())
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

const FORMATS: [NamedFormat; 13] = [
    NamedFormat::new("dns1123Label", 30, |s| validate_dns1123_label(s).err()),
    NamedFormat::new("dns1123Subdomain", 60, |s| {
        validate_dns1123_subdomain(s).err()
    }),
    NamedFormat::new("dns1035Label", 30, |s| validate_dns1035_label(s).err()),
    NamedFormat::new("qualifiedName", 60, |s| validate_qualified_name(s).err()),
    NamedFormat::new("dns1123LabelPrefix", 30, |s| {
        prefix(s, validate_dns1123_label)
    }),
    NamedFormat::new("dns1123SubdomainPrefix", 60, |s| {
        prefix(s, validate_dns1123_subdomain)
    }),
    NamedFormat::new("dns1035LabelPrefix", 30, |s| {
        prefix(s, validate_dns1035_label)
    }),
    NamedFormat::new("labelValue", 40, |s| validate_label_value(s).err()),
    NamedFormat::new("uri", 1103, |s| Url::parse(s).err()),
    NamedFormat::new("uuid", 101, |s| {
        (!is_uuid(s)).then(|| "does not match the UUID format".to_owned())
    }),
    NamedFormat::new("byte", 84, |s| {
        let invalid = BASE64_STANDARD.decode(s).is_err();
        invalid.then(|| "invalid base64".to_owned())
    }),
    NamedFormat::new("date", 95, |s| {
        (!is_date(s)).then(|| "invalid date".to_owned())
    }),
    NamedFormat::new("datetime", 95, |s| {
        let invalid = time::parse_timestamp(s).is_none();
        invalid.then(|| "invalid datetime".to_owned())
    }),
];

impl NamedFormat {
    const fn new(
        name: &'static str,
        pattern_length: u64,
        errors: fn(&str) -> Option<String>,
    ) -> Self {
        Self {
            name,
            pattern_length,
            errors,
        }
    }

    fn by_name(name: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }
}

fn validate<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    let [Value::Opaque(opaque), Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let Opaque::Format(format) = &**opaque else {
        return Err(EvalError::NoSuchOverload);
    };
    let error = (format.errors)(text.as_str());
    Ok(Value::optional(
        error.map(|why| Value::list(vec![Value::string(why)])),
    ))
}

fn named<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    let [Value::String(name)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let format = NamedFormat::by_name(name.as_str());
    Ok(Value::optional(
        format.map(|f| Value::opaque(Opaque::Format(f))),
    ))
}

fn constant<'a>(name: &str) -> Result<'a> {
    let format = NamedFormat::by_name(name).ok_or(EvalError::NoSuchOverload)?;
    Ok(Value::opaque(Opaque::Format(format)))
}

macro_rules! constants {
    ($($function:ident $name:literal),*) => {
        $(fn $function<'a>(_: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
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
