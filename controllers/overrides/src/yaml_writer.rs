//! Writes a JSON value as YAML, byte for byte as Karmada does. Otherwise fields whose text is YAML
//! would change in every member that migrates from Karmada.
//!
//! The output has block style, keys in natural order, lists not indented below their key, long
//! lines folded at 80 columns, and quotes around strings that YAML 1.1 would read as another type.
//! Source: the conventions of libyaml's emitter and of `sigs.k8s.io/yaml`.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use crate::yaml_scalar::{is_plain_string, is_printable};

/// Lines longer than this are folded at a space.
const FOLD_COLUMN: usize = 80;
/// The maximum length of a key in bytes that is written without the explicit `? ` indicator.
const MAX_SIMPLE_KEY_BYTES: usize = 128;

/// Returns the document with a final line break.
pub(crate) fn to_yaml(tree: &Value) -> String {
    let mut writer = YamlWriter::default();
    match tree {
        Value::Object(entries) if !entries.is_empty() => writer.write_mapping(entries, 0, true),
        Value::Array(items) if !items.is_empty() => writer.write_sequence(items, 0, true),
        other => writer.write_leaf(other, 2),
    }
    if !writer.out.ends_with('\n') {
        writer.out.push('\n');
    }
    writer.out
}

#[derive(Clone, Copy, PartialEq)]
enum YamlScalarStyle {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

#[derive(Default)]
struct YamlWriter {
    out: String,
}

impl YamlWriter {
    /// `inline`: the first entry continues the current line.
    fn write_mapping(&mut self, entries: &Map<String, Value>, indent: usize, inline: bool) {
        let mut sorted: Vec<(&String, &Value)> = entries.iter().collect();
        sorted.sort_by(|a, b| natural_order(a.0, b.0));
        for (at, (key, value)) in sorted.into_iter().enumerate() {
            if at > 0 || !inline {
                self.begin_line(indent);
            }
            if key.len() <= MAX_SIMPLE_KEY_BYTES && !key.contains('\n') {
                self.write_string(key, indent, true);
                self.out.push(':');
            } else {
                self.out.push_str("? ");
                self.write_string(key, indent + 2, false);
                self.begin_line(indent);
                self.out.push(':');
            }
            match value {
                Value::Object(inner) if !inner.is_empty() => {
                    self.write_mapping(inner, indent + 2, false)
                }
                Value::Array(items) if !items.is_empty() => {
                    self.write_sequence(items, indent, false)
                }
                leaf => {
                    self.out.push(' ');
                    self.write_leaf(leaf, indent + 2);
                }
            }
        }
    }

    fn write_sequence(&mut self, items: &[Value], indent: usize, inline: bool) {
        for (at, item) in items.iter().enumerate() {
            if at > 0 || !inline {
                self.begin_line(indent);
            }
            self.out.push_str("- ");
            match item {
                Value::Object(inner) if !inner.is_empty() => {
                    self.write_mapping(inner, indent + 2, true)
                }
                Value::Array(inner) if !inner.is_empty() => {
                    self.write_sequence(inner, indent + 2, true)
                }
                leaf => self.write_leaf(leaf, indent + 2),
            }
        }
    }

    /// Writes a scalar or an empty collection.
    fn write_leaf(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(b) => self.out.push_str(if *b { "true" } else { "false" }),
            Value::Number(n) => {
                let is_integer = n.is_i64() || n.is_u64();
                let float = n.as_f64().filter(|_| !is_integer);
                self.out
                    .push_str(&float.map_or_else(|| n.to_string(), format_float));
            }
            Value::String(text) => self.write_string(text, indent, false),
            Value::Array(_) => self.out.push_str("[]"),
            Value::Object(_) => self.out.push_str("{}"),
        }
    }

    fn write_string(&mut self, text: &str, indent: usize, key: bool) {
        match scalar_style(text, key) {
            YamlScalarStyle::Plain => self.write_folded(text, indent, key, false),
            YamlScalarStyle::SingleQuoted => {
                self.out.push('\'');
                self.write_folded(text, indent, key, true);
                self.out.push('\'');
            }
            YamlScalarStyle::DoubleQuoted => self.write_double_quoted(text, indent, key),
            YamlScalarStyle::Literal => self.write_literal(text, indent),
        }
    }

    /// Writes a plain or single-quoted scalar.
    fn write_folded(&mut self, text: &str, indent: usize, key: bool, quoted: bool) {
        let chars: Vec<char> = text.chars().collect();
        let mut after_space = false;
        for (at, &c) in chars.iter().enumerate() {
            let inner = !quoted || (at > 0 && at + 1 < chars.len());
            let folds = c == ' '
                && !key
                && !after_space
                && inner
                && chars.get(at + 1).is_none_or(|next| *next != ' ')
                && self.column() > FOLD_COLUMN;
            after_space = c == ' ';
            match c {
                ' ' if folds => self.begin_line(indent),
                '\'' if quoted => self.out.push_str("''"),
                c => self.out.push(c),
            }
        }
    }

