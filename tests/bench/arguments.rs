//! The arguments of groups.

use anyhow::{Context, ensure};

/// The number in an argument such as `--members=N`.
pub(crate) fn number_argument(name: &str, default: usize) -> anyhow::Result<usize> {
    let mut arguments = std::env::args();
    let number = arguments.find_map(|argument| {
        let number = argument.strip_prefix(name)?.strip_prefix('=')?;
        Some(number.to_owned())
    });
    match number {
        Some(number) => number.parse().with_context(|| name.to_owned()),
        None => Ok(default),
    }
}

/// The number in `--members=N`.
pub(crate) fn member_count(default: usize) -> anyhow::Result<usize> {
    let members = number_argument("--members", default)?;
    ensure!(members > 1, "at least two members");
    Ok(members)
}
