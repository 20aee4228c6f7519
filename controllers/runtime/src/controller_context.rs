//! What every controller is started with.

use std::sync::Arc;

use client::{Api, Informer, InformerFactory, ListWatchSelector, TaskGroup};
use machinery::Gvr;
use machinery::time::Clock;

use crate::event_recorder::EventRecorder;

/// The API server, clock and tasks of controllers. A controller starts with it and its options.
#[derive(Clone)]
pub struct ControllerContext {
    /// The API server whose objects the controllers reconcile.
    pub control_plane: Arc<dyn Api>,
    /// The informers on `control_plane`.
    pub informers: InformerFactory,
    pub clock: Arc<dyn Clock>,
    pub recorder: EventRecorder,
    /// The controllers' tasks; stopping them stops the controllers.
    pub tasks: TaskGroup,
}

impl ControllerContext {
    /// The informer on all objects of a resource.
    pub fn informer(&self, resource: &Gvr) -> Informer {
        self.select(&ListWatchSelector::all(resource))
    }

    /// The informer on the selected objects.
    pub fn select(&self, selector: &ListWatchSelector) -> Informer {
        self.informers.get(&self.control_plane, selector)
    }

    /// The context of controllers that can be stopped before the others: they have tasks of their
    /// own, and informers beside those that they share.
    #[must_use]
    pub fn child(&self) -> Self {
        let tasks = self.tasks.child();
        Self {
            informers: self.informers.child(&tasks),
            tasks,
            ..self.clone()
        }
    }
}
