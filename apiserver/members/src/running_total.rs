//! Sums of resources that are kept up to date as objects come and go.

use std::hash::{Hash, Hasher};

use machinery::Quantity;
use machinery::quantity::QuantityFormat;

/// Amounts by resource id, sorted by id.
pub(crate) type AmountsByResourceId = Box<[(u16, Quantity)]>;

/// Amounts that are equal only if each is written with the same suffixes, too, so that sums of them
/// are written as before.
#[derive(Clone, Debug)]
pub(crate) struct ExactAmounts(pub(crate) AmountsByResourceId);

impl ExactAmounts {
    fn parts(&self) -> impl Iterator<Item = (u16, (i128, QuantityFormat))> + '_ {
        let amounts = self.0.iter();
        amounts.map(|(id, amount)| (*id, amount.nanos_and_format()))
    }
}

impl PartialEq for ExactAmounts {
    fn eq(&self, other: &Self) -> bool {
        self.parts().eq(other.parts())
    }
}

impl Eq for ExactAmounts {}

impl Hash for ExactAmounts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for part in self.parts() {
            part.hash(state);
        }
    }
}

/// A running total by resource id.
#[derive(Default)]
pub(crate) struct RunningTotalsByResourceId(Vec<(u16, Quantity)>);

impl RunningTotalsByResourceId {
    fn amount_mut(&mut self, id: u16) -> &mut Quantity {
        let at = match self.0.binary_search_by_key(&id, |(k, _)| *k) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (id, Quantity::ZERO));
                at
            }
        };
        &mut self.0[at].1
    }

    pub(crate) fn add(&mut self, amounts: &AmountsByResourceId) {
        for (id, amount) in amounts {
            let sum = self.amount_mut(*id);
            *sum += *amount;
        }
    }

    pub(crate) fn subtract(&mut self, amounts: &AmountsByResourceId) {
        for (id, amount) in amounts {
            let sum = self.amount_mut(*id);
            *sum -= *amount;
        }
        // A zero entry equals an absent one.
        self.0.retain(|(_, q)| !q.is_zero());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The amounts by resource id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, Quantity)> + '_ {
        self.0.iter().copied()
    }

    pub(crate) fn get(&self, id: u16) -> Quantity {
        let at = self.0.binary_search_by_key(&id, |(k, _)| *k);
        at.map_or(Quantity::ZERO, |at| self.0[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shared_only_if_they_are_written_the_same() {
        let amounts = |text: &str| ExactAmounts(Box::new([(7, Quantity::parse(text).unwrap())]));
        for (a, b, equal) in [
            ("1Gi", "1024Mi", true),
            ("1Ki", "1024", false),
            ("1", "1000m", true),
            ("1", "2", false),
        ] {
            assert_eq!(amounts(a) == amounts(b), equal, "{a} {b}");
        }
        assert_ne!(ExactAmounts(Box::new([])), amounts("1"));
    }
}
