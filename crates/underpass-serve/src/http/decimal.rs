//! Writes numbers into heads without the formatting machinery: it runs several times a request.

/// Appends `number` in decimal.
pub(crate) fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let mut first = DIGITS_MAX;
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// Writes `number` in hexadecimal at `from` and returns where it ends. Needs room for 16 digits.
pub(crate) fn push_hex(out: &mut [u8], from: usize, number: u64) -> usize {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for (place, shift) in (from..).zip((0..digits).rev()) {
        let digit = (number >> (4 * shift)) as usize & 0xf;
        out[place] = b"0123456789abcdef"[digit];
    }
    from + digits as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_same_as_formatting(number in proptest::num::u64::ANY, shift in 0u32..64) {
            let number = number >> shift;
            let mut decimal = Vec::new();
            push_decimal(&mut decimal, number);
            proptest::prop_assert_eq!(decimal, number.to_string().into_bytes());
            let mut hex = [0; 18];
            let end = push_hex(&mut hex, 2, number);
            let expected = format!("{number:x}");
            proptest::prop_assert_eq!(&hex[2..end], expected.as_bytes());
        }
    }

    #[test]
    fn the_ends() {
        for number in [0, u64::MAX] {
            let mut decimal = Vec::new();
            push_decimal(&mut decimal, number);
            assert_eq!(decimal, number.to_string().into_bytes());
        }
    }
}
