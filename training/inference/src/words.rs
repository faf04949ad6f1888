//! Buffers of 32-bit words that start on a cache line.

use std::ops::{Deref, DerefMut};

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// Words of packed numbers: one float32, two bfloat16 or four int8 each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    lines: Vec<Line>,
}

impl Words {
    /// At least `count` zeros.
    pub(crate) fn zeros(count: usize) -> Self {
        let mut lines = Vec::with_capacity(count.div_ceil(16));
        advise_huge_pages(&mut lines);
        lines.resize(count.div_ceil(16), Line([0; 16]));
        Self { lines }
    }

    /// Grows to at least `count` words. What was there may be lost.
    pub(crate) fn reserve(&mut self, count: usize) {
        if self.len() < count {
            *self = Self::zeros(count);
        }
    }

    /// The words as float32.
    pub(crate) fn floats(&self) -> &[f32] {
        // SAFETY: float32 has the size of a word, a smaller alignment than a line, and every bit pattern is valid.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), self.len()) }
    }

    /// The words as float32, to write.
    pub(crate) fn floats_mut(&mut self) -> &mut [f32] {
        let (start, len) = (self.as_mut_ptr().cast(), self.len());
        // SAFETY: float32 has the size of a word, a smaller alignment than a line, and every bit pattern is valid.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }
}

/// Asks for huge pages for memory that is not used yet: weights are read from start to end.
fn advise_huge_pages(lines: &mut Vec<Line>) {
    const PAGE: usize = 4096;
    let unused = lines.spare_capacity_mut().as_mut_ptr_range();
    let start = unused.start.addr().next_multiple_of(PAGE);
    let end = unused.end.addr() / PAGE * PAGE;
    #[cfg(target_os = "linux")]
    if start < end {
        // SAFETY: whole pages of an allocation of ours; the advice changes no contents. It may be refused.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

impl Deref for Words {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        // SAFETY: a line is 16 words without padding.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), 16 * self.lines.len()) }
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u32] {
        let start = self.lines.as_mut_ptr().cast();
        // SAFETY: a line is 16 words without padding.
        unsafe { std::slice::from_raw_parts_mut(start, 16 * self.lines.len()) }
    }
}
