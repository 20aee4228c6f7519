//! Decodes responses: lists without a JSON tree, and watch events line by line.
//!
//! The bytes come from a server and are not trusted. Each object gets its own buffer, so
//! that keeping one does not keep a whole page alive, and loses its `managedFields`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::{Buf, BytesMut};
use machinery::{Object, Status};
use serde::Deserialize;
use serde::de::{self, Deserializer as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::api::{Error, ObjectList, Result, WatchEvent};

/// A watch event holds one object: etcd's limit of 1.5 MiB, with room for encoding.
const MAX_WATCH_EVENT_BYTES: usize = 8 << 20;

/// A list has no more items: the smallest take many times their text.
const MAX_LIST_ITEMS: usize = 200_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawObjectList<'a> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: ListMeta<'a>,
    #[serde(borrow, default)]
    items: Option<&'a RawValue>,
}

/// Decodes the items of a list one after the other: the text of one may be shorter than what a
/// reference to it takes.
struct ListItems<'a> {
    head: &'a str,
    items: Vec<Object>,
}

impl<'de> Visitor<'de> for ListItems<'_> {
    type Value = Vec<Object>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E: de::Error>(self) -> std::result::Result<Vec<Object>, E> {
        Ok(self.items)
    }

    fn visit_seq<A: SeqAccess<'de>>(
        mut self,
        mut seq: A,
    ) -> std::result::Result<Vec<Object>, A::Error> {
        while let Some(item) = seq.next_element::<&'de RawValue>()? {
            if self.items.len() >= MAX_LIST_ITEMS {
                let message = format!("a list has more than {MAX_LIST_ITEMS} items");
                return Err(de::Error::custom(message));
            }
            let item = add_type_meta(item.get(), self.head).map_err(de::Error::custom)?;
            let object = Object::from_json_trimmed(item.as_bytes());
            self.items.push(object.map_err(de::Error::custom)?);
        }
        Ok(self.items)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta<'a> {
    #[serde(borrow)]
    resource_version: Option<Cow<'a, str>>,
    #[serde(borrow)]
    r#continue: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ListItemKindField<'a> {
    #[serde(borrow, default)]
    kind: Option<Cow<'a, str>>,
}

/// Decodes a list. The items of a typed list lack `apiVersion` and `kind`; they are
/// added.
pub(super) fn decode_list(body: &[u8]) -> Result<ObjectList> {
    let raw: RawObjectList<'_> = machinery::json::from_slice(body).map_err(protocol_error)?;
    let Some(item_kind) = raw.kind.strip_suffix("List") else {
        return Err(Error::Protocol(format!("{:?} is not a list", raw.kind)));
    };
    let head = format!(
        "\"apiVersion\":{},\"kind\":{}",
        serde_json::to_string(&raw.api_version).map_err(protocol_error)?,
        serde_json::to_string(item_kind).map_err(protocol_error)?
    );
    let visitor = ListItems {
        head: &head,
        items: Vec::new(),
    };
    let items = match raw.items {
        Some(items) => machinery::json::str_deserializer(items.get())
            .and_then(|mut items| items.deserialize_any(visitor)),
        None => Ok(Vec::new()),
    };
    Ok(ObjectList {
        items: items.map_err(protocol_error)?,
        revision: parse_revision(raw.metadata.resource_version.as_deref()),
        continue_token: raw.metadata.r#continue.unwrap_or_default().into_owned(),
    })
}

fn add_type_meta<'a>(item: &'a str, head: &str) -> Result<Cow<'a, str>> {
    let has_type_meta = item.starts_with("{\"apiVersion\"") || item.starts_with("{\"kind\"");
    if has_type_meta || head.ends_with("\"\"") || has_kind(item)? {
        return Ok(item.into());
    }
    let rest = item[1..].trim_start();
    let comma = if rest.starts_with('}') { "" } else { "," };
    Ok(["{", head, comma, rest].concat().into())
}

