//! A future whose span is the current one while it is polled.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::span::Span;

pin_project! {
    /// Polls a future inside a span, if there is one. The span may outlive the future.
    pub struct InSpan<F> {
        #[pin]
        future: F,
        context: Option<opentelemetry::Context>,
    }
}

impl<F: Future> Future for InSpan<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _current = this.context.clone().map(opentelemetry::Context::attach);
        this.future.poll(cx)
    }
}

pub trait InSpanExt: Future + Sized {
    /// Makes `span` the current one while this future is polled.
    fn in_span(self, span: Option<&Span>) -> InSpan<Self> {
        InSpan {
            future: self,
            context: span.map(|span| span.context().clone()),
        }
    }
}

impl<F: Future> InSpanExt for F {}
