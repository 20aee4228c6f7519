//! The words of the command line that a shell completes, and which of them the cursor is in.

use std::ffi::{OsStr, OsString};

/// Set by the scripts of bash and zsh; the others pass the words up to the cursor.
const INDEX_VARIABLE: &str = "_CLAP_COMPLETE_INDEX";

/// The words from the name of the binary on. Bash splits `--flag=value` at the equals sign;
/// here it is one word again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CompletedWords {
    pub(super) words: Vec<OsString>,
    pub(super) index: usize,
    /// The start of the current word that bash does not count to it: `--flag=`.
    pub(super) joined_prefix: String,
}

impl CompletedWords {
    /// The words after the first `--` among the arguments of this process.
    pub(super) fn from_shell(arguments: &[OsString]) -> Self {
        let mut words = arguments.iter().skip_while(|word| *word != "--").skip(1);
        let words: Vec<OsString> = words.by_ref().cloned().collect();
        let index = std::env::var(INDEX_VARIABLE).ok();
        let index = index.and_then(|index| index.parse().ok());
        Self::join(&words, index.unwrap_or(words.len().saturating_sub(1)))
    }

    fn join(words: &[OsString], index: usize) -> Self {
        let mut joined = Self::default();
        let mut ends_with_equals = false;
        for (at, word) in words.iter().enumerate() {
            let is_equals = word == "=" && at != index;
            let last = joined.words.last_mut();
            match last.filter(|last| ends_with_equals || (is_equals && is_long_flag(last))) {
                Some(flag) => {
                    if ends_with_equals && at == index {
                        joined.joined_prefix = flag.to_string_lossy().into_owned();
                    }
                    flag.push(word);
                    ends_with_equals = is_equals && !ends_with_equals;
                }
                None => {
                    joined.words.push(word.clone());
                    ends_with_equals = false;
                }
            }
            if at == index {
                joined.index = joined.words.len() - 1;
            }
        }
        // Zsh does not pass an empty word at the end.
        if index >= words.len() {
            joined.index = joined.words.len();
            joined.words.push(OsString::new());
        }
        joined
    }

    pub(super) fn before_cursor(&self) -> &[OsString] {
        &self.words[..self.index]
    }

    pub(super) fn current(&self) -> &OsStr {
        &self.words[self.index]
    }
}

fn is_long_flag(word: &OsStr) -> bool {
    let word = word.to_string_lossy();
    word.len() > 2 && word.starts_with("--") && !word.contains('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: CLI-completion
    #[test]
    fn words_that_bash_splits_are_joined() {
        let table = [
            (&["f", "get", ""][..], 2, &["f", "get", ""][..], 2, ""),
            (&["f", "get"], 2, &["f", "get", ""], 2, ""),
            (
                &["f", "get", "--namespace", "=", "sh"],
                4,
                &["f", "get", "--namespace=sh"],
                2,
                "--namespace=",
            ),
            (
                &["f", "--namespace", "=", "shop", "get", "x"],
                5,
                &["f", "--namespace=shop", "get", "x"],
                3,
                "",
            ),
            // Of `--namespace=` with the cursor behind it bash makes an empty word.
            (
                &["f", "get", "--namespace", ""],
                3,
                &["f", "get", "--namespace", ""],
                3,
                "",
            ),
            (&["f", "a", "=", "b"], 3, &["f", "a", "=", "b"], 3, ""),
        ];
        for (words, index, expected, at, prefix) in table {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let joined = CompletedWords::join(&words, index);
            assert_eq!(joined.words, expected, "{words:?}");
            assert_eq!((joined.index, &*joined.joined_prefix), (at, prefix));
        }
    }
}
