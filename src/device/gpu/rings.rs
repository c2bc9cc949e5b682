//! Small rings of mappable buffers between host and device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use wgpu::{Buffer, MapMode};

/// Where a mappable buffer stands.
const WAITING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

/// A buffer that the host maps again and again.
pub(super) struct Mappable {
    pub(super) buffer: Buffer,
    state: Arc<AtomicU8>,
}

impl Mappable {
    /// A buffer that is mapped now or not.
    pub(super) fn new(buffer: Buffer, mapped: bool) -> Self {
        Mappable { buffer, state: Arc::new(AtomicU8::new(if mapped { MAPPED } else { WAITING })) }
    }

    /// Asks for the mapping; done when the device has finished with the buffer.
    pub(super) fn request(&self, mode: MapMode) {
        self.state.store(WAITING, Ordering::Release);
        let state = self.state.clone();
        self.buffer.map_async(mode, .., move |result| {
            state.store(if result.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
        });
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.state.load(Ordering::Acquire) == MAPPED
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state.load(Ordering::Acquire) == FAILED
    }
}
