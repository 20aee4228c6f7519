//! When a binding is decided about, and when it is left as it is.
//!
//! A row is: placement now | placement of the last result | binding | verdict, in the
//! words of the tables of decisions. Of a binding is said beside them: `last` (it was
//! scheduled), `asked` or `asked-before` (a reschedule, after that or before), `ending:a`
//! (the cluster is being deleted), `refused` (the host keeps the template).

use serde_json::to_string;

use super::*;
use crate::core::tests::table::{asked, placement};

const ROWS: &str = "
# Never decided
dyn         | none        | n:2 at:a=2                    | due
dyn         | none        | n:2 at:a=2 last               | due
dup         | none        | n:2                           | due
# Nothing new
dyn         | dyn         | n:2 at:a=2 last               | note
agg         | agg         | n:3 at:a=2,b=1 last           | note
static:a=1  | static:a=1  | n:3 at:a=3 last               | note
dyn in:a    | dyn in:a    | n:2 at:a=2 last               | note
dyn         | broken      | n:2 at:a=2 last               | note
dyn         | dyn         | n:2 at:a=2                    | due
# Copies and objects without replicas go wherever they fit, always
dup         | dup         | n:2 at:a=2 last               | due
            |             | n:2 at:a=2 last               | due
dyn         | dyn         | object last                   | due
dyn         | dyn         | object set:2*1 last           | note
dyn         | dyn         | n:0 last                      | note
# The placement
dyn in:a    | dyn         | n:2 at:a=2 last               | due
dyn in:a    | dyn in:b    | n:2 at:a=2 last               | due
agg         | dyn         | n:2 at:a=2 last               | due
dyn tol:*   | dyn         | n:2 at:a=2 last               | due
dyn spread:cluster:1-2 | dyn | n:2 at:a=2 last            | due
static:a=1  | static:a=2  | n:2 at:a=2 last               | due
dyn spread:cluster:1-2 | dyn spread:cluster:1-2 | n:2 at:a=2 last | note
# Of terms only the one that holds the result counts
dyn term:x=a term:y=b | dyn term:x=a term:y=c | n:2 at:a=2 last seen:x | note
dyn term:x=a term:y=b | dyn term:x=a term:y=c | n:2 at:a=2 last seen:y | due
dyn term:x=a term:y=b | dyn term:x=a term:y=c | n:2 at:a=2 last        | due
dyn term:y=b term:x=a | dyn term:x=a term:y=b | n:2 at:a=2 last seen:x | note
dyn term:x=a term:y=b | dyn term:x=a | n:2 at:a=2 last seen:x | note
dyn term:y=b | dyn term:x=a | n:2 at:a=2 last seen:x         | due
dyn term:x=a>b | dyn term:x=a | n:2 at:a=2 last seen:x       | due
dyn term:x=a | dyn in:a   | n:2 at:a=2 last seen:x            | due
# The number of replicas
dyn         | dyn         | n:3 at:a=2 last               | scale
dyn         | dyn         | n:1 at:a=2 last               | scale
dyn         | dyn         | n:2 last                      | scale
dup         | dup         | n:3 at:a=2 last               | scale
dup         | dup         | n:3 at:a=3,b=2 last           | scale
            |             | n:3 at:a=2 last               | due
dyn in:a    | dyn         | n:3 at:a=2 last               | due
dyn         | dyn         | object set:2*1 sets last      | scale
dyn         | dyn         | object set:2*1 sets at:a=0 last | note
# A reschedule
dyn         | dyn         | n:2 at:a=2 last asked         | fresh
dyn         | dyn         | n:2 at:a=2 last asked-before  | note
dyn         | dyn         | n:2 at:a=2 last asked-then    | note
dyn         | dyn         | n:2 at:a=2 last asked-then unseen | fresh
dyn         | dyn         | n:2 at:a=2 last unseen        | note
dyn         | dyn         | n:2 at:a=2 asked              | due
dyn         | dyn         | n:3 at:a=2 last asked         | fresh scale
dyn in:a    | dyn         | n:2 at:a=2 last asked         | fresh
# Clusters that end
dyn         | dyn         | n:2 at:a=2 last ending:a      | due
dyn         | dyn         | n:2 at:a=2 last ending:b      | note
dyn         | dyn         | n:2 at:a=2 last refused       | due
";

fn verdict(line: &str) -> (String, &str) {
    let parts: Vec<&str> = line.split('|').map(str::trim).collect();
    let [now, applied, words, expected] = parts[..] else {
        panic!("{line}");
    };
    let (mut plain, mut ending) = (Vec::new(), "");
    let mut status = openapi::karmada::BindingStatus::default();
    let mut trigger = None;
    let mut generation = 0;
    for word in words.split_whitespace() {
        match word {
            "last" => status.last_scheduled_time = Some("2026-01-01T00:00:05Z".into()),
            "asked" => trigger = Some("2026-01-01T00:00:06Z".to_owned()),
            "asked-then" => trigger = Some("2026-01-01T00:00:05Z".to_owned()),
            "unseen" => generation = 1,
            "asked-before" => trigger = Some("2026-01-01T00:00:04Z".to_owned()),
            "refused" => status
                .conditions
                .push(openapi::karmada::binding::Condition {
                    kind: "Scheduled".into(),
                    reason: openapi::karmada::binding::HOST_RUNS_WORKLOADS.into(),
                    ..Default::default()
                }),
            _ => match word.strip_prefix("ending:") {
                Some(cluster) => ending = cluster,
                None => plain.push(word),
            },
        }
    }
    let mut case = asked(&plain.join(" "));
    let binding = &mut case.binding;
    status
        .observed_affinity
        .clone_from(&binding.status.observed_affinity);
    binding.status = status;
    binding.spec.reschedule_triggered_at = trigger;
    binding.metadata.generation = generation;
    let applied = match applied {
        "none" => None,
        "broken" => Some("{".to_owned()),
        words => Some(to_string(&placement(words)).unwrap()),
    };
    if let Some(applied) = applied {
        let annotations = &mut binding.metadata.annotations;
        annotations.insert(labels::APPLIED_PLACEMENT.into(), applied);
    }
    let told = match judge(binding, &placement(now), case.rules, |c| c == ending) {
        Verdict::Note => "note",
        Verdict::Schedule {
            fresh: true,
            scale: true,
        } => "fresh scale",
        Verdict::Schedule { fresh: true, .. } => "fresh",
        Verdict::Schedule { scale: true, .. } => "scale",
        Verdict::Schedule { .. } => "due",
    };
    (told.to_owned(), expected)
}

// proves: SCH-reschedule-at-once
// proves: SCH-observed-term-only, SCH-reschedule, SCH-placement-changed, SCH-divided-stays
#[test]
fn what_calls_for_a_decision() {
    let rows = ROWS
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    for row in rows {
        let (told, expected) = verdict(row);
        assert_eq!(told, expected, "{row}");
    }
}
