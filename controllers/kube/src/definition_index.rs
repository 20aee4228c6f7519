//! The names and states of all CustomResourceDefinitions, kept as their informer delivers them.
//!
//! A change costs the decoding of one definition, whatever the number of others.

use std::collections::HashMap;
use std::sync::Arc;

use client::{Informer, InformerEvent};
use openapi::{DefinitionSummary, ResourceNames};
use parking_lot::Mutex;

/// Summaries of definitions, by name.
#[derive(Default)]
pub(crate) struct DefinitionIndex {
    by_name: Mutex<HashMap<String, DefinitionSummary>>,
}

impl DefinitionIndex {
    /// An index that follows an informer of definitions. Handlers that are added to the
    /// informer later see it up to date.
    pub(crate) fn new(definitions: &Informer) -> Arc<Self> {
        let index = Arc::new(Self::default());
        let updated = Arc::clone(&index);
        definitions.add_event_handler(move |change| updated.update(change));
        index
    }

    fn update(&self, change: &InformerEvent<'_>) {
        let mut by_name = self.by_name.lock();
        let Some(new) = change.new else {
            by_name.remove(change.object().name());
            return;
        };
        // One that cannot be read is not served either, and has no names.
        let summary = DefinitionSummary::decode(&new.bytes()).unwrap_or_default();
        by_name.insert(new.name().to_owned(), summary);
    }

    /// The names of definitions that lack a name because another one has it.
    pub(crate) fn with_name_conflict(&self) -> Vec<String> {
        let by_name = self.by_name.lock();
        let conflicting = by_name.iter().filter(|(_, one)| one.has_name_conflict);
        conflicting.map(|(name, _)| name.clone()).collect()
    }

    /// The accepted names of the definitions of a group but one.
    pub(crate) fn accepted_names(&self, group: &str, except: &str) -> Vec<ResourceNames> {
        let by_name = self.by_name.lock();
        let others = by_name
            .iter()
            .filter(|(name, one)| *name != except && one.group == group);
        others.map(|(_, one)| one.accepted.clone()).collect()
    }

    /// Whether a condition holds for group and plural name of each established definition.
    pub(crate) fn all_established(&self, condition: impl Fn(&str, &str) -> bool) -> bool {
        let by_name = self.by_name.lock();
        let mut established = by_name.values().filter(|one| one.is_established);
        established.all(|one| condition(&one.group, &one.plural))
    }
}

#[cfg(test)]
mod tests {
    use machinery::Object;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_index_follows_changes() {
        let definition = |kind: &str, conflict: bool| {
            let accepted = if conflict { "" } else { kind };
            let status = |yes: bool| if yes { "True" } else { "False" };
            Object::from_value(&json!({"metadata": {"name": format!("{kind}s.g.io")},
                "spec": {"group": "g.io", "names": {"plural": format!("{kind}s"), "kind": kind}},
                "status": {"acceptedNames": {"kind": accepted}, "conditions": [
                    {"type": "NamesAccepted", "status": status(!conflict)},
                    {"type": "Established", "status": status(!conflict)}]}}))
            .unwrap()
        };
        let index = DefinitionIndex::default();
        let update = |old: Option<&Object>, new: Option<&Object>| {
            let in_initial_list = false;
            index.update(&InformerEvent {
                old,
                new,
                in_initial_list,
            });
        };
        let (one, other) = (definition("one", false), definition("other", true));
        update(None, Some(&one));
        update(None, Some(&other));
        assert_eq!(index.with_name_conflict(), ["others.g.io"]);
        let kinds = |except: &str| {
            let names = index.accepted_names("g.io", except);
            names.into_iter().map(|n| n.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds("others.g.io"), ["one"]);
        assert_eq!(kinds("ones.g.io"), [""]);
        assert!(index.accepted_names("h.io", "").is_empty());
        assert!(index.all_established(|group, plural| (group, plural) == ("g.io", "ones")));
        update(Some(&other), None);
        assert!(index.with_name_conflict().is_empty());
    }
}
