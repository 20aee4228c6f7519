//! Compiles regular expressions in Go's syntax, in which `\d`, `\w`, `\s` and `\b` know ASCII
//! only.

use regex::{Regex, RegexBuilder};

/// How many bytes a compiled pattern may take.
const MAX_COMPILED_BYTES: usize = 1 << 20;

/// Compiles a pattern in Go's syntax.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let compiled = RegexBuilder::new(&translate(pattern))
        .size_limit(MAX_COMPILED_BYTES)
        .nest_limit(100)
        .build();
    compiled.map_err(|why| {
        let why = why.to_string();
        let reason = why.lines().last().unwrap_or_default();
        format!(
            "error parsing regexp: {}: `{pattern}`",
            reason.trim_start_matches("error: ")
        )
    })
}

/// The pattern in the syntax of the crate `regex`.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut class = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => translate_escape(&mut out, &mut chars, class),
            '[' if class => {
                // A named class is the only bracket that is special within a class.
                let special = chars.peek() == Some(&':');
                out.push_str(if special { "[" } else { "\\[" });
                if special {
                    for c in chars.by_ref() {
                        out.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                }
            }
            '[' => {
                class = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket that comes first stands for itself.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            ']' if class => {
                class = false;
                out.push(']');
            }
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            other => out.push(other),
        }
    }
    out
}

fn translate_escape(
    out: &mut String,
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    class: bool,
) {
    let ascii = match chars.next() {
        Some('d') => "0-9",
        Some('D') => "^0-9",
        Some('w') => "0-9A-Za-z_",
        Some('W') => "^0-9A-Za-z_",
        Some('s') => "\\t\\n\\x0C\\r ",
        Some('S') => "^\\t\\n\\x0C\\r ",
        Some('b') if !class => return out.push_str("(?-u:\\b)"),
        Some('B') if !class => return out.push_str("(?-u:\\B)"),
        Some('Q') => {
            let mut rest = String::new();
            for c in chars.by_ref() {
                rest.push(c);
                if rest.ends_with("\\E") {
                    rest.truncate(rest.len() - 2);
                    break;
                }
            }
            return out.push_str(&regex::escape(&rest));
        }
        other => {
            out.push('\\');
            out.extend(other);
            return;
        }
    };
    if class && !ascii.starts_with('^') {
        out.push_str(ascii);
    } else {
        out.push('[');
        out.push_str(ascii);
        out.push(']');
    }
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn patterns_have_gos_meaning() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{664}", false),
            (r"^[\w.-]+$", "a_b.c-1", true),
            (r"^[\w]+$", "\u{e9}", false),
            (r"^[^\d]$", "x", true),
            (r"^[\D]$", "x", true),
            (r"^[[a]$", "[", true),
            (r"^[]a]$", "]", true),
            (r"^[a&&b]+$", "&a", true),
            (r"^[[:alpha:]_]+$", "ab_", true),
            (r"\bcat\b", "a cat.", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^.$", "\u{e9}", true),
        ] {
            let regex = compile(pattern).unwrap();
            assert_eq!(regex.is_match(text), matches, "{pattern} {text}");
        }
        for pattern in ["(", "[", "(?=x)", r"\1", "a{1000}{1000}{1000}"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
