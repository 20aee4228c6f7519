//! `metadata.managedFields` as text beside an object: in the cache apart from the other
//! bytes, in the store and in responses as the first field of `metadata`.
//!
//! Only servers and clients read the managers; controllers never do. So an object is
//! cached without them, and they are inserted where they are needed.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;
use serde_json::Value;

use crate::go_numbers;

const FIELD: &[u8] = b"\"managedFields\":";

/// The text before and after a time, and the length of a time.
const TIME_KEY: &str = "\"time\":\"";
const TIME_LENGTH: usize = "2006-01-02T15:04:05Z".len();
/// Stands for a time in a template. JSON has no such byte.
const TIME_MARK: char = '\0';

/// The templates of this process.
static TEMPLATES: LazyLock<TemplateInterner> = LazyLock::new(|| TemplateInterner::new(8192));

/// The text of `metadata.managedFields`. Objects that one client makes of one kind differ only
/// in the times of their entries, so that they share the rest.
#[derive(Clone)]
pub(crate) struct ManagedFieldsText {
    /// The text, with marks in place of the times.
    template: Arc<str>,
    times: Box<[[u8; TIME_LENGTH]]>,
    /// Whether this text brought its template.
    is_first: bool,
}

impl ManagedFieldsText {
    pub(crate) fn new(text: &str) -> Self {
        let mut template = String::with_capacity(text.len());
        let mut times = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(TIME_KEY) {
            let (before, after) = rest.split_at(at + TIME_KEY.len());
            template.push_str(before);
            rest = after;
            if let Some(time) = rest.as_bytes().first_chunk::<TIME_LENGTH>()
                && is_time(time)
            {
                template.push(TIME_MARK);
                times.push(*time);
                rest = &rest[TIME_LENGTH..];
            }
        }
        template.push_str(rest);
        let (template, is_first) = TEMPLATES.intern(template);
        Self {
            template,
            times: times.into(),
            is_first,
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = Vec::with_capacity(self.len());
        self.write_pieces(|piece| text.extend_from_slice(piece));
        String::from_utf8(text).unwrap_or_default()
    }

    fn write_pieces(&self, mut write: impl FnMut(&[u8])) {
        let mut times = self.times.iter();
        for (i, piece) in self.template.split(TIME_MARK).enumerate() {
            if i > 0
                && let Some(time) = times.next()
            {
                write(time);
            }
            write(piece.as_bytes());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.template.len() + self.times.len() * (TIME_LENGTH - TIME_MARK.len_utf8())
    }

    /// The bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let template = match self.is_first {
            true => self.template.len(),
            false => 0,
        };
        template + self.times.len() * TIME_LENGTH
    }
}

/// Whether the bytes have the form of a time in UTC with whole seconds.
fn is_time(bytes: &[u8; TIME_LENGTH]) -> bool {
    let form = b"dddd-dd-ddTdd:dd:ddZ";
    bytes.iter().zip(form).all(|(byte, form)| match form {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    })
}

/// Keeps one copy of each template. Those that only one object has are dropped when the table
/// is full.
struct TemplateInterner {
    templates: RwLock<HashSet<Arc<str>>>,
    capacity: usize,
}

impl TemplateInterner {
    fn new(capacity: usize) -> Self {
        Self {
            templates: RwLock::default(),
            capacity,
        }
    }

    /// The shared copy of a template, and whether it is new.
    fn intern(&self, template: String) -> (Arc<str>, bool) {
        if let Some(known) = self.templates.read().get(&*template) {
            return (Arc::clone(known), false);
        }
        let mut all = self.templates.write();
        if all.len() >= self.capacity {
            // A template that no second object has saves no memory.
            all.retain(|template| Arc::strong_count(template) > 2);
            if all.len() > self.capacity / 2 {
                all.clear();
            }
        }
        let template: Arc<str> = template.into();
        // If another thread inserted it meanwhile, two copies exist for a while.
        all.insert(Arc::clone(&template));
        (template, true)
    }
}

/// Inserts `metadata.managedFields` into an encoded object, at the offset of the first field
/// of its metadata.
pub(crate) fn splice(object: &[u8], metadata_start: usize, text: &ManagedFieldsText) -> Bytes {
    let (before, after) = object.split_at(metadata_start);
    let mut out = BytesMut::with_capacity(spliced_len(object, metadata_start, text.len()));
    out.extend_from_slice(before);
    out.extend_from_slice(FIELD);
    text.write_pieces(|piece| out.extend_from_slice(piece));
    if has_fields(after) {
        out.extend_from_slice(b",");
    }
    out.extend_from_slice(after);
    out.freeze()
}

