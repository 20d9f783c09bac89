//! What the service gives: `scripts/bench service` builds and runs this; docs/performance.md says what is measured.
//!
//! Everything that is compared is taken in turns in one run, because only ratios of the same seconds mean anything.
#![allow(clippy::disallowed_methods)] // it starts a server and a few threads, and no sandbox of its own

mod audit;
mod fanout;
mod limit;
mod live;
mod measure;
mod plants;
mod server;
mod starts;
mod streams;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use measure::{Rate, median};
use server::Server;

const PARTS: [&str; 8] = ["throughput", "many", "memory", "starts", "live", "output", "audit", "plants"];

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures a taskman-server.
#[derive(Parser)]
struct Args {
    /// The program.
    #[arg(long)]
    server: PathBuf,
    /// Where its state lies: the disk matters.
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// Times that each throughput is taken.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Size of the output.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Starts that are timed.
    #[arg(long, default_value_t = 200)]
    starts: usize,
    /// How long each of the auditor's phases is watched.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Idle tasks that the auditor watches.
    #[arg(long, default_value_t = 200)]
    idle: usize,
    /// Escapees that are planted, of each kind.
    #[arg(long, default_value_t = 200)]
    trials: usize,
    /// How long each burst of starts lasts, in milliseconds.
    #[arg(long, default_value_t = 3000)]
    burst: u64,
    /// Told milliseconds and a number of launchers, prints how many starts per second a peer has.
    #[arg(long)]
    beside: Option<PathBuf>,
    /// The peer's name.
    #[arg(long, default_value = "the peer")]
    beside_name: String,
    /// Prints what a start of bare C takes at p50, in nanoseconds.
    #[arg(long)]
    bare: Option<PathBuf>,
    /// Numbers of sleeping tasks beside which starts are timed.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 100, 1000, 5000])]
    levels: Vec<usize>,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', default_values = PARTS, value_parser = PARTS)]
    only: Vec<String>,
    /// Where the results of starts, live and output are written to, for scripts/bench to show.
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> Result<(), Failure> {
    if let Some(uid) = std::env::args().nth(1).as_deref().and_then(|word| word.strip_prefix(plants::ESCAPEE)) {
        return plants::escape(uid);
    }
    let args = Args::parse();
    // As `taskman` does.
    taskman::sys::memory::keep_freed();
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?.1;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, limit, limit)?;
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("load before: {}; {} processors", load.trim(), std::thread::available_parallelism()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    // Whoever is told to stop drops its servers, which end in good order and leave nothing.
    runtime.block_on(async {
        tokio::select! { done = run(&args) => done, signal = stopped() => Err(signal?.into()) }
    })
}

async fn stopped() -> std::io::Result<&'static str> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! { _ = interrupt.recv() => Ok("interrupted"), _ = terminate.recv() => Ok("told to stop") }
}

async fn run(args: &Args) -> Result<(), Failure> {
    let wanted = |part: &str| args.only.iter().any(|only| only == part);
    if wanted("audit") {
        audit::costs(args).await?;
    }
    if wanted("plants") {
        audit::lives(args).await?;
    }
    if wanted("throughput") || wanted("many") {
        // In a virtual machine, memory that was not used for a while can cost ten times as much as a copy: what is stored is forgotten soon, and
        // its pages are used again.
        let server = Server::start_with(&args.server, &args.dir, "[retain]\ncount = 2\n")?;
        throughput(args, &server, wanted("many")).await?;
    }
    if wanted("memory") {
        memory(&Server::start(&args.server, &args.dir)?, args).await?;
    }
    let mut results = serde_json::Map::new();
    if wanted("starts") {
        results.insert("service".into(), starts::arms(args).await?);
    }
    if wanted("live") {
        results.insert("live".into(), live::levels(args).await?);
    }
    if wanted("output") {
        results.insert("output".into(), fanout::output(args).await?);
    }
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec(&results)?)?;
    }
    Ok(())
}

async fn throughput(args: &Args, server: &Server, many: bool) -> Result<(), Failure> {
    let names = [
        "plain TCP",
        "TLS over TCP",
        "stored, 1 reader",
        "live, 1 reader",
        "written, no reader",
        "stored, 100 readers",
    ];
    let mut rates: [Vec<Rate>; 6] = Default::default();
    let bytes = args.mib << 20;
    for round in 0..=args.rounds {
        let certs = server.certs();
        let (tcp, tls) = tokio::task::spawn_blocking(move || (limit::tcp(bytes), limit::tls(bytes, &certs))).await?;
        let (live, task) = streams::live(server, args.mib)?;
        let stored = streams::stored(server, task, args.mib)?;
        let mut taken = vec![tcp?, tls?, stored, live, streams::unread(server, args.mib).await?];
        if many {
            taken.push(streams::many(server, task, 100, Duration::from_secs(2)).await?);
        }
        // The first round warms up.
        if round > 0 {
            eprintln!(
                "round {round}: {}",
                taken.iter().map(|r| format!("{:.0}", r.speed)).collect::<Vec<_>>().join(" ")
            );
            taken.into_iter().zip(&mut rates).for_each(|(rate, rates)| rates.push(rate));
        }
    }
    let limit = median(&rates[1]);
    println!("\n{:<22}{:>10}{:>10}{:>14}{:>10}", "median", "MiB/s", "to TLS", "cpu s/GiB", "to TLS");
    for (name, rates) in names.iter().zip(&rates).filter(|(_, rates)| !rates.is_empty()) {
        let Rate { speed, cpu } = median(rates);
        println!("{name:<22}{speed:>10.0}{:>10.2}{cpu:>14.2}{:>10.2}", speed / limit.speed, cpu / limit.cpu);
    }
    // Of the same seconds: the machine drifts between rounds.
    for (at, wanted) in [(2, 0.7), (3, 0.5)] {
        let mut ratios: Vec<f64> = rates[at].iter().zip(&rates[1]).map(|(rate, tls)| rate.speed / tls.speed).collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN);
        let verdict = if ratio >= wanted { "met" } else { "not met" };
        println!("{} to TLS, round by round: {ratio:.2}, wanted {wanted}: {verdict}", names[at]);
    }
    Ok(())
}

async fn memory(server: &Server, args: &Args) -> Result<(), Failure> {
    let crowd = streams::crowd(server, 1000, args.mib).await?;
    println!(
        "\nmemory of launcher and server, MiB, while {} fast, {} slow and {} stalled readers, each on a connection of its own, follow {} MiB",
        crowd.fast, crowd.slow, crowd.stalled, args.mib
    );
    let [early, middle, end] = crowd.during;
    for (name, memory) in [
        ("idle", crowd.idle),
        ("all connected", crowd.connected),
        ("a tenth written", early),
        ("half written", middle),
        ("all written", end),
        ("five seconds later", crowd.after),
    ] {
        println!("{name:<22}{:>10.1}", memory.now);
    }
    let peak = crowd.after.peak;
    let verdict = if peak < 256.0 { "met" } else { "not met" };
    println!("{:<22}{peak:>10.1}, wanted under 256: {verdict}; {:.1} GiB were read", "peak", crowd.gib);
    Ok(())
}
