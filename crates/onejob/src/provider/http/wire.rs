//! What a connection has carried: the one place that sees every byte of a request before it leaves.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use onejob_core::Phase;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::provider::Progress;

/// The state of one connection's present request, shared by the stream that carries it, the body
/// that feeds it and the call that waits for it.
#[derive(Clone, Default)]
pub(super) struct Wire(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    progress: Option<Progress>,
    /// A write of this request was attempted.
    begun: bool,
    /// hyper has taken the whole body.
    handed_over: bool,
    /// A byte has come since the request, or since its end.
    has_read: bool,
    /// The connection takes no more bytes. Not of one request only: it stays so.
    is_deaf: bool,
}

impl Wire {
    /// A new request goes over this connection.
    pub(super) fn begin(&self, progress: Progress, body_is_empty: bool) {
        let mut state = self.state();
        let is_deaf = state.is_deaf;
        *state = State { progress: Some(progress), begun: false, handed_over: body_is_empty, has_read: false, is_deaf };
    }

    /// The request was answered: what the connection does from now on is nobody's progress, and what
    /// it reads is nobody's answer.
    pub(super) fn end(&self) {
        let mut state = self.state();
        state.progress = None;
        state.has_read = false;
    }

    pub(super) fn has_begun(&self) -> bool {
        self.state().begun
    }

    pub(super) fn has_read(&self) -> bool {
        self.state().has_read
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.state().is_deaf
    }

    /// What a failed write or flush becomes. A provider may answer and close before it has read the whole
    /// request ("too large", "not you", "not now"): its answer is there to be read, and hyper, told of the
    /// failure, would not read it. So the rest of the request goes nowhere, and reading tells the end.
    fn swallow<T>(&self, written: Poll<io::Result<T>>, instead: T) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(Err(_)) => {
                self.state().is_deaf = true;
                Poll::Ready(Ok(instead))
            }
            other => other,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called before every write, so that "nothing was sent" is never claimed too late.
    fn about_to_write(&self) {
        let mut state = self.state();
        state.begun = true;
        if let Some(progress) = &state.progress {
            progress.advance(Phase::Sending);
        }
    }

    /// Called when everything written so far has been handed to the operating system.
    fn flushed(&self) {
        let state = self.state();
        if let Some(progress) = &state.progress
            && state.begun
            && state.handed_over
            && !state.is_deaf
        {
            progress.advance(Phase::AwaitingHeaders);
        }
    }
}

/// A stream that reports to a [`Wire`] what it carries. It lies above TLS: bytes of the handshake
/// are no bytes of a request.
pub(super) struct Watched<S> {
    inner: S,
    wire: Wire,
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, wire: Wire) -> Watched<S> {
        Watched { inner, wire }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.wire.state().has_read = true;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.wire.about_to_write();
        if self.wire.is_deaf() {
            return Poll::Ready(Ok(buffer.len()));
        }
        let written = Pin::new(&mut self.inner).poll_write(cx, buffer);
        self.wire.swallow(written, buffer.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.wire.about_to_write();
        let all = buffers.iter().map(|buffer| buffer.len()).sum();
        if self.wire.is_deaf() {
            return Poll::Ready(Ok(all));
        }
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, buffers);
        self.wire.swallow(written, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.wire.is_deaf() {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        let flushed = self.wire.swallow(flushed, ());
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.wire.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The body of a request, which tells its [`Wire`] when it was taken.
pub(super) struct Sent {
    bytes: Option<Bytes>,
    wire: Wire,
}

impl Sent {
    pub(super) fn new(bytes: Bytes, wire: Wire) -> Sent {
        Sent { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()), wire }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.bytes.take();
        if bytes.is_some() {
            self.wire.state().handed_over = true;
        }
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
