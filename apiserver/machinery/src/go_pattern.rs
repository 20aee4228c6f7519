//! Regular expressions in Go's syntax, in which `\d`, `\w`, `\s` and `\b` know ASCII only.
//!
//! A short text may be a large program (`(\pL{1000}){100}`), so that the size of one is bounded,
//! the sum that one definition may name ([`PatternBudget`]), and what the process keeps compiled:
//! [`GoPattern::cached`] compiles a pattern again that was not used for long.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::util::syntax;

/// How many bytes the program of one pattern may take.
const MAX_PROGRAM_BYTES: usize = 1 << 20;
/// The bytes that the states of a search may take, in each direction.
const SEARCH_BYTES: usize = 64 << 10;
/// How many bytes the patterns of one definition may take, compiled.
const MAX_DEFINITION_BYTES: usize = 16 << 20;
/// How many bytes of compiled patterns the process keeps.
const MAX_CACHED_BYTES: usize = 128 << 20;

static CACHE: LazyLock<Mutex<PatternCache>> = LazyLock::new(Mutex::default);

/// A compiled pattern.
#[derive(Debug)]
pub struct GoPattern(Regex);

/// Why a pattern is not compiled.
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// The text is Go's.
    #[error("{0}")]
    Syntax(String),
    #[error("the regular expression takes more than {MAX_PROGRAM_BYTES} bytes when it is compiled")]
    TooLarge,
    #[error(
        "the regular expressions of the object take more than {MAX_DEFINITION_BYTES} bytes when they are compiled"
    )]
    OverBudget,
}

impl GoPattern {
    pub fn compile(pattern: &str) -> Result<Self, PatternError> {
        let config = Config::new()
            .nfa_size_limit(Some(MAX_PROGRAM_BYTES))
            .onepass_size_limit(Some(SEARCH_BYTES))
            .hybrid_cache_capacity(SEARCH_BYTES);
        let compiled = Regex::builder()
            .configure(config)
            .syntax(syntax::Config::new().nest_limit(100))
            .build(&translate(pattern));
        compiled
            .map(Self)
            .map_err(|detail| pattern_error(pattern, &detail))
    }

    /// As [`Self::compile`], for a pattern that is used again.
    pub fn cached(pattern: &str) -> Result<Arc<Self>, PatternError> {
        if let Some(compiled) = CACHE.lock().get(pattern) {
            return Ok(compiled);
        }
        let compiled = Arc::new(Self::compile(pattern)?);
        CACHE.lock().insert(pattern, &compiled);
        Ok(compiled)
    }

    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// Where the pattern matches first.
    pub fn find(&self, text: &str) -> Option<Range<usize>> {
        self.0.find(text).map(|matched| matched.range())
    }

    /// Where the pattern matches, without overlaps.
    pub fn find_all<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
        self.0.find_iter(text).map(|matched| matched.range())
    }

    /// The bytes of the pattern, with the states of its searches.
    fn memory_bytes(&self) -> usize {
        self.0.memory_usage() + 2 * SEARCH_BYTES
    }
}

fn pattern_error(pattern: &str, error: &BuildError) -> PatternError {
    if error.size_limit().is_some() {
        return PatternError::TooLarge;
    }
    let detail = error
        .syntax_error()
        .map_or_else(|| error.to_string(), ToString::to_string);
    let reason = detail.lines().last().unwrap_or_default();
    let reason = reason.trim_start_matches("error: ");
    PatternError::Syntax(format!("error parsing regexp: {reason}: `{pattern}`"))
}

/// The patterns that one object defines, which share a bound on what they take. Clones share it,
/// too.
#[derive(Clone, Debug, Default)]
pub struct PatternBudget(Arc<Mutex<DefinedPatterns>>);

#[derive(Debug, Default)]
struct DefinedPatterns {
    patterns: HashSet<Box<str>>,
    bytes: usize,
}

impl PatternBudget {
    /// Compiles a pattern of the object. Beyond the bound no more are compiled.
    pub fn add(&self, pattern: &str) -> Result<(), PatternError> {
        let mut defined = self.0.lock();
        if defined.patterns.contains(pattern) {
            return Ok(());
        }
        if defined.bytes > MAX_DEFINITION_BYTES {
            return Err(PatternError::OverBudget);
        }
        let compiled = GoPattern::cached(pattern);
        // A refused pattern has taken as long to compile.
        defined.bytes += match &compiled {
            Ok(compiled) => compiled.0.memory_usage(),
            Err(PatternError::Syntax(_)) => 0,
            Err(_) => MAX_PROGRAM_BYTES,
        };
        compiled?;
        if defined.bytes > MAX_DEFINITION_BYTES {
            return Err(PatternError::OverBudget);
        }
        defined.patterns.insert(pattern.into());
        Ok(())
    }
}

/// The compiled patterns that were used last.
#[derive(Default)]
struct PatternCache {
    patterns: HashMap<Box<str>, CachedPattern>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

struct CachedPattern {
    compiled: Arc<GoPattern>,
    used_at: u64,
}

impl PatternCache {
    fn get(&mut self, pattern: &str) -> Option<Arc<GoPattern>> {
        self.clock += 1;
        let cached = self.patterns.get_mut(pattern)?;
        cached.used_at = self.clock;
        Some(Arc::clone(&cached.compiled))
    }

