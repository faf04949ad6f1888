//! The instruction sets that kernels exist for.

use crate::format::Format;

/// What the processor can do, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    Portable,
    Avx2,
    Avx512,
}

impl Isa {
    /// The best that elementwise loops are compiled for.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
            {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// The best for matrix products in a format: AVX-512 needs BF16 or VNNI for the small ones.
    pub(crate) fn detect_for(format: Format) -> Self {
        let best = Self::detect();
        #[cfg(target_arch = "x86_64")]
        {
            let extended = match format {
                Format::Float32 => true,
                Format::Bf16 => is_x86_feature_detected!("avx512bf16"),
                Format::Int8 => is_x86_feature_detected!("avx512vnni"),
            };
            if !extended {
                return best.min(Self::Avx2);
            }
        }
        let _ = format;
        best
    }

    /// Those that this machine can run in a format, for tests.
    #[cfg(test)]
    pub(crate) fn available(format: Format) -> Vec<Self> {
        let best = Self::detect_for(format);
        let all = [Self::Portable, Self::Avx2, Self::Avx512];
        all.into_iter().filter(|isa| *isa <= best).collect()
    }
}
