//! Numbers as they stand in operands and in records.

/// An operand without a fraction: decimal, `0x` hexadecimal or, with a leading zero, octal. One that is too large is the
/// largest.
pub(super) fn integer_operand(text: &str) -> Option<i64> {
    let text = text.trim();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let size = i64::from_str_radix(digits, radix).unwrap_or(i64::MAX);
    Some(if negative { -size } else { size })
}

/// An operand with a fraction or an exponent.
pub(super) fn float_operand(text: &str) -> Option<f64> {
    let text = text.trim();
    // Not the words for infinity and for no number.
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.parse().ok().filter(|value: &f64| plain && value.is_finite())
}

/// The number that `data` begins with, up to a blank or the end; `None` if that is no number.
fn first_word(data: &[u8]) -> Option<&str> {
    let data = data.trim_ascii_start();
    let length = data.iter().position(u8::is_ascii_whitespace).unwrap_or(data.len());
    std::str::from_utf8(&data[..length]).ok()
}

/// The number in a record as an integer: of one with a fraction, the part before it.
pub(super) fn integer_in(data: &[u8]) -> Option<i64> {
    let word = first_word(data)?;
    match word.parse() {
        Ok(value) => Some(value),
        // The conversion keeps within the bounds.
        Err(_) => float_operand(word).map(|value| value.trunc() as i64),
    }
}

/// The number in a record.
pub(super) fn float_in(data: &[u8]) -> Option<f64> {
    float_operand(first_word(data)?)
}
