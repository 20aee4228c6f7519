//! Classifies an error or a panic of the writer as a fault.

use std::any::Any;

use super::health::{StoreFault, StoreFaultKind};
use crate::store::Error;

/// The fault that an error stands for; `None` when the engine can never write again.
pub(super) fn fault_of(error: &Error) -> Option<StoreFault> {
    let (kind, message) = match error {
        Error::NoSpace(message) => (StoreFaultKind::Space, message),
        Error::Disk(message) => (StoreFaultKind::Disk, message),
        _ => return None,
    };
    let message = message.clone();
    Some(StoreFault { kind, message })
}

/// The fault that a panic of the writer stands for.
pub(super) fn panic_fault(payload: &(dyn Any + Send)) -> StoreFault {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    StoreFault {
        kind: StoreFaultKind::Writer,
        message: format!("the writer panicked: {}", text.unwrap_or("no message")),
    }
}
