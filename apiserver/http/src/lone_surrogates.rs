//! Replaces escapes of lone surrogates in JSON text by U+FFFD, as Go's decoder does.

const REPLACEMENT: &[u8] = b"\\ufffd";

/// The text without lone surrogates; `None` if it has none.
pub(crate) fn replace_lone_surrogates(text: &[u8]) -> Option<Vec<u8>> {
    let mut replaced = Vec::new();
    let mut copied = 0;
    let mut index = 0;
    loop {
        let rest = text.get(index..).unwrap_or_default();
        let Some(backslash) = rest.iter().position(|byte| *byte == b'\\') else {
            break;
        };
        index += backslash;
        let Some(unit) = escaped_unit(text, index) else {
            // Another escape, whose second character may be a backslash.
            index += 2;
            continue;
        };
        let is_pair = matches!(unit, 0xd800..=0xdbff)
            && matches!(escaped_unit(text, index + 6), Some(0xdc00..=0xdfff));
        if matches!(unit, 0xd800..=0xdfff) && !is_pair {
            replaced.extend_from_slice(&text[copied..index]);
            replaced.extend_from_slice(REPLACEMENT);
            copied = index + 6;
        }
        index += if is_pair { 12 } else { 6 };
    }
    if copied == 0 {
        return None;
    }
    replaced.extend_from_slice(&text[copied..]);
    Some(replaced)
}

/// The UTF-16 unit of an escape `\uXXXX`.
fn escaped_unit(text: &[u8], index: usize) -> Option<u16> {
    let escape = text.get(index..index + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::replace_lone_surrogates;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (text, expected) in [
            (r#""a""#, None),
            (r#""\u00e9\ud83d\ude00""#, None),
            (r#""\\ud800""#, None),
            (r#""\ud800""#, Some(r#""\ufffd""#)),
            (r#""x\ude00\ud83dy""#, Some(r#""x\ufffd\ufffdy""#)),
            (r#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#""\"#, None),
        ] {
            let replaced = replace_lone_surrogates(text.as_bytes());
            let replaced = replaced.map(|text| String::from_utf8(text).unwrap());
            assert_eq!(replaced.as_deref(), expected, "{text}");
        }
    }
}
