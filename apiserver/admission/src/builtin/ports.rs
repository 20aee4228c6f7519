//! Validates names and protocols of ports.

use machinery::FieldError;
use machinery::names::validate_qualified_name;
use serde_json::Value;

use crate::unstructured::{has, report_invalid, text};

pub(super) fn validate_protocol(field: &str, entry: &Value, errors: &mut Vec<FieldError>) {
    let protocol = text(entry, "/protocol");
    if !matches!(protocol, "" | "TCP" | "UDP" | "SCTP") {
        errors.push(FieldError::not_supported(
            format!("{field}.protocol"),
            &protocol.into(),
            &["SCTP", "TCP", "UDP"],
        ));
    }
}

/// Validates what a port is used for, beyond its protocol.
pub(super) fn validate_app_protocol(field: &str, entry: &Value, errors: &mut Vec<FieldError>) {
    if has(entry, "/appProtocol") {
        let protocol = text(entry, "/appProtocol");
        let result = validate_qualified_name(protocol);
        report_invalid(format!("{field}.appProtocol"), protocol, result, errors);
    }
}

/// Checks an IANA service name, the form of port names (RFC 6335).
pub(super) fn validate_port_name(name: &str) -> Result<(), String> {
    let bytes = name.as_bytes();
    if bytes.len() > 15 {
        return Err("must be no more than 15 characters".into());
    }
    if !bytes
        .iter()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
    {
        return Err(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into(),
        );
    }
    if !bytes.iter().any(u8::is_ascii_lowercase) {
        return Err("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        return Err("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Err("must not begin or end with a hyphen".into());
    }
    Ok(())
}
