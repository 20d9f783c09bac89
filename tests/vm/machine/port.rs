//! The line between the host and the agent in a machine: scripts go in, lines and a code come out.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub struct Port {
    reader: BufReader<UnixStream>,
    /// Of a line that has not ended yet.
    partial: Vec<u8>,
}

impl Port {
    /// Connects as soon as the emulator listens.
    pub fn connect(path: &Path) -> Self {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match UnixStream::connect(path) {
                Ok(stream) => return Self { reader: BufReader::new(stream), partial: Vec::new() },
                Err(error) => assert!(Instant::now() < deadline, "connect {}: {error}", path.display()),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the agent, after a start and after a reboot.
    pub fn wait_ready(&mut self, limit: Duration) -> Result<(), String> {
        let deadline = Instant::now() + limit;
        while self.line(deadline)? != "ready" {}
        Ok(())
    }

    /// Has a script run, and gives its lines to `each`.
    pub fn run(&mut self, script: &str, limit: Duration, mut each: impl FnMut(&str)) -> Result<i32, String> {
        self.tell(script);
        let deadline = Instant::now() + limit;
        loop {
            let line = self.line(deadline)?;
            match line.split_at_checked(1) {
                Some(("|", text)) => each(text),
                Some(("=", code)) => return code.parse().map_err(|error| format!("{line:?}: {error}")),
                _ => {}
            }
        }
    }

    /// Has a script run, and waits for nothing.
    pub fn tell(&mut self, script: &str) {
        let line = base64(script.as_bytes()) + "\n";
        self.reader.get_mut().write_all(line.as_bytes()).expect("the emulator takes the script");
    }

    fn line(&mut self, deadline: Instant) -> Result<String, String> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the machine did not answer in time".to_owned());
            }
            self.reader.get_mut().set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
            match self.reader.read_until(b'\n', &mut self.partial) {
                Ok(0) => return Err("the machine is gone".to_owned()),
                Ok(_) if self.partial.ends_with(b"\n") => {
                    let bytes = std::mem::take(&mut self.partial);
                    return Ok(String::from_utf8_lossy(&bytes[..bytes.len() - 1]).into_owned());
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(format!("read from the machine: {error}")),
            }
        }
    }
}

/// A script has lines, and the agent takes one.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) as usize & 63;
            let shown = if digit <= three.len() { char::from(DIGITS[value]) } else { '=' };
            let _ = write!(text, "{shown}");
        }
    }
    text
}
