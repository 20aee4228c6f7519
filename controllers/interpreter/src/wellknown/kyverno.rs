//! Third-party rules of Kyverno's Policy and ClusterPolicy.

use serde_json::Map;

use super::generations::copied;
use super::items::{holds, merged_conditions};
use super::tree::{Error, Fields, at, lacks, needed_number, number, set};
use super::{Aggregate, Rules, Told};

const RULES: [&str; 4] = ["validate", "generate", "mutate", "verifyimages"];

pub(super) static POLICY: Rules = Rules {
    healthy: Some(|observed| match at(observed, "/status/ready") {
        Some(ready) => {
            let ready = ready.as_bool();
            ready.ok_or_else(|| lacks("/status/ready", "a boolean"))
        }
        None => Ok(holds(observed, "Ready", &["Succeeded"])),
    }),
    reflect: Some(|observed| {
        copied(
            observed,
            &[&["ready", "conditions", "autogen", "rulecount"]],
        )
    }),
    aggregate: Some(Aggregate::new(aggregate)),
    ..Rules::NONE
};

fn aggregate(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    status.clear();
    for field in ["autogen", "ready"] {
        set(
            status,
            field,
            input.items.last(&format!("/{field}")).cloned(),
        );
    }
    let mut counts = Map::new();
    for rule in RULES {
        let mut sum = 0.0;
        for (_, reported) in input.items.told() {
            if at(reported, "/rulecount").is_some() {
                sum += needed_number(reported, &format!("/rulecount/{rule}"))?;
            }
        }
        counts.insert(rule.into(), number(sum));
    }
    status.insert("rulecount".into(), counts.into());
    status.insert("conditions".into(), merged_conditions(&input.items)?);
    Ok(())
}
