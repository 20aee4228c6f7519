//! Validates PriorityLevelConfigurations.

use machinery::FieldError;
use serde_json::Value;

use super::{mandatory_spec, validate_conditions};
use crate::unstructured::{get, has, int, text};

const MAX_QUEUES: i64 = 10_000_000;
/// Bits of the hash that deals the hands of queues.
const MAX_HASH_BITS: i64 = 60;

pub(crate) fn validate_priority_level_configuration(new: &Value, errors: &mut Vec<FieldError>) {
    let name = text(new, "/metadata/name");
    let spec = get(new, "/spec");
    validate_spec(name, spec, errors);
    validate_fixed_spec(name, spec, errors);
    validate_conditions(new, errors);
}

/// A mandatory level keeps its spec; of the level `exempt`, administrators may change the
/// field `exempt`.
fn validate_fixed_spec(name: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let Some(fixed) = mandatory_spec("PriorityLevelConfiguration", name) else {
        return;
    };
    let (equal, exception) = match name {
        "exempt" => (
            ["/type", "/limited"]
                .iter()
                .all(|field| get(&fixed, field) == get(spec, field)),
            " except the 'spec.exempt' field",
        ),
        _ => (fixed == *spec, ""),
    };
    if !equal {
        let detail = format!("spec of '{name}'{exception} must equal the fixed value");
        errors.push(FieldError::invalid("spec", spec, detail));
    }
}

fn validate_spec(name: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let kind = text(spec, "/type");
    if (name == "exempt") != (kind == "Exempt") {
        errors.push(FieldError::invalid(
            "spec.type",
            &kind.into(),
            "type must be 'Exempt' if and only if name is 'exempt'",
        ));
    }
    match kind {
        "Exempt" => {
            if has(spec, "/limited") {
                errors.push(FieldError::forbidden(
                    "spec.limited",
                    "must be nil if the type is not Limited",
                ));
            }
            if has(spec, "/exempt") {
                validate_shares("spec.exempt", get(spec, "/exempt"), errors);
            }
        }
        "Limited" => {
            if has(spec, "/exempt") {
                errors.push(FieldError::forbidden(
                    "spec.exempt",
                    "must be nil if the type is Limited",
                ));
            }
            if has(spec, "/limited") {
                validate_limited(get(spec, "/limited"), errors);
            } else {
                errors.push(FieldError::required(
                    "spec.limited",
                    "must not be empty when type is Limited",
                ));
            }
        }
        _ => errors.push(FieldError::not_supported(
            "spec.type",
            &kind.into(),
            &["Exempt", "Limited"],
        )),
    }
}

fn validate_shares(field: &str, level: &Value, errors: &mut Vec<FieldError>) {
    let shares = int(level, "/nominalConcurrencyShares").unwrap_or(0);
    if shares < 0 {
        errors.push(FieldError::invalid(
            format!("{field}.nominalConcurrencyShares"),
            &shares.into(),
            "must be a non-negative integer",
        ));
    }
    let lendable_percent = int(level, "/lendablePercent").unwrap_or(0);
    if !(0..=100).contains(&lendable_percent) {
        errors.push(FieldError::invalid(
            format!("{field}.lendablePercent"),
            &lendable_percent.into(),
            "must be between 0 and 100, inclusive",
        ));
    }
}

fn validate_limited(limited: &Value, errors: &mut Vec<FieldError>) {
    validate_shares("spec.limited", limited, errors);
    if let Some(percent) = int(limited, "/borrowingLimitPercent")
        && percent < 0
    {
        errors.push(FieldError::invalid(
            "spec.limited.borrowingLimitPercent",
            &percent.into(),
            "if specified, must be a non-negative integer",
        ));
    }
    let response = get(limited, "/limitResponse");
    let field = "spec.limited.limitResponse";
    match (text(response, "/type"), has(response, "/queuing")) {
        ("Reject", true) => errors.push(FieldError::forbidden(
            format!("{field}.queuing"),
            "must be nil if limited.limitResponse.type is not Limited",
        )),
        ("Reject", false) => {}
        ("Queue", true) => validate_queuing(get(response, "/queuing"), errors),
        ("Queue", false) => errors.push(FieldError::required(
            format!("{field}.queuing"),
            "must not be empty if limited.limitResponse.type is Limited",
        )),
        (other, _) => errors.push(FieldError::not_supported(
            format!("{field}.type"),
            &other.into(),
            &["Queue", "Reject"],
        )),
    }
}

fn validate_queuing(queuing: &Value, errors: &mut Vec<FieldError>) {
    let number = |name: &str| int(queuing, &format!("/{name}")).unwrap_or(0);
    let mut invalid = |name: &str, detail: &str| {
        let field = format!("spec.limited.limitResponse.queuing.{name}");
        errors.push(FieldError::invalid(field, &number(name).into(), detail));
    };
    let (queues, hand) = (number("queues"), number("handSize"));
    if number("queueLengthLimit") <= 0 {
        invalid("queueLengthLimit", "must be positive");
    }
    if queues <= 0 {
        invalid("queues", "must be positive");
    } else if queues > MAX_QUEUES {
        invalid("queues", &format!("must not be greater than {MAX_QUEUES}"));
    }
    let entropy = required_entropy_bits(queues, hand);
    if hand <= 0 {
        invalid("handSize", "must be positive");
    } else if hand > queues {
        invalid(
            "handSize",
            &format!("should not be greater than queues ({queues})"),
        );
    } else if entropy > MAX_HASH_BITS {
        invalid(
            "handSize",
            &format!(
                "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
            ),
        );
    }
}

/// The bits that deal a hand of `hand` out of `deck` queues.
fn required_entropy_bits(deck: i64, hand: i64) -> i64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "both are 32-bit numbers, and the product is far below 2^63"
    )]
    let bits = ((deck.max(1) as f64).log2() * hand as f64).ceil() as i64;
    bits
}
