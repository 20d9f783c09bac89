//! Lines of `/proc/self/mountinfo`: the kernel's own answer to what is mounted where.

use std::path::PathBuf;

/// One mount.
#[derive(Debug, Clone)]
pub(crate) struct Mount<'a> {
    /// Which part of the file system is shown.
    pub(crate) root: String,
    /// Where.
    pub(crate) point: PathBuf,
    /// The file system's type.
    pub(crate) kind: &'a str,
    /// What it was made from: a device, a server, a word.
    pub(crate) source: &'a str,
    /// The file system's own options; for version 1 control groups, their controllers.
    pub(crate) options: &'a str,
}

impl<'a> Mount<'a> {
    /// Every line that can be read; the kernel writes no others.
    pub(crate) fn all(mountinfo: &'a str) -> impl Iterator<Item = Self> {
        mountinfo.lines().filter_map(Self::parse)
    }

    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, source, options) = (after.next()?, after.next()?, after.next().unwrap_or(""));
        let mut before = before.split(' ').skip(3);
        Some(Self { root: unescape(before.next()?), point: unescape(before.next()?).into(), kind, source, options })
    }

    /// Whether this is a version 2 control group file system.
    pub(crate) fn is_v2(&self) -> bool {
        self.kind == "cgroup2"
    }
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => text.extend([char::from(byte).to_string().as_str(), &part[3..]]),
            None => text.extend(["\\", part]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_the_kernel_writes_it() {
        let line = "36 35 98:0 /a\\040b /mnt\\0402 rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue";
        let mount = Mount::all(line).next().unwrap();
        assert_eq!((mount.root.as_str(), mount.point.to_str()), ("/a b", Some("/mnt 2")));
        assert_eq!((mount.kind, mount.source, mount.options), ("ext3", "/dev/root", "rw,errors=continue"));
        assert_eq!(unescape("/a\\040b\\134c\\x"), "/a b\\c\\x");
        assert_eq!(Mount::all("\n1 2 3\n - \n").count(), 0);
    }
}
