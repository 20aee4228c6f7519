//! Counts what an evaluation costs and ends it at a limit, so that no expression can occupy
//! the server (`cel-go/interpreter/runtimecost.go`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use machinery::go_pattern::{GoPattern, PatternError};

use crate::authorization::{AuthorizationCheck, AuthorizationDecision, AuthorizationDecisions};
use crate::error::EvalError;

/// How many elements one evaluation may read, copy or compare. cel-go's cost of some functions
/// does not grow with what they read, so that the work itself has a bound of its own.
const MAX_STEPS: u64 = 10_000_000;
/// How many patterns that are computed, not written in the expression, are kept compiled.
const MAX_COMPUTED_PATTERNS: usize = 64;

/// The cost of one evaluation so far.
pub(crate) struct Meter<'p> {
    cost: u64,
    limit: u64,
    steps: u64,
    /// The patterns that are written in the expression.
    patterns: &'p HashSet<String>,
    computed_patterns: HashMap<String, Arc<GoPattern>>,
    decisions: Option<&'p AuthorizationDecisions>,
}

impl<'p> Meter<'p> {
    pub(crate) fn new(limit: u64, patterns: &'p HashSet<String>) -> Self {
        Self {
            cost: 0,
            limit,
            steps: 0,
            patterns,
            computed_patterns: HashMap::new(),
            decisions: None,
        }
    }

    /// Makes decisions of the authorizer known.
    pub(crate) fn with_decisions(mut self, decisions: &'p AuthorizationDecisions) -> Self {
        self.decisions = Some(decisions);
        self
    }

    pub(crate) fn decision(&self, check: &AuthorizationCheck) -> Option<&AuthorizationDecision> {
        self.decisions?.get(check)
    }

    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            return Err(EvalError::CostLimitExceeded);
        }
        Ok(())
    }

    /// Counts steps of work that no cost stands for.
    pub(crate) fn work(&mut self, steps: u64) -> Result<(), EvalError> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > MAX_STEPS {
            return Err(EvalError::CostLimitExceeded);
        }
        Ok(())
    }

    /// Counts one comparison of two elements.
    pub(crate) fn compare_element(&mut self) -> Result<(), EvalError> {
        self.work(1)
    }

    pub(crate) fn regex(&mut self, pattern: &str) -> Result<Arc<GoPattern>, EvalError> {
        let failed = |error: PatternError| EvalError::new(error.to_string());
        if self.patterns.contains(pattern) {
            return GoPattern::cached(pattern).map_err(failed);
        }
        if let Some(compiled) = self.computed_patterns.get(pattern) {
            return Ok(Arc::clone(compiled));
        }
        let compiled = Arc::new(GoPattern::compile(pattern).map_err(failed)?);
        if self.computed_patterns.len() >= MAX_COMPUTED_PATTERNS {
            self.computed_patterns.clear();
        }
        self.computed_patterns
            .insert(pattern.to_owned(), Arc::clone(&compiled));
        Ok(compiled)
    }
}
