//! The taints that a Cluster gets from its Ready condition. Pure.

use karmada_api::cluster::Taint;
use karmada_api::well_known_keys::{TAINT_NOT_READY, TAINT_UNREACHABLE};

const NO_SCHEDULE: &str = "NoSchedule";

/// The taints for a status of the Ready condition (`None`: no such condition), added to
/// the others; `None` if nothing changes.
pub(super) fn desired_taints(
    current: &[Taint],
    ready: Option<&str>,
    now: &str,
) -> Option<Vec<Taint>> {
    let (add, remove): (Option<&str>, &[&str]) = match ready {
        None => (Some(TAINT_NOT_READY), &[]),
        Some("False") => (Some(TAINT_NOT_READY), &[TAINT_UNREACHABLE]),
        Some("Unknown") => (Some(TAINT_UNREACHABLE), &[TAINT_NOT_READY]),
        Some("True") => (None, &[TAINT_NOT_READY, TAINT_UNREACHABLE]),
        Some(_) => (None, &[]),
    };
    let is = |taint: &Taint, key: &str| taint.key == key && taint.effect == NO_SCHEDULE;
    let mut next: Vec<Taint> = current
        .iter()
        .filter(|t| !remove.iter().any(|key| is(t, key)))
        .cloned()
        .collect();
    if let Some(key) = add
        && !next.iter().any(|t| is(t, key))
    {
        next.push(Taint {
            key: key.to_owned(),
            effect: NO_SCHEDULE.to_owned(),
            time_added: Some(now.to_owned()),
            ..Taint::default()
        });
    }
    (next != current).then_some(next)
}

/// The message of the event about taints.
pub(super) fn taint_event_message(taints: &[Taint]) -> String {
    format!("Taint cluster succeed: {}.", taints_message(taints))
}

/// Describes the current taints (`GenerateTaintsMessage`).
pub(crate) fn taints_message(taints: &[Taint]) -> String {
    if taints.is_empty() {
        return "cluster now does not have taints".to_owned();
    }
    let one = |t: &Taint| match t.value.as_str() {
        "" => format!("{{Key:{},Effect:{}}}", t.key, t.effect),
        value => format!("{{Key:{},Value:{value},Effect:{}}}", t.key, t.effect),
    };
    let all: Vec<String> = taints.iter().map(one).collect();
    format!("cluster now has taints([{}])", all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, effect: &str, at: Option<&str>) -> Taint {
        Taint {
            key: key.into(),
            effect: effect.into(),
            time_added: at.map(Into::into),
            ..Taint::default()
        }
    }

    fn check(current: &[Taint], ready: Option<&str>, expected: Option<&[Taint]>) {
        let actual = desired_taints(current, ready, "now");
        assert_eq!(actual.as_deref(), expected, "{current:?} with {ready:?}");
    }

    #[test]
    fn taints_follow_the_ready_condition() {
        let not_ready = taint(TAINT_NOT_READY, NO_SCHEDULE, Some("now"));
        let unreachable = taint(TAINT_UNREACHABLE, NO_SCHEDULE, Some("now"));
        let older = taint(TAINT_NOT_READY, NO_SCHEDULE, Some("before"));
        let own = taint("own", NO_SCHEDULE, None);
        let evicting = taint(TAINT_NOT_READY, "NoExecute", None);
        let (n, u, o) = (not_ready.clone(), unreachable.clone(), own.clone());

        check(&[], None, Some(std::slice::from_ref(&not_ready)));
        check(&[], Some("False"), Some(std::slice::from_ref(&not_ready)));
        check(
            &[],
            Some("Unknown"),
            Some(std::slice::from_ref(&unreachable)),
        );
        check(&[], Some("True"), None);
        check(&[], Some("odd"), None);
        check(std::slice::from_ref(&older), None, None);
        check(std::slice::from_ref(&older), Some("False"), None);
        // An existing taint stays, also without a Ready condition.
        check(
            std::slice::from_ref(&unreachable),
            None,
            Some(&[u.clone(), n.clone()]),
        );
        check(
            &[o.clone(), u.clone()],
            Some("False"),
            Some(&[o.clone(), n.clone()]),
        );
        check(
            &[n, o.clone()],
            Some("Unknown"),
            Some(&[o.clone(), u.clone()]),
        );
        check(
            &[older, o, u],
            Some("True"),
            Some(std::slice::from_ref(&own)),
        );
        // A taint with another effect is another taint.
        check(std::slice::from_ref(&evicting), Some("True"), None);
    }

    #[test]
    fn the_event_names_the_taints() {
        let valued = Taint {
            value: "v".into(),
            ..taint("k", "NoExecute", None)
        };
        assert_eq!(
            taint_event_message(&[taint("own", NO_SCHEDULE, None), valued]),
            "Taint cluster succeed: cluster now has taints([{Key:own,Effect:NoSchedule},{Key:k,Value:v,Effect:NoExecute}])."
        );
        assert_eq!(
            taint_event_message(&[]),
            "Taint cluster succeed: cluster now does not have taints."
        );
    }
}