    fn write_double_quoted(&mut self, text: &str, indent: usize, key: bool) {
        self.out.push('"');
        let chars: Vec<char> = text.chars().collect();
        let mut after_space = false;
        for (at, &c) in chars.iter().enumerate() {
            if c == ' ' {
                let inner = at > 0 && at + 1 < chars.len();
                if !key && !after_space && inner && self.column() > FOLD_COLUMN {
                    self.begin_line(indent);
                    // A space at the beginning of a line would be lost.
                    if chars.get(at + 1) == Some(&' ') {
                        self.out.push('\\');
                    }
                } else {
                    self.out.push(c);
                }
                after_space = true;
                continue;
            }
            after_space = false;
            self.write_escaped_char(c);
        }
        self.out.push('"');
    }

    fn write_escaped_char(&mut self, c: char) {
        let short = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' | '\\' => c,
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            c if is_printable(c) => return self.out.push(c),
            c => {
                let code = u32::from(c);
                let escaped = match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                };
                return self.out.push_str(&escaped);
            }
        };
        self.out.push('\\');
        self.out.push(short);
    }

    /// Writes a literal block; the indicators state how trailing line breaks are handled.
    fn write_literal(&mut self, text: &str, indent: usize) {
        self.out.push('|');
        if text.starts_with([' ', '\n']) {
            self.out.push('2');
        }
        if !text.ends_with('\n') {
            self.out.push('-');
        } else if text == "\n" || text.ends_with("\n\n") {
            self.out.push('+');
        }
        let body = text.strip_suffix('\n').unwrap_or(text);
        for line in body.split('\n') {
            self.out.push('\n');
            if !line.is_empty() {
                self.out.extend(std::iter::repeat_n(' ', indent));
                self.out.push_str(line);
            }
        }
        // The final line break of the scalar also ends the document's line.
        if text.ends_with('\n') {
            self.out.push('\n');
        }
    }

    fn begin_line(&mut self, indent: usize) {
        if !self.out.is_empty() && !self.out.ends_with('\n') {
            self.out.push('\n');
        }
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    fn column(&self) -> usize {
        let from = self.out.rfind('\n').map_or(0, |at| at + 1);
        self.out[from..].chars().count()
    }
}

/// Selects the style that preserves the string as a string.
fn scalar_style(text: &str, key: bool) -> YamlScalarStyle {
    let multiline = text.contains('\n');
    let special = !text.chars().all(is_printable);
    let space_break = text.contains(" \n");
    let only_double = special || space_break;
    if multiline {
        return if key || only_double || text.ends_with(' ') {
            YamlScalarStyle::DoubleQuoted
        } else {
            YamlScalarStyle::Literal
        };
    }
    if !is_plain_string(text) || only_double {
        return YamlScalarStyle::DoubleQuoted;
    }
    if text.starts_with(' ') || text.ends_with(' ') || has_indicators(text) {
        return YamlScalarStyle::SingleQuoted;
    }
    YamlScalarStyle::Plain
}

/// Whether a plain string would be cut off or read as another type because of an indicator.
fn has_indicators(text: &str) -> bool {
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    let bytes = text.as_bytes();
    let blank = |at: usize| bytes.get(at).is_none_or(|b| matches!(b, b' ' | b'\t'));
    bytes.iter().enumerate().any(|(at, b)| match (at, b) {
        (
            0,
            b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\''
            | b'"' | b'%' | b'@' | b'`',
        ) => true,
        (0, b'?' | b'-') | (_, b':') => blank(at + 1),
        (1.., b'#') => blank(at - 1),
        _ => false,
    })
}

/// Formats like Go's `%g` in the shortest form.
fn format_float(value: f64) -> String {
    // `sigs.k8s.io/yaml` turns whole numbers into integers on the way.
    if value.fract() == 0.0 && value.abs() < 1.8e19 {
        return format!("{value:.0}");
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Compares letters by code point and digit sequences by value.
fn natural_order(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(at) = a.iter().zip(&b).position(|(x, y)| x != y) else {
        return a.len().cmp(&b.len());
    };
    let (x, y) = (a[at], b[at]);
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x.cmp(&y),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Leading zeros count only after another digit.
    let begun = a[..at]
        .iter()
        .rev()
        .take_while(|c| c.is_numeric())
        .any(|c| *c != '0');
    let lead = u128::from((x == '0' || y == '0') && begun);
    let number = |chars: &[char]| {
        let digits = chars.iter().map_while(|c| c.to_digit(10));
        digits.fold((lead, 0_usize), |(sum, count), digit| {
            (
                sum.saturating_mul(10).saturating_add(digit.into()),
                count + 1,
            )
        })
    };
    number(&a[at..]).cmp(&number(&b[at..])).then(x.cmp(&y))
}

#[cfg(test)]
#[path = "yaml_tests.rs"]
mod tests;
