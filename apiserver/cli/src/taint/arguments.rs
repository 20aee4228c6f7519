//! Parses the arguments of `flotilla taint`: names of clusters, taints to set and taints to
//! remove, with the messages of karmadactl (`pkg/karmadactl/taint/taint.go`) and of kubectl
//! (`pkg/cmd/taint/utils.go`).

use anyhow::{bail, ensure};
use karmada_api::cluster::Taint;
use machinery::names::{validate_label_value, validate_qualified_name};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The changes that the arguments request.
#[derive(Debug, Default)]
pub(super) struct TaintUpdate {
    pub(super) clusters: Vec<String>,
    pub(super) additions: Vec<Taint>,
    /// With an empty effect: all taints of the key.
    pub(super) removals: Vec<Taint>,
}

pub(super) fn parse(arguments: &[String]) -> anyhow::Result<TaintUpdate> {
    let is_taint = |text: &&String| text.contains(['=', ':']) || text.ends_with('-');
    let resources: Vec<&String> = arguments.iter().take_while(|a| !is_taint(a)).collect();
    let specs = &arguments[resources.len()..];
    if let Some(late) = specs.iter().find(|spec| !is_taint(spec)) {
        bail!("all resources must be specified before taint changes: {late}");
    }
    let Some((kind, clusters)) = resources.split_first() else {
        bail!("one or more resources must be specified as <resource> <name>");
    };
    ensure!(!specs.is_empty(), "at least one taint update is required");
    let mut update = TaintUpdate {
        clusters: clusters.iter().map(|&name| name.clone()).collect(),
        ..TaintUpdate::default()
    };
    for spec in specs {
        update.add(spec)?;
    }
    let kind = kind.to_lowercase();
    ensure!(
        kind == "cluster" || kind == "clusters",
        "invalid resource type {kind}, only [\"cluster\" \"clusters\"] are supported"
    );
    update.refuse_contradictions()?;
    ensure!(
        !update.clusters.is_empty(),
        "at least one resource name must be specified"
    );
    Ok(update)
}

impl TaintUpdate {
    fn add(&mut self, spec: &str) -> anyhow::Result<()> {
        if let Some(removed) = spec.strip_suffix('-') {
            let taint = parse_taint(removed)?;
            self.removals.push(Taint {
                value: String::new(),
                ..taint
            });
            return Ok(());
        }
        let taint = parse_taint(spec)?;
        ensure!(!taint.effect.is_empty(), "invalid taint spec: {spec}");
        let is_duplicate = |other: &Taint| is_same_taint(other, &taint);
        if self.additions.iter().any(is_duplicate) {
            let Taint {
                key, value, effect, ..
            } = &taint;
            bail!(
                "duplicated taints with the same key and effect: {{{key} {value} {effect} <nil>}}"
            );
        }
        self.additions.push(taint);
        Ok(())
    }

    /// Refuses to set and to remove one taint in the same command.
    fn refuse_contradictions(&self) -> anyhow::Result<()> {
        let mut both = Vec::new();
        for addition in &self.additions {
            let contradicts = |removal: &&Taint| {
                removal.key == addition.key
                    && (removal.effect.is_empty() || removal.effect == addition.effect)
            };
            let removals = self.removals.iter().filter(contradicts);
            both.extend(removals.map(|r| format!("{{\"{}\":\"{}\"}}", r.key, r.effect)));
        }
        ensure!(
            both.is_empty(),
            "can not both modify and remove the following taint(s) in the same command: {}",
            both.join(", ")
        );
        Ok(())
    }
}

/// Whether two taints are the same but for their value (`MatchTaint`).
pub(super) fn is_same_taint(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

/// Parses `KEY`, `KEY:EFFECT` or `KEY=VALUE:EFFECT`.
fn parse_taint(spec: &str) -> anyhow::Result<Taint> {
    let mut taint = Taint::default();
    match spec.split(':').collect::<Vec<_>>().as_slice() {
        [key] => taint.key = (*key).to_owned(),
        [pair, effect] => {
            ensure!(
                EFFECTS.contains(effect),
                "invalid taint effect: {effect}, unsupported taint effect"
            );
            taint.effect = (*effect).to_owned();
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            ensure!(!value.contains('='), "invalid taint spec: {spec}");
            if let Err(reason) = validate_label_value(value) {
                bail!("invalid taint spec: {spec}, {reason}");
            }
            (taint.key, taint.value) = (key.to_owned(), value.to_owned());
        }
        _ => bail!("invalid taint spec: {spec}"),
    }
    if let Err(reason) = validate_qualified_name(&taint.key) {
        bail!("invalid taint spec: {spec}, {reason}");
    }
    Ok(taint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<TaintUpdate, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_are_clusters_additions_and_removals() {
        let update = parse_line("clusters a b k=v:NoSchedule k:NoExecute old:NoSchedule- gone-");
        let update = update.unwrap();
        assert_eq!(update.clusters, ["a", "b"]);
        let text = |t: &Taint| format!("{}={}:{}", t.key, t.value, t.effect);
        let additions: Vec<String> = update.additions.iter().map(text).collect();
        assert_eq!(additions, ["k=v:NoSchedule", "k=:NoExecute"]);
        let removals: Vec<String> = update.removals.iter().map(text).collect();
        assert_eq!(removals, ["old=:NoSchedule", "gone=:"]);
    }

    #[test]
    fn wrong_arguments_are_refused_with_the_messages_of_karmadactl() {
        let table = [
            (
                "k=v:NoSchedule",
                "one or more resources must be specified as <resource> <name>",
            ),
            ("clusters a", "at least one taint update is required"),
            (
                "clusters a k:NoSchedule b",
                "all resources must be specified before taint changes: b",
            ),
            (
                "nodes a k:NoSchedule",
                "invalid resource type nodes, only [\"cluster\" \"clusters\"] are supported",
            ),
            (
                "clusters k:NoSchedule",
                "at least one resource name must be specified",
            ),
            (
                "clusters a k:NoSchedule k-",
                "can not both modify and remove the following taint(s) in the same command: {\"k\":\"\"}",
            ),
            (
                "clusters a k=a:NoSchedule k=b:NoSchedule",
                "duplicated taints with the same key and effect: {k b NoSchedule <nil>}",
            ),
            (
                "clusters a k:Never",
                "invalid taint effect: Never, unsupported taint effect",
            ),
            ("clusters a k=v", "invalid taint spec: k=v, name part "),
            (
                "clusters a k=v=w:NoSchedule",
                "invalid taint spec: k=v=w:NoSchedule",
            ),
            ("clusters a k:a:b", "invalid taint spec: k:a:b"),
            (
                "clusters a k=-:NoSchedule",
                "invalid taint spec: k=-:NoSchedule, ",
            ),
        ];
        for (line, message) in table {
            let error = parse_line(line).unwrap_err();
            assert!(error.starts_with(message), "{line}: {error}");
        }
    }
}
