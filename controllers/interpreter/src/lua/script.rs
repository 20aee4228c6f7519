//! A script, its bytecode, and what its calls have shown so far.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use mlua::Error;
use mlua::chunk::Compiler;
use sha2::{Digest, Sha256};

use super::circuit_breaker::CircuitBreaker;
use super::ordered_tables::rewrite_tables;

/// Identifies a script by its text.
pub(crate) type ScriptHash = [u8; 32];

/// After this many consecutive quick runs a script is trusted to be quick.
const QUICK_RUNS_TO_TRUST: u32 = 8;

/// The text of a script. The thread that first runs it compiles it.
#[derive(Debug)]
pub(crate) struct LuaScript {
    source: Box<str>,
    hash: ScriptHash,
    may_use_random: bool,
    /// Consecutive quick runs.
    quick_runs: AtomicU32,
    bytecode: OnceLock<Result<Vec<u8>, String>>,
    breaker: CircuitBreaker,
}

impl LuaScript {
    pub(crate) fn new(source: &str) -> Self {
        Self {
            source: source.into(),
            hash: Sha256::digest(source.as_bytes()).into(),
            may_use_random: source.contains("math") || source.contains("_G"),
            quick_runs: AtomicU32::new(0),
            bytecode: OnceLock::new(),
            breaker: CircuitBreaker::default(),
        }
    }

    pub(super) fn breaker(&self) -> &CircuitBreaker {
        &self.breaker
    }

    pub(crate) fn hash(&self) -> &ScriptHash {
        &self.hash
    }

    /// Whether the script may use random numbers: it can reach them only by these names.
    pub(super) fn may_use_random(&self) -> bool {
        self.may_use_random
    }

    /// Whether its last runs were quick, so that it may run inline.
    pub(super) fn is_trusted(&self) -> bool {
        self.quick_runs.load(Ordering::Relaxed) >= QUICK_RUNS_TO_TRUST
    }

    pub(super) fn record_run(&self, quick: bool) {
        if !quick {
            self.quick_runs.store(0, Ordering::Relaxed);
        } else if !self.is_trusted() {
            self.quick_runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The bytecode; the error says why the script does not compile.
    pub(crate) fn bytecode(&self) -> Result<&[u8], String> {
        let compiled = self.bytecode.get_or_init(|| compile(&self.source));
        compiled.as_deref().map_err(Clone::clone)
    }
}

/// Compiles a script. The compiler recurses as deep as the text is nested, up to a limit of its own,
/// and needs 16 MiB of stack.
fn compile(source: &str) -> Result<Vec<u8>, String> {
    // Debug level 1 keeps line numbers for errors.
    let compiler = Compiler::new().set_optimization_level(1).set_debug_level(1);
    let rewritten = rewrite_tables(source);
    if matches!(rewritten, Cow::Owned(_))
        && let Ok(bytecode) = compiler.compile(&*rewritten)
    {
        return Ok(bytecode);
    }
    compiler.compile(source).map_err(|error| {
        let reason = match error {
            Error::SyntaxError { message, .. } => format!("line {message}"),
            other => other.to_string(),
        };
        if mentions_goto(source) {
            format!("{reason} (goto is not supported)")
        } else {
            reason
        }
    })
}

/// Whether the text mentions goto, which other dialects of Lua have.
fn mentions_goto(source: &str) -> bool {
    let mut words = source.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == "goto")
}
