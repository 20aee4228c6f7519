//! A script and what is made of it once.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use mlua::Error;
use mlua::chunk::Compiler;
use sha2::{Digest, Sha256};

use super::breaker::CircuitBreaker;
use super::order::keeping;

/// By which a script is known: equal text, equal script.
pub(crate) type Hash = [u8; 32];

/// After so many quick runs in a row a script is trusted to be quick.
const TRUSTED: u32 = 8;

/// The text of a script; its bytecode is made when it is first run, by the thread that
/// runs it.
#[derive(Debug)]
pub(crate) struct Script {
    source: Box<str>,
    hash: Hash,
    draws: bool,
    /// In a row.
    quick_runs: AtomicU32,
    bytecode: OnceLock<Result<Vec<u8>, String>>,
    breaker: CircuitBreaker,
}

impl Script {
    pub(crate) fn new(source: &str) -> Self {
        Self {
            source: source.into(),
            hash: Sha256::digest(source.as_bytes()).into(),
            draws: source.contains("math") || source.contains("_G"),
            quick_runs: AtomicU32::new(0),
            bytecode: OnceLock::new(),
            breaker: CircuitBreaker::default(),
        }
    }

    pub(super) fn breaker(&self) -> &CircuitBreaker {
        &self.breaker
    }

    pub(crate) fn hash(&self) -> &Hash {
        &self.hash
    }

    /// Whether it may ask for random numbers: it cannot name what has them otherwise.
    pub(super) fn may_draw(&self) -> bool {
        self.draws
    }

    /// Whether it was quick of late.
    pub(super) fn is_trusted(&self) -> bool {
        self.quick_runs.load(Ordering::Relaxed) >= TRUSTED
    }

    pub(super) fn was_quick(&self, quick: bool) {
        if !quick {
            self.quick_runs.store(0, Ordering::Relaxed);
        } else if !self.is_trusted() {
            self.quick_runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The error says why it does not compile.
    pub(crate) fn bytecode(&self) -> Result<&[u8], String> {
        let made = self.bytecode.get_or_init(|| compile(&self.source));
        made.as_deref().map_err(Clone::clone)
    }
}

/// Recurses as deep as the text is nested, up to a limit of the compiler's own: the
/// thread needs the stack of [`super::STACK`].
fn compile(source: &str) -> Result<Vec<u8>, String> {
    // Lines are named in errors; nothing is left out that a debugger would want.
    let compiler = Compiler::new().set_optimization_level(1).set_debug_level(1);
    let kept = keeping(source);
    if matches!(kept, Cow::Owned(_))
        && let Ok(bytecode) = compiler.compile(&*kept)
    {
        return Ok(bytecode);
    }
    compiler.compile(source).map_err(|error| {
        let why = match error {
            Error::SyntaxError { message, .. } => format!("line {message}"),
            other => other.to_string(),
        };
        if jumps(source) {
            format!("{why} (goto is not supported)")
        } else {
            why
        }
    })
}

/// Whether a line begins with a goto, which other dialects of Lua know.
fn jumps(source: &str) -> bool {
    let mut words = source.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == "goto")
}
