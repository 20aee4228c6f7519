//! The cost of expressions, in cel-go's units: estimated from declared sizes before a rule is
//! accepted, and counted while it runs.
//!
//! Estimates decide which rules may be written to a CustomResourceDefinition, so they are
//! computed exactly as `cel-go/checker/cost.go` and `k8s.io/apiserver/pkg/cel/library/cost.go`
//! do.

pub(crate) mod actual;
mod call_estimates;
pub(crate) mod estimate;
mod estimated_path;
mod range;

/// Accessing an identifier or a field.
const SELECT: u64 = 1;
const CREATE_LIST: u64 = 10;
const CREATE_MAP: u64 = 30;
const CREATE_STRUCT: u64 = 40;
/// Reading one character.
const PER_CHAR: f64 = 0.1;
/// Applying one character of a pattern to one unit of a text.
const PER_PATTERN_CHAR: f64 = 0.25;
/// The longest pattern of a named format.
const FORMAT_PATTERN_CHARS: f64 = 128.0;
/// The longest name of a named format.
const MAX_FORMAT_CHARS: u64 = 64;
/// One authorization check; an expression can afford two.
const AUTHORIZATION_CHECK: u64 = 350_000;
