//! Every behavior has a test and a section of the specification, every test names the
//! behaviors that it proves, and every example of the specification is a scenario.
//!
//! Reads `tests/behaviors.txt` (id, section of a `BEHAVIOR.md`, one line), the
//! comments `// proves: A, B` above tests, those `# proves: A, B` above rows of the
//! `.txt` tables that tests read, and the `proves` of scenarios.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{collect_files, root};

const MARKER: &str = concat!("// ", "proves:");
const TABLE_MARKER: &str = "# proves:";

struct SpecifiedBehavior {
    section: String,
    text: String,
}

fn listed() -> BTreeMap<String, SpecifiedBehavior> {
    let text = std::fs::read_to_string(root().join("tests/behaviors.txt")).unwrap();
    let lines = text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'));
    let mut all = BTreeMap::new();
    for line in lines {
        let mut words = line.splitn(3, ' ').map(str::trim);
        let mut next = || words.next().unwrap_or_default().to_owned();
        let (id, section, text) = (next(), next(), next());
        assert!(!all.contains_key(&id), "{id} is listed twice");
        all.insert(id, SpecifiedBehavior { section, text });
    }
    all
}

fn ids(list: &str) -> impl Iterator<Item = String> {
    let ids = list.split(',').map(str::trim).filter(|id| !id.is_empty());
    ids.map(str::to_owned)
}

/// The parts of the specification: `BEHAVIOR.md` in folders of crates and above them.
fn specification() -> Vec<String> {
    let mut files = Vec::new();
    for dir in ["apiserver", "controllers", "openapi"] {
        collect_files(&root().join(dir), "md", &mut files);
    }
    files.retain(|path| path.ends_with("BEHAVIOR.md"));
    let texts = files.iter();
    texts
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

/// The numbers of the headings of the specification: `### 4.2 Templates` has 4.2.
fn specified_sections() -> BTreeSet<String> {
    let mut sections = BTreeSet::new();
    for text in specification() {
        let headings = text.lines().filter_map(|line| {
            let title = line.trim_start_matches('#');
            (title.len() < line.len()).then(|| title.trim())
        });
        let numbers = headings
            .filter_map(|title| title.split(' ').next())
            .filter(|number| number.starts_with(|c: char| c.is_ascii_digit()));
        for number in numbers {
            assert!(
                sections.insert(number.to_owned()),
                "{number} is there twice"
            );
        }
    }
    sections
}

#[test]
fn every_cited_section_is_specified() {
    let sections = specified_sections();
    let missing: Vec<String> = listed()
        .into_iter()
        .filter(|(_, behavior)| !sections.contains(&behavior.section))
        .map(|(id, behavior)| format!("{id} {}", behavior.section))
        .collect();
    assert!(
        missing.is_empty(),
        "sections without a heading in any BEHAVIOR.md: {missing:?}"
    );
}

/// The spans of code of an example that look like names of scenarios: words with dashes.
fn cited_scenarios(paragraph: &str) -> impl Iterator<Item = &str> {
    let spans = paragraph.split('`').skip(1).step_by(2);
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    spans.filter(move |span| span.matches('-').count() > 1 && span.chars().all(is_name))
}

#[test]
fn every_example_of_the_specification_is_a_scenario() {
    let mut files = Vec::new();
    collect_files(&root().join("tests/scenarios"), "yaml", &mut files);
    let texts = files
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap());
    let names: BTreeSet<String> = texts
        .flat_map(|text| {
            let names = text.lines().filter_map(|line| line.strip_prefix("name: "));
            names.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let mut cited = 0;
    for text in specification() {
        // A table belongs to the paragraph before it.
        let text = text.replace("\n\n|", "\n|");
        let examples = text
            .split("\n\n")
            .filter(|paragraph| paragraph.starts_with("Example"));
        for name in examples.flat_map(cited_scenarios) {
            assert!(names.contains(name), "no scenario {name}");
            cited += 1;
        }
    }
    assert!(cited > 15, "{cited}");
}

/// Of one source file: a comment stands directly above the attributes of its test.
fn of_source(path: &Path, proven: &mut BTreeMap<String, String>) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some(list) = line.strip_prefix(MARKER) else {
            continue;
        };
        let below = lines.peek().copied().unwrap_or_default();
        assert!(
            below.starts_with("#[") || below.starts_with(MARKER),
            "{}: {line:?} stands above no test",
            path.display()
        );
        for id in ids(list) {
            proven.insert(id, path.display().to_string());
        }
    }
}

