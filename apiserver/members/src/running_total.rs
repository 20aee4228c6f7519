//! Sums of resources that are kept up to date as objects come and go.

use machinery::Quantity;

/// Amounts by resource id, sorted by id.
pub(crate) type AmountsByResourceId = Box<[(u16, Quantity)]>;

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
