//! Small rings of mappable buffers between host and device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use wgpu::{Buffer, MapMode, SubmissionIndex};

/// Where a mappable buffer stands.
const WAITING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

/// A buffer that the host maps again and again.
pub(super) struct Mappable {
    pub(super) buffer: Buffer,
    state: Arc<AtomicU8>,
    /// The submission that uses it.
    used_by: Option<SubmissionIndex>,
}

impl Mappable {
    /// A buffer that is mapped now or not.
    pub(super) fn new(buffer: Buffer, mapped: bool) -> Self {
        let state = Arc::new(AtomicU8::new(if mapped { MAPPED } else { WAITING }));
        Mappable { buffer, state, used_by: None }
    }

    /// Asks for the mapping; done when the device has finished the submission that uses the buffer.
    pub(super) fn request(&mut self, mode: MapMode, used_by: SubmissionIndex) {
        self.used_by = Some(used_by);
        self.state.store(WAITING, Ordering::Release);
        let state = self.state.clone();
        self.buffer.map_async(mode, .., move |result| {
            state.store(if result.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
        });
    }

    /// Unmaps the buffer for the device.
    pub(super) fn unmap(&self) {
        self.state.store(WAITING, Ordering::Release);
        self.buffer.unmap();
    }

    /// The submission to wait for until it is mapped.
    pub(super) fn used_by(&self) -> Option<SubmissionIndex> {
        self.used_by.clone()
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.state.load(Ordering::Acquire) == MAPPED
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FAILED
    }
}
