//! Times, and what is made of many of them.

use std::time::{Duration, Instant};

use crate::server::{Server, processor_seconds};

/// Measures one transfer.
pub struct Watch<'a> {
    began: Instant,
    cpu: f64,
    server: Option<&'a Server>,
}

impl<'a> Watch<'a> {
    /// From now on; with the processor time of this server too, if one takes part.
    pub fn start(server: Option<&'a Server>) -> Self {
        Self { began: Instant::now(), cpu: cpu(server), server }
    }

    /// So many bytes have come.
    pub fn stop(self, bytes: u64) -> Rate {
        let mib = bytes as f64 / f64::from(1 << 20);
        let seconds = self.began.elapsed().as_secs_f64();
        Rate { speed: mib / seconds, cpu: (cpu(self.server) - self.cpu) / (mib / 1024.0) }
    }
}

fn cpu(server: Option<&Server>) -> f64 {
    processor_seconds(std::process::id())[0] + server.map_or(0.0, Server::cpu)
}

/// One transfer.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// MiB per second.
    pub speed: f64,
    /// Seconds of processor time per GiB, of both ends.
    pub cpu: f64,
}

/// The middle one by speed, and the middle of the processor times.
pub fn median(rates: &[Rate]) -> Rate {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    Rate {
        speed: middle(rates.iter().map(|rate| rate.speed).collect()),
        cpu: middle(rates.iter().map(|rate| rate.cpu).collect()),
    }
}

/// p50, p95 and p99, nearest rank, in milliseconds.
pub fn percentiles(times: &[Duration]) -> [f64; 3] {
    let mut times = times.to_vec();
    times.sort();
    [50, 95, 99].map(|percent| {
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).map_or(f64::NAN, |time| time.as_secs_f64() * 1000.0)
    })
}

/// Of the straight line nearest to all points.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let (above, below) = points
        .iter()
        .fold((0.0, 0.0), |(above, below), (px, py)| (above + (px - x) * (py - y), below + (px - x).powi(2)));
    above / below
}
