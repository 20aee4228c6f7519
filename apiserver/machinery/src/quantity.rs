//! Kubernetes quantities (`100m`, `1.5Gi`, `2e3`) with exact decimal arithmetic, without
//! floating point.
//!
//! Rules and texts are those of `apimachinery/pkg/api/resource/quantity.go`: the precision
//! is one nano, and finer fractions are rounded away from zero.

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

/// Nanos in one unit.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Nanos in one thousandth.
const NANOS_PER_MILLI: i128 = 1_000_000;
/// Larger amounts are capped, as Kubernetes does; so sums cannot overflow.
const MAX_NANOS: i128 = i128::MAX / 4;
/// A number with more digits before the decimal point is certainly capped.
const MAX_INTEGER_DIGITS: i64 = 29;
/// Longest text that is parsed, in bytes.
const MAX_QUANTITY_BYTES: usize = 256;

/// The family of suffixes with which a quantity is written (`resource.Format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum QuantityFormat {
    /// `m`, `k`, `M`, `G` …
    #[default]
    Decimal,
    /// `Ki`, `Mi`, `Gi` …
    Binary,
    /// `e3`, `e6` …
    Exponent,
}

/// An amount of a resource. Equality and order compare the amount only, not the format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: QuantityFormat,
}

/// The error for text that is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityParseError {
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// The amount zero.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: QuantityFormat::Decimal,
    };

    /// An integer amount in decimal format.
    pub fn from_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * NANOS_PER_UNIT,
            format: QuantityFormat::Decimal,
        }
    }

    /// An integer amount, such as bytes, in binary format.
    pub fn from_bytes(units: i64) -> Self {
        Self {
            format: QuantityFormat::Binary,
            ..Self::from_units(units)
        }
    }

    /// An amount in thousandths.
    pub fn from_milli(milli: i64) -> Self {
        Self {
            nanos: i128::from(milli) * NANOS_PER_MILLI,
            format: QuantityFormat::Decimal,
        }
    }

    /// Parses the text form.
    pub fn parse(text: &str) -> Result<Self, QuantityParseError> {
        let parts = split_parts(text)?;
        let (scale, format) = parse_suffix(parts.suffix)?;
        let nanos = integer_nanos(&parts, &scale).unwrap_or_else(|| match scale {
            QuantitySuffixMultiplier::PowerOfTen(exponent) => {
                decimal_nanos(parts.int, parts.frac, i64::from(exponent))
            }
            QuantitySuffixMultiplier::PowerOf1024(0) => decimal_nanos(parts.int, parts.frac, 0),
            QuantitySuffixMultiplier::PowerOf1024(power) => {
                binary_nanos(parts.int, parts.frac, power)
            }
        });
        Ok(Self {
            nanos: if parts.negative { -nanos } else { nanos },
            format,
        })
    }

    /// Parses a JSON string or number. Space around it is ignored, as by Go's decoder.
    pub fn from_value(value: &Value) -> Result<Self, QuantityParseError> {
        match value {
            Value::String(s) => Self::parse(s.trim()),
            Value::Number(n) => Self::parse(&n.to_string()),
            _ => Err(QuantityParseError::Format),
        }
    }

    /// The amount in thousandths, rounded away from zero (`MilliValue`).
    pub fn milli_value(self) -> i128 {
        div_round_away(self.nanos, NANOS_PER_MILLI)
    }

    /// The amount in units, rounded away from zero (`Value`).
    pub fn value(self) -> i128 {
        div_round_away(self.nanos, NANOS_PER_UNIT)
    }

    /// Whether the amount has no fraction.
    pub fn is_integer(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// Whether the amount stands for a larger one, beyond what is calculated with.
    pub fn is_capped(self) -> bool {
        self.nanos.abs() == MAX_NANOS
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The amount multiplied by `n`, capped.
    pub fn times(self, n: i64) -> Self {
        self.with_nanos(self.nanos.saturating_mul(i128::from(n)))
    }

    fn with_nanos(self, nanos: i128) -> Self {
        Self {
            nanos: nanos.clamp(-MAX_NANOS, MAX_NANOS),
            ..self
        }
    }

    // A sum has the format of its first summand that is not zero.
    fn combine(self, other: Self, nanos: i128) -> Self {
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        Self { format, ..self }.with_nanos(nanos)
    }
}

impl Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.combine(other, self.nanos + other.nanos)
    }
}

