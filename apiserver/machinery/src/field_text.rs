//! Finds the text of a field's value in an encoded object, and cuts a field out of it.

use std::ops::Range;

use serde_json::value::RawValue;

/// The offset of a text that borrows from `bytes`.
pub(crate) fn offset_in(bytes: &[u8], borrowed: &str) -> usize {
    borrowed.as_ptr() as usize - bytes.as_ptr() as usize
}

/// Where a value that borrows from `bytes` lies in them; empty if there is none.
pub(crate) fn position_in(bytes: &[u8], value: Option<&RawValue>) -> Range<usize> {
    let Some(text) = value.map(RawValue::get) else {
        return 0..0;
    };
    let start = offset_in(bytes, text);
    start..start + text.len()
}

/// Where a value lies after a text of `old_len` bytes became one of `new_len`: `inserted` bytes
/// stand before it if it began before `edit`, and as many follow it as before if it began later.
pub(crate) fn move_position(
    position: Range<usize>,
    old_len: usize,
    edit: usize,
    inserted: usize,
    new_len: usize,
) -> Range<usize> {
    if position.is_empty() {
        return position;
    }
    let start = match position.start < edit {
        true => position.start + inserted,
        false => new_len - (old_len - position.start),
    };
    start..start + position.len()
}

/// Returns the text before and after a field, given its value, which borrows from `bytes`:
/// without its key and one comma.
pub(crate) fn cut_field<'a>(bytes: &'a [u8], value: &str) -> (&'a [u8], &'a [u8]) {
    let from = offset_in(bytes, value);
    let (before, after) = (&bytes[..from], &bytes[from + value.len()..]);
    let quote = |text: &[u8]| text.iter().rposition(|b| *b == b'"');
    let key = quote(before).and_then(|end| quote(&before[..end]));
    let before = before[..key.unwrap_or(0)].trim_ascii_end();
    if let [b',', rest @ ..] = after.trim_ascii_start() {
        return (before, rest);
    }
    (before.strip_suffix(b",").unwrap_or(before), after)
}
