//! The elements of lists and the entries of maps. Those of a JSON object are converted only as
//! far as an expression looks.

use crate::from_json::to_value;
use crate::value::{EvaluationResult, List, Map, Text, Value};

impl<'a> List<'a> {
    pub(crate) fn get(&self, index: usize) -> Option<EvaluationResult<'a>> {
        match self {
            Self::Json { items, element, .. } => {
                items.get(index).map(|item| to_value(item, element))
            }
            Self::Owned(items) | Self::Typed(items, _) => items.get(index).cloned().map(Ok),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = EvaluationResult<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    pub(crate) fn to_vec(&self) -> EvaluationResult<'a, Vec<Value<'a>>> {
        self.iter().collect()
    }
}

impl<'a> Map<'a> {
    /// The value of a key. Fields of an object are named by their identifiers.
    pub(crate) fn get(&self, key: &Value<'a>) -> Option<EvaluationResult<'a>> {
        match self {
            Self::Owned(map) | Self::Constructed { fields: map, .. } => {
                map.get(key).cloned().map(Ok)
            }
            _ => match key {
                Value::String(text) => self.field(text.as_str()),
                _ => None,
            },
        }
    }

    pub(crate) fn field(&self, name: &str) -> Option<EvaluationResult<'a>> {
        match self {
            Self::Json { entries, value } => entries.get(name).map(|json| to_value(json, value)),
            Self::Object { entries, object } => {
                let field = object.field(name)?;
                let json = entries.get(&field.name)?;
                Some(to_value(json, &field.declaration))
            }
            Self::Owned(map) | Self::Constructed { fields: map, .. } => map
                .get(&Value::String(Text::Owned(name.into())))
                .cloned()
                .map(Ok),
        }
    }

    pub(crate) fn entries(&self) -> EvaluationResult<'a, Vec<(Value<'a>, Value<'a>)>> {
        if let Self::Owned(map) | Self::Constructed { fields: map, .. } = self {
            return Ok(map.entries().to_vec());
        }
        let mut entries = Vec::new();
        for key in self.keys() {
            if let Some(value) = self.get(&key) {
                entries.push((key, value?));
            }
        }
        Ok(entries)
    }
}
