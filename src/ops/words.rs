//! Numbers as people read them.

/// A span of time in the unit that fits.
#[must_use]
pub fn span(seconds: f64) -> String {
    let s = seconds.max(0.0);
    match s {
        s if s < 1.0 => format!("{:.0} ms", s * 1_000.0),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

/// A count that ends at `bound`, which then means "at least".
#[must_use]
pub fn at_least(n: i64, bound: i64) -> String {
    if n >= bound { format!("at least {}", grouped(bound - 1)) } else { grouped(n) }
}

/// 1234567 as 1,234,567.
#[must_use]
pub fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if n < 0 { format!("−{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(-12), "−12");
        assert_eq!(at_least(1_000, 1_001), "1,000");
        assert_eq!(at_least(1_001, 1_001), "at least 1,000");
        assert_eq!([span(0.0123), span(3.0), span(600.0), span(7_200.0)], ["12 ms", "3.0 s", "10 min", "2.0 h"]);
    }
}
