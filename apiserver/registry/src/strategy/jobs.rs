//! The strategy of Jobs: generates the selector and the pod labels, which contain the uid
//! (`pkg/registry/batch/job/strategy.go`).

use client::Propagation;
use serde_json::{Value, json};

use super::{Generation, PLAIN, Strategy};
use crate::meta::text;

pub(super) static JOB: Strategy = Strategy {
    generation: Generation::Spec,
    create,
    propagation: Propagation::Orphan,
    ..PLAIN
};

fn create(new: &mut Value) {
    let (name, uid) = (text(new, "name").to_owned(), text(new, "uid").to_owned());
    openapi::defaults::job_selector(new, &name, &uid);
    let labelled = new["metadata"]["labels"].as_object();
    if labelled.is_none_or(serde_json::Map::is_empty) {
        let labels = new["spec"]["template"]["metadata"]["labels"].clone();
        new["metadata"]["labels"] = labels;
    }
    new["status"] = json!({});
}
