//! Ranges of sizes and costs. Arithmetic saturates.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Range {
    pub(crate) const ZERO: Self = Self::fixed(0);
    pub(crate) const ONE: Self = Self::fixed(1);
    pub(crate) const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };
    /// The range that every union replaces.
    pub(crate) const EMPTY: Self = Self {
        min: u64::MAX,
        max: 0,
    };

    pub(crate) const fn fixed(n: u64) -> Self {
        Self { min: n, max: n }
    }

    pub(crate) const fn up_to(max: u64) -> Self {
        Self { min: 0, max }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(crate) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            min: scale(self.min, factor),
            max: scale(self.max, factor),
        }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// The product, rounded up; casts of floats saturate.
pub(crate) fn scale(n: u64, factor: f64) -> u64 {
    (n as f64 * factor).ceil() as u64
}
