//! Validates the keys of ConfigMaps and Secrets.

const MAX_KEY_LENGTH: usize = 253;

pub(super) fn validate_config_key(key: &str) -> Result<(), String> {
    if key.len() > MAX_KEY_LENGTH {
        return Err(format!("must be no more than {MAX_KEY_LENGTH} characters"));
    }
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if key.is_empty() || !key.bytes().all(is_allowed) {
        return Err("a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')".into());
    }
    match key {
        "." => Err("must not be '.'".into()),
        ".." => Err("must not be '..'".into()),
        _ if key.starts_with("..") => Err("must not start with '..'".into()),
        _ => Ok(()),
    }
}
