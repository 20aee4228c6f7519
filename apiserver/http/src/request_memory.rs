//! Charges what the bodies of requests take before it is taken: the process refuses a request
//! rather than hold more than it can (429), and one whose object alone would be too large (413).
//!
//! A holder may take no more than it leaves to others: one user has at most half of the memory,
//! each further one half of the rest, so that another user's request finds room.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use machinery::tree_memory::MAX_TREE_BYTES;
use machinery::user::ANONYMOUS;
use machinery::{Status, UserInfo};
use parking_lot::Mutex;

/// A write holds the object as it is requested, as it was and as it becomes.
const TREES_OF_WRITE: usize = 3;

/// The memory for the bodies of all requests of users.
static MEMORY_OF_USERS: RequestMemory = RequestMemory::new(512 << 20);
/// The memory for requests without a user: anonymous ones, and the reviews of API servers.
static MEMORY_OF_OTHERS: RequestMemory = RequestMemory::new(192 << 20);

/// Memory for requests, and who holds how much of it.
pub(crate) struct RequestMemory {
    total: usize,
    held_memory: Mutex<HeldMemory>,
}

struct HeldMemory {
    bytes: usize,
    by_holder: BTreeMap<Arc<str>, usize>,
}

impl RequestMemory {
    const fn new(total: usize) -> Self {
        Self {
            total,
            held_memory: Mutex::new(HeldMemory {
                bytes: 0,
                by_holder: BTreeMap::new(),
            }),
        }
    }

    /// Takes memory, unless its holder would have more than is left.
    fn take(&self, holder: &Arc<str>, bytes: usize) -> bool {
        let mut memory = self.held_memory.lock();
        let holder_bytes = memory.by_holder.get(holder).copied().unwrap_or_default() + bytes;
        if holder_bytes > self.total.saturating_sub(memory.bytes + bytes) {
            return false;
        }
        memory.bytes += bytes;
        memory.by_holder.insert(Arc::clone(holder), holder_bytes);
        true
    }

    fn give_back(&self, holder: &Arc<str>, bytes: usize) {
        let mut memory = self.held_memory.lock();
        memory.bytes -= bytes;
        if let Some(holder_bytes) = memory.by_holder.get_mut(holder) {
            *holder_bytes -= bytes;
            if *holder_bytes == 0 {
                memory.by_holder.remove(holder);
            }
        }
    }
}

/// Memory that a request may take until this is dropped.
pub(crate) struct MemoryCharge {
    memory: &'static RequestMemory,
    holder: Arc<str>,
    bytes: usize,
}

impl MemoryCharge {
    /// A charge of nothing so far to a user; anonymous ones are told apart by their address.
    pub(crate) fn of_user(user: &UserInfo, address: Option<IpAddr>) -> Self {
        match user.name.as_str() {
            ANONYMOUS => Self::of_address(address),
            name => Self::new(&MEMORY_OF_USERS, name),
        }
    }

    /// A charge of nothing so far to a client without a user.
    pub(crate) fn of_address(address: Option<IpAddr>) -> Self {
        let holder = address.map(|address| address.to_string());
        Self::new(&MEMORY_OF_OTHERS, &holder.unwrap_or_default())
    }

    fn new(memory: &'static RequestMemory, holder: &str) -> Self {
        Self {
            memory,
            holder: holder.into(),
            bytes: 0,
        }
    }

    /// Charges more bytes. Fails with 429 if the holder has as much as is left to others.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), Status> {
        if !self.memory.take(&self.holder, bytes) {
            let message = "too many large requests, please try again later.";
            return Err(Status::too_many_requests(message, 1));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Charges what a write does with a tree of this size. Fails with 413 if one request may
    /// not have such a tree.
    pub(crate) fn add_trees_of_write(&mut self, tree_bytes: usize) -> Result<(), Status> {
        self.add_tree(tree_bytes)?;
        self.add((TREES_OF_WRITE - 1) * tree_bytes)
    }

    /// Charges a tree that is only read.
    pub(crate) fn add_tree(&mut self, tree_bytes: usize) -> Result<(), Status> {
        if tree_bytes > MAX_TREE_BYTES {
            return Err(Status::request_entity_too_large(format!(
                "the decoded object would take about {tree_bytes} bytes of memory, limit is {MAX_TREE_BYTES}"
            )));
        }
        self.add(tree_bytes)
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.memory.give_back(&self.holder, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_charge_is_bounded_and_returned() {
        static MEMORY: RequestMemory = RequestMemory::new(12);
        let mut charge = MemoryCharge::new(&MEMORY, "ann");
        assert_eq!(charge.add_tree(MAX_TREE_BYTES + 1).unwrap_err().code, 413);
        assert_eq!(charge.add(7).unwrap_err().code, 429);
        charge.add(4).unwrap();
        charge.add(2).unwrap();
        let mut second = MemoryCharge::new(&MEMORY, "ann");
        assert_eq!(second.add(1).unwrap_err().code, 429);
        let mut other = MemoryCharge::new(&MEMORY, "bob");
        other.add(3).unwrap();
        assert_eq!(other.add(1).unwrap_err().code, 429);
        drop(charge);
        second.add(4).unwrap();
    }

    proptest! {
        #[test]
        fn every_holder_leaves_as_much_as_it_has(
            charges in prop::collection::vec((0usize..5, 1usize..4_000), 0..200),
        ) {
            const TOTAL: usize = 1 << 16;
            let memory = RequestMemory::new(TOTAL);
            let holders: Vec<Arc<str>> = (0..5).map(|n| n.to_string().into()).collect();
            for (holder, bytes) in &charges {
                memory.take(&holders[*holder], *bytes);
            }
            let count = memory.held_memory.lock().by_holder.len();
            prop_assert!(memory.take(&"new".into(), TOTAL >> (count + 1)));
        }
    }
}
