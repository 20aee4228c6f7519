//! Resolves the escape sequences of string and bytes literals.

/// The bytes that `text` stands for. In bytes literals `\x` and octal escapes are bytes; in
/// strings they are code points.
pub(super) fn unescape(text: &[char], bytes: bool) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(text.len());
    let mut index = 0;
    while let Some(&c) = text.get(index) {
        index += 1;
        if c != '\\' {
            push_char(&mut out, c);
            continue;
        }
        let Some(&escaped) = text.get(index) else {
            return Err("unable to unescape string, found '\\' as last character");
        };
        index += 1;
        let (digits, radix) = match escaped {
            'x' | 'X' => (2, 16),
            'u' if !bytes => (4, 16),
            'U' if !bytes => (8, 16),
            '0'..='3' => {
                index -= 1;
                (3, 8)
            }
            other => {
                out.push(simple_escape(other)?);
                continue;
            }
        };
        let digits = text
            .get(index..index + digits)
            .ok_or("unable to unescape string")?;
        index += digits.len();
        let mut code = 0;
        for digit in digits {
            let digit = digit.to_digit(radix).ok_or("unable to unescape string")?;
            code = code * radix + digit;
        }
        match (bytes, u8::try_from(code)) {
            (true, Ok(byte)) => out.push(byte),
            _ => push_char(
                &mut out,
                char::from_u32(code).ok_or("invalid unicode code point")?,
            ),
        }
    }
    Ok(out)
}

fn push_char(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn simple_escape(c: char) -> Result<u8, &'static str> {
    Ok(match c {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => u8::try_from(c).unwrap_or(b'?'),
        _ => return Err("unable to unescape string"),
    })
}
