//! IP addresses and networks (`k8s.io/apiserver/pkg/cel/library/ip.go`, `cidr.go`).

use std::net::{IpAddr, Ipv6Addr};

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::value::{EvaluationResult, Opaque, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
    ("string_to_ip", "ip(string) net.IP", to_ip),
    ("is_ip", "isIP(string) bool", is_ip),
    (
        "ip_is_canonical",
        "ip.isCanonical(string) bool",
        is_canonical,
    ),
    ("ip_family", "<net.IP>.family() int", family),
    (
        "ip_is_unspecified",
        "<net.IP>.isUnspecified() bool",
        is_unspecified,
    ),
    ("ip_is_loopback", "<net.IP>.isLoopback() bool", is_loopback),
    (
        "ip_is_link_local_multicast",
        "<net.IP>.isLinkLocalMulticast() bool",
        is_link_local_multicast,
    ),
    (
        "ip_is_link_local_unicast",
        "<net.IP>.isLinkLocalUnicast() bool",
        is_link_local_unicast,
    ),
    (
        "ip_is_global_unicast",
        "<net.IP>.isGlobalUnicast() bool",
        is_global_unicast,
    ),
    ("string_to_cidr", "cidr(string) net.CIDR", to_cidr),
    ("is_cidr", "isCIDR(string) bool", is_cidr),
    (
        "cidr_contains_ip_string",
        "<net.CIDR>.containsIP(string) bool",
        contains_ip,
    ),
    (
        "cidr_contains_ip_ip",
        "<net.CIDR>.containsIP(net.IP) bool",
        contains_ip,
    ),
    (
        "cidr_contains_cidr_string",
        "<net.CIDR>.containsCIDR(string) bool",
        contains_cidr,
    ),
    (
        "cidr_contains_cidr",
        "<net.CIDR>.containsCIDR(net.CIDR) bool",
        contains_cidr,
    ),
    ("cidr_ip", "<net.CIDR>.ip() net.IP", cidr_ip),
    (
        "cidr_prefix_length",
        "<net.CIDR>.prefixLength() int",
        prefix_length,
    ),
    ("cidr_masked", "<net.CIDR>.masked() net.CIDR", masked),
];

type Parsed<T> = Result<T, EvalError>;

fn parse_ip(text: &str) -> Parsed<IpAddr> {
    if text.contains('%') {
        let message = format!("IP address {text:?} with zone value is not allowed");
        return Err(EvalError::new(message));
    }
    let address: IpAddr = text.parse().map_err(|_| {
        let message = format!(
            "IP Address {text:?} parse error during conversion from string: ParseAddr({text:?}): unable to parse IP"
        );
        EvalError::new(message)
    })?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(mapped(text)),
        other => Ok(other),
    }
}

fn mapped(text: &str) -> EvalError {
    EvalError::new(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
}

fn parse_cidr(text: &str) -> Parsed<(IpAddr, u8)> {
    let invalid = || {
        let message = format!(
            "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix({text:?}): unable to parse"
        );
        EvalError::new(message)
    };
    let (address, bits) = text.rsplit_once('/').ok_or_else(invalid)?;
    let address: IpAddr = address.parse().map_err(|_| invalid())?;
    if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(mapped(text));
    }
    let is_decimal =
        bits == "0" || !bits.starts_with('0') && bits.bytes().all(|b| b.is_ascii_digit());
    let bits = bits
        .parse()
        .ok()
        .filter(|bits| is_decimal && *bits <= width(&address));
    Ok((address, bits.ok_or_else(invalid)?))
}

fn width(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with all bits after the prefix cleared.
fn mask(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::from((u32::from(v4) & mask).to_be_bytes())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
        }
    }
}

fn ip_of(value: &Value<'_>) -> Parsed<IpAddr> {
    match value {
        Value::String(text) => parse_ip(text.as_str()),
        Value::Opaque(opaque) => match **opaque {
            Opaque::Ip(address) => Ok(address),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn cidr_of(value: &Value<'_>) -> Parsed<(IpAddr, u8)> {
    match value {
        Value::String(text) => parse_cidr(text.as_str()),
        Value::Opaque(opaque) => match **opaque {
            Opaque::Cidr(address, bits) => Ok((address, bits)),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn first<'v, 'a>(arguments: &'v [Value<'a>]) -> Parsed<&'v Value<'a>> {
    arguments.first().ok_or(EvalError::NoSuchOverload)
}

fn to_ip<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let address = ip_of(first(arguments)?)?;
    Ok(Value::opaque(Opaque::Ip(address)))
}

fn is_ip<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::Bool(ip_of(first(arguments)?).is_ok()))
}

fn is_canonical<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [Value::String(text)] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let address = parse_ip(text.as_str())?;
    Ok(Value::Bool(address.to_string() == text.as_str()))
}

fn test<'a>(arguments: &[Value<'a>], holds: fn(&IpAddr) -> bool) -> EvaluationResult<'a> {
    let address = ip_of(first(arguments)?)?;
    Ok(Value::Bool(holds(&address)))
}

fn family<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let address = ip_of(first(arguments)?)?;
    Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 }))
}

fn is_unspecified<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    test(arguments, IpAddr::is_unspecified)
}

fn is_loopback<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    test(arguments, IpAddr::is_loopback)
}

fn is_link_local_multicast<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    test(arguments, |address| match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    })
}

fn link_local_unicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_link_local_unicast<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    test(arguments, link_local_unicast)
}

fn is_global_unicast<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    test(arguments, |address| {
        let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        !(broadcast
            || address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || link_local_unicast(address))
    })
}

fn to_cidr<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (address, bits) = cidr_of(first(arguments)?)?;
    Ok(Value::opaque(Opaque::Cidr(address, bits)))
}

fn is_cidr<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    Ok(Value::Bool(cidr_of(first(arguments)?).is_ok()))
}

fn contains_ip<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [cidr, ip] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let ((network, bits), address) = (cidr_of(cidr)?, ip_of(ip)?);
    let same_family = network.is_ipv4() == address.is_ipv4();
    Ok(Value::Bool(
        same_family && mask(address, bits) == mask(network, bits),
    ))
}

fn contains_cidr<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let [cidr, other] = arguments else {
        return Err(EvalError::NoSuchOverload);
    };
    let ((network, bits), (other, other_bits)) = (cidr_of(cidr)?, cidr_of(other)?);
    let is_contained = network.is_ipv4() == other.is_ipv4()
        && bits <= other_bits
        && mask(other, bits) == mask(network, bits);
    Ok(Value::Bool(is_contained))
}

fn cidr_ip<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (address, _) = cidr_of(first(arguments)?)?;
    Ok(Value::opaque(Opaque::Ip(address)))
}

fn prefix_length<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (_, bits) = cidr_of(first(arguments)?)?;
    Ok(Value::Int(bits.into()))
}

fn masked<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    let (address, bits) = cidr_of(first(arguments)?)?;
    Ok(Value::opaque(Opaque::Cidr(mask(address, bits), bits)))
}
