//! The signatures that a library lists for each overload of its functions: its declaration as text, and the
//! code that evaluates it.
//!
//! `<string>.contains(string) bool` is called on a string, `size(string) int` is not. `A`, `B`
//! stand for any type.

use crate::meter::Meter;
use crate::value::{EvaluationResult, Value};

/// Calls a function; the receiver is the first argument.
pub(crate) type Function = for<'a> fn(&[Value<'a>], &mut Meter<'_>) -> EvaluationResult<'a>;

/// The declaration of one overload, as a library writes it: cel-go's id, the types, the code.
pub(crate) type DeclaredOverload = (&'static str, &'static str, Function);