impl Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.combine(other, self.nanos - other.nanos)
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Neg for Quantity {
    type Output = Self;
    fn neg(self) -> Self {
        self.with_nanos(-self.nanos)
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl FromStr for Quantity {
    type Err = QuantityParseError;
    fn from_str(s: &str) -> Result<Self, QuantityParseError> {
        Self::parse(s)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::from_value(&value).map_err(de::Error::custom)
    }
}

/// The canonical text: an integer with the largest suffix that needs no fraction.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        // Small and fractional amounts are never written with binary suffixes.
        let binary = self.format == QuantityFormat::Binary
            && self.is_integer()
            && self.nanos.abs() >= 1024 * NANOS_PER_UNIT;
        if binary {
            let (mut mantissa, mut power) = (self.nanos / NANOS_PER_UNIT, 0);
            while mantissa % 1024 == 0 && power < BINARY_SUFFIXES.len() - 1 {
                mantissa /= 1024;
                power += 1;
            }
            return write!(f, "{mantissa}{}", BINARY_SUFFIXES[power]);
        }
        let (mut mantissa, mut exponent) = (self.nanos, -9_i32);
        let top = if self.format == QuantityFormat::Exponent {
            i32::MAX
        } else {
            18
        };
        while mantissa % 1000 == 0 && exponent < top {
            mantissa /= 1000;
            exponent += 3;
        }
        match (self.format, exponent) {
            (_, 0) => write!(f, "{mantissa}"),
            (QuantityFormat::Exponent, e) => write!(f, "{mantissa}e{e}"),
            (_, e) => {
                let suffix = DECIMAL_SUFFIXES
                    .iter()
                    .find(|(_, power_of_ten)| *power_of_ten == e)
                    .map_or("", |d| d.0);
                write!(f, "{mantissa}{suffix}")
            }
        }
    }
}

const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL_SUFFIXES: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

struct QuantityParts<'a> {
    negative: bool,
    int: &'a str,
    frac: &'a str,
    suffix: &'a str,
}

enum QuantitySuffixMultiplier {
    PowerOfTen(i32),
    PowerOf1024(u32),
}

fn split_parts(text: &str) -> Result<QuantityParts<'_>, QuantityParseError> {
    if text.is_empty() || text.len() > MAX_QUANTITY_BYTES || !text.is_ascii() {
        return Err(QuantityParseError::Format);
    }
    let (negative, rest) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = |s: &str| s.bytes().take_while(u8::is_ascii_digit).count();
    let (int, rest) = rest.split_at(digits(rest));
    let (frac, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    if int.is_empty() && frac.is_empty() {
        return Err(QuantityParseError::Format);
    }
    if suffix.contains('.') {
        return Err(QuantityParseError::Numeric);
    }
    Ok(QuantityParts {
        negative,
        int: int.trim_start_matches('0'),
        frac: frac.trim_end_matches('0'),
        suffix,
    })
}

fn parse_suffix(
    text: &str,
) -> Result<(QuantitySuffixMultiplier, QuantityFormat), QuantityParseError> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(s, _)| *s == text) {
        return Ok((
            QuantitySuffixMultiplier::PowerOfTen(*exponent),
            QuantityFormat::Decimal,
        ));
    }
    if let Some(power) = BINARY_SUFFIXES.iter().position(|s| *s == text) {
        let power = u32::try_from(power).map_err(|_| QuantityParseError::Suffix)?;
        return Ok((
            QuantitySuffixMultiplier::PowerOf1024(power),
            QuantityFormat::Binary,
        ));
    }
    let exponent = text
        .strip_prefix(['e', 'E'])
        .ok_or(QuantityParseError::Suffix)?;
    let exponent = exponent.parse().map_err(|_| QuantityParseError::Suffix)?;
    Ok((
        QuantitySuffixMultiplier::PowerOfTen(exponent),
        QuantityFormat::Exponent,
    ))
}

