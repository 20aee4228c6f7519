//! Chooses the base of a value among those of its group, and decides when the value becomes a base:
//! for the stores and for objects in memory.

use crate::delta_codec;

/// The most bases of a group that a value is compared with: the content that clusters are at
/// and the one before, each without and with a status.
const MAX_GROUP_BASES: usize = 4;
/// The bytes of a delta that hold what is each object's own: names, uid, times.
const INTRINSIC_DELTA_BYTES: usize = 128;
/// A delta of this part of the value is good: no other base is tried.
const GOOD_DELTA_DIVISOR: usize = 8;

/// The bases of the values of one group.
#[derive(Debug)]
pub struct BaseGroup<I> {
    /// The last used one first.
    bases: Vec<I>,
    /// Bytes of deltas since the last base was added, beyond [`INTRINSIC_DELTA_BYTES`] of each.
    excess_bytes: usize,
}

impl<I: PartialEq> BaseGroup<I> {
    pub fn new(bases: Vec<I>) -> Self {
        Self {
            bases,
            excess_bytes: 0,
        }
    }

    pub fn bases(&self) -> &[I] {
        &self.bases
    }

    /// Puts a base first.
    pub fn record_use(&mut self, base: I) {
        self.bases.retain(|other| *other != base);
        self.bases.insert(0, base);
        self.bases.truncate(MAX_GROUP_BASES);
    }

    /// Removes the bases that no further value may use.
    pub fn retain(&mut self, is_usable: impl FnMut(&I) -> bool) {
        self.bases.retain(is_usable);
    }

    /// Whether a delta is short enough. Otherwise its value becomes a base: when the delta saves
    /// less than half of the value, or when the deltas since the last base have cost as many
    /// bytes as a base does, which may be closer to the next values.
    pub fn accept(&mut self, delta: usize, value: usize) -> bool {
        self.excess_bytes += delta.saturating_sub(INTRINSIC_DELTA_BYTES);
        let accepted = delta <= value / 2 && self.excess_bytes <= value;
        if !accepted {
            self.excess_bytes = 0;
        }
        accepted
    }
}

/// The shortest delta of a value so far.
pub struct ShortestDelta<'a, I> {
    value: &'a [u8],
    shortest: Option<(I, Vec<u8>)>,
}

impl<'a, I> ShortestDelta<'a, I> {
    pub fn new(value: &'a [u8]) -> Self {
        Self {
            value,
            shortest: None,
        }
    }

    /// Compares the value with a base. Returns whether the delta is good.
    pub fn try_base(&mut self, id: I, base: &[u8]) -> bool {
        // A small value does not keep a large base.
        if base.len() > 2 * self.value.len() {
            return false;
        }
        let Some(delta) = checked_delta(base, self.value) else {
            return false;
        };
        let length = delta.len();
        if self.shortest.as_ref().is_none_or(|(_, s)| length < s.len()) {
            self.shortest = Some((id, delta));
        }
        length <= self.value.len() / GOOD_DELTA_DIVISOR
    }

    /// The base and the delta; `None` when no base was comparable.
    pub fn finish(self) -> Option<(I, Vec<u8>)> {
        self.shortest
    }
}

/// The delta, if it gives the value again: nothing is kept as a delta that cannot be read.
pub fn checked_delta(base: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let delta = delta_codec::encode(base, value);
    let decoded = delta_codec::decode(base, &delta);
    (decoded.ok().as_deref() == Some(value)).then_some(delta)
}
