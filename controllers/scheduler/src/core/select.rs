//! Selection: how many of the feasible clusters are taken, by spread constraints.

use openapi::karmada::placement::SpreadConstraint;

use super::{Candidate, Failure, Request, Strategy};

/// The chosen clusters, best first.
pub(crate) fn select<'a>(
    request: &Request<'_>,
    strategy: Strategy,
    candidates: Vec<Candidate<'a>>,
) -> Result<Vec<Candidate<'a>>, Failure> {
    let constraints = &request.placement.spread_constraints;
    // Static weights say themselves which clusters count.
    if constraints.is_empty() || strategy == Strategy::StaticWeight {
        return Ok(candidates);
    }
    if constraints.iter().any(|c| c.spread_by_field == "region") {
        return Err(Failure::Error(
            "spreading by region is not supported yet".into(),
        ));
    }
    let Some(cluster) = constraints.iter().find(|c| c.spread_by_field == "cluster") else {
        return Err(Failure::Error(
            "just support cluster and region spread constraint".into(),
        ));
    };
    let need = (strategy != Strategy::Duplicated).then_some(request.spec.replicas);
    by_cluster(cluster, candidates, need)
}

fn by_cluster<'a>(
    constraint: &SpreadConstraint,
    candidates: Vec<Candidate<'a>>,
    need: Option<i64>,
) -> Result<Vec<Candidate<'a>>, Failure> {
    let total = candidates.len();
    if (total as i64) < constraint.min_groups {
        return Err(Failure::Error(
            "the number of feasible clusters is less than spreadConstraint.MinGroups".into(),
        ));
    }
    // No upper bound was meant, although upstream takes 0 literally and fails.
    let most = usize::try_from(constraint.max_groups)
        .ok()
        .filter(|n| *n > 0)
        .unwrap_or(total);
    let mut chosen = candidates;
    let mut rest = chosen.split_off(total.min(most));
    let Some(need) = need else { return Ok(chosen) };
    let enough = |chosen: &[Candidate<'_>]| chosen.iter().map(|c| c.available).sum::<i64>() >= need;
    for at in (0..chosen.len()).rev() {
        if enough(&chosen) {
            break;
        }
        let better = rest
            .iter()
            .enumerate()
            .filter(|(_, r)| r.available > chosen[at].available)
            .max_by_key(|(i, r)| (r.available, usize::MAX - i))
            .map(|(i, _)| i);
        if let Some(better) = better {
            std::mem::swap(&mut chosen[at], &mut rest[better]);
        }
    }
    if enough(&chosen) {
        return Ok(chosen);
    }
    Err(Failure::Error(format!(
        "no enough resource when selecting {} clusters",
        chosen.len()
    )))
}
