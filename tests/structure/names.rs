//! Names of types, functions, constants, locals, modules and files, and the header of every file.
//!
//! The words are those that say nothing to a reader who knows Kubernetes and Karmada but
//! not this tree. A synonym of a word listed here is as wrong, though no test sees it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::source::read_all;

/// A file has at most as many lines.
const MAX_FILE_LINES: usize = 800;

/// Participles, pronouns and images that stand for no concept: no type, module or file bears
/// one, not even as one of several words.
const BANNED_WORDS: [&str; 20] = [
    "aside", "asked", "beside", "figures", "given", "gone", "here", "judge", "keeper", "ledger",
    "lent", "made", "nobody", "said", "seen", "shell", "teller", "told", "whole", "wish",
];

/// Words that mean nothing alone: no type, module or file has one as its whole name.
const VAGUE_NAMES: [&str; 27] = [
    "again", "ahead", "answer", "answers", "at", "common", "found", "held", "helpers", "inner",
    "item", "items", "kept", "known", "misc", "near", "outcome", "over", "part", "parts", "place",
    "places", "shared", "utils", "wanted", "wants", "world",
];

/// Functions that are no verbs of the field.
const BANNED_FUNCTIONS: [&str; 15] = [
    "ask", "aside", "decide", "hear", "judge", "let_go", "look", "said", "say", "seen", "settle",
    "tell", "told", "wanted", "whole",
];

/// Constants that do not say what they bound.
const BANNED_CONSTANTS: [&str; 7] = [
    "ENOUGH", "LONG", "MANY", "PATIENCE", "SHORT", "SOON", "WORD",
];

/// Local variables that do not bear the noun of their type or of their part.
const BANNED_LOCALS: [&str; 20] = [
    "asked", "awaited", "found", "given", "held", "hub", "it", "known", "lent", "made", "ours",
    "place", "refused", "said", "seen", "theirs", "told", "wanted", "whole", "why",
];

/// `EtcdWatchStream` → etcd, watch, stream.
fn words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for c in name.chars() {
        if c.is_uppercase() || words.is_empty() {
            words.push(String::new());
        }
        match c {
            '_' => words.push(String::new()),
            c => words.last_mut().unwrap().extend(c.to_lowercase()),
        }
    }
    words.retain(|w| !w.is_empty());
    words
}

fn is_banned(name: &str) -> bool {
    let words = words(name);
    words.iter().any(|w| BANNED_WORDS.contains(&w.as_str()))
        || VAGUE_NAMES.contains(&words.join("_").as_str())
}

#[test]
fn types_are_noun_phrases_that_stand_alone() {
    let mut wrong = Vec::new();
    for file in read_all() {
        for name in file.types.iter().filter(|name| is_banned(name)) {
            wrong.push(format!("{}: {name}", file.path));
        }
    }
    assert!(wrong.is_empty(), "{} types: {wrong:#?}", wrong.len());
}

#[test]
fn types_are_named_for_their_role_and_not_for_their_fields() {
    let mut wrong = Vec::new();
    for file in read_all() {
        let lists_fields = |name: &&String| words(name).iter().any(|word| word == "and");
        for name in file.types.iter().filter(lists_fields) {
            wrong.push(format!("{}: {name}", file.path));
        }
    }
    assert!(wrong.is_empty(), "{} types: {wrong:#?}", wrong.len());
}

#[test]
fn modules_are_named_for_what_they_hold() {
    let mut wrong = BTreeSet::new();
    for file in read_all() {
        let path = Path::new(&file.path);
        for part in path.with_extension("").iter() {
            if is_banned(&part.to_string_lossy()) {
                wrong.insert(file.path.clone());
            }
        }
    }
    assert!(wrong.is_empty(), "{} files: {wrong:#?}", wrong.len());
}

#[test]
fn functions_and_constants_use_the_words_of_the_field() {
    let mut wrong = Vec::new();
    for file in read_all() {
        let functions = file.functions.iter();
        let constants = file.constants.iter();
        let banned = functions
            .filter(|f| BANNED_FUNCTIONS.contains(&f.as_str()))
            .chain(constants.filter(|c| BANNED_CONSTANTS.contains(&c.as_str())));
        wrong.extend(banned.map(|name| format!("{}: {name}", file.path)));
    }
    assert!(wrong.is_empty(), "{} names: {wrong:#?}", wrong.len());
}

#[test]
fn local_variables_bear_nouns() {
    let mut wrong = Vec::new();
    for file in read_all() {
        let banned = file
            .locals
            .iter()
            .filter(|name| BANNED_LOCALS.contains(&name.as_str()));
        wrong.extend(banned.map(|name| format!("{}: {name}", file.path)));
    }
    assert!(wrong.is_empty(), "{} locals: {wrong:#?}", wrong.len());
}

/// The first paragraph of a file's header, as one line.
fn summary(text: &str) -> String {
    let header = text.lines().map_while(|l| l.strip_prefix("//!"));
    let paragraph = header.map(str::trim).take_while(|l| !l.is_empty());
    paragraph.collect::<Vec<_>>().join(" ")
}

#[test]
fn files_begin_with_one_plain_sentence() {
    let mut wrong = Vec::new();
    for file in read_all() {
        let summary = summary(&file.text);
        let is_sentence = summary.ends_with(['.', ':'])
            && summary.starts_with(|c: char| c.is_uppercase() || c == '`' || c == '[');
        // The formula is spelled in pieces, so that this file does not bear it.
        let has_formula = [concat!("Ente", "rs:"), concat!("Lea", "ves:")]
            .iter()
            .any(|formula| file.text.contains(formula));
        if !is_sentence || has_formula {
            wrong.push(format!("{}: {summary}", file.path));
        }
    }
    assert!(wrong.is_empty(), "{} headers: {wrong:#?}", wrong.len());
}

#[test]
fn files_stay_short() {
    let mut wrong = Vec::new();
    for file in read_all() {
        let lines = file.text.lines().count();
        if lines > MAX_FILE_LINES {
            wrong.push(format!("{} ({lines})", file.path));
        }
    }
    assert!(wrong.is_empty(), "past {MAX_FILE_LINES} lines: {wrong:?}");
}
