//! The settings in the variables CASE, SEED and DIFFERENCES_REPORT.

use std::io::Write;

use crate::differential::case::{CaseTheme, theme_names};

/// The text that the names of the cases to run contain. Panics when no theme has such a case.
pub(crate) fn case_filter() -> Option<String> {
    let text = std::env::var("CASE").ok()?;
    let names = theme_names();
    let themes = names.iter().map(|name| CaseTheme::read(name));
    let mut cases = themes.flat_map(|theme| theme.cases.into_keys());
    assert!(
        cases.any(|name| name.contains(&text)),
        "CASE={text}: no theme has a case of that name"
    );
    Some(text)
}

/// The seed of the generated sequences to run.
pub(crate) fn seed() -> Option<u64> {
    let text = std::env::var("SEED").ok()?;
    Some(text.parse().unwrap())
}

/// Where libtest does not capture it.
pub(crate) fn show(text: &str) {
    let mut errors = std::io::stderr().lock();
    errors.write_all(text.as_bytes()).unwrap();
}

/// Appends to the report, if one is asked for.
pub(crate) fn report(text: impl FnOnce() -> String) {
    let Ok(file) = std::env::var("DIFFERENCES_REPORT") else {
        return;
    };
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file);
    opened.unwrap().write_all(text().as_bytes()).unwrap();
}
