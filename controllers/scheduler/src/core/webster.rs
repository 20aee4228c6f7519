//! Apportionment by Webster's method (Sainte-Laguë), like Karmada's
//! `pkg/util/helper/webstermethod.go`: seats go one by one to the largest
//! `votes / (2 · seats + 1)`; ties go to fewer seats, then by name.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use karmada_api::names::fnv1a;

/// How parties with equal quotients and seats are ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TieBreak {
    Ascending,
    Descending,
}

impl TieBreak {
    /// Chosen by the template's uid, so that not every template favors the same cluster.
    pub fn from_uid(uid: &str) -> Self {
        if !uid.is_empty() && fnv1a(uid) % 2 == 1 {
            Self::Descending
        } else {
            Self::Ascending
        }
    }
}

struct PartyQuotient<'a> {
    quotient: f64,
    seats: i64,
    name: &'a str,
    party: usize,
    tie: TieBreak,
}

impl Ord for PartyQuotient<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let names = match self.tie {
            TieBreak::Ascending => other.name.cmp(self.name),
            TieBreak::Descending => self.name.cmp(other.name),
        };
        self.quotient
            .total_cmp(&other.quotient)
            .then(other.seats.cmp(&self.seats))
            .then(names)
    }
}

impl PartialOrd for PartyQuotient<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PartyQuotient<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PartyQuotient<'_> {}

fn quotient(votes: i64, seats: i64) -> f64 {
    votes as f64 / (2 * seats + 1) as f64
}

/// Divides `seats` among parties by their votes; the result is parallel to `parties`.
/// Parties without votes get nothing; if no party has votes, no seats are given.
pub fn apportion(parties: &[(&str, i64)], seats: i64, tie: TieBreak) -> Vec<i64> {
    let total: i64 = parties.iter().map(|(_, v)| (*v).max(0)).sum();
    let mut won = vec![0_i64; parties.len()];
    if total == 0 || seats <= 0 {
        return won;
    }
    // Seats that every party gets for certain, so that the number of rounds depends on the
    // number of parties instead of seats: the rounded shares of a divisor that is too
    // large, minus one.
    let count = parties.len() as i64;
    let certain = seats - count;
    if certain > 0 {
        let divisor = total as f64 / certain as f64;
        for (won, (_, votes)) in won.iter_mut().zip(parties) {
            *won = ((*votes as f64 / divisor + 0.5).floor() as i64 - 1).max(0);
        }
    }
    let mut left = seats - won.iter().sum::<i64>();
    let claims = parties
        .iter()
        .enumerate()
        .filter(|(_, (_, votes))| *votes > 0);
    let mut heap: BinaryHeap<PartyQuotient<'_>> = claims
        .map(|(at, (name, votes))| PartyQuotient {
            quotient: quotient(*votes, won[at]),
            seats: won[at],
            name,
            party: at,
            tie,
        })
        .collect();
    while left > 0
        && let Some(mut claim) = heap.pop()
    {
        won[claim.party] += 1;
        left -= 1;
        claim.seats += 1;
        claim.quotient = quotient(parties[claim.party].1, claim.seats);
        heap.push(claim);
    }
    won
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(votes: &[i64], seats: i64, tie: TieBreak, expected: &[i64]) {
        let names = ["a", "b", "c", "d"];
        let parties: Vec<(&str, i64)> = names.into_iter().zip(votes.iter().copied()).collect();
        assert_eq!(
            apportion(&parties, seats, tie),
            expected,
            "{votes:?} {seats}"
        );
    }

    // proves: SCH-webster
    #[test]
    fn seats_follow_votes() {
        check(&[1, 1], 2, TieBreak::Ascending, &[1, 1]);
        check(&[1, 1], 3, TieBreak::Ascending, &[2, 1]);
        check(&[1, 1], 3, TieBreak::Descending, &[1, 2]);
        check(&[2, 1], 3, TieBreak::Ascending, &[2, 1]);
        check(&[3, 1, 1], 5, TieBreak::Ascending, &[3, 1, 1]);
        check(&[1, 2, 3, 4], 0, TieBreak::Ascending, &[0, 0, 0, 0]);
    }

    // proves: SCH-webster-ties
    #[test]
    fn ties_go_to_fewer_seats_and_then_by_name() {
        // After one seat for three votes both quotients are 1: the party without a seat comes first.
        check(&[3, 1], 2, TieBreak::Ascending, &[1, 1]);
        check(&[1, 3], 2, TieBreak::Descending, &[1, 1]);
        check(&[2, 2, 2], 2, TieBreak::Ascending, &[1, 1, 0]);
        check(&[2, 2, 2], 2, TieBreak::Descending, &[0, 1, 1]);
        check(&[2, 2, 2], 4, TieBreak::Ascending, &[2, 1, 1]);
        check(&[2, 2, 2], 4, TieBreak::Descending, &[1, 1, 2]);
    }

    // proves: SCH-webster-uid
    #[test]
    fn the_uid_of_the_template_orders_equal_names() {
        assert_eq!(TieBreak::from_uid(""), TieBreak::Ascending);
        // FNV-1a, 32 bits: e40c292c and f10c3da3.
        assert_eq!(TieBreak::from_uid("a"), TieBreak::Ascending);
        assert_eq!(TieBreak::from_uid("t"), TieBreak::Descending);
        let both: Vec<TieBreak> = ["a", "b"].map(TieBreak::from_uid).into();
        assert_eq!(both, [TieBreak::Ascending, TieBreak::Descending]);
    }

    // proves: SCH-webster-zero
    #[test]
    fn without_votes_there_are_no_seats() {
        check(&[0, 5], 3, TieBreak::Ascending, &[0, 3]);
        check(&[0, 0], 3, TieBreak::Ascending, &[0, 0]);
        assert!(apportion(&[], 3, TieBreak::Ascending).is_empty());
    }

    /// The definition of the method: one seat at a time.
    fn naive_apportion(parties: &[(&str, i64)], seats: i64, tie: TieBreak) -> Vec<i64> {
        let mut won = vec![0; parties.len()];
        for _ in 0..seats {
            let claims = parties.iter().enumerate().filter(|(_, p)| p.1 > 0);
            let best = claims
                .map(|(at, (name, votes))| PartyQuotient {
                    quotient: quotient(*votes, won[at]),
                    seats: won[at],
                    name,
                    party: at,
                    tie,
                })
                .max();
            if let Some(best) = best {
                won[best.party] += 1;
            }
        }
        won
    }

    proptest! {
        #[test]
        fn precomputed_seats_change_nothing(votes in proptest::collection::vec(0_i64..50, 1..8), seats in 0_i64..300, down: bool) {
            let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let parties: Vec<(&str, i64)> = names.into_iter().zip(votes).collect();
            let tie = if down { TieBreak::Descending } else { TieBreak::Ascending };
            prop_assert_eq!(apportion(&parties, seats, tie), naive_apportion(&parties, seats, tie));
        }

        #[test]
        fn every_seat_is_given(votes in proptest::collection::vec(1_i64..1_000_000, 1..40), seats in 0_i64..2_000_000_000) {
            let names: Vec<String> = (0..votes.len()).map(|n| n.to_string()).collect();
            let parties: Vec<(&str, i64)> = names.iter().map(String::as_str).zip(votes).collect();
            prop_assert_eq!(apportion(&parties, seats, TieBreak::Ascending).iter().sum::<i64>(), seats);
        }
    }
}
