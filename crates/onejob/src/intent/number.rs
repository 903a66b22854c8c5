//! Numbers in one exact form: equal numbers are written alike, different ones never.
//!
//! The layout is that of RFC 8785 (and so of ECMAScript): written out up to 21 places before the point
//! and five zeros after it, else `d.ddde±x`. Only that no digit is ever dropped.

use std::fmt::Write as _;

/// Where ECMAScript changes from `100…0` to `1e+21`.
const MOST_PLACES: i64 = 21;
/// Where ECMAScript changes from `0.000001` to `1e-7`.
const MOST_ZEROS: i64 = 5;
/// Far inside of 64 bits, and one past what the parser lets through.
const FARTHEST_EXPONENT: i64 = 10_i64.pow(crate::json::MAX_EXPONENT_DIGITS as u32);

/// A number taken apart: `0.DIGITS × 10^point`, without leading or trailing zeros; no digits is zero.
struct Decimal {
    negative: bool,
    digits: String,
    point: i64,
}

/// Writes the number of the JSON text `text` in its one form.
pub(super) fn write(out: &mut String, text: &str) {
    if is_plain_integer(text.as_bytes()) {
        out.push_str(text);
        return;
    }
    match take_apart(text) {
        Some(decimal) => lay_out(out, &decimal),
        // An exponent that the parser refuses: left as it is rather than changed.
        None => out.push_str(text),
    }
}

/// Whether two JSON texts are the same number.
pub(super) fn same(a: &str, b: &str) -> bool {
    let form = |text| {
        let mut out = String::new();
        write(&mut out, text);
        out
    };
    a == b || form(a) == form(b)
}

/// The common case, already in its form: an integer of at most 21 digits that is not `-0`.
fn is_plain_integer(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    digits.len() <= MOST_PLACES as usize && digits.iter().all(u8::is_ascii_digit) && text != b"-0"
}

fn take_apart(text: &str) -> Option<Decimal> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    let significant = all.trim_start_matches('0');
    if significant.is_empty() {
        return Some(Decimal { negative: false, digits: String::new(), point: 0 });
    }
    let leading_zeros = all.len() - significant.len();
    let shift = i64::try_from(whole.len()).ok()? - i64::try_from(leading_zeros).ok()?;
    let exponent = exponent.parse::<i64>().ok().filter(|e| (-FARTHEST_EXPONENT..=FARTHEST_EXPONENT).contains(e))?;
    let point = exponent + shift;
    Some(Decimal { negative, digits: significant.trim_end_matches('0').to_owned(), point })
}

fn lay_out(out: &mut String, decimal: &Decimal) {
    let Decimal { negative, digits, point } = decimal;
    if digits.is_empty() {
        out.push('0');
        return;
    }
    if *negative {
        out.push('-');
    }
    let count = digits.len() as i64;
    if (count..=MOST_PLACES).contains(point) {
        out.push_str(digits);
        push_zeros(out, point - count);
    } else if (1..=MOST_PLACES).contains(point) {
        let (whole, fraction) = digits.split_at(*point as usize);
        out.push_str(whole);
        out.push('.');
        out.push_str(fraction);
    } else if (-MOST_ZEROS..=0).contains(point) {
        out.push_str("0.");
        push_zeros(out, -point);
        out.push_str(digits);
    } else {
        let (first, rest) = digits.split_at(1);
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        // Writing into a String cannot fail.
        let _ = write!(out, "e{:+}", point - 1);
    }
}

fn push_zeros(out: &mut String, count: i64) {
    for _ in 0..count {
        out.push('0');
    }
}
