//! Deals the queues of a flow (`k8s.io/apiserver/pkg/util/shufflesharding`): two flows
//! rarely have all of their queues in common.

/// The most queues of a flow.
pub(super) const MAX_HAND_SIZE: usize = 64;

/// The distinct queues of a flow, `hand_size` of `queues`, derived from its hash.
pub(super) fn deal_queues(
    mut hash: u64,
    queues: usize,
    hand_size: usize,
) -> impl Iterator<Item = usize> {
    let hand_size = hand_size.min(queues).min(MAX_HAND_SIZE);
    let mut hand = [0; MAX_HAND_SIZE];
    for n in 0..hand_size {
        // The n-th card is one of those left; the cards dealt before are skipped.
        let remaining_queues = (queues - n) as u64;
        let mut card = (hash % remaining_queues) as usize;
        hash /= remaining_queues;
        let mut dealt = [0; MAX_HAND_SIZE];
        dealt[..n].copy_from_slice(&hand[..n]);
        dealt[..n].sort_unstable();
        for earlier in &dealt[..n] {
            if card >= *earlier {
                card += 1;
            }
        }
        hand[n] = card;
    }
    hand.into_iter().take(hand_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, HashMap};

    proptest! {
        #[test]
        fn hands_are_distinct_queues(hash: u64, queues in 1usize..512, hand in 1usize..=8) {
            let dealt: Vec<usize> = deal_queues(hash, queues, hand).collect();
            prop_assert_eq!(dealt.len(), hand.min(queues));
            prop_assert!(dealt.iter().all(|queue| *queue < queues));
            let distinct: BTreeSet<_> = dealt.iter().collect();
            prop_assert_eq!(distinct.len(), dealt.len());
        }
    }

    #[test]
    fn every_hand_is_dealt_equally_often() {
        let mut counts: HashMap<Vec<usize>, u32> = HashMap::new();
        for hash in 0..(5 * 4 * 3 * 10) {
            *counts.entry(deal_queues(hash, 5, 3).collect()).or_default() += 1;
        }
        assert_eq!(counts.len(), 5 * 4 * 3);
        assert!(counts.values().all(|count| *count == 10));
    }
}
