//! The strategy of Jobs: generates the selector and the pod labels, which contain the uid
//! (`pkg/registry/batch/job/strategy.go`).

use client::DeletionPropagation;
use serde_json::{Value, json};

use super::{DEFAULT_STRATEGY, GenerationPolicy, RestStrategy};
use crate::object_meta::metadata_string;

pub(super) static JOB: RestStrategy = RestStrategy {
    generation: GenerationPolicy::Spec,
    create,
    propagation: DeletionPropagation::Orphan,
    ..DEFAULT_STRATEGY
};

fn create(new: &mut Value) {
    let (name, uid) = (
        metadata_string(new, "name").to_owned(),
        metadata_string(new, "uid").to_owned(),
    );
    openapi::defaults::generate_job_selector(new, &name, &uid);
    let labelled = new["metadata"]["labels"].as_object();
    if labelled.is_none_or(serde_json::Map::is_empty) {
        let labels = new["spec"]["template"]["metadata"]["labels"].clone();
        new["metadata"]["labels"] = labels;
    }
    new["status"] = json!({});
}