/// The length of what [`splice`] returns for a text of this length.
pub(crate) fn spliced_len(object: &[u8], metadata_start: usize, text_len: usize) -> usize {
    let comma = usize::from(has_fields(&object[metadata_start..]));
    object.len() + FIELD.len() + text_len + comma
}

/// Whether there are fields before the end of the metadata.
fn has_fields(metadata: &[u8]) -> bool {
    !metadata.trim_ascii_start().starts_with(b"}")
}

/// Encodes a tree without `metadata.managedFields` as an object that has them.
pub fn encode_with_managed_fields(
    object: &Value,
    managed_fields: Option<&str>,
) -> serde_json::Result<Vec<u8>> {
    let (Some(text), Some(fields)) = (managed_fields, object.as_object()) else {
        let mut out = Vec::with_capacity(1024);
        go_numbers::write_json(&mut out, object)?;
        return Ok(out);
    };
    let mut out = Vec::with_capacity(1024 + text.len());
    out.push(b'{');
    for (key, value) in fields {
        if out.len() > 1 {
            out.push(b',');
        }
        serde_json::to_writer(&mut out, key)?;
        out.push(b':');
        match key.as_str() {
            "metadata" => write_metadata(&mut out, value, Some(text))?,
            _ => go_numbers::write_json(&mut out, value)?,
        }
    }
    out.push(b'}');
    Ok(out)
}

/// Encodes metadata, with the text of `managedFields` if there is any.
pub fn write_metadata(
    out: &mut Vec<u8>,
    metadata: &Value,
    managed_fields: Option<&str>,
) -> serde_json::Result<()> {
    let (Some(text), Some(fields)) = (managed_fields, metadata.as_object()) else {
        return serde_json::to_writer(out, metadata);
    };
    out.push(b'{');
    out.extend_from_slice(FIELD);
    out.extend_from_slice(text.as_bytes());
    if !fields.is_empty() {
        out.push(b',');
    }
    let start = out.len();
    serde_json::to_writer(&mut *out, metadata)?;
    // Its opening brace is there already.
    out.remove(start);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_kept_apart_from_their_times() {
        let entry = |manager: &str, time: &str| {
            format!(r#"{{"manager":"{manager}","time":"{time}","fieldsV1":{{"f:time":{{}}}}}}"#)
        };
        let (first, second) = ("2026-01-02T03:04:05Z", "2026-11-12T13:14:15Z");
        let one = format!("[{},{}]", entry("a", first), entry("b", second));
        let other = format!("[{},{}]", entry("a", second), entry("b", second));
        let (one_text, other_text) = (ManagedFieldsText::new(&one), ManagedFieldsText::new(&other));
        assert!(Arc::ptr_eq(&one_text.template, &other_text.template));
        assert_eq!(other_text.memory_bytes(), 2 * TIME_LENGTH);
        let unusual = [
            String::new(),
            "[]".to_owned(),
            r#"[{"time":"#.to_owned(),
            entry("c", "2026-01-02T03:04:05.5Z"),
            entry("c", "ü026-01-02T03:04:05Z"),
            r#"{"k:{\"time\":\"2026-01-02T03:04:05Z\"}":{}}"#.to_owned(),
        ];
        for text in [one, other].into_iter().chain(unusual) {
            let kept = ManagedFieldsText::new(&text);
            assert_eq!(kept.text(), text);
            assert_eq!(kept.len(), text.len());
        }
    }

    #[test]
    fn templates_of_one_object_are_dropped() {
        let interner = TemplateInterner::new(4);
        let shared = [interner.intern("s".into()), interner.intern("s".into())];
        assert!(Arc::ptr_eq(&shared[0].0, &shared[1].0));
        assert_eq!((shared[0].1, shared[1].1), (true, false));
        for i in 0..9 {
            interner.intern(format!("t{i}"));
        }
        assert!(interner.templates.read().len() <= 4);
        assert!(!interner.intern("s".into()).1);
    }

    #[test]
    fn managed_fields_are_inserted_into_the_metadata() {
        let text = r#"[{"manager":"a"}]"#;
        for metadata in [json!({}), json!({"name": "a", "uid": "u"})] {
            let object = json!({"kind": "X", "metadata": metadata, "spec": {"metadata": {}}});
            let mut expected = object.clone();
            expected["metadata"]["managedFields"] = crate::json::from_str(text).unwrap();
            let encoded = encode_with_managed_fields(&object, Some(text)).unwrap();
            assert_eq!(
                crate::json::from_slice::<Value>(&encoded).unwrap(),
                expected
            );
            let plain = encode_with_managed_fields(&object, None).unwrap();
            assert_eq!(plain, serde_json::to_vec(&object).unwrap());
        }
    }
}
