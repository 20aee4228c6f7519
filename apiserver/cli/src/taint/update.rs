//! Computes the taints of a cluster after `flotilla taint`, and karmadactl's word for what
//! has happened to them.

use anyhow::{bail, ensure};
use karmada_api::cluster::Taint;

use super::arguments::{TaintUpdate, is_same_taint};

/// The new taints: those that were set, then those of before that stay.
pub(super) fn update_taints(
    cluster: &str,
    before: Vec<Taint>,
    update: &TaintUpdate,
    overwrite: bool,
) -> anyhow::Result<(Vec<Taint>, &'static str)> {
    let is_set = |taint: &Taint| update.additions.iter().any(|new| is_same_taint(new, taint));
    if !overwrite {
        let exists = |new: &&Taint| before.iter().any(|taint| is_same_taint(new, taint));
        let existing = update.additions.iter().filter(exists);
        let keys: Vec<&str> = existing.map(|taint| taint.key.as_str()).collect();
        ensure!(
            keys.is_empty(),
            "cluster {cluster} already has {} taint(s) with same effect(s) and --overwrite is false",
            keys.join(",")
        );
    }
    let count = before.len();
    let mut taints = update.additions.clone();
    taints.extend(before.into_iter().filter(|taint| !is_set(taint)));
    let has_added = taints.len() != count;
    let mut missing = Vec::new();
    for removal in &update.removals {
        let count = taints.len();
        let is_removed = |taint: &Taint| {
            taint.key == removal.key
                && (removal.effect.is_empty() || taint.effect == removal.effect)
        };
        taints.retain(|taint| !is_removed(taint));
        if taints.len() == count {
            missing.push(format!("taint {:?} not found", taint_text(removal)));
        }
    }
    match missing.as_slice() {
        [] => {}
        [one] => bail!("{one}"),
        many => bail!("[{}]", many.join(", ")),
    }
    let has_removed = !update.removals.is_empty();
    let operation = match (has_added, has_removed) {
        _ if overwrite => "modified",
        (true, true) => "modified",
        (true, false) => "tainted",
        (false, _) => "untainted",
    };
    Ok((taints, operation))
}

/// `KEY` or `KEY:EFFECT` (`Taint.ToString` without a value).
fn taint_text(taint: &Taint) -> String {
    match taint.effect.as_str() {
        "" => taint.key.clone(),
        effect => format!("{}:{effect}", taint.key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::taint::arguments;

    /// The taints after `taint clusters c LINE` on these taints, or the refusal.
    fn run(before: &str, line: &str, overwrite: bool) -> String {
        let words = |text: &str| -> Vec<String> {
            let text = format!("clusters c {text}");
            text.split_whitespace().map(str::to_owned).collect()
        };
        let before = match before {
            "" => Vec::new(),
            text => arguments::parse(&words(text)).unwrap().additions,
        };
        let update = arguments::parse(&words(line)).unwrap();
        match update_taints("c", before, &update, overwrite) {
            Ok((taints, operation)) => {
                let text = |t: &Taint| format!("{}={}:{}", t.key, t.value, t.effect);
                let taints: Vec<String> = taints.iter().map(text).collect();
                format!("{operation} {}", taints.join(" "))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn taints_are_set_replaced_and_removed() {
        let table = [
            ("", "a=1:NoSchedule", false, "tainted a=1:NoSchedule"),
            (
                "a=1:NoSchedule",
                "a:NoExecute",
                false,
                "tainted a=:NoExecute a=1:NoSchedule",
            ),
            (
                "a=1:NoSchedule",
                "a=2:NoSchedule",
                false,
                "cluster c already has a taint(s) with same effect(s) and --overwrite is false",
            ),
            (
                "a=1:NoSchedule",
                "a=2:NoSchedule",
                true,
                "modified a=2:NoSchedule",
            ),
            ("a=1:NoSchedule", "a:NoSchedule-", false, "untainted "),
            (
                "a:NoSchedule a:NoExecute b:NoExecute",
                "a-",
                false,
                "untainted b=:NoExecute",
            ),
            (
                "a:NoSchedule",
                "b:NoExecute a-",
                false,
                "modified b=:NoExecute",
            ),
            ("", "a-", false, "taint \"a\" not found"),
            (
                "",
                "a- b:NoExecute-",
                false,
                "[taint \"a\" not found, taint \"b:NoExecute\" not found]",
            ),
        ];
        for (before, line, overwrite, after) in table {
            assert_eq!(run(before, line, overwrite), after, "{before:?} {line:?}");
        }
    }
}
