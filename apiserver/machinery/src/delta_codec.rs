//! Encodes a value as its difference from a similar one, its base: copies out of the base, and
//! literal bytes between them.
//!
//! ```text
//! delta   = length of the value, CRC-32 of the value, operation*
//! copy    = length << 1 | 1, distance of its start from the end of the copy before
//! literal = length << 1, the bytes
//! ```
//! Numbers are LEB128; a distance is a zigzag number, so that a copy that goes on behind a short
//! literal takes two bytes. The functions are pure and know nothing of the bytes they compare.

use flate2::Crc;

/// The length of the longest value; the store takes no longer ones.
const MAX_VALUE_BYTES: usize = 4 << 20;
/// The length of the blocks by which equal runs are found.
const BLOCK_BYTES: usize = 16;
/// The distance between two blocks of the base in its index: every equal run of
/// `BLOCK_BYTES + BLOCK_STEP - 1` bytes is found.
const BLOCK_STEP: usize = 4;
const CRC_BYTES: usize = 4;

/// A delta is damaged, or belongs to another base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored difference does not fit its base: {0}")]
pub struct DeltaError(&'static str);

/// The delta that [`decode`] turns into `value` again with the same base.
pub fn encode(base: &[u8], value: &[u8]) -> Vec<u8> {
    let mut delta = DeltaWriter::new(value);
    let index = BlockIndex::new(base);
    let mut position = 0;
    while let Some(block) = value
        .get(position..)
        .and_then(<[u8]>::first_chunk::<BLOCK_BYTES>)
    {
        // Behind a replacement of equal length, such as of a uid or a time, the base goes on
        // at the same distance.
        let continued = delta.base_end + (position - delta.value_end);
        let start = match base.get(continued..continued + BLOCK_BYTES) {
            Some(bytes) if bytes == block => Some(continued),
            _ => index.find(block),
        };
        let Some(start) = start else {
            position += 1;
            continue;
        };
        let before = common_suffix(&base[..start], &value[delta.value_end..position]);
        let length = before + common_prefix(&base[start..], &value[position..]);
        delta.copy(start - before, position - before, length);
        position = delta.value_end;
    }
    delta.finish()
}

/// The value that [`encode`] turned into this delta.
pub fn decode(base: &[u8], delta: &[u8]) -> Result<Vec<u8>, DeltaError> {
    let mut reader = DeltaReader(delta);
    let length = reader.number()?;
    if length > MAX_VALUE_BYTES {
        return Err(DeltaError("the value is too long"));
    }
    let checksum = reader.bytes(CRC_BYTES)?;
    let mut value = Vec::with_capacity(length);
    let mut base_end = 0_usize;
    while !reader.0.is_empty() {
        let operation = reader.number()?;
        let count = operation >> 1;
        let bytes = if operation & 1 == 0 {
            reader.bytes(count)?
        } else {
            let start = apply_distance(base_end, reader.number()?);
            base_end = start
                .and_then(|start| start.checked_add(count))
                .ok_or(OUT_OF_BASE)?;
            base.get(base_end - count..base_end).ok_or(OUT_OF_BASE)?
        };
        if bytes.len() > length - value.len() {
            return Err(DeltaError("the value is longer than its length"));
        }
        value.extend_from_slice(bytes);
    }
    if value.len() != length || checksum != checksum_of(&value) {
        return Err(DeltaError("the value has another checksum"));
    }
    Ok(value)
}

const OUT_OF_BASE: DeltaError = DeltaError("a copy lies outside of the base");

fn checksum_of(value: &[u8]) -> [u8; CRC_BYTES] {
    let mut crc = Crc::new();
    crc.update(value);
    crc.sum().to_le_bytes()
}

/// The distance of two positions as a number in which the lowest bit is the sign.
fn distance(from: usize, to: usize) -> usize {
    if to >= from {
        (to - from) << 1
    } else {
        ((from - to) << 1) | 1
    }
}

fn apply_distance(from: usize, distance: usize) -> Option<usize> {
    if distance & 1 == 0 {
        from.checked_add(distance >> 1)
    } else {
        from.checked_sub(distance >> 1)
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const STRIDE: usize = 32;
    let strides = a.chunks_exact(STRIDE).zip(b.chunks_exact(STRIDE));
    let equal = strides.take_while(|(a, b)| a == b).count() * STRIDE;
    let rest = a[equal..].iter().zip(&b[equal..]);
    equal + rest.take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let pairs = a.iter().rev().zip(b.iter().rev());
    pairs.take_while(|(a, b)| a == b).count()
}

/// The operations of a delta so far.
struct DeltaWriter<'a> {
    value: &'a [u8],
    bytes: Vec<u8>,
    /// The end of the last copy in the base.
    base_end: usize,
    /// The end of the last copy in the value.
    value_end: usize,
}

impl<'a> DeltaWriter<'a> {
    fn new(value: &'a [u8]) -> Self {
        let mut writer = Self {
            value,
            bytes: Vec::with_capacity(512),
            base_end: 0,
            value_end: 0,
        };
        writer.number(value.len());
        writer.bytes.extend(checksum_of(value));
        writer
    }

    fn number(&mut self, mut number: usize) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                self.bytes.push(low & 0x7f);
                return;
            }
            self.bytes.push(low | 0x80);
        }
    }

    /// Copies from `start` in the base to `position` in the value, after a literal of the
    /// bytes in between.
    fn copy(&mut self, start: usize, position: usize, length: usize) {
        self.literal(position);
        self.number((length << 1) | 1);
        self.number(distance(self.base_end, start));
        self.base_end = start + length;
        self.value_end = position + length;
    }

    fn literal(&mut self, end: usize) {
        let literal = &self.value[self.value_end..end];
        if !literal.is_empty() {
            self.number(literal.len() << 1);
            self.bytes.extend_from_slice(literal);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.literal(self.value.len());
        self.bytes
    }
}

