//! Durations as people write them: `500ms`, `30s`, `10m`, `1h30m`, `7d`.

use std::time::Duration;

/// The units, largest first, with their length in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration: whole numbers, each with its unit (`d`, `h`, `m`, `s`, `ms`), largest unit first.
///
/// # Errors
///
/// A sentence that says what was expected, with an example.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a duration such as \"500ms\", \"30s\", \"10m\" or \"24h\", found {text:?}");
    let mut rest = text;
    let mut total: u64 = 0;
    let mut smallest = u64::MAX;
    while !rest.is_empty() || smallest == u64::MAX {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let letters = rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        let unit = &rest[digits..digits + letters];
        if digits > 0 && unit.is_empty() {
            return Err(format!("{text:?} has no unit; {}", expected()));
        }
        let length = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, length)| *length);
        let length = length.filter(|length| *length < smallest).ok_or_else(expected)?;
        let number: u64 = rest[..digits].parse().map_err(|_| expected())?;
        total = number.checked_mul(length).and_then(|part| total.checked_add(part)).ok_or_else(expected)?;
        smallest = length;
        rest = &rest[digits + letters..];
    }
    Ok(Duration::from_millis(total))
}

/// The shortest text that [`parse_duration`] reads as this duration; below a millisecond is cut.
pub fn duration_text(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, length) in UNITS {
        if rest >= length {
            text.push_str(&format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    text
}