fn has_kind(item: &str) -> Result<bool> {
    let only: ListItemKindField<'_> = machinery::json::from_str(item).map_err(protocol_error)?;
    Ok(only.kind.is_some_and(|k| !k.is_empty()))
}

fn parse_revision(text: Option<&str>) -> u64 {
    text.and_then(|t| t.parse().ok()).unwrap_or(0)
}

fn protocol_error(error: serde_json::Error) -> Error {
    Error::Protocol(error.to_string())
}

#[derive(Deserialize)]
struct RawWatchEvent<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct RawBookmark {
    #[serde(default)]
    metadata: BookmarkMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BookmarkMeta {
    resource_version: String,
    annotations: BTreeMap<String, String>,
}

/// Splits a byte stream into watch events, whatever its chunks are.
#[derive(Default)]
pub(super) struct WatchEventDecoder {
    buffer: BytesMut,
    /// The length of the prefix known to hold no line end.
    searched: usize,
}

impl WatchEventDecoder {
    /// Appends a chunk.
    pub(super) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete event, or `None` until more bytes arrive.
    pub(super) fn next(&mut self) -> Result<Option<WatchEvent>> {
        loop {
            let fresh = &self.buffer[self.searched..];
            let Some(at) = fresh.iter().position(|b| *b == b'\n') else {
                self.searched = self.buffer.len();
                if self.searched > MAX_WATCH_EVENT_BYTES {
                    let message = format!("a watch event exceeds {MAX_WATCH_EVENT_BYTES} bytes");
                    return Err(Error::Protocol(message));
                }
                return Ok(None);
            };
            let end = self.searched + at;
            let line = self.buffer[..end].trim_ascii();
            let parsed = if line.is_empty() {
                None
            } else {
                Some(decode_watch_event(line))
            };
            self.buffer.advance(end + 1);
            if self.buffer.is_empty() {
                // Most watches are silent most of the time, and have nothing to keep.
                self.buffer = BytesMut::new();
            }
            self.searched = 0;
            match parsed {
                None => {}
                Some(event) => return event.map(Some),
            }
        }
    }

