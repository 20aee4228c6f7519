//! Every item of the contract that clients break without names what proves it, or is a known gap.
//!
//! Reads `tests/contract.txt`, the cases of `tests/differential` with their known differences,
//! and the names of all tests.

use std::collections::{BTreeMap, BTreeSet};

use crate::{collect_files, root};

/// How many items are not proven. Whoever closes a gap lowers it; it ends at ten.
const GAPS: usize = 0;

enum ContractProof {
    Test(String),
    Case(String),
    Gap,
}

struct ContractItem {
    level: String,
    proofs: Vec<ContractProof>,
}

fn items() -> BTreeMap<String, ContractItem> {
    let text = std::fs::read_to_string(root().join("tests/contract.txt")).unwrap();
    let lines = text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    let mut all = BTreeMap::new();
    for line in lines {
        let mut words = line.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default().to_owned();
        let (id, level, proofs) = (next(), next(), next());
        let proofs = match proofs.strip_prefix("gap ") {
            Some(_) => vec![ContractProof::Gap],
            None => proofs
                .split(", ")
                .filter(|p| !p.is_empty())
                .map(proof)
                .collect(),
        };
        let item = ContractItem { level, proofs };
        assert!(
            all.insert(id.clone(), item).is_none(),
            "{id} is listed twice"
        );
    }
    all
}

fn proof(name: &str) -> ContractProof {
    match name.strip_prefix("case:") {
        Some(case) => ContractProof::Case(case.to_owned()),
        None => ContractProof::Test(name.to_owned()),
    }
}

/// The names of functions, including tests.
fn functions() -> BTreeSet<String> {
    let mut files = Vec::new();
    for dir in ["apiserver", "controllers", "openapi", "tests"] {
        collect_files(&root().join(dir), "rs", &mut files);
    }
    let texts = files
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap());
    texts
        .flat_map(|text| {
            let declared = text.lines().filter_map(|line| {
                let (_, rest) = line.split_once("fn ")?;
                Some(rest.split_once('(')?.0.to_owned())
            });
            declared.collect::<Vec<_>>()
        })
        .collect()
}

/// The names of the cases of all themes, and of those whose replies differ.
fn cases() -> (BTreeSet<String>, BTreeSet<String>) {
    let mut files = Vec::new();
    collect_files(&root().join("tests/differential/cases"), "yaml", &mut files);
    let mut names = BTreeSet::new();
    for path in files {
        let text = std::fs::read_to_string(path).unwrap();
        let of_cases = text.lines().skip_while(|line| *line != "cases:");
        names.extend(of_cases.filter_map(|line| {
            let name = line.strip_prefix("  ")?.strip_suffix(':')?;
            (!name.starts_with(' ')).then(|| name.to_owned())
        }));
    }
    let text = std::fs::read_to_string(root().join("tests/differential/differences.txt")).unwrap();
    let different = text.lines().filter(|line| !line.starts_with('#'));
    let different = different.filter_map(|line| line.split(' ').next());
    (names, different.map(str::to_owned).collect())
}

#[test]
fn every_item_of_the_contract_is_proven_or_a_known_gap() {
    let (functions, (cases, different)) = (functions(), cases());
    let (mut gaps, mut unknown) = (Vec::new(), Vec::new());
    for (id, item) in items() {
        match item.level.as_str() {
            "MUST" => assert!(!item.proofs.is_empty(), "{id}: neither a proof nor a gap"),
            level => assert!(
                ["SHOULD", "LATER"].contains(&level),
                "{id}: level {level:?}"
            ),
        }
        let mut is_gap = false;
        for proof in &item.proofs {
            match proof {
                ContractProof::Gap => is_gap = true,
                ContractProof::Test(name) if !functions.contains(name) => {
                    unknown.push(format!("{id}: no test {name}"));
                }
                ContractProof::Test(_) => {}
                ContractProof::Case(name) if !cases.contains(name) => {
                    unknown.push(format!("{id}: no case {name}"));
                }
                ContractProof::Case(name) => is_gap |= different.contains(name),
            }
        }
        if is_gap {
            gaps.push(id);
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert_eq!(gaps.len(), GAPS, "set GAPS to the number of gaps: {gaps:?}");
}

/// An item without a mark would be proven by nobody.
#[test]
fn every_item_of_the_contract_is_listed() {
    let listed = items();
    let text = std::fs::read_to_string(root().join("apiserver/CONTRACT.md")).unwrap();
    let mut missing = Vec::new();
    for id in text.split("**").skip(1).step_by(2) {
        let section = id.chars().next().unwrap_or_default();
        let numbered = id.len() > 1 && id[1..].chars().all(|c| c.is_ascii_digit() || c == '.');
        // D is proven by tests/aggregated, F7 by the clients themselves.
        let elsewhere = section == 'D' || section == 'G' || id.starts_with("F7");
        if section.is_ascii_uppercase() && numbered && !elsewhere && !listed.contains_key(id) {
            missing.push(id.to_owned());
        }
    }
    assert!(missing.is_empty(), "not in tests/contract.txt: {missing:?}");
}