    fn insert(&mut self, pattern: &str, compiled: &Arc<GoPattern>) {
        let cached = CachedPattern {
            compiled: Arc::clone(compiled),
            used_at: self.clock,
        };
        self.bytes += compiled.memory_bytes();
        if let Some(replaced) = self.patterns.insert(pattern.into(), cached) {
            self.bytes -= replaced.compiled.memory_bytes();
        }
        if self.bytes > MAX_CACHED_BYTES {
            self.evict();
        }
    }

    /// Drops those that were not used for the longest, until a quarter is free.
    fn evict(&mut self) {
        let mut uses: Vec<u64> = self
            .patterns
            .values()
            .map(|cached| cached.used_at)
            .collect();
        uses.sort_unstable();
        for used_at in uses {
            if self.bytes <= MAX_CACHED_BYTES / 4 * 3 {
                break;
            }
            let bytes = &mut self.bytes;
            self.patterns.retain(|_, cached| {
                let keeps = cached.used_at != used_at;
                if !keeps {
                    *bytes -= cached.compiled.memory_bytes();
                }
                keeps
            });
        }
    }
}

/// The pattern in the syntax of the crate `regex`.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut class = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => translate_escape(&mut out, &mut chars, class),
            '[' if class => {
                // A named class is the only bracket that is special within a class.
                let special = chars.peek() == Some(&':');
                out.push_str(if special { "[" } else { "\\[" });
                if special {
                    for c in chars.by_ref() {
                        out.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                }
            }
            '[' => {
                class = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket that comes first stands for itself.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            ']' if class => {
                class = false;
                out.push(']');
            }
            '&' | '~' if class => {
                out.push('\\');
                out.push(c);
            }
            other => out.push(other),
        }
    }
    out
}

fn translate_escape(
    out: &mut String,
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    class: bool,
) {
    let ascii = match chars.next() {
        Some('d') => "0-9",
        Some('D') => "^0-9",
        Some('w') => "0-9A-Za-z_",
        Some('W') => "^0-9A-Za-z_",
        Some('s') => "\\t\\n\\x0C\\r ",
        Some('S') => "^\\t\\n\\x0C\\r ",
        Some('b') if !class => return out.push_str("(?-u:\\b)"),
        Some('B') if !class => return out.push_str("(?-u:\\B)"),
        Some('Q') => {
            let mut rest = String::new();
            for c in chars.by_ref() {
                rest.push(c);
                if rest.ends_with("\\E") {
                    rest.truncate(rest.len() - 2);
                    break;
                }
            }
            return out.push_str(&escaped(&rest));
        }
        other => {
            out.push('\\');
            out.extend(other);
            return;
        }
    };
    if class && !ascii.starts_with('^') {
        out.push_str(ascii);
    } else {
        out.push('[');
        out.push_str(ascii);
        out.push(']');
    }
}

/// Every character of the text stands for itself.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_gos_meaning() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{664}", false),
            (r"^[\w.-]+$", "a_b.c-1", true),
            (r"^[\w]+$", "\u{e9}", false),
            (r"^[^\d]$", "x", true),
            (r"^[\D]$", "x", true),
            (r"^[[a]$", "[", true),
            (r"^[]a]$", "]", true),
            (r"^[a&&b]+$", "&a", true),
            (r"^[[:alpha:]_]+$", "ab_", true),
            (r"\bcat\b", "a cat.", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^.$", "\u{e9}", true),
        ] {
            let compiled = GoPattern::compile(pattern).unwrap();
            assert_eq!(compiled.is_match(text), matches, "{pattern} {text}");
        }
        for pattern in ["(", "[", "(?=x)", r"\1", "a{1000}{1000}{1000}"] {
            assert!(GoPattern::compile(pattern).is_err(), "{pattern}");
        }
    }

    /// Patterns of six bytes and more whose programs take most of the limit of one.
    fn large(number: usize) -> String {
        format!("a{{{}}}b{{{}}}", 900, number + 1)
    }

    #[test]
    fn the_patterns_of_an_object_share_a_bound() {
        let budget = PatternBudget::default();
        let huge = budget.add("(a{1000}){1000}").unwrap_err();
        assert!(matches!(huge, PatternError::TooLarge), "{huge}");
        let error = (0..5_000).map(large).find_map(|p| budget.add(&p).err());
        assert!(matches!(error, Some(PatternError::OverBudget)));
        // Patterns that it has already cost nothing more.
        budget.add(&large(0)).unwrap();
        assert!(budget.0.lock().bytes < MAX_DEFINITION_BYTES + 4 * MAX_PROGRAM_BYTES);
        // Another object has its own.
        PatternBudget::default().add("^x+$").unwrap();
    }

    #[test]
    fn the_process_keeps_the_patterns_that_are_used() {
        let mut cache = PatternCache::default();
        let used_pattern = "^kept$";
        cache.insert(
            used_pattern,
            &Arc::new(GoPattern::compile(used_pattern).unwrap()),
        );
        let compiled = Arc::new(GoPattern::compile(&large(0)).unwrap());
        let count = 2 * MAX_CACHED_BYTES / compiled.memory_bytes();
        for number in 0..count {
            assert!(cache.get(used_pattern).is_some());
            cache.insert(&large(number), &compiled);
            assert!(cache.bytes <= MAX_CACHED_BYTES);
        }
        assert!(cache.get(&large(0)).is_none());
        let sum = |bytes, cached: &CachedPattern| bytes + cached.compiled.memory_bytes();
        assert_eq!(cache.bytes, cache.patterns.values().fold(0, sum));
    }
}
