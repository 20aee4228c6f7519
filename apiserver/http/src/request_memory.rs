//! Charges what the bodies of requests take before it is taken: the process refuses a request
//! rather than hold more than it can (429), and one whose object alone would be too large (413).

use machinery::Status;
use machinery::tree_memory::MAX_TREE_BYTES;
use tokio::sync::{Semaphore, SemaphorePermit};

/// What the bodies of all requests in progress may take.
const TOTAL_BYTES: usize = 512 << 20;
/// A permit stands for this many bytes.
const PERMIT_BYTES: usize = 1024;
/// A write holds the object as it is requested, as it was and as it becomes.
const TREES_OF_WRITE: usize = 3;

/// The memory of the process for requests.
static REQUEST_MEMORY: Semaphore = Semaphore::const_new(TOTAL_BYTES / PERMIT_BYTES);

/// Memory that a request may take until this is dropped.
pub(crate) struct MemoryCharge {
    available: &'static Semaphore,
    permit: Option<SemaphorePermit<'static>>,
}

impl Default for MemoryCharge {
    fn default() -> Self {
        Self::of(&REQUEST_MEMORY)
    }
}

impl MemoryCharge {
    /// A charge of nothing so far.
    fn of(available: &'static Semaphore) -> Self {
        Self {
            available,
            permit: None,
        }
    }

    /// Charges more bytes. Fails with 429 if the process has none left.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), Status> {
        let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let Ok(more) = self.available.try_acquire_many(permits) else {
            let why = "too many large requests, please try again later.";
            return Err(Status::too_many_requests(why, 1));
        };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }

    /// Charges what a write does with a tree of this size. Fails with 413 if one request may
    /// not have such a tree.
    pub(crate) fn add_tree(&mut self, tree_bytes: usize) -> Result<(), Status> {
        if tree_bytes > MAX_TREE_BYTES {
            return Err(Status::request_entity_too_large(format!(
                "the decoded object would take about {tree_bytes} bytes of memory, limit is {MAX_TREE_BYTES}"
            )));
        }
        self.add(TREES_OF_WRITE * tree_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_is_bounded_and_returned() {
        static MEMORY: Semaphore = Semaphore::const_new(4);
        let mut charge = MemoryCharge::of(&MEMORY);
        assert_eq!(charge.add_tree(MAX_TREE_BYTES + 1).unwrap_err().code, 413);
        assert_eq!(charge.add(4 * PERMIT_BYTES + 1).unwrap_err().code, 429);
        charge.add(1).unwrap();
        charge.add(PERMIT_BYTES).unwrap();
        let mut other = MemoryCharge::of(&MEMORY);
        assert_eq!(other.add(3 * PERMIT_BYTES).unwrap_err().code, 429);
        other.add(2 * PERMIT_BYTES).unwrap();
        drop(charge);
        other.add(2 * PERMIT_BYTES).unwrap();
    }
}
