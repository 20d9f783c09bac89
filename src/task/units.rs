//! Quantities as people write them: `512M`, `1.5`, `90s`.
//!
//! Every parser refuses what would silently mean something else: zero, negative numbers, NaN, infinity, overflow.

use std::time::Duration;

/// How sizes are written, for people: in the help, in docs/run.md and in the configuration.
pub const SIZES: &str = "Sizes are bytes, or a number with b, k, kb, kib, m, mb, mib, g, gb, gib, t, tb or tib, in any case, \
    all powers of 1024 (100, 64k, 512M, 1.5GiB).";
/// The same of times.
pub const TIMES: &str = "Times are seconds, or a number with ms, s, m, h or d, in lower case, from 1ms to 36500d (1.5, 500ms, 90s, 5m, 7d).";

/// Parses bytes, as [`SIZES`] says.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, suffix) = split(text);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("{text:?} has an unknown unit; write for example 512M or 2G")),
    };
    let value = positive(text, number)?
        * f64::from(1u32 << (shift % 30))
        * if shift >= 30 { f64::from(1u32 << 30) } else { 1.0 };
    if value < 1.0 || value >= i64::MAX as f64 {
        return Err(format!("{text:?} is out of range; write for example 512M or 2G"));
    }
    Ok(value as u64)
}

/// Parses a span of time, as [`TIMES`] says.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (number, suffix) = split(text);
    let seconds_per_unit = match suffix {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(format!("{text:?} has an unknown unit; write for example 500ms, 90s or 5m")),
    };
    let seconds = positive(text, number)? * seconds_per_unit;
    // 100 years fit every timer of the kernel; beyond that "no limit" was meant, and there is no such thing.
    if !(0.001..=3_153_600_000.0).contains(&seconds) {
        return Err(format!("{text:?} is out of range; it must lie between 1ms and 36500d"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses a span of time that may be nothing at all.
pub fn grace(text: &str) -> Result<Duration, String> {
    let (number, suffix) = split(text);
    let nothing = number.parse() == Ok(0.0) && ["", "ms", "s", "m", "h", "d"].contains(&suffix);
    if nothing { Ok(Duration::ZERO) } else { duration(text) }
}

/// Parses a number of CPUs, such as `0.5` or `2`.
pub fn cpus(text: &str) -> Result<f64, String> {
    let cpus = positive(text, text)?;
    // The kernel refuses quotas under 1 ms of a 100 ms period.
    if !(0.01..=8192.0).contains(&cpus) {
        return Err(format!("{text:?} is out of range; it must lie between 0.01 and 8192"));
    }
    Ok(cpus)
}

/// Parses a whole number of at least one.
pub fn count(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(0) => Err("0 would leave the task nothing; give at least 1".into()),
        Ok(n) if n <= u64::from(u32::MAX) => Ok(n),
        _ => Err(format!("{text:?} is not a whole number between 1 and {}", u32::MAX)),
    }
}

/// Writes bytes as people do: `512M`, `1.5G`.
pub fn human_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "K", "M", "G"] {
        if value < 1024.0 {
            return if value.fract() < 0.05 { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1}T")
}

/// The same to the byte, as [`bytes`] reads it back: `512M`, or `536870913`.
pub fn exact_bytes(bytes: u64) -> String {
    let units = ["T", "G", "M", "K"].into_iter().zip([40, 30, 20, 10]);
    let fits = |shift: &u32| bytes > 0 && bytes.trailing_zeros() >= *shift;
    units
        .into_iter()
        .find(|(_, shift)| fits(shift))
        .map_or(bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && !".+-".contains(c)).unwrap_or(text.len()))
}

fn positive(text: &str, number: &str) -> Result<f64, String> {
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(0.0) => Err("0 would leave the task nothing; leave the option out for the default".into()),
        Ok(value) if value < 0.0 => Err(format!("{text:?} is negative")),
        _ => Err(format!("{text:?} is not a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!(bytes("512M"), Ok(512 << 20));
        assert_eq!(bytes("1.5g"), Ok(3 << 29));
        assert_eq!(bytes("64KiB"), Ok(64 << 10));
        assert_eq!(bytes("100"), Ok(100));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(grace("0s"), Ok(Duration::ZERO));
        assert_eq!(grace("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(cpus("0.5"), Ok(0.5));
        assert_eq!(count("128"), Ok(128));
        assert_eq!(human_bytes(512 << 20), "512M");
        assert_eq!(human_bytes(3 << 29), "1.5G");
        for (size, text) in [(0, "0"), (2 << 30, "2G"), (3 << 29, "1536M"), (1 << 20 | 1, "1048577"), (5 << 40, "5T")] {
            assert_eq!(exact_bytes(size), text);
        }
    }

    #[test]
    fn what_would_mean_something_else_is_refused() {
        for bad in
            ["0", "-1", "NaN", "inf", "1e300T", "9999999999T", "", "M", "5X", "1..2", "+-1", "9MBBB", "9ib", "9ki"]
        {
            assert!(bytes(bad).is_err(), "bytes({bad:?})");
        }
        for bad in ["0", "-1s", "nan", "99999999d", "5 fortnights", "s", "5S", "5min", "5mss"] {
            assert!(duration(bad).is_err(), "duration({bad:?})");
        }
        for bad in ["0", "-0.5", "NaN", "inf", "0.001", "1e9", ""] {
            assert!(cpus(bad).is_err(), "cpus({bad:?})");
        }
        for bad in ["0", "-1", "1.5", "99999999999", ""] {
            assert!(count(bad).is_err(), "count({bad:?})");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic_or_yield_zero(text in "\\PC{0,12}") {
            prop_assert!(bytes(&text).is_ok_and(|b| b > 0) || bytes(&text).is_err());
            prop_assert!(duration(&text).is_ok_and(|d| !d.is_zero()) || duration(&text).is_err());
            prop_assert!(cpus(&text).is_ok_and(|c| c > 0.0) || cpus(&text).is_err());
            prop_assert!(count(&text).is_ok_and(|c| c > 0) || count(&text).is_err());
        }
    }
}
