//! The named formats of strings, and what they require.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use machinery::names::{
    validate_dns1035_label, validate_dns1123_label, validate_dns1123_subdomain,
    validate_label_value, validate_qualified_name,
};

use crate::time_text;
use crate::url_value::Url;

/// A format, by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedFormat {
    name: &'static str,
    /// The length of the pattern that the cost of a validation is computed from.
    pub(crate) pattern_length: u64,
    pub(crate) errors: fn(&str) -> Option<String>,
}

impl PartialEq for NamedFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A generated name may end with a dash: a suffix follows.
fn prefix(text: &str, validate: fn(&str) -> Result<(), String>) -> Option<String> {
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
        let invalid = time_text::parse_timestamp(s).is_none();
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

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        FORMATS.into_iter().find(|format| format.name == name)
    }
}
