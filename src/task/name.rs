//! The one rule for names of users: what a certificate's CN may be, and so what may stand in a path, a log or a list.

/// The longest name, as X.509 limits a common name.
pub const MAX: usize = 64;

/// Files of a certificates directory that are not a user's.
const RESERVED: [&str; 4] = ["ca", "crl", "index", "server"];

/// Whether `name` can be an identity. The rule leaves no separator, control character or look-alike in.
pub fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a name must not be empty".into());
    }
    if name.len() > MAX {
        return Err(format!("a name has at most {MAX} characters"));
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte)) {
        return Err("a name consists of A-Z a-z 0-9 . _ @ -".into());
    }
    if name.starts_with(['.', '-']) {
        return Err("a name does not start with . or -".into());
    }
    Ok(())
}

/// Whether `taskman certs` may issue a certificate of that name: an identity whose files would not be others'.
pub fn check_issued(name: &str) -> Result<(), String> {
    check(name)?;
    if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(format!("{name} names another file of the directory; choose another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["a", "admin", "client001", "ann.lee@example.org", "x_1-2", &"n".repeat(64)] {
            assert_eq!(check_issued(good), Ok(()), "{good}");
        }
        let long = "n".repeat(65);
        for bad in
            ["", ".", "..", ".a", "-a", "a/b", "../a", "a b", "a\n", "a\0", "\u{1b}[1m", "ä", "a\u{202e}", "*", &long]
        {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        for reserved in ["ca", "server", "crl", "index", "CA"] {
            assert!(check_issued(reserved).is_err(), "{reserved}");
        }
    }
}