/// Fast path for amounts without a fraction that are not very large, as most are.
fn integer_nanos(parts: &QuantityParts<'_>, scale: &QuantitySuffixMultiplier) -> Option<i128> {
    if !parts.frac.is_empty() {
        return None;
    }
    let count: u64 = parts.int.parse().ok()?;
    let factor = match scale {
        QuantitySuffixMultiplier::PowerOfTen(exponent) => {
            let exponent = u32::try_from(exponent.checked_add(9)?).ok()?;
            10_i128.checked_pow(exponent)?
        }
        QuantitySuffixMultiplier::PowerOf1024(power) => {
            1024_i128.checked_pow(*power)?.checked_mul(NANOS_PER_UNIT)?
        }
    };
    let nanos = i128::from(count).checked_mul(factor)?;
    (nanos <= MAX_NANOS).then_some(nanos)
}

/// `int.frac × 10^exponent` in nanos, rounded up.
fn decimal_nanos(int: &str, frac: &str, exponent: i64) -> i128 {
    let len = |s: &str| i64::try_from(s.len()).unwrap_or(i64::MAX);
    let leading = len(frac) - len(frac.trim_start_matches('0'));
    let (digits, magnitude) = if int.is_empty() {
        (frac.trim_start_matches('0').to_owned(), exponent - leading)
    } else {
        (format!("{int}{frac}"), exponent + len(int))
    };
    if digits.bytes().all(|b| b == b'0') {
        return 0;
    }
    // The value is 0.DIGITS × 10^magnitude.
    if magnitude > MAX_INTEGER_DIGITS {
        return MAX_NANOS;
    }
    let Ok(keep) = usize::try_from(magnitude + 9) else {
        return 1;
    };
    let (digits_kept, rest) = digits.split_at(keep.min(digits.len()));
    let zeros = u32::try_from(keep - digits_kept.len()).unwrap_or(u32::MAX);
    let round_up = i128::from(rest.bytes().any(|b| b != b'0'));
    let digits_kept: Option<i128> = if digits_kept.is_empty() {
        Some(0)
    } else {
        digits_kept.parse().ok()
    };
    digits_kept
        .and_then(|n| n.checked_mul(10_i128.checked_pow(zeros)?))
        .map_or(MAX_NANOS, |n| (n + round_up).min(MAX_NANOS))
}

/// `int.frac × 1024^power` in nanos, rounded up. Multiplies exactly as many digits of the
/// fraction as fit into an `i128`.
fn binary_nanos(int: &str, frac: &str, power: u32) -> i128 {
    let factor = 1024_i128.pow(power);
    for digits in (9..=frac.len().clamp(9, 27)).rev() {
        let (fraction, rest) = frac.split_at(digits.min(frac.len()));
        let text = format!("{int}{fraction}{}", "0".repeat(digits - fraction.len()));
        let Ok(mantissa) = text.parse::<i128>() else {
            continue;
        };
        let round_up = i128::from(!rest.is_empty());
        let Some(product) = mantissa
            .checked_add(round_up)
            .and_then(|m| m.checked_mul(factor))
        else {
            continue;
        };
        let shift = u32::try_from(digits - 9).unwrap_or(0);
        return div_round_away(product, 10_i128.pow(shift)).min(MAX_NANOS);
    }
    MAX_NANOS
}

