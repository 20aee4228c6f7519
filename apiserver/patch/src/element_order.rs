//! The order of a merged list: items in the patch follow the order of the patch, the others
//! keep their position relative to those that they preceded.
//!
//! Rule of `strategicpatch/patch.go` (`normalizeElementOrder`).

use std::collections::HashMap;

use serde_json::Value;

/// The identity of a list item: the value of its merge key, or the item itself.
pub(crate) fn item_identity(item: &Value, key: Option<&str>) -> String {
    match key {
        Some(key) => item.get(key).unwrap_or(&Value::Null).to_string(),
        None => item.to_string(),
    }
}

/// Maps each identity to the position of the first item with it.
pub(crate) fn positions<'a>(
    items: impl IntoIterator<Item = &'a Value>,
    key: Option<&str>,
) -> HashMap<String, usize> {
    let mut identities = HashMap::new();
    for (i, item) in items.into_iter().enumerate() {
        identities.entry(item_identity(item, key)).or_insert(i);
    }
    identities
}

/// Orders `merged`: items in `patch_order` in that order, the others in the order of `before`.
/// If both an item of `patch_order` and another one occur in `before`, their positions there
/// decide which comes first; otherwise the item of `patch_order` does.
pub(crate) fn normalize_element_order(
    merged: Vec<Value>,
    patch_order: &HashMap<String, usize>,
    before: &HashMap<String, usize>,
    key: Option<&str>,
) -> Vec<Value> {
    let position = |item: &Value, order: &HashMap<String, usize>| {
        order.get(&item_identity(item, key)).copied()
    };
    let mut ordered_items = Vec::new();
    let mut other_items = Vec::new();
    for item in merged {
        let old_position = position(&item, before);
        match position(&item, patch_order) {
            Some(rank) => ordered_items.push((rank, old_position, item)),
            None => other_items.push((old_position.unwrap_or(usize::MAX), old_position, item)),
        }
    }
    ordered_items.sort_by_key(|(rank, _, _)| *rank);
    other_items.sort_by_key(|(rank, _, _)| *rank);

    let mut out = Vec::with_capacity(ordered_items.len() + other_items.len());
    let (mut ordered_items, mut other_items) = (
        ordered_items.into_iter().peekable(),
        other_items.into_iter().peekable(),
    );
    loop {
        let other_first = match (other_items.peek(), ordered_items.peek()) {
            (Some((_, Some(o), _)), Some((_, Some(n), _))) => o < n,
            (Some(_), None) => true,
            (_, Some(_)) => false,
            (None, None) => return out,
        };
        let next = if other_first {
            other_items.next()
        } else {
            ordered_items.next()
        };
        out.extend(next.map(|(_, _, item)| item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(merged: &str, patch_order: &str, before: &str, expect: &str) {
        let list =
            |s: &str| -> Vec<Value> { s.chars().map(|c| json!({"n": c.to_string()})).collect() };
        let key = Some("n");
        let actual = normalize_element_order(
            list(merged),
            &positions(&list(patch_order), key),
            &positions(&list(before), key),
            key,
        );
        assert_eq!(actual, list(expect), "{merged} {patch_order} {before}");
    }

    #[test]
    fn the_patch_determines_the_order_and_other_items_keep_theirs() {
        check("abc", "", "abc", "abc");
        check("abcd", "d", "abc", "dabc");
        check("abc", "cb", "abc", "acb");
        check("abcde", "aecd", "abcd", "aebcd");
        check("xab", "abx", "ab", "abx");
    }
}
