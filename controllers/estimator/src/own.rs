//! Estimates a member locally by its nodes and quotas, at once; members that are not
//! synced yet have no estimate.
//!
//! Source of the rules: Karmada's `pkg/estimator/server/estimate.go`: the least of the
//! plugins' estimates counts.

use std::sync::Arc;
use std::time::Instant;

use machinery::FailureLog;
use members::Member;
use scheduler::core::{Answer, AssumedWorkload, Source};
use scheduler::{Asked, Question};

use crate::figures::{self, Plugin, Point};
use crate::nodes::Estimate;
use crate::{UNBOUNDED, quota};

/// Objects whose requirements failed to parse.
static FAILURES: FailureLog = FailureLog::new();

pub(crate) fn answer(
    member: &Member,
    question: &Question<'_>,
    assumed: &[Arc<AssumedWorkload>],
    quotas: bool,
) -> Answer {
    let (began, asked) = (Instant::now(), question.asked);
    let point = match asked {
        Asked::Replicas(_) => Point::Replicas,
        Asked::Sets { .. } => Point::Components,
    };
    let estimate = match Estimate::of(asked, assumed) {
        Ok(estimate) => {
            FAILURES.record_success(&question.object);
            estimate
        }
        Err(why) => {
            let (cluster, object) = (member.name(), &question.object);
            if FAILURES.record_failure(object, &why) {
                tracing::warn!(cluster, object, why, "replica requirements are invalid");
            }
            figures::estimated(point, began.elapsed(), false);
            return Answer::Failed;
        }
    };
    let Some(capacity) = member.nodes(|nodes| estimate.rooms(nodes)) else {
        return Answer::Unknown;
    };
    let is_empty = capacity.is_empty();
    let mut least = (estimate.count(capacity), Source::Nodes);
    figures::ran(Plugin::Nodes, point, began.elapsed());
    let namespace = quota::namespace(&asked);
    if quotas && !is_empty && !namespace.is_empty() {
        let counting = Instant::now();
        let all = member.quotas(namespace).unwrap_or_default();
        let fits = quota::fits(all.iter().map(|quota| &**quota), &asked, assumed);
        if fits < least.0 {
            least = (fits, Source::ResourceQuota);
        }
        figures::ran(Plugin::Quotas, point, counting.elapsed());
    }
    figures::estimated(point, began.elapsed(), true);
    let (replicas, source) = least;
    Answer::Room(replicas.clamp(0, UNBOUNDED), source)
}
