//! Warns of amounts of bytes that are not whole.

use machinery::Quantity;
use serde_json::Value;

use crate::unstructured::get;

/// Warns of the amounts in the spec of a claim at `field`.
pub(super) fn claim_spec(field: &str, spec: &Value, out: &mut Vec<String>) {
    for side in ["requests", "limits"] {
        let amounts = get(spec, &format!("/resources/{side}"));
        warn_of_fraction(
            &format!("{field}.resources.{side}"),
            amounts,
            "storage",
            out,
        );
    }
}

/// Warns of an amount of bytes that is not whole.
pub(super) fn warn_of_fraction(
    field: &str,
    amounts: &Value,
    resource: &str,
    out: &mut Vec<String>,
) {
    let amount = amounts.get(resource).map(Quantity::from_value);
    if let Some(Ok(amount)) = amount
        && amount.milli_value() % 1000 != 0
    {
        out.push(format!(
            "{field}[{resource}]: fractional byte value \"{amount}\" is invalid, must be an integer"
        ));
    }
}