struct DeltaReader<'a>(&'a [u8]);

impl<'a> DeltaReader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], DeltaError> {
        let (bytes, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(DeltaError("it is cut off"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<usize, DeltaError> {
        let mut number = 0;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.bytes(1)?[0];
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DeltaError("a number is too long"))
    }
}

/// The positions of a base's blocks, by their hash. A later block does not replace an earlier one
/// of the same hash, so that building and searching take linear time for any bytes.
struct BlockIndex<'a> {
    base: &'a [u8],
    /// A position plus one; 0: none.
    slots: Vec<usize>,
}

impl<'a> BlockIndex<'a> {
    fn new(base: &'a [u8]) -> Self {
        let blocks = base.len() / BLOCK_STEP + 1;
        let mut index = Self {
            base,
            slots: vec![0; (2 * blocks).next_power_of_two()],
        };
        for (number, bytes) in base.windows(BLOCK_BYTES).step_by(BLOCK_STEP).enumerate() {
            if let Some(block) = bytes.first_chunk() {
                let slot = index.slot(block);
                if index.slots[slot] == 0 {
                    index.slots[slot] = number * BLOCK_STEP + 1;
                }
            }
        }
        index
    }

    fn slot(&self, block: &[u8; BLOCK_BYTES]) -> usize {
        const MULTIPLIER: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
        // The highest bits of the product depend on all bytes of the block.
        let product = u128::from_le_bytes(*block).wrapping_mul(MULTIPLIER);
        let hash = product >> (u128::BITS - self.slots.len().trailing_zeros());
        usize::try_from(hash).unwrap_or_default()
    }

    fn find(&self, block: &[u8; BLOCK_BYTES]) -> Option<usize> {
        let start = self.slots[self.slot(block)].checked_sub(1)?;
        (self.base[start..].first_chunk() == Some(block)).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A value like the base, with some of its bytes replaced, removed or added.
    fn base_and_edited_value() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let text = vec(prop_oneof![0_u8..4, any::<u8>()], 0..600);
        let edits = vec((any::<usize>(), 0_usize..40, vec(any::<u8>(), 0..40)), 0..6);
        (text, edits).prop_map(|(base, edits)| {
            let mut value = base.clone();
            for (position, removed, added) in edits {
                let start = position % (value.len() + 1);
                let end = (start + removed).min(value.len());
                value.splice(start..end, added);
            }
            (base, value)
        })
    }