fn div_round_away(n: i128, divisor: i128) -> i128 {
    n / divisor + (n % divisor).signum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_become_canonical() {
        let table = [
            ("0", "0"),
            ("0Mi", "0"),
            ("-0", "0"),
            ("0.1", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("2000", "2k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("100Ki", "100Ki"),
            ("1000Ki", "1000Ki"),
            ("+5", "5"),
            (".5", "500m"),
            ("5.", "5"),
            ("1E", "1E"),
            ("1e3", "1e3"),
            ("12e4", "120e3"),
            ("1E-3", "1e-3"),
            ("1e-10", "1e-9"),
            ("0.0000000001", "1n"),
            ("-1.0000000001", "-1000000001n"),
            ("1u", "1u"),
            ("100M", "100M"),
            ("-2Gi", "-2Gi"),
            ("10E", "10E"),
            ("0.3Mi", "314572800m"),
        ];
        for (text, canonical) in table {
            assert_eq!(
                Quantity::parse(text).unwrap().to_string(),
                canonical,
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_quantities_are_rejected() {
        for text in [
            "", "-", ".", "Mi", "1K", "1ki", "1 ", " 1", "1e", "1e3.5", "1.2.3", "1Mib", "٣", "0x1",
        ] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
        assert!(Quantity::parse(&"9".repeat(300)).is_err());
    }

    #[test]
    fn rounding_is_away_from_zero() {
        let q = |s: &str| Quantity::parse(s).unwrap();
        assert_eq!((q("1500u").milli_value(), q("1100m").value()), (2, 2));
        assert_eq!((q("-1500u").milli_value(), q("-1100m").value()), (-2, -2));
        assert_eq!(q("4Gi").value(), 4 << 30);
        assert!(q("1e400") > q("1000E") && q("1e-400") == q("1n"));
    }

    #[test]
    fn a_sum_has_the_format_of_its_first_summand() {
        let q = |s: &str| Quantity::parse(s).unwrap();
        assert_eq!((q("1Gi") + q("1Gi")).to_string(), "2Gi");
        assert_eq!((q("0") + q("1Gi")).to_string(), "1Gi");
        assert_eq!((q("1") - q("1500m")).to_string(), "-500m");
        assert_eq!(q("100m").times(30).to_string(), "3");
        assert_eq!(serde_json::to_string(&q("1024Mi")).unwrap(), "\"1Gi\"");
        assert_eq!(crate::json::from_str::<Quantity>("0.5").unwrap(), q("500m"));
    }

    proptest! {
        #[test]
        fn the_canonical_text_reads_back(
            number in "[+-]?[0-9]{1,15}(\\.[0-9]{0,12})?",
            suffix in "(|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]|e-[0-9])",
        ) {
            let q = Quantity::parse(&format!("{number}{suffix}")).unwrap();
            let text = q.to_string();
            let reparsed = Quantity::parse(&text).unwrap();
            prop_assert_eq!(reparsed, q);
            prop_assert_eq!(reparsed.to_string(), text);
        }

        #[test]
        fn the_fast_path_agrees_with_the_exact_one(
            int in "[1-9][0-9]{0,20}", exponent in -12_i32..30, power in 0_u32..7,
        ) {
            let parts = QuantityParts { negative: false, int: &int, frac: "", suffix: "" };
            if let Some(nanos) = integer_nanos(&parts, &QuantitySuffixMultiplier::PowerOfTen(exponent)) {
                prop_assert_eq!(nanos, decimal_nanos(&int, "", exponent.into()));
            }
            if let Some(nanos) = integer_nanos(&parts, &QuantitySuffixMultiplier::PowerOf1024(power)) {
                prop_assert_eq!(nanos, binary_nanos(&int, "", power));
            }
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,40}", symbols in "[-+0-9.eEinumkKMGTP]{0,60}") {
            for t in [&text, &symbols] {
                if let Ok(q) = Quantity::parse(t) {
                    let _ = (q.to_string(), q.milli_value(), q.value(), -q, q.times(i64::MAX), q + q, q - q);
                }
            }
        }

        #[test]
        fn addition_is_commutative_and_associative(a in any::<i64>(), b in any::<i64>(), c in any::<i64>()) {
            let [a, b, c] = [a, b, c].map(Quantity::from_milli);
            prop_assert_eq!(a + b, b + a);
            prop_assert_eq!((a + b) + c, a + (b + c));
            prop_assert_eq!((a + b) - b, a);
            prop_assert_eq!((a < b) as u8 + (a == b) as u8 + (a > b) as u8, 1);
        }
    }
}
