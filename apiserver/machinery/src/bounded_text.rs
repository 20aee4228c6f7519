//! Bounds what errors, warnings and events repeat of the input that they are about: the sender
//! of a long path, value or list does not get it back many times.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::{self, Write as _};

use serde_json::Value;

/// The longest path or value in an error.
pub const MAX_QUOTED_BYTES: usize = 512;
/// The longest text about one field: Kubernetes allows the message of a rule 5 KiB.
pub const MAX_DETAIL_BYTES: usize = 8 * 1024;
/// The longest message of a failure.
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024;
/// The longest list of errors or causes.
pub const MAX_LISTED: usize = 100;

const ELLIPSIS: char = '…';

/// The text, or its beginning and an ellipsis, with at most `max` bytes.
pub fn truncated(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(max.saturating_sub(ELLIPSIS.len_utf8()));
    Cow::Owned(format!("{}{ELLIPSIS}", &text[..end]))
}

/// As [`truncated`], in place.
pub fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        *text = truncated(text, max).into_owned();
    }
}

/// A text that takes at most `max` bytes, and an ellipsis for the rest.
pub struct BoundedText {
    text: String,
    max: usize,
    is_full: bool,
}

impl BoundedText {
    pub fn new(max: usize) -> Self {
        Self {
            text: String::new(),
            max,
            is_full: false,
        }
    }

    pub fn into_string(self) -> String {
        self.text
    }
}

impl fmt::Write for BoundedText {
    /// Fails once the text is full, which ends what writes it.
    fn write_str(&mut self, appended: &str) -> fmt::Result {
        if self.is_full {
            return Err(fmt::Error);
        }
        if self.text.len() + appended.len() <= self.max {
            self.text.push_str(appended);
            return Ok(());
        }
        self.is_full = true;
        self.text
            .push_str(&appended[..appended.floor_char_boundary(self.max - self.text.len())]);
        truncate_full(&mut self.text, self.max);
        Err(fmt::Error)
    }
}

/// Replaces the end of a text, of which more would follow, by an ellipsis.
fn truncate_full(text: &mut String, max: usize) {
    let end = text.floor_char_boundary(max.saturating_sub(ELLIPSIS.len_utf8()));
    text.truncate(end);
    text.push(ELLIPSIS);
}

/// Renders a value, of which no more is formatted than `max` bytes show.
pub fn rendered(value: &impl fmt::Display, max: usize) -> String {
    let mut text = BoundedText::new(max);
    // A value that does not fit is rendered in part.
    let _ = write!(text, "{value}");
    text.into_string()
}

/// A value as errors show it: the compact JSON, or its beginning.
pub fn rendered_json(value: &Value) -> String {
    rendered(value, MAX_QUOTED_BYTES)
}

/// Appends a step to a path; what makes it longer than [`MAX_QUOTED_BYTES`] becomes an ellipsis.
/// The path is restored by `path.truncate` to its length before.
pub fn push_path_step(path: &mut String, separator: &str, step: &str) {
    let available = MAX_QUOTED_BYTES.saturating_sub(path.len());
    if available == 0 {
        return;
    }
    if separator.len() + step.len() <= available {
        path.push_str(separator);
        path.push_str(step);
        return;
    }
    let end = step.floor_char_boundary(available.saturating_sub(separator.len()));
    path.push_str(separator);
    path.push_str(&step[..end]);
    while path.len() < MAX_QUOTED_BYTES {
        path.push(ELLIPSIS);
    }
}

/// The path of a field in the object at a path.
pub fn child_path(path: &str, field: &str) -> String {
    let separator = if path.is_empty() { "" } else { "." };
    let mut child = String::with_capacity(path.len() + separator.len() + field.len().min(64));
    child.push_str(path);
    push_path_step(&mut child, separator, field);
    child
}

/// Joins the first [`MAX_LISTED`] distinct texts, and says how many others there are.
pub fn joined<S: AsRef<str>>(texts: impl IntoIterator<Item = S>, separator: &str) -> String {
    let mut distinct = HashSet::new();
    let mut listed: Vec<String> = Vec::new();
    let mut omitted = 0;
    for text in texts {
        let text = truncated(text.as_ref(), MAX_DETAIL_BYTES);
        if listed.len() >= MAX_LISTED {
            omitted += 1;
        } else if distinct.insert(text.to_string()) {
            listed.push(text.into_owned());
        }
    }
    if omitted > 0 {
        listed.push(and_more(omitted));
    }
    listed.join(separator)
}

/// The text that stands for the rest of a list.
pub fn and_more(count: usize) -> String {
    format!("and {count} more")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn texts_end_with_an_ellipsis_at_a_character() {
        for (text, max, expected) in [
            ("abc", 3, "abc"),
            ("abcdef", 5, "ab…"),
            ("äöü", 5, "ä…"),
            ("abc", 0, "…"),
        ] {
            assert_eq!(truncated(text, max), expected);
        }
        assert_eq!(rendered(&json!({"a": [1, 2, 3]}), 20), r#"{"a":[1,2,3]}"#);
        assert_eq!(rendered(&json!({"a": [1, 2, 3]}), 9), r#"{"a":[…"#);
        let long_value = json!({"a": "x".repeat(1 << 20)});
        assert!(rendered_json(&long_value).len() <= MAX_QUOTED_BYTES);
    }

    #[test]
    fn a_list_names_the_rest() {
        assert_eq!(joined(["a", "b", "a"], ", "), "a, b");
        let items = (0..MAX_LISTED + 3).map(|i| i.to_string());
        assert!(joined(items, ", ").ends_with("99, and 3 more"));
    }

    proptest! {
        #[test]
        fn paths_are_bounded_and_restored(steps in prop::collection::vec("[a-zä]{0,300}", 0..8)) {
            let mut path = String::new();
            let mut lengths = Vec::new();
            for step in &steps {
                lengths.push(path.clone());
                push_path_step(&mut path, ".", step);
                prop_assert!(path.len() < MAX_QUOTED_BYTES + 8);
            }
            for before in lengths.iter().rev() {
                path.truncate(before.len());
                prop_assert_eq!(&path, before);
            }
        }
    }
}
