//! Third-party rules of OpenKruise's workloads, which count replicas like the native workloads.

use serde_json::Value;

use super::generations::{Silent, copied_with_generations, observe};
use super::items::Items;
use super::pods::{refers_at, replicas};
use super::tree::{Error, Fields, at, list, needed, needed_number, put_in_spec, same, text};
use super::{Aggregate, Rules, Told, unlisted};

const OBSERVED: &[&str] = &["observedGeneration"];

const CLONE_SET_COUNTERS: &[&str] = &[
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReadyReplicas",
    "expectedUpdatedReplicas",
];
const CLONE_SET_TEXTS: &[&str] = &["updateRevision", "currentRevision", "labelSelector"];

pub(super) static CLONE_SET: Rules = Rules {
    healthy: Some(healthy),
    reflect: Some(|observed| {
        copied_with_generations(observed, &[CLONE_SET_COUNTERS, CLONE_SET_TEXTS, OBSERVED])
    }),
    aggregate: Some(Aggregate {
        generations: true,
        unlisted: |status, generation| unlisted(status, generation, CLONE_SET_COUNTERS, &[]),
        ..Aggregate::new(|status, input| {
            observe(status, input.generation, &input.items, Silent::CountsAsZero);
            sums(status, &input.items, CLONE_SET_COUNTERS)?;
            last_texts(status, &input.items, CLONE_SET_TEXTS);
            Ok(())
        })
    }),
    ..REPLICATED
};

const STATEFUL_SET_COUNTERS: &[&str] = &[
    "replicas",
    "readyReplicas",
    "currentReplicas",
    "updatedReplicas",
    "availableReplicas",
    "updatedReadyReplicas",
];
const REVISIONS: &[&str] = &["updateRevision", "currentRevision"];

pub(super) static STATEFUL_SET: Rules = Rules {
    healthy: Some(healthy),
    reflect: Some(|observed| {
        copied_with_generations(observed, &[STATEFUL_SET_COUNTERS, REVISIONS, OBSERVED])
    }),
    aggregate: Some(Aggregate {
        generations: true,
        unlisted: |status, generation| {
            unlisted(status, generation, STATEFUL_SET_COUNTERS, REVISIONS);
        },
        ..Aggregate::new(|status, input| {
            observe(status, input.generation, &input.items, Silent::CountsAsZero);
            sums(status, &input.items, STATEFUL_SET_COUNTERS)?;
            last_texts(status, &input.items, REVISIONS);
            Ok(())
        })
    }),
    ..REPLICATED
};

const UNITED_COUNTERS: &[&str] = &[
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
];

pub(super) static UNITED_DEPLOYMENT: Rules = Rules {
    healthy: Some(|observed| {
        let parts = ["/status", "/metadata", "/spec"];
        let complete = parts.iter().all(|part| at(observed, part).is_some());
        Ok(complete && healthy(observed)?)
    }),
    reflect: Some(|observed| {
        copied_with_generations(observed, &[UNITED_COUNTERS, OBSERVED, &["conditions"]])
    }),
    aggregate: Some(Aggregate {
        generations: true,
        unlisted: |status, generation| unlisted(status, generation, UNITED_COUNTERS, &[]),
        ..Aggregate::new(united)
    }),
    ..REPLICATED
};

const DAEMON_COUNTERS: &[&str] = &[
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
];
const HASH: &str = "daemonSetHash";

pub(super) static DAEMON_SET: Rules = Rules {
    healthy: Some(|observed| {
        Ok(up_to_date(observed)?
            && at_least(
                observed,
                "/status/updatedNumberScheduled",
                "/status/desiredNumberScheduled",
            )?
            && at_least(
                observed,
                "/status/numberAvailable",
                "/status/updatedNumberScheduled",
            )?)
    }),
    reflect: Some(|observed| {
        copied_with_generations(observed, &[DAEMON_COUNTERS, OBSERVED, &[HASH]])
    }),
    aggregate: Some(Aggregate {
        generations: true,
        unlisted: |status, generation| {
            unlisted(status, generation, DAEMON_COUNTERS, &[]);
            status.insert(HASH.into(), 0.into());
        },
        ..Aggregate::new(|status, input| {
            observe(status, input.generation, &input.items, Silent::CountsAsZero);
            sums(status, &input.items, DAEMON_COUNTERS)?;
            let hash = input.items.last_said("/daemonSetHash").cloned();
            // The number 0 where no cluster reports a hash, as in Karmada's rule.
            status.insert(HASH.into(), hash.unwrap_or_else(|| 0.into()));
            Ok(())
        })
    }),
    dependencies: Some(|object| refers_at(object, "/spec/template")),
    ..Rules::NONE
};

/// The rules that all kinds with `spec.replicas` share.
const REPLICATED: Rules = Rules {
    replicas: Some(|object| replicas(object, "/spec/replicas", None)),
    revise: Some(|copy, replicas| put_in_spec(copy, "replicas", replicas.into())),
    dependencies: Some(|object| refers_at(object, "/spec/template")),
    ..Rules::NONE
};

pub(super) fn sums(status: &mut Fields, items: &Items<'_>, fields: &[&str]) -> Result<(), Error> {
    for field in fields {
        status.insert((*field).to_owned(), items.sum(&format!("/{field}"))?);
    }
    Ok(())
}

pub(super) fn last_texts(status: &mut Fields, items: &Items<'_>, fields: &[&str]) {
    for field in fields {
        let last = items.last_said(&format!("/{field}")).cloned();
        status.insert((*field).to_owned(), last.unwrap_or_else(|| "".into()));
    }
}

fn up_to_date(observed: &Value) -> Result<bool, Error> {
    needed(observed, "/status", "an object")?;
    let observed_generation = at(observed, "/status/observedGeneration");
    Ok(same(
        observed_generation,
        at(observed, "/metadata/generation"),
    ))
}

fn at_least(observed: &Value, these: &str, those: &str) -> Result<bool, Error> {
    Ok(needed_number(observed, these)? >= needed_number(observed, those)?)
}

fn healthy(observed: &Value) -> Result<bool, Error> {
    let updated = "/status/updatedReplicas";
    if !up_to_date(observed)? {
        return Ok(false);
    }
    if at(observed, "/spec/replicas").is_some() && !at_least(observed, updated, "/spec/replicas")? {
        return Ok(false);
    }
    at_least(observed, "/status/availableReplicas", updated)
}

fn united(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    observe(
        status,
        input.generation,
        &input.items,
        Silent::NeverUpToDate,
    );
    sums(status, &input.items, UNITED_COUNTERS)?;
    let mut latest: Vec<&Value> = Vec::new();
    for (_, reported) in input.items.told() {
        for condition in list(reported, "/conditions") {
            let kind = text(condition, "/type");
            match latest.iter_mut().find(|c| text(c, "/type") == kind) {
                Some(older) => *older = condition,
                None => latest.push(condition),
            }
        }
    }
    if !latest.is_empty() {
        let latest: Vec<Value> = latest.into_iter().cloned().collect();
        status.insert("conditions".into(), latest.into());
    }
    Ok(())
}
