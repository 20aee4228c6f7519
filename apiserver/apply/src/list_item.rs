//! The path elements of list items (`typed/helpers.go`).

use serde_json::Value;

use crate::field_type::{FieldType, ListIdentity, ListMerge};
use crate::path_element::PathElement;

/// The path element of an item of a set or keyed list. The error says why it has none.
pub(crate) fn item_element(list: &ListMerge<'_>, item: &Value) -> Result<PathElement, String> {
    match list.identity {
        ListIdentity::Atomic => Err("invalid indexing of non-associative list".into()),
        ListIdentity::Value => set_item_element(item),
        ListIdentity::Keys(keys) => keyed_item_element(keys, list.item, item),
    }
}

fn set_item_element(item: &Value) -> Result<PathElement, String> {
    match item {
        Value::Object(_) => {
            Err("associative list without keys has an element that's a map type".into())
        }
        Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
        Value::Null => {
            Err("associative list without keys has an element that's an explicit null".into())
        }
        scalar => Ok(PathElement::value(scalar.clone())),
    }
}

fn keyed_item_element(
    keys: &[Box<str>],
    item_type: FieldType<'_>,
    item: &Value,
) -> Result<PathElement, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => {
            return Err("associative list with keys may not have a null element".into());
        }
        _ => return Err("associative list with keys may not have non-map elements".into()),
    };
    // A key that is absent and has no default differs from one with any value.
    let present: Vec<(Box<str>, Value)> = keys
        .iter()
        .filter_map(|key| {
            let value = fields
                .get(&**key)
                .or_else(|| item_type.field_default(key))?;
            Some((key.clone(), value.clone()))
        })
        .collect();
    if present.is_empty() && !keys.is_empty() {
        let keys: Vec<String> = keys.iter().map(|k| format!("{k:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(PathElement::key(present))
}

/// The items of a list with their path elements; items without one are omitted.
pub(crate) fn identified_items<'v>(
    list: &ListMerge<'_>,
    items: &'v [Value],
) -> Vec<(PathElement, &'v Value)> {
    let items = items.iter();
    items
        .filter_map(|item| Some((item_element(list, item).ok()?, item)))
        .collect()
}
