//! Decides how YAML 1.1, as Go's YAML library reads it, interprets an unquoted scalar.

/// Whether an unquoted scalar is read as a string.
pub(crate) fn is_plain_string(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    !(is_reserved_word(text)
        || matches!(first, '+' | '-' | '.' | '0'..='9')
            && (is_number(text) || is_sexagesimal(text) || is_date(text)))
}

/// Whether the emitter writes the character without escaping it.
pub(crate) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}') && c != '\u{feff}'
}

fn is_reserved_word(text: &str) -> bool {
    const WORDS: [&str; 10] = [
        "y", "n", "yes", "no", "on", "off", "true", "false", "null", ".inf",
    ];
    let body = text.strip_prefix(['+', '-']).filter(|b| b.starts_with('.'));
    let body = body.unwrap_or(text);
    // In lowercase, capitalized, or in uppercase.
    let cased = |word: &str| {
        let (head, rest) = body.split_at_checked(1).unwrap_or((body, ""));
        body == word
            || body == word.to_uppercase()
            || (head == word[..1].to_uppercase() && rest == &word[1..])
            || word == ".inf" && body == ".Inf"
    };
    matches!(text, "~" | "<<" | ".nan" | ".NaN" | ".NAN") || WORDS.iter().any(|w| cased(w))
}

fn is_number(text: &str) -> bool {
    let plain = text.replace('_', "");
    let body = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let radix = |digits: &str, radix: u32| u64::from_str_radix(digits, radix).is_ok();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let integer = match body.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => radix(&body[2..], 16),
        Some("0o") => radix(&body[2..], 8),
        Some("0b") => radix(&body[2..], 2),
        _ => digits(body),
    };
    if integer {
        return true;
    }
    let (mantissa, exponent) = body.split_once(['e', 'E']).unwrap_or((body, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let (int_part, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let number = match (int_part, fraction) {
        ("", fraction) => mantissa.starts_with('.') && digits(fraction),
        (int_part, "") => digits(int_part),
        (int_part, fraction) => digits(int_part) && digits(fraction),
    };
    number && digits(exponent)
}

/// `1:30:00`, which YAML 1.1 reads as a number.
fn is_sexagesimal(text: &str) -> bool {
    let body = text.strip_prefix(['+', '-']).unwrap_or(text);
    let body = match body.rsplit_once('.') {
        Some((body, rest)) if rest.bytes().all(|b| b.is_ascii_digit() || b == b'_') => body,
        _ => body,
    };
    let mut parts = body.split(':');
    let first = parts.next().unwrap_or_default();
    let small = |part: &str| {
        part.len() <= 2 && part.parse::<u8>().is_ok_and(|n| n < 60) && !part.starts_with('+')
    };
    let rest: Vec<&str> = parts.collect();
    first.starts_with(|c: char| c.is_ascii_digit())
        && first.bytes().all(|b| b.is_ascii_digit() || b == b'_')
        && !rest.is_empty()
        && rest.into_iter().all(small)
}

/// `2001-12-14`, with or without a time of day.
fn is_date(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some((&text[at..=at], &text[at + 1..]))),
        None => (text, None),
    };
    let mut parts = date.splitn(3, '-');
    let mut part = |longest: usize, low: u32, high: u32| {
        parts.next().is_some_and(|p| {
            let fits = (1..=longest).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit());
            fits && p.parse().is_ok_and(|n| (low..=high).contains(&n))
        })
    };
    let year = date.find('-') == Some(4) && part(4, 0, 9999);
    if !(year && part(2, 1, 12) && part(2, 1, 31)) {
        return false;
    }
    match time {
        None => true,
        Some((" ", clock)) => is_time_of_day(clock),
        Some((_, clock)) => match clock.strip_suffix('Z') {
            Some(clock) => is_time_of_day(clock),
            None => clock.rfind(['+', '-']).is_some_and(|at| {
                let zone = &clock[at + 1..];
                zone.len() == 5 && zone.contains(':') && is_time_of_day(&clock[..at])
            }),
        },
    }
}

/// `H:M:S`, with or without a fraction.
fn is_time_of_day(text: &str) -> bool {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = clock.split(':').collect();
    let within = |part: &str, limit: u8| {
        (1..=2).contains(&part.len()) && part.parse::<u8>().is_ok_and(|n| n < limit)
    };
    !fraction.is_empty()
        && fraction.bytes().all(|b| b.is_ascii_digit())
        && matches!(parts.as_slice(), [h, m, s] if within(h, 24) && within(m, 60) && within(s, 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_that_are_no_strings() {
        for word in [
            "",
            "~",
            "y",
            "Y",
            "n",
            "yes",
            "Yes",
            "NO",
            "on",
            "Off",
            "TRUE",
            "false",
            "Null",
            ".inf",
            "-.Inf",
            "+.INF",
            ".NaN",
            "<<",
            "1",
            "-1",
            "+1",
            "1_000",
            "0x1F",
            "0o17",
            "0b11",
            "017",
            "1.5",
            ".5",
            "1.",
            "1e3",
            "-1.5E-3",
            "1:30",
            "-1:30:00.5",
            "2001-12-14",
            "2001-1-2",
            "2001-12-14T21:59:43Z",
            "2001-12-14t21:59:43.1-05:00",
            "2001-12-14 21:59:43",
        ] {
            assert!(!is_plain_string(word), "{word:?}");
        }
        for word in [
            "a",
            "yEs",
            "tRUE",
            "None",
            "1a",
            "0x",
            "0xg",
            "1.2.3",
            "v1",
            "-",
            ".",
            "e3",
            "1e",
            "1:60",
            "1:30a",
            "10.0.0.1",
            "2001-13-01",
            "2001-12",
            "12-12-2001",
            "2001-12-14T",
            "::1",
            "-a",
            "+nan",
            "1 2",
            "09:xx",
        ] {
            assert!(is_plain_string(word), "{word:?}");
        }
    }

    #[test]
    fn printable_characters() {
        for (c, shown) in [
            ('\n', true),
            ('\t', false),
            (' ', true),
            ('~', true),
            ('\u{7f}', false),
            ('\u{85}', false),
            ('\u{a0}', true),
            ('ä', true),
            ('\u{feff}', false),
            ('😀', false),
        ] {
            assert_eq!(is_printable(c), shown, "{c:?}");
        }
    }
}
