//! Writes a JSON value as YAML, byte for byte as Karmada does. Otherwise fields whose text is YAML
//! would change in every member that migrates from Karmada.
//!
//! The output has block style, keys in natural order, lists not indented below their key, long
//! lines folded at 80 columns, and quotes around strings that YAML 1.1 would read as another type.
//! Source: the conventions of libyaml's emitter and of `sigs.k8s.io/yaml`.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::yaml_plain::{is_printable, is_text};

/// Lines longer than this are folded at a space.
const WIDTH: usize = 80;
/// The maximum length of a key in bytes that is written without the explicit `? ` indicator.
const SIMPLE_KEY: usize = 128;

/// Returns the document with a final line break.
pub(super) fn write(tree: &Value) -> String {
    let mut writer = Writer::default();
    match tree {
        Value::Object(entries) if !entries.is_empty() => writer.mapping(entries, 0, true),
        Value::Array(items) if !items.is_empty() => writer.sequence(items, 0, true),
        other => writer.leaf(other, 2),
    }
    if !writer.out.ends_with('\n') {
        writer.out.push('\n');
    }
    writer.out
}

#[derive(Clone, Copy, PartialEq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

#[derive(Default)]
struct Writer {
    out: String,
}

impl Writer {
    /// `inline`: the first entry continues the current line.
    fn mapping(&mut self, entries: &Map<String, Value>, indent: usize, inline: bool) {
        let mut sorted: Vec<(&String, &Value)> = entries.iter().collect();
        sorted.sort_by(|a, b| natural(a.0, b.0));
        for (at, (key, value)) in sorted.into_iter().enumerate() {
            if at > 0 || !inline {
                self.line(indent);
            }
            if key.len() <= SIMPLE_KEY && !key.contains('\n') {
                self.text(key, indent, true);
                self.out.push(':');
            } else {
                self.out.push_str("? ");
                self.text(key, indent + 2, false);
                self.line(indent);
                self.out.push(':');
            }
            match value {
                Value::Object(inner) if !inner.is_empty() => self.mapping(inner, indent + 2, false),
                Value::Array(items) if !items.is_empty() => self.sequence(items, indent, false),
                leaf => {
                    self.out.push(' ');
                    self.leaf(leaf, indent + 2);
                }
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize, inline: bool) {
        for (at, item) in items.iter().enumerate() {
            if at > 0 || !inline {
                self.line(indent);
            }
            self.out.push_str("- ");
            match item {
                Value::Object(inner) if !inner.is_empty() => self.mapping(inner, indent + 2, true),
                Value::Array(inner) if !inner.is_empty() => self.sequence(inner, indent + 2, true),
                leaf => self.leaf(leaf, indent + 2),
            }
        }
    }

    /// Writes a scalar or an empty collection.
    fn leaf(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(b) => self.out.push_str(if *b { "true" } else { "false" }),
            Value::Number(n) => {
                let is_integer = n.is_i64() || n.is_u64();
                let float = n.as_f64().filter(|_| !is_integer);
                self.out
                    .push_str(&float.map_or_else(|| n.to_string(), float_text));
            }
            Value::String(text) => self.text(text, indent, false),
            Value::Array(_) => self.out.push_str("[]"),
            Value::Object(_) => self.out.push_str("{}"),
        }
    }

    fn text(&mut self, text: &str, indent: usize, key: bool) {
        match style(text, key) {
            Style::Plain => self.folded(text, indent, key, false),
            Style::Single => {
                self.out.push('\'');
                self.folded(text, indent, key, true);
                self.out.push('\'');
            }
            Style::Double => self.escaped(text, indent, key),
            Style::Literal => self.literal(text, indent),
        }
    }

    /// Writes a plain or single-quoted scalar.
    fn folded(&mut self, text: &str, indent: usize, key: bool, quoted: bool) {
        let chars: Vec<char> = text.chars().collect();
        let mut after_space = false;
        for (at, &c) in chars.iter().enumerate() {
            let inner = !quoted || (at > 0 && at + 1 < chars.len());
            let folds = c == ' '
                && !key
                && !after_space
                && inner
                && chars.get(at + 1).is_none_or(|next| *next != ' ')
                && self.column() > WIDTH;
            after_space = c == ' ';
            match c {
                ' ' if folds => self.line(indent),
                '\'' if quoted => self.out.push_str("''"),
                c => self.out.push(c),
            }
        }
    }

    fn escaped(&mut self, text: &str, indent: usize, key: bool) {
        self.out.push('"');
        let chars: Vec<char> = text.chars().collect();
        let mut after_space = false;
        for (at, &c) in chars.iter().enumerate() {
            if c == ' ' {
                let inner = at > 0 && at + 1 < chars.len();
                if !key && !after_space && inner && self.column() > WIDTH {
                    self.line(indent);
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
            self.escape(c);
        }
        self.out.push('"');
    }

    fn escape(&mut self, c: char) {
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
    fn literal(&mut self, text: &str, indent: usize) {
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

    fn line(&mut self, indent: usize) {
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
fn style(text: &str, key: bool) -> Style {
    let multiline = text.contains('\n');
    let special = !text.chars().all(is_printable);
    let space_break = text.contains(" \n");
    let only_double = special || space_break;
    if multiline {
        return if key || only_double || text.ends_with(' ') {
            Style::Double
        } else {
            Style::Literal
        };
    }
    if !is_text(text) || only_double {
        return Style::Double;
    }
    if text.starts_with(' ') || text.ends_with(' ') || has_indicators(text) {
        return Style::Single;
    }
    Style::Plain
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
fn float_text(value: f64) -> String {
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
fn natural(a: &str, b: &str) -> Ordering {
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