    /// Whether the stream may end here: no partial event is buffered.
    pub(super) fn is_at_event_boundary(&self) -> bool {
        self.buffer.iter().all(u8::is_ascii_whitespace)
    }
}

fn decode_watch_event(line: &[u8]) -> Result<WatchEvent> {
    let raw: RawWatchEvent<'_> = machinery::json::from_slice(line).map_err(protocol_error)?;
    let text = raw.object.get();
    let object = || Object::from_json_trimmed(text.as_bytes());
    match &*raw.r#type {
        "ADDED" => Ok(WatchEvent::Added(object()?)),
        "MODIFIED" => Ok(WatchEvent::Modified(object()?)),
        "DELETED" => Ok(WatchEvent::Deleted(object()?)),
        "BOOKMARK" => {
            let mark: RawBookmark = machinery::json::from_str(text).map_err(protocol_error)?;
            let end = mark.metadata.annotations.get("k8s.io/initial-events-end");
            Ok(WatchEvent::Bookmark {
                revision: parse_revision(Some(&mark.metadata.resource_version)),
                initial_end: end.is_some_and(|v| v == "true"),
            })
        }
        "ERROR" => {
            let status: Status = machinery::json::from_str(text).map_err(protocol_error)?;
            Err(status.into())
        }
        other => Err(Error::Protocol(format!("watch event of type {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn show(event: Result<WatchEvent>) -> String {
        match event {
            Ok(WatchEvent::Added(o)) => format!("+{}@{}", o.name(), o.revision()),
            Ok(WatchEvent::Modified(o)) => format!("~{}@{}", o.name(), o.revision()),
            Ok(WatchEvent::Deleted(o)) => format!("-{}@{}", o.name(), o.revision()),
            Ok(WatchEvent::Bookmark {
                revision,
                initial_end,
            }) => format!("={revision}{initial_end}"),
            Err(e) => format!("!{e}"),
        }
    }

    fn feed(chunks: &[&[u8]]) -> (Vec<String>, bool) {
        let (mut events, mut shown) = (WatchEventDecoder::default(), Vec::new());
        for chunk in chunks {
            events.push(chunk);
            loop {
                match events.next() {
                    Ok(None) => break,
                    Ok(Some(event)) => shown.push(show(Ok(event))),
                    Err(e) => {
                        shown.push(show(Err(e)));
                        return (shown, false);
                    }
                }
            }
        }
        (shown, events.is_at_event_boundary())
    }

    const STREAM: &str = concat!(
        r#"{"type":"ADDED","object":{"kind":"X","metadata":{"managedFields":[{"f:a":{}}],"name":"ä","resourceVersion":"1"}}}"#,
        "\n",
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"b\n","resourceVersion":"2"}}}"#,
        "\r\n\n",
        r#"{"object":{"metadata":{"name":"c","resourceVersion":"3"}},"type":"DELETED"}"#,
        "\n",
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"4","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        "\n",
        r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}"#,
        "\n",
    );
    const EXPECTED_EVENTS: [&str; 5] = ["+ä@1", "~b\n@2", "-c@3", "=4true", "!too old"];

    proptest! {
        #[test]
        fn events_do_not_depend_on_the_chunks(cuts in prop::collection::vec(0..STREAM.len(), 0..40)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|w| &STREAM.as_bytes()[w[0]..w[1]]).collect();
            prop_assert_eq!(feed(&chunks).0, EXPECTED_EVENTS);
        }

        #[test]
        fn garbage_is_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            feed(&[&bytes, b"\n"]);
            let _ = decode_list(&bytes);
        }
    }

    #[test]
    fn broken_streams_are_errors() {
        let long = vec![b'x'; MAX_WATCH_EVENT_BYTES + 1];
        assert!(feed(&[&long]).0[0].contains("exceeds"));
        assert!(feed(&[b"{\"type\":\"LATER\",\"object\":{}}\n"]).0[0].contains("LATER"));
        assert!(!feed(&[b"{\"type\":"]).1);
        let status = feed(&[STREAM.as_bytes()]).0;
        assert_eq!(status, EXPECTED_EVENTS);
    }

    #[test]
    fn items_of_typed_lists_get_their_kind() {
        let typed = br#"{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"9","continue":"c"},
            "items":[{"metadata":{"name":"a","resourceVersion":"3","managedFields":[{}]},"spec":{"kind":"inner"}},{ },{"metadata":{"name":"b"},"kind":"Own"}]}"#;
        let list = decode_list(typed).unwrap();
        assert_eq!((list.revision, list.continue_token.as_str()), (9, "c"));
        let values: Vec<_> = list.items.iter().map(|o| o.value().unwrap()).collect();
        assert_eq!(
            (&values[0]["apiVersion"], &values[0]["kind"]),
            (&"apps/v1".into(), &"Deployment".into())
        );
        assert_eq!((list.items[0].name(), list.items[0].revision()), ("a", 3));
        assert!(values[0]["metadata"].get("managedFields").is_none());
        assert_eq!(
            (&values[1]["kind"], &values[2]["kind"]),
            (&"Deployment".into(), &"Own".into())
        );
        let empty =
            decode_list(br#"{"kind":"XList","apiVersion":"v1","metadata":{},"items":null}"#)
                .unwrap();
        assert!(empty.items.is_empty() && empty.revision == 0);
        let item = r#"{"metadata":{"name":"a"}}"#;
        let long = vec![item; MAX_LIST_ITEMS + 1].join(",");
        let long = format!(r#"{{"kind":"XList","items":[{long}]}}"#);
        let error = decode_list(long.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("more than 200000 items"), "{error}");
        for bad in [
            &br#"{"kind":"Pod"}"#[..],
            b"[]",
            br#"{"kind":"XList","items":[1]}"#,
        ] {
            assert!(decode_list(bad).is_err());
        }
    }
}
