//! Validates the options of Windows in a security context.

use machinery::FieldError;
use machinery::names::validate_dns1123_subdomain;
use serde_json::Value;

use crate::unstructured::{get, has, report_invalid, text};

const MAX_CREDENTIAL_KIB: usize = 64;
const MAX_DOMAIN_LENGTH: usize = 256;
const MAX_USER_LENGTH: usize = 104;
/// The length of a NetBIOS name.
const MAX_NETBIOS_LENGTH: usize = 15;
const MAX_LABEL_LENGTH: usize = 63;

/// Validates `windowsOptions` of the security context at `field`.
pub(super) fn validate(field: &str, context: &Value, errors: &mut Vec<FieldError>) {
    let options = get(context, "/windowsOptions");
    let field = format!("{field}.windowsOptions");
    let mut check_text = |name: &str, check: fn(&str) -> Result<(), String>| {
        let path = format!("/{name}");
        if has(options, &path) {
            let value = text(options, &path);
            report_invalid(format!("{field}.{name}"), value, check(value), errors);
        }
    };
    check_text("gmsaCredentialSpecName", validate_dns1123_subdomain);
    check_text("gmsaCredentialSpec", validate_credential_spec);
    let user = text(options, "/runAsUserName");
    if has(options, "/runAsUserName") {
        for detail in user_name_faults(user) {
            let path = format!("{field}.runAsUserName");
            errors.push(FieldError::invalid(
                path,
                &user.into(),
                format!("runAsUserName{detail}"),
            ));
        }
    }
}

fn validate_credential_spec(credential: &str) -> Result<(), String> {
    if credential.is_empty() {
        return Err("gmsaCredentialSpec cannot be an empty string".to_owned());
    }
    if credential.len() > MAX_CREDENTIAL_KIB * 1024 {
        return Err(format!(
            "gmsaCredentialSpec size must be under {MAX_CREDENTIAL_KIB} KiB"
        ));
    }
    Ok(())
}

/// The errors of a name of the form `[DOMAIN\]USER`; each continues "runAsUserName".
fn user_name_faults(name: &str) -> Vec<String> {
    let (domain, user) = match name.split_once('\\') {
        _ if name.is_empty() => return vec![" cannot be an empty string".into()],
        _ if name.bytes().any(|b| b.is_ascii_control()) => {
            return vec![" cannot contain control characters".into()];
        }
        Some((_, user)) if user.contains('\\') => {
            return vec![" cannot contain more than one backslash".into()];
        }
        Some((domain, user)) => (Some(domain), user),
        None => (None, name),
    };
    let mut faults = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= MAX_DOMAIN_LENGTH) {
        let detail = format!("'s Domain length must be under {MAX_DOMAIN_LENGTH} characters");
        faults.push(detail);
    }
    if domain.is_some_and(|domain| !is_netbios_name(domain) && !is_domain_name(domain)) {
        faults.push("'s Domain doesn't match the NetBios nor the DNS format".into());
    }
    if user.is_empty() {
        faults.push("'s User cannot be empty".into());
    } else if user.len() > MAX_USER_LENGTH {
        let detail = format!("'s User length must not be longer than {MAX_USER_LENGTH} characters");
        faults.push(detail);
    }
    if !user.is_empty() && user.chars().all(|c| ". ".contains(c)) {
        faults.push("'s User cannot contain only periods or spaces".into());
    }
    if user.contains([
        '"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']',
    ]) {
        faults.push(r#"'s User cannot contain the following characters: "/\:;|=,+*?<>@[]"#.into());
    }
    faults
}

fn is_netbios_name(name: &str) -> bool {
    let length = name.chars().count();
    (1..=MAX_NETBIOS_LENGTH).contains(&length)
        && !name.starts_with('.')
        && !name.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|'])
}

fn is_domain_name(name: &str) -> bool {
    name.split('.').all(|label| {
        let bytes = label.as_bytes();
        let is_edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        bytes.len() <= MAX_LABEL_LENGTH
            && is_edge(bytes.first())
            && is_edge(bytes.last())
            && bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    })
}
