//! The string formats of OpenAPI that `kube-openapi/pkg/validation/strfmt` validates.
//! Unknown formats accept every text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use machinery::duration;

/// `apiextensions-apiserver/pkg/apiserver/validation/formats.go`.
const KNOWN_FORMATS: [&str; 24] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Whether the format is one of strings that apiextensions-apiserver knows. Dashes do not count.
pub(super) fn is_known(format: &str) -> bool {
    let normalized = format.replace('-', "");
    KNOWN_FORMATS.contains(&&*normalized)
}

/// Whether the text has the format.
pub(super) fn matches_format(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => machinery::time::parse(text).is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
        "byte" => !text.is_empty() && BASE64_STANDARD.decode(text).is_ok(),
        "duration" => duration::is_duration(text) || is_duration_in_words(text),
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "hexcolor" => is_hex_color(text),
        "rgbcolor" => is_rgb_color(text),
        "creditcard" => is_credit_card(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "ssn" => is_social_security_number(text),
        "k8s-short-name" => is_short_name(text) && text.len() <= 63,
        "k8s-long-name" => text.split('.').all(is_short_name) && text.len() <= 253,
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some(b'3')),
        "uuid4" => is_uuid(text, Some(b'4')),
        "uuid5" => is_uuid(text, Some(b'5')),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uri" => {
            text.split_once(':')
                .is_some_and(|(scheme, _)| is_scheme(scheme))
                || text.starts_with('/')
        }
        "email" => text
            .split_once('@')
            .is_some_and(|(a, b)| !a.is_empty() && !b.is_empty()),
        "hostname" => is_hostname(text),
        _ => true,
    }
}

/// The offset at which Go's decoder fails in base64 text. Line breaks are not counted.
pub(super) fn base64_error_offset(text: &str) -> Option<usize> {
    match decode_base64(text) {
        Ok(_) => None,
        Err(base64::DecodeError::InvalidByte(at, _)) => Some(at),
        Err(_) if text.ends_with('=') => Some(text.len()),
        Err(_) => Some(text.len() - text.len() % 4),
    }
}

/// Base64 text as Go's encoder writes it.
pub(crate) fn canonical_base64(text: &str) -> Option<String> {
    let decoded = decode_base64(text).ok()?;
    Some(BASE64_STANDARD.encode(decoded))
}

/// Decodes as Go does: line breaks, and bits behind the last byte, do not count.
fn decode_base64(text: &str) -> Result<Vec<u8>, base64::DecodeError> {
    let config = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let engine = GeneralPurpose::new(&alphabet::STANDARD, config);
    let lines: String = text.split(['\r', '\n']).collect();
    engine.decode(lines)
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    digits.len() == 32
        && digits.iter().all(u8::is_ascii_hexdigit)
        && version.is_none_or(|v| digits[12] == v)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let max = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|n| n <= max)
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts
            .iter()
            .all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// A name alone has at most one hyphen, behind its first character; the last label of several
/// has two letters or more.
fn is_hostname(text: &str) -> bool {
    if text.len() > 255 || text.split('.').any(|label| label.len() > 63) {
        return false;
    }
    let Some((labels, last)) = text.rsplit_once('.') else {
        let mut characters = text.chars();
        let begins = characters.next().is_some_and(char::is_alphanumeric);
        let rest = characters.as_str();
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        return begins && rest.chars().all(char::is_alphanumeric);
    };
    let is_label = |label: &str| {
        label.starts_with(char::is_alphanumeric)
            && label.ends_with(char::is_alphanumeric)
            && label.chars().all(|c| c == '-' || c.is_alphanumeric())
    };
    labels.split('.').all(is_label)
        && last.chars().count() >= 2
        && last.chars().all(char::is_alphabetic)
}

/// Numbers with units, `1 day`, anywhere in the text.
fn is_duration_in_words(text: &str) -> bool {
    const UNITS: [&str; 11] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    const PREFIXES: [&str; 8] = [
        "nano", "micro", "milli", "sec", "min", "hour", "day", "week",
    ];
    let mut rest = text;
    while let Some(index) = rest.find(|c: char| c.is_ascii_digit()) {
        let unit = rest[index..].trim_start_matches(|c: char| c.is_ascii_digit());
        let unit = unit.trim_start();
        let end = unit.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ'));
        let (unit, after) = unit.split_at(end.unwrap_or(unit.len()));
        let unit = unit.to_lowercase();
        if UNITS.contains(&&*unit) || PREFIXES.iter().any(|p| unit.starts_with(p)) {
            return true;
        }
        rest = after;
    }
    false
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `rgb(0, 128, 255)`
fn is_rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|t| t.strip_suffix(')'));
    let is_level = |level: &str| {
        let level = level.trim_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let is_plain = level == "0" || !level.starts_with(['0', '+']);
        is_plain && level.parse::<u8>().is_ok()
    };
    inner.is_some_and(|inner| inner.split(',').count() == 3 && inner.split(',').all(is_level))
}

