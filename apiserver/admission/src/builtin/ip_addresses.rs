//! IP addresses and CIDRs of fields that are older than Kubernetes' strict rules for them
//! (`apimachinery/pkg/util/validation/ip.go`): validates them, and warns of odd forms.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use machinery::FieldError;
use serde_json::Value;

const INVALID_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const INVALID_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Parses an address as Go's parser once did: numbers of an IPv4 address may begin with zeros.
pub(super) fn parse_sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (head, dotted) = match text.rfind(':') {
        Some(colon) => text.split_at(colon + 1),
        None => ("", text),
    };
    let octets: Vec<&str> = dotted.split('.').collect();
    let is_number = |octet: &&str| !octet.is_empty() && octet.bytes().all(|b| b.is_ascii_digit());
    if octets.len() != 4 || !octets.iter().all(is_number) {
        return None;
    }
    let stripped: Vec<&str> = octets
        .iter()
        .map(|octet| match octet.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        })
        .collect();
    format!("{head}{}", stripped.join(".")).parse().ok()
}

/// Prints an address as Go's `net.IP` does: an IPv4 address in IPv6 form is printed as IPv4.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn is_mapped(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// The family of an address, as `ipFamilies` names it.
pub(super) fn family(address: &IpAddr) -> &'static str {
    match plain(*address) {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

/// Validates an address; one that the old object has may stay as it is.
pub(super) fn validate_address(
    field: &str,
    value: &str,
    old: &[Value],
    errors: &mut Vec<FieldError>,
) -> Option<IpAddr> {
    let parsed = parse_sloppy(value);
    let detail = match parsed {
        _ if old.iter().any(|old| old == value) => return parsed,
        None => INVALID_ADDRESS,
        Some(_) if value.parse::<IpAddr>().is_err() => "must not have leading 0s",
        Some(address) if is_mapped(&address) => "must not be an IPv4-mapped IPv6 address",
        Some(_) => return parsed,
    };
    errors.push(FieldError::invalid(field, &value.into(), detail));
    None
}

/// Refuses addresses that reach only the host itself or its link.
pub(super) fn validate_non_special(field: &str, address: IpAddr, errors: &mut Vec<FieldError>) {
    let address = plain(address);
    let (is_link_local, is_link_local_multicast) = match address {
        IpAddr::V4(v4) => (
            v4.is_link_local(),
            v4.octets()[..3] == Ipv4Addr::new(224, 0, 0, 0).octets()[..3],
        ),
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    let detail = if address.is_unspecified() {
        format!("may not be unspecified ({address})")
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()
    } else if is_link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()
    } else if is_link_local_multicast {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()
    } else {
        return;
    };
    errors.push(FieldError::invalid(
        field,
        &address.to_string().into(),
        detail,
    ));
}

/// A network: the address as it is written, and the length of its prefix.
#[derive(Clone, Copy)]
struct Cidr {
    address: IpAddr,
    prefix: u32,
}

impl Cidr {
    /// Parses sloppily: zeros may precede any number.
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address = parse_sloppy(address)?;
        if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let prefix = prefix.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some(Self { address, prefix })
    }

    /// The first address of the network.
    fn network(self) -> IpAddr {
        let cleared = |bits: u32| bits - self.prefix;
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(cleared(32)).unwrap_or(0);
                Ipv4Addr::from_bits(v4.to_bits() & mask).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(cleared(128)).unwrap_or(0);
                Ipv6Addr::from_bits(v6.to_bits() & mask).into()
            }
        }
    }

    fn is_strict(self, text: &str) -> bool {
        let (address, prefix) = text.split_once('/').unwrap_or_default();
        address.parse::<IpAddr>().is_ok() && prefix == self.prefix.to_string()
    }
}

/// Validates a network; one that the old object has may stay as it is.
pub(super) fn validate_cidr(
    field: &str,
    value: &str,
    old: &[Value],
    errors: &mut Vec<FieldError>,
) -> bool {
    let detail = match Cidr::parse(value) {
        _ if old.iter().any(|old| old == value) => return true,
        None => INVALID_CIDR,
        Some(cidr) if !cidr.is_strict(value) => "must not have leading 0s in IP or prefix length",
        Some(cidr) if is_mapped(&cidr.address) => "must not have an IPv4-mapped IPv6 address",
        Some(cidr) if cidr.network() != cidr.address => {
            "must not have bits set beyond the prefix length"
        }
        Some(_) => return true,
    };
    errors.push(FieldError::invalid(field, &value.into(), detail));
    false
}

/// Whether a network contains another, and is not the same.
pub(super) fn contains(outer: &str, inner: &str) -> bool {
    let (Some(outer), Some(inner)) = (Cidr::parse(outer), Cidr::parse(inner)) else {
        return false;
    };
    let network_of_inner = Cidr {
        prefix: outer.prefix,
        ..inner
    };
    outer.address.is_ipv4() == inner.address.is_ipv4()
        && inner.prefix > outer.prefix
        && network_of_inner.network() == outer.network()
}

