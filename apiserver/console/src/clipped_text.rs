//! Bounds the texts that members choose.

/// Most characters of a text of a member that are shown.
const MAX_CHARS: usize = 1000;

/// The beginning of a text.
pub(crate) fn clipped(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