fn digits_of(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

/// A number of a known issuer with Luhn's checksum; other characters do not matter.
fn is_credit_card(text: &str) -> bool {
    let digits = digits_of(text);
    let begin = |count: usize| {
        let begin = digits.iter().take(count);
        begin.fold(0, |number, digit| number * 10 + digit)
    };
    let is_issued = match digits.len() {
        13 => begin(1) == 4,
        14 => matches!(begin(3), 300..=305) || matches!(begin(2), 36 | 38),
        15 => matches!(begin(2), 34 | 37) || matches!(begin(4), 2131 | 1800),
        16 => begin(1) == 4 || matches!(begin(2), 51..=55 | 35 | 65) || begin(4) == 6011,
        _ => false,
    };
    let doubled = |(i, digit): (usize, &u32)| match i % 2 {
        0 => *digit,
        _ => digit * 2 / 10 + digit * 2 % 10,
    };
    is_issued && digits.iter().rev().enumerate().map(doubled).sum::<u32>() % 10 == 0
}

/// A book number without spaces and hyphens.
fn isbn_characters(text: &str) -> Vec<char> {
    let characters = text
        .chars()
        .filter(|c| *c != '-' && !c.is_ascii_whitespace());
    characters.collect()
}

fn is_isbn10(text: &str) -> bool {
    let characters = isbn_characters(text);
    let mut sum = 0;
    for (i, c) in (1..).zip(&characters) {
        let digit = match c {
            'X' if i == 10 => 10,
            c => match c.to_digit(10) {
                Some(digit) => digit,
                None => return false,
            },
        };
        sum += i * digit;
    }
    characters.len() == 10 && sum % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let characters = isbn_characters(text);
    let digits = characters.iter().filter_map(|c| c.to_digit(10));
    let digits: Vec<u32> = digits.collect();
    let weighted = |(i, digit): (usize, &u32)| digit * if i % 2 == 0 { 1 } else { 3 };
    let sum: u32 = digits.iter().enumerate().map(weighted).sum();
    characters.len() == 13 && digits.len() == 13 && sum.is_multiple_of(10)
}

/// Three, two and four digits, with at most one hyphen or space between the groups.
fn is_social_security_number(text: &str) -> bool {
    let mut rest = text;
    for (i, count) in [3, 2, 4].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix(['-', ' ']).unwrap_or(rest);
        }
        let Some(group) = rest
            .get(..count)
            .filter(|g| g.bytes().all(|b| b.is_ascii_digit()))
        else {
            return false;
        };
        rest = &rest[group.len()..];
    }
    rest.is_empty()
}

fn is_short_name(text: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_validated() {
        let table = [
            ("date-time", "2026-01-02T03:04:05Z", true),
            ("date-time", "2026-01-02", false),
            ("date", "2026-01-02", true),
            ("byte", "YQ==", true),
            ("byte", "*", false),
            ("duration", "1h30m", true),
            ("duration", "1.5s", true),
            ("duration", "5", false),
            ("duration", "", false),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", true),
            ("uuid4", "123e4567-e89b-12d3-a456-426614174000", false),
            ("cidr", "10.0.0.0/8", true),
            ("cidr", "10.0.0.0/33", false),
            ("ipv4", "10.0.0.1", true),
            ("ipv6", "10.0.0.1", false),
            ("mac", "01:23:45:67:89:ab", true),
            ("uri", "https://a/b", true),
            ("uri", "a b", false),
            ("hostname", "a-b.example", true),
            ("hostname", "a-b.c", false),
            ("hostname", "a", true),
            ("hostname", "-a", false),
            ("byte", "", false),
            ("duration", "1 day", true),
            ("duration", "2 weeks", true),
            ("duration", "1 moon", false),
            ("duration", "1 x", false),
            ("hexcolor", "#fff", true),
            ("hexcolor", "red", false),
            ("rgbcolor", "rgb(0, 128,255)", true),
            ("rgbcolor", "rgb(1,2)", false),
            ("rgbcolor", "rgb(1,2,256)", false),
            ("rgbcolor", "rgb(01,2,3)", false),
            ("creditcard", "4111-1111-1111-1111", true),
            ("creditcard", "4111111111111112", false),
            ("creditcard", "1", false),
            ("isbn", "0321751043", true),
            ("isbn", "978-0321751041", true),
            ("isbn10", "080442957X", true),
            ("isbn13", "0321751043", false),
            ("isbn", "x", false),
            ("ssn", "111-22-3333", true),
            ("ssn", "11-22-3333", false),
            ("bsonobjectid", "507f1f77bcf86cd799439011", true),
            ("bsonobjectid", "x", false),
            ("k8s-short-name", "a-b", true),
            ("k8s-short-name", "A.b", false),
            ("k8s-long-name", "a.b", true),
            ("k8s-long-name", "A_b", false),
            ("whatever", "x", true),
        ];
        for (format, text, expect) in table {
            assert_eq!(matches_format(format, text), expect, "{format} {text:?}");
        }
    }
}
