//! The key-value cache: pages of [`PAGE`] tokens, which sequences share until one of them writes.

use std::sync::Arc;

use crate::format::{Format, PANEL, to_bf16};
use crate::shared::Shared;
use crate::words::Words;

/// Tokens of a page, a multiple of [`PANEL`]. A softmax takes a page at a time.
pub(crate) const PAGE: usize = 128;
/// Panels of keys in a page.
const KEY_PANELS: usize = PAGE / PANEL;

/// Words of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE_WORDS: usize = 16;

/// Rotated keys and values of one sequence.
#[derive(Debug, Default)]
pub struct KvCache {
    pages: Vec<Arc<Words>>,
    length: usize,
}

impl KvCache {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Keeps only the first `length` tokens. The pages behind them stay for new tokens, unless other sequences have
    /// them too.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        let used = self.length.div_ceil(PAGE);
        let mut index = 0;
        self.pages.retain_mut(|page| {
            index += 1;
            index <= used || Arc::get_mut(page).is_some()
        });
    }

    /// The first `length` tokens, as a cache of their own. Nothing is copied until one of the two grows.
    pub fn prefix(&self, length: usize) -> Self {
        let length = self.length.min(length);
        Self {
            pages: self.pages[..length.div_ceil(PAGE)].to_vec(),
            length,
        }
    }

    /// Makes room for `more` tokens, in pages that no other sequence has.
    pub(crate) fn reserve(&mut self, more: usize, layout: &CacheLayout) {
        let pages = (self.length + more).div_ceil(PAGE);
        for page in self.pages.iter_mut().skip(self.length / PAGE) {
            Arc::make_mut(page);
        }
        while self.pages.len() < pages {
            self.pages.push(Arc::new(Words::zeros(layout.page_words())));
        }
    }

    /// The pages to read and to write. Those before the current end are only read.
    pub(crate) fn pages(&mut self) -> impl Iterator<Item = Page> {
        self.pages.iter_mut().map(|page| match Arc::get_mut(page) {
            Some(words) => Page(words.as_mut_ptr()),
            None => Page(page.as_ptr().cast_mut()),
        })
    }

    pub(crate) fn advance(&mut self, count: usize) {
        self.length += count;
    }
}

/// The start of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page(*mut u32);

// SAFETY: a pass writes only to pages that [`KvCache::reserve`] made its own, each thread its own part.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

/// What a page holds: for each layer and key head, the keys as panels whose outputs are tokens, and the values as
/// panels whose inputs are tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLayout {
    pub(crate) format: Format,
    pub(crate) layers: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
}

impl CacheLayout {
    fn key_panel_words(&self) -> usize {
        self.format.units(self.head_dim) * PANEL
    }

    fn key_words(&self) -> usize {
        KEY_PANELS * self.key_panel_words()
    }

    fn value_panel_words(&self) -> usize {
        self.format.units(PAGE) * PANEL
    }

    /// Panels of the values of a head.
    pub(crate) fn value_panels(&self) -> usize {
        self.head_dim.div_ceil(PANEL)
    }

    fn head_words(&self) -> usize {
        self.key_words() + self.value_panels() * self.value_panel_words()
    }

    fn page_words(&self) -> usize {
        self.layers * self.kv_heads * self.head_words()
    }

    fn start(&self, layer: usize, head: usize) -> usize {
        (layer * self.kv_heads + head) * self.head_words()
    }

    /// A panel of keys.
    pub(crate) fn keys(&self, page: Page, layer: usize, head: usize, panel: usize) -> *const u32 {
        let start = self.start(layer, head) + panel * self.key_panel_words();
        // SAFETY: pages are that large.
        unsafe { page.0.add(start) }
    }

    /// A panel of values.
    pub(crate) fn values(&self, page: Page, layer: usize, head: usize, panel: usize) -> *const u32 {
        let start = self.start(layer, head) + self.key_words() + panel * self.value_panel_words();
        // SAFETY: pages are that large.
        unsafe { page.0.add(start) }
    }

    /// Starts loading what a page has of a head: pages lie apart, so the processor does not foresee the next one.
    pub(crate) fn prefetch(&self, page: Page, layer: usize, head: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            for line in (0..self.head_words()).step_by(LINE_WORDS) {
                // SAFETY: prefetching has no effect but on time.
                unsafe {
                    let start = self.keys(page, layer, head, 0);
                    _mm_prefetch::<_MM_HINT_T1>(start.add(line).cast())
                };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (page, layer, head);
    }

    /// Stores the key and the value of token `slot` of a page.
    ///
    /// # Safety
    ///
    /// The page must be writable, and no other thread may use this head of it.
    pub(crate) unsafe fn store(
        &self,
        page: Page,
        [layer, head, slot]: [usize; 3],
        key: &[f32],
        value: &[f32],
    ) {
        // SAFETY: pages are that large, and the caller vouches for the rest.
        let words = unsafe {
            let start = page.0.add(self.start(layer, head));
            std::slice::from_raw_parts_mut(start, self.head_words())
        };
        let (keys, values) = words.split_at_mut(self.key_words());
        let keys = &mut keys[slot / PANEL * self.key_panel_words()..];
        for (input, &number) in key.iter().enumerate() {
            put(self.format, keys, input, slot % PANEL, number);
        }
        for (panel, part) in value.chunks(PANEL).enumerate() {
            let values = &mut values[panel * self.value_panel_words()..];
            for (output, &number) in part.iter().enumerate() {
                put(self.format, values, slot, output, number);
            }
        }
    }
}

/// Sets one number of a panel.
fn put(format: Format, panel: &mut [u32], input: usize, output: usize, number: f32) {
    match format {
        Format::Float32 => panel[input * PANEL + output] = number.to_bits(),
        Format::Bf16 | Format::Int8 => {
            let word = &mut panel[input / 2 * PANEL + output];
            let shift = 16 * (input % 2);
            *word = *word & !(0xffff << shift) | to_bf16(number) << shift;
        }
    }
}

/// One sequence of a pass.
pub(crate) struct Sequence<'a> {
    /// Its first row in the pass, and the number of its rows.
    pub(crate) start: usize,
    pub(crate) count: usize,
    /// Tokens before.
    pub(crate) past: usize,
    pub(crate) pages: &'a [Page],
}

/// Angles of the rotary positions of each row, `[rows, head_dim / 2]`.
#[derive(Clone, Copy)]
pub(crate) struct Angles<'a> {
    pub(crate) cos: Shared<'a, f32>,
    pub(crate) sin: Shared<'a, f32>,
}