/// Warns of an address that is not written as it should be.
pub(super) fn address_warning(field: &str, value: &str) -> Option<String> {
    let address = parse_sloppy(value)?;
    if value.parse::<IpAddr>().is_err() || is_mapped(&address) {
        let standard = plain(address);
        return Some(format!(
            "{field}: non-standard IP address {value:?} is invalid: use \"{standard}\""
        ));
    }
    let standard = address.to_string();
    (address.is_ipv6() && standard != value).then(|| {
        format!(
            "{field}: IPv6 address {value:?} should be in RFC 5952 canonical format ({standard:?})"
        )
    })
}

/// Warns of a network that is not written as it should be.
pub(super) fn cidr_warnings(field: &str, value: &str) -> Vec<String> {
    let Some(cidr) = Cidr::parse(value) else {
        return Vec::new();
    };
    let (network, prefix) = (cidr.network(), cidr.prefix);
    let mut warnings = Vec::new();
    if network != cidr.address {
        let (single, bits) = match plain(cidr.address) {
            IpAddr::V4(v4) => (IpAddr::V4(v4), 32),
            v6 => (v6, 128),
        };
        warnings.push(format!(
            "{field}: CIDR value {value:?} is ambiguous in this context \
             (should be \"{network}/{prefix}\" or \"{single}/{bits}\"?)"
        ));
    }
    if !cidr.is_strict(value) || is_mapped(&cidr.address) {
        warnings.push(format!(
            "{field}: non-standard CIDR value {value:?} is invalid: use \"{network}/{prefix}\""
        ));
    }
    let standard = format!("{}/{prefix}", cidr.address);
    if warnings.is_empty() && cidr.address.is_ipv6() && standard != value {
        warnings.push(format!(
            "{field}: IPv6 CIDR value {value:?} should be in RFC 5952 canonical format ({standard:?})"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_strict_unless_the_old_object_has_them() {
        for (value, old, detail) in [
            ("10.1.1.1", json!([]), None),
            ("2001:DB8::1", json!([]), None),
            ("010.1.1.1", json!([]), Some("must not have leading 0s")),
            ("010.1.1.1", json!(["010.1.1.1"]), None),
            (
                "::ffff:1.2.3.4",
                json!([]),
                Some("must not be an IPv4-mapped IPv6 address"),
            ),
            (
                "::ffff:01.2.3.4",
                json!([]),
                Some("must not have leading 0s"),
            ),
            ("1.2.3", json!([]), Some(INVALID_ADDRESS)),
            ("1.2.3.256", json!([]), Some(INVALID_ADDRESS)),
            ("", json!([]), Some(INVALID_ADDRESS)),
        ] {
            let mut errors = Vec::new();
            validate_address("f", value, old.as_array().unwrap(), &mut errors);
            let expected = detail.map(|detail| format!("f: Invalid value: {value:?}: {detail}"));
            let actual = errors.first().map(ToString::to_string);
            assert_eq!(actual, expected, "{value}");
        }
    }

    #[test]
    fn networks_are_strict() {
        for (value, detail) in [
            ("10.0.0.0/8", None),
            ("::/0", None),
            ("0.0.0.0/0", None),
            (
                "10.0.0.1/8",
                Some("must not have bits set beyond the prefix length"),
            ),
            (
                "10.0.0.0/08",
                Some("must not have leading 0s in IP or prefix length"),
            ),
            ("10.0.0.0/33", Some(INVALID_CIDR)),
            ("10.0.0.0", Some(INVALID_CIDR)),
        ] {
            let mut errors = Vec::new();
            assert_eq!(
                validate_cidr("f", value, &[], &mut errors),
                detail.is_none()
            );
            let expected = detail.map(|detail| format!("f: Invalid value: {value:?}: {detail}"));
            assert_eq!(errors.first().map(ToString::to_string), expected, "{value}");
        }
        assert!(contains("10.0.0.0/8", "10.1.0.0/16"));
        assert!(!contains("10.0.0.0/8", "10.0.0.0/8"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0/16"));
    }

    #[test]
    fn odd_forms_are_warned_of() {
        for (value, warning) in [
            ("1.2.3.4", None),
            ("::1", None),
            (
                "01.2.3.4",
                Some(r#"f: non-standard IP address "01.2.3.4" is invalid: use "1.2.3.4""#),
            ),
            (
                "0::1",
                Some(r#"f: IPv6 address "0::1" should be in RFC 5952 canonical format ("::1")"#),
            ),
        ] {
            assert_eq!(address_warning("f", value).as_deref(), warning);
        }
        assert_eq!(
            cidr_warnings("f", "10.0.0.1/8"),
            [
                r#"f: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#
            ]
        );
        assert_eq!(
            cidr_warnings("f", "010.0.0.0/8"),
            [r#"f: non-standard CIDR value "010.0.0.0/8" is invalid: use "10.0.0.0/8""#]
        );
    }
}
