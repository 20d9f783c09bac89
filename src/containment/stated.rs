//! The reason that an administrator states: it is kept for ever, and read by people.

use crate::task::spec::SpecError;

/// Longer ones are for a ticket, whose number fits.
const LONGEST: usize = 1024;

/// A reason as it was given, if it is one.
pub fn stated_reason(text: &str) -> Result<String, SpecError> {
    if text.trim().is_empty() {
        return Err(SpecError::new("reason", "must say why, for whoever reads it later"));
    }
    if text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err(SpecError::new("reason", format!("is at most {LONGEST} bytes, on one line")));
    }
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_something_on_one_line() {
        assert_eq!(stated_reason(" disk swapped, ticket 7 ").unwrap(), "disk swapped, ticket 7");
        for bad in ["", "  ", "a\nb", "\u{1b}[2J", &"x".repeat(LONGEST + 1)] {
            assert_eq!(stated_reason(bad).unwrap_err().field, "reason", "{bad:?}");
        }
    }
}