    proptest! {
        #[test]
        fn a_decoded_delta_is_the_value((base, value) in base_and_edited_value()) {
            let delta = encode(&base, &value);
            prop_assert_eq!(decode(&base, &delta).unwrap(), value);
        }

        #[test]
        fn unrelated_bytes_decode_as_well(
            base in vec(any::<u8>(), 0..300),
            value in vec(any::<u8>(), 0..300),
        ) {
            let delta = encode(&base, &value);
            prop_assert!(delta.len() <= value.len() + 16);
            prop_assert_eq!(decode(&base, &delta).unwrap(), value);
        }

        #[test]
        fn damaged_deltas_are_errors(
            (base, value) in base_and_edited_value(),
            position in any::<usize>(),
            flipped in 1_u8..,
        ) {
            let mut delta = encode(&base, &value);
            let index = position % delta.len();
            delta[index] ^= flipped;
            if let Ok(decoded) = decode(&base, &delta) {
                prop_assert_eq!(decoded, value);
            }
        }

        #[test]
        fn arbitrary_deltas_do_not_panic(
            base in vec(any::<u8>(), 0..100),
            delta in vec(any::<u8>(), 0..100),
        ) {
            let _ = decode(&base, &delta);
        }
    }

    fn work(cluster: &str, uid: &str, time: &str) -> String {
        let environment: Vec<String> = (0..40)
            .map(|i| {
                format!(
                    r#"{{"name":"VARIABLE_{i}","value":"value number {}"}}"#,
                    i * 7919
                )
            })
            .collect();
        format!(
            r#"{{"apiVersion":"work.karmada.io/v1alpha1","kind":"Work","metadata":{{"name":"web-687f7fb96f","namespace":"karmada-es-{cluster}","uid":"{uid}","creationTimestamp":"{time}","managedFields":[{{"manager":"flotilla","operation":"Update","time":"{time}","fieldsV1":{{"f:spec":{{"f:workload":{{"f:manifests":{{}}}}}}}}}}]}},"spec":{{"workload":{{"manifests":[{{"kind":"Deployment","metadata":{{"annotations":{{"work.karmada.io/namespace":"karmada-es-{cluster}"}}}},"spec":{{"env":[{}]}}}}]}}}}}}"#,
            environment.join(",")
        )
    }

    #[test]
    fn works_of_two_clusters_differ_in_a_few_bytes() {
        let first = work(
            "east",
            "0b8f42ce-6a0e-4bb2-a4a2-2ae5ad1a1d0c",
            "2026-01-01T00:00:00Z",
        );
        let second = work(
            "north-2",
            "9c1d7c52-70f9-4c8e-8a3e-6f0f6d2b9a11",
            "2026-01-01T00:00:07Z",
        );
        let delta = encode(first.as_bytes(), second.as_bytes());
        assert!(second.len() > 2000 && delta.len() < 120, "{}", delta.len());
        assert_eq!(
            decode(first.as_bytes(), &delta).unwrap(),
            second.into_bytes()
        );
        let itself = encode(first.as_bytes(), first.as_bytes());
        assert!(itself.len() < 12, "{}", itself.len());
    }

    #[test]
    fn another_base_is_an_error() {
        let first = work(
            "east",
            "0b8f42ce-6a0e-4bb2-a4a2-2ae5ad1a1d0c",
            "2026-01-01T00:00:00Z",
        );
        let delta = encode(first.as_bytes(), first.as_bytes());
        let other = first.replace("east", "west");
        assert_eq!(
            decode(other.as_bytes(), &delta),
            Err(DeltaError("the value has another checksum"))
        );
        assert_eq!(decode(b"short", &delta), Err(OUT_OF_BASE));
    }
}
