//! Merges a manifest into the object that a member has: what the manifest says wins, what only the
//! member set stays, and what this control plane used to set goes. Lists are merged by the keys of
//! the schema. Pure.

use openapi::SchemaCursor;
use serde_json::{Map, Value};

use crate::containment::{ElementOrder, is_empty, is_subset};
use crate::field_managers::{ElementOwners, FieldOwners};
use crate::list_keys::ListKeys;

/// Which fields that only the member's object has an update removes.
#[derive(Clone, Debug)]
pub(crate) enum RemovalRule<'a> {
    Nothing,
    /// All of them: nobody but this control plane has set a field.
    Everything,
    /// The fields that this control plane set.
    Owned(FieldOwners<'a>),
}

/// Which elements of a list an update removes.
enum ElementRemovalRule<'a> {
    Nothing,
    Everything,
    Owned(ElementOwners<'a>),
}

impl<'a> RemovalRule<'a> {
    pub(crate) fn field(&self, name: &str) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Everything => Self::Everything,
            Self::Owned(owners) => Self::Owned(owners.field(name)),
        }
    }

    fn elements(&self) -> ElementRemovalRule<'a> {
        match self {
            Self::Nothing => ElementRemovalRule::Nothing,
            Self::Everything => ElementRemovalRule::Everything,
            Self::Owned(owners) => ElementRemovalRule::Owned(owners.elements()),
        }
    }

    /// Whether the manifest replaces a value that has no parts.
    fn replaces_whole(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Owned(owners) => owners.is_ours(),
        }
    }
}

impl<'a> ElementRemovalRule<'a> {
    fn element(&self, item: &Value) -> RemovalRule<'a> {
        match self {
            Self::Nothing => RemovalRule::Nothing,
            Self::Everything => RemovalRule::Everything,
            Self::Owned(owners) => RemovalRule::Owned(owners.owners_of(item)),
        }
    }

    /// The keys by which the member tells the elements apart, where the schema is not known.
    fn keys(&self) -> Option<ListKeys> {
        let Self::Owned(owners) = self else {
            return None;
        };
        let names = owners.key_names()?.iter();
        Some(ListKeys::Fields(
            names.map(|name| (name.clone(), None)).collect(),
        ))
    }
}

/// A merge of one object.
#[derive(Debug, Default)]
pub(crate) struct MemberMerge {
    /// Whether the result has something that only the member set.
    pub(crate) keeps_member_fields: bool,
}

impl MemberMerge {
    /// Merges a field that the member's object has; `None` if the field goes.
    pub(crate) fn merge_field(
        &mut self,
        desired: Option<Value>,
        observed: &Value,
        schema: Option<SchemaCursor<'_>>,
        rule: &RemovalRule<'_>,
    ) -> Option<Value> {
        match desired {
            Some(desired) => Some(self.merge(desired, observed, schema, rule)),
            None => self.remaining(observed, rule),
        }
    }

    fn merge(
        &mut self,
        desired: Value,
        observed: &Value,
        schema: Option<SchemaCursor<'_>>,
        rule: &RemovalRule<'_>,
    ) -> Value {
        match (desired, observed) {
            (Value::Object(desired), Value::Object(observed)) => {
                let retain_keys = schema.is_some_and(|s| s.patch_strategy().retain_keys);
                self.merge_fields(desired, observed, schema, rule, retain_keys)
            }
            (Value::Array(desired), Value::Array(observed)) => {
                self.merge_lists(desired, observed, schema, rule)
            }
            (Value::Null, observed) if is_empty(observed) => observed.clone(),
            (desired, _) => desired,
        }
    }

    /// `retain_keys`: the fields are alternatives, so that those of another choice go.
    fn merge_fields(
        &mut self,
        mut desired: Map<String, Value>,
        observed: &Map<String, Value>,
        schema: Option<SchemaCursor<'_>>,
        rule: &RemovalRule<'_>,
        retain_keys: bool,
    ) -> Value {
        if schema.is_some_and(SchemaCursor::is_atomic) {
            return self.merge_whole(desired.into(), &Value::from(observed.clone()), schema, rule);
        }
        let is_same = |(name, value): (&String, &Value)| {
            let field = schema.and_then(|s| s.field(name));
            let observed = observed.get(name).unwrap_or(&Value::Null);
            is_subset(value, observed, field, ElementOrder::Any)
        };
        let drops_others = retain_keys && !desired.iter().all(is_same);
        let mut merged = Map::new();
        for (name, value) in observed {
            let field = schema.and_then(|s| s.field(name));
            let desired_value = desired.remove(name);
            if desired_value.is_some() || !drops_others {
                let value = self.merge_field(desired_value, value, field, &rule.field(name));
                merged.extend(value.map(|value| (name.clone(), value)));
            }
        }
        merged.extend(desired);
        merged.into()
    }

    fn merge_lists(
        &mut self,
        desired: Vec<Value>,
        observed: &[Value],
        schema: Option<SchemaCursor<'_>>,
        rule: &RemovalRule<'_>,
    ) -> Value {
        let rules = rule.elements();
        let keys = match ListKeys::of_schema(schema) {
            ListKeys::Atomic if schema.is_none() => rules.keys().unwrap_or(ListKeys::Atomic),
            keys => keys,
        };
        let (Some(desired_index), Some(mut left)) = (keys.index(&desired), keys.index(observed))
        else {
            return self.merge_whole(desired.into(), &observed.into(), schema, rule);
        };
        let retain_keys = schema.is_some_and(|s| s.patch_strategy().retain_keys);
        let item_schema = schema.and_then(SchemaCursor::item);
        let mut key_at = vec![""; desired.len()];
        for (key, at) in &desired_index {
            key_at[*at] = key;
        }
        let mut merged = Vec::with_capacity(desired.len());
        for (item, key) in desired.into_iter().zip(key_at) {
            let Some(at) = left.remove(key) else {
                merged.push(item);
                continue;
            };
            let item_rule = rules.element(&observed[at]);
            merged.push(match (item, &observed[at]) {
                (Value::Object(item), Value::Object(observed)) => {
                    self.merge_fields(item, observed, item_schema, &item_rule, retain_keys)
                }
                (item, _) => item,
            });
        }
        let mut left: Vec<usize> = left.into_values().collect();
        left.sort_unstable();
        for at in left {
            merged.extend(self.remaining(&observed[at], &rules.element(&observed[at])));
        }
        merged.into()
    }

    /// Merges a value that has no parts: the manifest's, or the member's if it contains that.
    fn merge_whole(
        &mut self,
        desired: Value,
        observed: &Value,
        schema: Option<SchemaCursor<'_>>,
        rule: &RemovalRule<'_>,
    ) -> Value {
        if rule.replaces_whole() || !is_subset(&desired, observed, schema, ElementOrder::Same) {
            return desired;
        }
        self.keeps_member_fields |= !is_subset(observed, &desired, schema, ElementOrder::Same);
        observed.clone()
    }

    /// The remainder of a value that only the member's object has.
    fn remaining(&mut self, value: &Value, rule: &RemovalRule<'_>) -> Option<Value> {
        let rest = match rule {
            RemovalRule::Nothing => Some(value.clone()),
            RemovalRule::Everything => None,
            RemovalRule::Owned(owners) => owners.unowned_part(value),
        };
        self.keeps_member_fields |= rest.as_ref().is_some_and(|rest| !is_empty(rest));
        rest
    }
}
