//! Finds numbers that are not finite in stored weights.

/// A format of floating-point numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float {
    F32,
    Bf16,
    F16,
}

/// Whether all little-endian numbers are finite: none has the largest exponent, which NaN and infinity have.
pub fn is_finite(bytes: &[u8], float: Float) -> bool {
    // The exponent in each number of eight bytes, and the highest bit of each number.
    let (exponents, tops) = match float {
        Float::F32 => (0x7f80_0000_7f80_0000, 0x8000_0000_8000_0000),
        Float::Bf16 => (0x7f80_7f80_7f80_7f80, 0x8000_8000_8000_8000),
        Float::F16 => (0x7c00_7c00_7c00_7c00, 0x8000_8000_8000_8000),
    };
    // A zero bit of an exponent carries into the highest bit of its number.
    let carries = |word: u64| ((!word & exponents) + (!tops)) & tops;
    let (words, rest) = bytes.as_chunks::<8>();
    let all = words
        .iter()
        .fold(tops, |all, word| all & carries(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    all & carries(u64::from_le_bytes(last)) == tops
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_finite_if_each_of_them_is(
            mut halves in prop::collection::vec(0u16..0x7c00, 0..40), odd in any::<Option<(prop::sample::Index, u16)>>(),
        ) {
            if let (false, Some((place, value))) = (halves.is_empty(), odd) {
                *place.get_mut(&mut halves) = value;
            }
            let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
            let float = |half: u16| f32::from_bits(u32::from(half) << 16);
            let wanted = halves.iter().all(|half| float(*half).is_finite());
            prop_assert_eq!(is_finite(&bytes, Float::Bf16), wanted);
            let wanted = halves.iter().all(|half| half & 0x7c00 != 0x7c00);
            prop_assert_eq!(is_finite(&bytes, Float::F16), wanted);
            let pairs = bytes.as_chunks::<4>().0;
            let wanted = pairs.iter().all(|four| f32::from_le_bytes(*four).is_finite());
            prop_assert_eq!(is_finite(&bytes[..4 * pairs.len()], Float::F32), wanted);
        }
    }
}
