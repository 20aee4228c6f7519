//! How the status of a template is aggregated from the statuses of all clusters.

use jiff::Timestamp;
use serde_json::Value;

use super::collected_statuses::CollectedStatuses;
use super::json_map::{JsonMap, set_field, take_object, value_at};
use crate::native::Error;

/// The input of an aggregation besides the status of the template.
pub(super) struct AggregationInput<'a> {
    /// `metadata.generation` of the template.
    pub(super) generation: &'a Value,
    pub(super) items: CollectedStatuses<'a>,
    pub(super) now: Timestamp,
}

/// How the status of a template is aggregated.
pub(super) struct StatusAggregation {
    /// Whether absent generations are set to 0.
    pub(super) defaults_generations: bool,
    /// Sets the status when there is no list of items, as opposed to an empty one.
    pub(super) without_items: fn(&mut JsonMap, &Value),
    /// Whether the status of a single item is copied unchanged.
    pub(super) copies_single_item: bool,
    /// Whether the result keeps the template's spec.
    pub(super) keeps_spec: bool,
    pub(super) rule: fn(&mut JsonMap, &AggregationInput<'_>) -> Result<(), Error>,
}

impl StatusAggregation {
    pub(super) const fn new(
        rule: fn(&mut JsonMap, &AggregationInput<'_>) -> Result<(), Error>,
    ) -> Self {
        Self {
            defaults_generations: false,
            without_items: |_, _| {},
            copies_single_item: false,
            keeps_spec: true,
            rule,
        }
    }
}

impl StatusAggregation {
    pub(super) fn apply(
        &self,
        template: &mut Value,
        items: Option<CollectedStatuses<'_>>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut status = take_object(template, "status");
        if self.defaults_generations {
            let mut metadata = take_object(template, "metadata");
            zero_if_absent(&mut metadata, "generation");
            set_field(template, "metadata", Value::Object(metadata));
            zero_if_absent(&mut status, "observedGeneration");
        }
        let generation = value_at(template, "/metadata/generation").cloned();
        let generation = generation.unwrap_or_default();
        if !self.keeps_spec && items.is_some() {
            set_field(template, "spec", Value::Null);
        }
        let status = match items {
            None => {
                (self.without_items)(&mut status, &generation);
                Value::Object(status)
            }
            Some(CollectedStatuses([only])) if self.copies_single_item => {
                only.status.cloned().unwrap_or_default()
            }
            Some(items) => {
                let input = AggregationInput {
                    generation: &generation,
                    items,
                    now,
                };
                (self.rule)(&mut status, &input)?;
                Value::Object(status)
            }
        };
        set_field(template, "status", status);
        Ok(())
    }
}

fn zero_if_absent(fields: &mut JsonMap, field: &str) {
    if fields.get(field).is_none_or(Value::is_null) {
        fields.insert(field.to_owned(), 0.into());
    }
}

/// Sets the status of a template without items: its generation is observed, counters are 0 and texts
/// empty.
pub(super) fn reset_status(
    status: &mut JsonMap,
    generation: &Value,
    counters: &[&str],
    texts: &[&str],
) {
    status.insert("observedGeneration".into(), generation.clone());
    for counter in counters {
        status.insert((*counter).to_owned(), 0.into());
    }
    for text in texts {
        status.insert((*text).to_owned(), "".into());
    }
}
