//! Finds regular expressions that Go does not compile, with the text of Go's error.

use regex_syntax::ast::parse::Parser;
use regex_syntax::ast::{Error, ErrorKind};

/// Why Go does not compile a pattern. `None` also where the syntaxes of Go and of the crate
/// `regex` differ, so that it cannot be told.
pub(super) fn pattern_error(pattern: &str) -> Option<String> {
    let error = Parser::new().parse(pattern).err()?;
    let (detail, part) = reason(pattern, &error)?;
    Some(format!("error parsing regexp: {detail}: `{part}`"))
}

fn reason<'p>(pattern: &'p str, error: &Error) -> Option<(&'static str, &'p str)> {
    let span = error.span();
    let part = pattern.get(span.start.offset..span.end.offset)?;
    let rest = pattern.get(span.start.offset..)?;
    match error.kind() {
        ErrorKind::GroupUnclosed => Some(("missing closing )", pattern)),
        ErrorKind::GroupUnopened => Some(("unexpected )", pattern)),
        // Within a class, Go's syntax has brackets that stand for themselves.
        ErrorKind::ClassUnclosed if pattern.matches('[').count() == 1 => {
            Some(("missing closing ]", rest))
        }
        ErrorKind::ClassRangeInvalid => Some(("invalid character class range", part)),
        // A brace may stand for itself.
        ErrorKind::RepetitionMissing if !part.starts_with('{') && !rest.starts_with('{') => {
            let operator = rest.get(..1).filter(|first| "*+?".contains(first))?;
            Some(("missing argument to repetition operator", operator))
        }
        ErrorKind::RepetitionCountInvalid => Some(("invalid repeat count", part)),
        // Go takes a look-behind for the name of a group.
        ErrorKind::UnsupportedLookAround if rest.starts_with("(?<") => {
            let end = rest.find('>').map_or(rest.len(), |index| index + 1);
            Some(("invalid named capture", &rest[..end]))
        }
        ErrorKind::UnsupportedLookAround => {
            let part = rest.get(..3).unwrap_or(part);
            Some(("invalid or unsupported Perl syntax", part))
        }
        ErrorKind::UnsupportedBackreference => Some(("invalid escape sequence", part)),
        ErrorKind::EscapeUnexpectedEof => Some(("trailing backslash at end of expression", "")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::pattern_error;

    #[test]
    fn errors_are_those_of_go() {
        for (pattern, expected) in [
            ("^a+$", None),
            ("^{.*}$", None),
            (r"\Q.\E", None),
            ("[[a]", None),
            ("(", Some("missing closing ): `(`")),
            ("a)", Some("unexpected ): `a)`")),
            ("a[b", Some("missing closing ]: `[b`")),
            ("[z-a]", Some("invalid character class range: `z-a`")),
            ("*a", Some("missing argument to repetition operator: `*`")),
            ("(?!a)", Some("invalid or unsupported Perl syntax: `(?!`")),
            ("(?<=a)b", Some("invalid named capture: `(?<=a)b`")),
            (r"(a)\1", Some(r"invalid escape sequence: `\1`")),
            ("a\\", Some("trailing backslash at end of expression: ``")),
        ] {
            let expected = expected.map(|detail| format!("error parsing regexp: {detail}"));
            assert_eq!(pattern_error(pattern), expected, "{pattern}");
        }
    }
}
