//! Small pieces of pages.

use machinery::Quantity;
use maud::{Markup, html};

use crate::inventory::{ObjectKey, POLICY_PAGES, WorkloadHealth};
use crate::query::Link;

/// In the path, the namespace of what has none.
const NO_NAMESPACE: &str = "-";

const BYTES_PER_GIBIBYTE: i128 = 1 << 30;
const BYTES_PER_MEBIBYTE: i128 = 1 << 20;

/// A word with a color; `tone` is `good`, `warn`, `bad` or `calm`.
pub(super) fn badge(tone: &str, text: &str) -> Markup {
    html! { span class={"badge " (tone)} { (text) } }
}

/// A text that says what is missing or wrong.
pub(crate) fn notice(tone: &str, title: &str, text: &str) -> Markup {
    html! {
        div class={"notice " (tone)} role="note" {
            strong { (title) }
            p { (text) }
        }
    }
}

pub(super) fn empty_state(title: &str, text: &Markup) -> Markup {
    html! {
        div .empty {
            p .title { (title) }
            p { (text) }
        }
    }
}

pub(super) fn remarks(remarks: &[String]) -> Markup {
    html! {
        @for remark in remarks {
            (notice("warn", "Not everything is shown", remark))
        }
    }
}

pub(super) fn health_badge(health: WorkloadHealth) -> Markup {
    let tone = match health {
        WorkloadHealth::Healthy => "good",
        WorkloadHealth::Unhealthy => "bad",
        WorkloadHealth::Unscheduled | WorkloadHealth::Progressing => "warn",
        WorkloadHealth::Unknown => "calm",
    };
    badge(tone, health.as_str())
}

/// The tone of the health that a member reports.
pub(super) fn health_tone(health: &str) -> &'static str {
    match health {
        "Healthy" => "good",
        "Unhealthy" => "bad",
        _ => "calm",
    }
}

/// The tone of a state of a rollout, or of a stage, a cluster or a Job in one.
pub(super) fn phase_tone(phase: &str) -> &'static str {
    match phase {
        "Completed" | "Done" | "Succeeded" => "good",
        "Degraded" | "Failed" | "RolledBack" => "bad",
        "AwaitingApproval" | "AwaitingCluster" | "Paused" | "Blocked" => "warn",
        _ => "calm",
    }
}

/// The key of what a path names.
pub(crate) fn object_key(namespace: &str, name: &str) -> ObjectKey {
    let namespace = match namespace {
        NO_NAMESPACE => "",
        namespace => namespace,
    };
    (namespace.to_owned(), name.to_owned())
}

/// The path of the page of a workload, and of what is below it.
pub(crate) fn workload_path(
    key: &ObjectKey,
    below: &[&str],
    parameters: &[(&str, &str)],
) -> String {
    object_path("workloads", key, below, parameters)
}

/// The path of the page of a propagation policy, and of what is below it.
pub(crate) fn policy_path(key: &ObjectKey, below: &[&str], parameters: &[(&str, &str)]) -> String {
    object_path(POLICY_PAGES, key, below, parameters)
}

/// The path of the page of a cluster, and of what is below it.
pub(crate) fn cluster_path(cluster: &str, below: &[&str], parameters: &[(&str, &str)]) -> String {
    let path = [&["clusters", cluster], below].concat();
    let path = &path;
    Link { path, parameters }.to_string()
}

/// The path of the page of an object of a list, and of what is below it.
pub(super) fn object_path(
    list: &str,
    (namespace, name): &ObjectKey,
    below: &[&str],
    parameters: &[(&str, &str)],
) -> String {
    let namespace = match namespace.as_str() {
        "" => NO_NAMESPACE,
        namespace => namespace,
    };
    let path = [&[list, namespace, name], below].concat();
    let path = &path;
    Link { path, parameters }.to_string()
}

/// A number of things, with its noun.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let number = grouped(i64::try_from(count).unwrap_or(i64::MAX));
    // As in policies, and not in days.
    let stem = noun.strip_suffix('y');
    let stem = stem.filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (count, stem) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {noun}s"),
    }
}

pub(super) fn replica_count(replicas: i64) -> String {
    counted(usize::try_from(replicas).unwrap_or(0), "replica")
}

/// A number with its thousands apart.
pub(super) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    match number < 0 {
        true => format!("-{text}"),
        false => text,
    }
}

/// Cores, such as `2.5`.
pub(super) fn cores(cpu: Quantity) -> String {
    tenths(cpu.milli_value(), 1000)
}

/// Bytes, such as `1.5 GiB`.
pub(super) fn bytes(memory: Quantity) -> String {
    let bytes = memory.value();
    match bytes >= BYTES_PER_GIBIBYTE {
        true => format!("{} GiB", tenths(bytes, BYTES_PER_GIBIBYTE)),
        false => format!("{} MiB", tenths(bytes, BYTES_PER_MEBIBYTE)),
    }
}

/// A count of things, such as pods.
pub(super) fn units(count: Quantity) -> String {
    grouped(i64::try_from(count.value()).unwrap_or(i64::MAX))
}

/// A fraction with one decimal place, unless that is 0.
fn tenths(amount: i128, unit: i128) -> String {
    let tenths = (amount.saturating_mul(10) + unit / 2) / unit;
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{rest}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        let quantity = |text: &str| Quantity::parse(text).unwrap();
        for (cpu, text) in [("0", "0"), ("250m", "0.3"), ("16", "16"), ("2500m", "2.5")] {
            assert_eq!(cores(quantity(cpu)), text);
        }
        for (memory, text) in [
            ("0", "0 MiB"),
            ("512Mi", "512 MiB"),
            ("1536Mi", "1.5 GiB"),
            ("1Ti", "1024 GiB"),
        ] {
            assert_eq!(bytes(quantity(memory)), text);
        }
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (-1_234_567, "-1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!(replica_count(1), "1 replica");
        assert_eq!(counted(1, "cluster"), "1 cluster");
        assert_eq!(counted(1200, "cluster"), "1,200 clusters");
        assert_eq!(counted(2, "policy"), "2 policies");
        assert_eq!(counted(2, "day"), "2 days");
    }
}
