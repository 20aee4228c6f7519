//! Sums of resources that are kept up to date as objects come and go.

use machinery::Quantity;

/// Amounts by resource id, sorted by id.
pub(crate) type AmountsByResourceId = Box<[(u16, Quantity)]>;

/// A running total by resource id.
#[derive(Default)]
pub(crate) struct RunningTotalsByResourceId(Vec<(u16, Quantity)>);

impl RunningTotalsByResourceId {
    fn amount_mut(&mut self, id: u16) -> &mut Quantity {
        let index = match self.0.binary_search_by_key(&id, |(k, _)| *k) {
            Ok(index) => index,
            Err(index) => {
                self.0.insert(index, (id, Quantity::ZERO));
                index
            }
        };
        &mut self.0[index].1
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
        let index = self.0.binary_search_by_key(&id, |(k, _)| *k);
        index.map_or(Quantity::ZERO, |index| self.0[index].1)
    }
}
