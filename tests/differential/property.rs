//! Sends generated sequences of requests to both servers and compares the replies.
//!
//! `FLOTILLA_SLOW=1` runs many more seeds, `SEED=N` one. A sequence that differs is reported with
//! the steps that are needed for the difference.

use futures_util::StreamExt;
use serde_json::{Map, Value, json};

use crate::differential::case::CaseStep;
use crate::differential::comparison::compare_case;
use crate::differential::crd;
use crate::differential::generated::generate;
use crate::differential::options;
use crate::differential::request::{CRDS, CaseContext, PreparedRequest};
use crate::differential::servers::{ServerConnection, ServerPair};

const GROUP: &str = "generated.example.com";
const SEEDS: u64 = 8;
const SLOW_SEEDS: u64 = 400;
const CONCURRENT_SEEDS: usize = 4;
/// How often a sequence that differs is sent again without some of its steps.
const MAX_REPETITIONS: usize = 40;

/// Seeds beyond [`SEEDS`] whose replies once differed.
const REGRESSIONS: &[u64] = &[23, 25, 128, 186, 374, 377];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_sequences_have_equal_replies() {
    let seeds: Vec<u64> = match options::seed() {
        Some(seed) => vec![seed],
        None => (0..SEEDS).chain(REGRESSIONS.iter().copied()).collect(),
    };
    compare_seeds(&seeds).await;
}

#[harness::slow]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_generated_sequences_have_equal_replies() {
    let seeds = SEEDS..SLOW_SEEDS;
    // These run in the test above.
    let seeds: Vec<u64> = seeds.filter(|seed| !REGRESSIONS.contains(seed)).collect();
    compare_seeds(&seeds).await;
}

async fn compare_seeds(seeds: &[u64]) {
    let Some(pair) = ServerPair::shared().await else {
        return;
    };
    let servers = pair.connect().await;
    let run = seeds.iter().map(|seed| compare_seed(&servers, *seed));
    let results: Vec<Vec<String>> = futures_util::stream::iter(run)
        .buffered(CONCURRENT_SEEDS)
        .collect()
        .await;
    let failures = results.concat();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The differences of a seed's sequences.
async fn compare_seed(servers: &[ServerConnection; 2], seed: u64) -> Vec<String> {
    let plural = format!("seed{seed}s");
    let theme = generate(seed, &plural);
    let kind = json!(format!("Seed{seed}"));
    let short = json!({"kind": kind, "schema": theme.schema});
    let definition = crd::expand(GROUP, &plural, &short);
    for server in servers {
        crd::create(server, &definition).await;
    }
    let mut kinds = Map::new();
    kinds.insert(plural.clone(), kind);
    let mut failures = Vec::new();
    for (n, steps) in theme.sequences.iter().enumerate() {
        let name = format!("seed-{seed}-{n}");
        if let Some(differences) = compare(servers, &name, steps, &kinds).await {
            let (steps, differences) = minimize(servers, &name, steps, &kinds, differences).await;
            let shown: Vec<String> = steps.iter().map(show_step).collect();
            failures.push(format!(
                "## {name}\nschema: {}\n{}\n{differences}",
                theme.schema,
                shown.join("\n")
            ));
        }
    }
    for server in servers {
        let path = format!("{CRDS}/{plural}.{GROUP}");
        let deleted = server.send(PreparedRequest::json("DELETE", &path, &json!({})));
        assert_eq!(deleted.await.code, 200, "{}: {path}", server.name);
    }
    failures
}

async fn compare(
    servers: &[ServerConnection; 2],
    namespace: &str,
    steps: &[CaseStep],
    kinds: &Map<String, Value>,
) -> Option<String> {
    let context = CaseContext {
        namespace,
        group: GROUP,
        kinds,
    };
    compare_case(servers, steps, &context, true).await
}

/// Leaves out steps without which the replies still differ.
async fn minimize(
    servers: &[ServerConnection; 2],
    name: &str,
    steps: &[CaseStep],
    kinds: &Map<String, Value>,
    differences: String,
) -> (Vec<CaseStep>, String) {
    let (mut steps, mut differences) = (steps.to_vec(), differences);
    let mut at = steps.len();
    for repetition in 0..MAX_REPETITIONS {
        if at == 0 {
            break;
        }
        at -= 1;
        let mut fewer = steps.clone();
        fewer.remove(at);
        let namespace = format!("{name}-{repetition}");
        if let Some(still) = compare(servers, &namespace, &fewer, kinds).await {
            (steps, differences) = (fewer, still);
        }
    }
    options::report(|| format!("\n## minimal {name}\n{steps:?}\n{differences}"));
    (steps, differences)
}

/// A step as the case files have it.
fn show_step(step: &CaseStep) -> String {
    let shown: Vec<String> = step
        .iter()
        .map(|(title, body)| format!("  - {title}: {body}"))
        .collect();
    shown.join("\n")
}
