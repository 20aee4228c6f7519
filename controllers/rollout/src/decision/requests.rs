//! The requests of users about one revision: a retry and an abort, each of which takes effect once.

use karmada_api::rollout::{LEFT_BEFORE_END, RolloutPhase, RolloutRequest};

use super::step::RolloutStep;

impl RolloutStep<'_> {
    /// Carries out the last request, if no step has before; returns the number of the last one that
    /// was decided. A request about another revision than the target is outdated.
    pub(super) fn handle_requests(&mut self) -> i64 {
        let spec = self.input.spec;
        let number =
            |request: &Option<RolloutRequest>| request.as_ref().map_or(0, |request| request.number);
        let (retry, abort) = (number(&spec.retry), number(&spec.abort));
        let handled = self.input.previous.map_or(0, |p| p.handled_request);
        let last = retry.max(abort);
        if last <= handled {
            return handled;
        }
        let is_abort = abort == last;
        let request = if is_abort { &spec.abort } else { &spec.retry };
        let revision = request.as_ref().map(|request| &*request.revision);
        if revision == Some(self.input.target) {
            if !is_abort && self.returns_from_target() {
                return handled;
            }
            match is_abort {
                true => self.abort(),
                false => self.retry(),
            }
        }
        last
    }

    /// Rejects the target, unless the rollout has ended: then no revision is left to return to.
    fn abort(&mut self) {
        if self.stable != self.input.target {
            self.reject();
        }
    }

    /// Whether clusters of a rejected target still have it. A retry waits until they have returned:
    /// otherwise they would have the target before their stage.
    fn returns_from_target(&self) -> bool {
        let target = self.input.target;
        self.rejected == target && self.clusters.iter().any(|cluster| cluster.has(target))
    }

    /// Lets a rejected target go through the stages again, and clusters and Jobs that failed with it
    /// begin again, each with a deadline of its own. Clusters that have left have not ended then.
    fn retry(&mut self) {
        let (target, now) = (self.input.target, self.input.now);
        if self.rejected != target {
            self.restart_failed_jobs();
        } else {
            self.jobs.fill(None);
            self.rejected.clear();
            for cluster in &mut self.clusters {
                match cluster.observed {
                    Some(_) => cluster.restart(now),
                    None => cluster.wait(RolloutPhase::Skipped, LEFT_BEFORE_END, now),
                }
            }
        }
        self.forget_failures();
        for cluster in &mut self.clusters {
            if cluster.has(target) && cluster.status.phase == RolloutPhase::Failed {
                cluster.assign(target, now);
            }
        }
    }
}
