//! Buffers that the threads of a pass write at the same time.

use std::marker::PhantomData;
use std::ops::Range;

/// A slice of which each thread writes its own part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a mutable slice; [`Shared::part`] demands that parts in use do not overlap.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            life: PhantomData,
        }
    }

    /// A part to write.
    ///
    /// # Safety
    ///
    /// No other part that overlaps it may be in use, in this thread or another.
    #[expect(clippy::mut_from_ref, reason = "parts of one slice do not overlap")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: it lies within the slice, and the caller promises that it is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// A part to read.
    ///
    /// # Safety
    ///
    /// Nobody may write to it while it is in use.
    pub(crate) unsafe fn read(&self, range: Range<usize>) -> &[T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: it lies within the slice, and the caller promises that nobody writes.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }
}