/// Of one table: a comment stands above the rows that prove what it says.
fn of_table(path: &Path, proven: &mut BTreeMap<String, String>) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some(list) = line.strip_prefix(TABLE_MARKER) else {
            continue;
        };
        let below = lines.peek().copied().unwrap_or_default();
        let is_row = !below.starts_with('#') && below.contains('|');
        assert!(
            is_row || below.starts_with(TABLE_MARKER),
            "{}: {line:?} stands above no row",
            path.display()
        );
        for id in ids(list) {
            proven.insert(id, path.display().to_string());
        }
    }
}

/// Of one file of scenarios, each of which proves something.
fn of_scenarios(path: &Path, proven: &mut BTreeMap<String, String>) {
    let text = std::fs::read_to_string(path).unwrap();
    let lists = text.lines().filter_map(|line| {
        let list = line.strip_prefix("proves: [")?.strip_suffix(']')?;
        Some(list.to_owned())
    });
    let mut scenarios = 0;
    for list in lists {
        scenarios += 1;
        assert!(
            ids(&list).next().is_some(),
            "{}: proves nothing",
            path.display()
        );
        for id in ids(&list) {
            proven.insert(id, path.display().to_string());
        }
    }
    let named = text.lines().filter(|l| l.starts_with("name: ")).count();
    assert_eq!(
        scenarios,
        named,
        "{}: scenarios without proves",
        path.display()
    );
}

/// Id → a file that proves it.
fn tested_behaviors() -> BTreeMap<String, String> {
    let (mut files, mut tables) = (Vec::new(), Vec::new());
    for dir in ["apiserver", "controllers", "openapi", "tests"] {
        collect_files(&root().join(dir), "rs", &mut files);
        collect_files(&root().join(dir), "txt", &mut tables);
    }
    let mut proven = BTreeMap::new();
    for file in &files {
        of_source(file, &mut proven);
    }
    for table in &tables {
        of_table(table, &mut proven);
    }
    for entry in std::fs::read_dir(root().join("tests/scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "yaml") {
            of_scenarios(&path, &mut proven);
        }
    }
    proven
}

fn well_formed(id: &str) -> bool {
    let (area, rest) = id.split_once('-').unwrap_or_default();
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    area.len() == 3
        && area.chars().all(|c| c.is_ascii_uppercase())
        && !rest.is_empty()
        && rest.chars().all(lower)
}

#[test]
fn every_behavior_has_a_test_and_every_test_a_behavior() {
    let (listed, proven) = (listed(), tested_behaviors());
    for (id, behavior) in &listed {
        assert!(well_formed(id), "{id:?} is no id such as ABC-what-it-is");
        let section = &behavior.section;
        let digits = |p: &str| !p.is_empty() && p.chars().all(|c| c.is_ascii_digit());
        assert!(
            section.split('.').all(digits),
            "{id}: {section:?} is no section"
        );
        assert!(!behavior.text.is_empty(), "{id} says nothing");
    }
    let listed_ids: BTreeSet<&String> = listed.keys().collect();
    let tested: BTreeSet<&String> = proven.keys().collect();
    let untested: Vec<_> = listed_ids.difference(&tested).collect();
    assert!(untested.is_empty(), "without a test: {untested:?}");
    let unlisted = tested.difference(&listed_ids);
    let unlisted: Vec<String> = unlisted
        .map(|id| format!("{id} ({})", proven[*id]))
        .collect();
    assert!(
        unlisted.is_empty(),
        "not in tests/behaviors.txt: {unlisted:#?}"
    );
}
