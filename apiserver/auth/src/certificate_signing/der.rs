//! Encodes the few DER structures of a certificate (X.690, RFC 5280).
//!
//! The subject and the public key of a request are copied as they are, which keeps repeated
//! attributes and every kind of key.

use std::net::IpAddr;

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const OCTET_STRING: u8 = 0x04;
const INTEGER: u8 = 0x02;
const BOOLEAN: u8 = 0x01;
const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The tag `[n]` around another value.
pub(super) const fn explicit(n: u8) -> u8 {
    0xa0 | n
}
/// The tag `[n]` instead of the tag of a primitive value.
pub(super) const fn implicit(n: u8) -> u8 {
    0x80 | n
}

/// A value with its tag and length.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=0x7f => out.push(short as u8),
        long => {
            let bytes = long.to_be_bytes();
            let from = bytes.iter().take_while(|b| **b == 0).count();
            out.push(0x80 | (bytes.len() - from) as u8);
            out.extend_from_slice(&bytes[from..]);
        }
    }
    out.extend_from_slice(content);
    out
}

pub(super) fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    value(SEQUENCE, &parts.concat())
}

/// A positive integer of any length.
pub(super) fn positive_integer(bytes: &[u8]) -> Vec<u8> {
    let from = bytes.iter().take_while(|b| **b == 0).count();
    let mut content = bytes[from..].to_vec();
    if content.first().is_none_or(|first| first & 0x80 != 0) {
        content.insert(0, 0);
    }
    value(INTEGER, &content)
}

pub(super) fn utf8_string(text: &str) -> Vec<u8> {
    value(UTF8_STRING, text.as_bytes())
}

/// An object identifier, from its encoded content.
pub(super) fn object_identifier(content: &[u8]) -> Vec<u8> {
    value(OBJECT_IDENTIFIER, content)
}

/// A bit string whose last `unused` bits are not part of it.
pub(super) fn bit_string(bytes: &[u8], unused: u8) -> Vec<u8> {
    let mut content = vec![unused];
    content.extend_from_slice(bytes);
    value(BIT_STRING, &content)
}

/// A time of a validity period: UTCTime until 2049, then GeneralizedTime.
pub(super) fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    match at.year() {
        1950..=2049 => value(
            UTC_TIME,
            at.strftime("%y%m%d%H%M%SZ").to_string().as_bytes(),
        ),
        _ => value(
            GENERALIZED_TIME,
            at.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes(),
        ),
    }
}

/// An extension with the encoded value in it.
pub(super) fn extension(id: &[u8], critical: bool, content: &[u8]) -> Vec<u8> {
    let mut parts = vec![object_identifier(id)];
    if critical {
        parts.push(value(BOOLEAN, &[0xff]));
    }
    parts.push(value(OCTET_STRING, content));
    sequence(&parts)
}

/// The octets of an address in a subject alternative name.
pub(super) fn address(ip: &IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_x690_says() {
        assert_eq!(value(4, &[1]), [4, 1, 1]);
        assert_eq!(value(4, &[0; 128])[..3], [4, 0x81, 128]);
        assert_eq!(value(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
        assert_eq!(positive_integer(&[0, 0, 5]), [2, 1, 5]);
        assert_eq!(positive_integer(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(positive_integer(&[0]), [2, 1, 0]);
        assert_eq!(bit_string(&[0xa0], 5), [3, 2, 5, 0xa0]);
        let early: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(time(early)[2..], *b"260102030405Z");
        let late: Timestamp = "2050-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(time(late)[2..], *b"20500102030405Z");
    }
}
