//! The network: a task has a loopback of its own and nothing else. Every target here is the suite's own.

mod left;

use std::io::ErrorKind;
use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail, Run, broken, proc};
use crate::support::pace;
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case {
            id: "W01",
            tier: 1,
            what: "connects and sends to a listener in another network namespace by TCP, UDP, ICMP and raw packets",
            defence: &["net-namespace"],
            control: |bench| {
                if !Path::new("/usr/sbin/ip").exists() && !Path::new("/sbin/ip").exists() {
                    return Control::Cannot("there is no ip command (iproute2)".to_owned());
                }
                match reach_out(bench, None) {
                    Ok((answers, heard, packets)) if heard >= 6 && packets > 0 => {
                        answers.works(&EVERYWHERE, &[("tcp", "ok"), ("udp", "ok"), ("raw", "ok"), ("packet", "ok")])
                    }
                    Ok((answers, heard, _)) => Control::Broken(format!("the listener heard {heard} of 6: {answers:?}")),
                    Err(fail) => Control::Broken(fail.to_string()),
                }
            },
            attack: |bench, arm| {
                let (answers, heard, packets) = reach_out(bench, Some(arm))?;
                ensure!(heard == 0, "the listener heard {heard} connections or datagrams");
                ensure!(packets == 0, "{packets} packets arrived");
                answers.all(
                    &EVERYWHERE,
                    &[
                        ("tcp", "ENETUNREACH"),
                        ("udp", "ENETUNREACH"),
                        ("ping", "EACCES"),
                        ("raw", "EPERM"),
                        ("packet", "EPERM"),
                    ],
                )
            },
        },
        Case {
            id: "W02",
            tier: 1,
            what: "reaches services on the host's loopback via 127.0.0.1, ::1 and ::ffff:127.0.0.1",
            defence: &["net-namespace"],
            control: |bench| match loopback(bench, None) {
                Ok((_, heard)) if heard.iter().all(|count| *count > 0) => Control::Works,
                Ok((answers, heard)) => Control::Broken(format!("the listeners heard {heard:?}: {answers:?}")),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let (answers, heard) = loopback(bench, Some(arm))?;
                ensure!(heard == [0; 4], "the host's listeners heard {heard:?}");
                for answers in answers {
                    answers.all(&EVERYWHERE, &[("tcp", "ECONNREFUSED")])?;
                }
                Ok(())
            },
        },
        Case {
            id: "W20",
            tier: 1,
            what: "connects to abstract unix sockets of the host",
            defence: &["net-namespace"],
            control: |bench| match sockets(bench, None) {
                Ok((answers, heard)) if heard.iter().all(|count| *count > 0) => {
                    answers.works(&EVERYWHERE, &ABSTRACT.map(|(name, _)| (name, "ok")))
                }
                Ok((answers, heard)) => Control::Broken(format!("the sockets heard {heard:?}: {answers:?}")),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let (answers, heard) = sockets(bench, Some(arm))?;
                ensure!(heard == [0, 0], "the host's sockets heard {heard:?}");
                answers.all(&EVERYWHERE, &ABSTRACT)
            },
        },
        Case {
            id: "W21",
            tier: 1,
            what: "opens socket families that no network namespace divides: vsock, netlink, packet, raw and rare ones",
            defence: &["seccomp"],
            control: |bench| match sockets(bench, None) {
                Ok((answers, _)) => {
                    let families = answers.with_prefix("family-");
                    let missing = families[..families.len() / 3].iter().filter(|(_, result)| *result != "ok");
                    for (name, errno) in missing {
                        bench.note(format_args!("SKIP {name}: {errno} outside too"));
                    }
                    answers.works(&EVERYWHERE, &[("family-netlink-uevent", "ok"), ("family-netlink-high", "ok")])
                }
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let (answers, _) = sockets(bench, Some(arm))?;
                let families = answers.with_prefix("family-");
                require!(families.len() == 60, "{} families were tried", families.len());
                for (name, result) in families {
                    ensure!(result == "EPERM", "{name}: {result}, not EPERM");
                }
                answers.all(&EVERYWHERE, &[("route", "EPERM"), ("allowed-tcp6", "ok")])
            },
        },
    ];
    cases.extend(left::cases());
    cases
}

const PORT: &str = "9";

/// Two network namespaces joined by a pair of interfaces: the caller's, and the listener's. Both end with their holders.
struct Joined {
    caller: Run,
    listener: Run,
}

impl Joined {
    fn make(bench: &Bench) -> Result<Self, Fail> {
        let alone = |name: &str, args: &[&str]| -> Result<Run, Fail> {
            let mut run = bench.direct().wrapped(&["unshare", "-n"]).probe(name, args).with_stdin().spawn()?;
            run.wait_line("state ready")?;
            Ok(run)
        };
        let joined = Self { caller: alone("k_victim", &[])?, listener: alone("w_listen", &[PORT])? };
        let (caller, listener) = (joined.caller.pid.to_string(), joined.listener.pid.to_string());
        let add = ["link", "add", "adv0", "netns", &caller, "type", "veth", "peer", "name", "adv0", "netns", &listener];
        run("ip", &add)?;
        // 192.0.2.0/24 is reserved for documentation: it leads nowhere but here.
        for (pid, address) in [(&caller, "192.0.2.1/30"), (&listener, "192.0.2.2/30")] {
            let target = format!("--target={pid}");
            let script = format!(
                "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; ip link set lo up; ip addr add {address} dev adv0; ip link set adv0 up"
            );
            run("nsenter", &[&target, "--net", "sh", "-ec", &script])?;
        }
        Ok(joined)
    }

    /// Packets that came in through the listener's interface, as the kernel counted them.
    fn packets(&self) -> Result<u64, Fail> {
        let table = std::fs::read_to_string(format!("/proc/{}/net/dev", self.listener.pid)).unwrap_or_default();
        let row = table.lines().find_map(|line| line.trim().strip_prefix("adv0:"));
        let packets = row.and_then(|row| row.split_whitespace().nth(1)?.parse().ok());
        packets.ok_or_else(|| broken(format!("no interface of the listener: {table}")))
    }
}

fn run(program: &str, args: &[&str]) -> Result<(), Fail> {
    let output = Command::new(program).args(args).output().map_err(|e| broken(format!("{program}: {e}")))?;
    require!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The probe's answers, how many connections and datagrams the listener heard, and how many packets arrived.
fn reach_out(bench: &Bench, arm: Option<Arm>) -> Result<(Answers, usize, u64), Fail> {
    let mut joined = Joined::make(bench)?;
    let enter = format!("--net=/proc/{}/ns/net", joined.caller.pid);
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm)).wrapped(&["nsenter", &enter]);
    let before = joined.packets()?;
    let caller = proc::ns_of(joined.caller.pid, "net");
    let mut apart = true;
    let (answers, _) = watch(bench, arm, launch.probe("w_connect", &["192.0.2.2", PORT]), |run| {
        require!(proc::ns_of(run.pid, "net") == caller, "taskman is not where the listener can be reached from");
        apart = run.payload().is_none_or(|payload| proc::ns_of(payload, "net") != caller);
        Ok(())
    })?;
    // What was sent has arrived by now: the pair hands packets over at once. The listener has to say so.
    let heard = |run: &Run| Answers::parse(&run.out.text()).with_prefix("heard").len();
    let wait = if arm.is_none() { pace::time(Duration::from_secs(10)) } else { Duration::from_millis(300) };
    joined.listener.pump(wait, |run| heard(run) >= 6)?;
    let (heard, packets) = (heard(&joined.listener), joined.packets()? - before);
    ensure!(apart || arm.is_none() || heard > 0, "the task is in its caller's network namespace");
    Ok((answers, heard, packets))
}

/// Answers per address, and what the host's listeners heard: TCP on 127.0.0.1 and ::1, UDP on both.
fn loopback(bench: &Bench, arm: Option<Arm>) -> Result<(Vec<Answers>, [usize; 4]), Fail> {
    let fail = |e: std::io::Error| broken(format!("listener: {e}"));
    // The same port on both, and for both protocols.
    let four = TcpListener::bind(("127.0.0.1", 0)).map_err(fail)?;
    let port = four.local_addr().map_err(fail)?.port();
    let six = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).map_err(fail)?;
    let udp_four = UdpSocket::bind(("127.0.0.1", port)).map_err(fail)?;
    let udp_six = UdpSocket::bind((Ipv6Addr::LOCALHOST, port)).map_err(fail)?;
    let mut all = Vec::new();
    for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
        let (answers, _) = watch(bench, arm, launch.probe("w_connect", &[address, &port.to_string()]), |_| Ok(()))?;
        all.push(answers);
    }
    let accepted = |listener: &TcpListener| -> Result<usize, Fail> {
        listener.set_nonblocking(true).map_err(fail)?;
        count(|| listener.accept().map(drop))
    };
    let received = |socket: &UdpSocket| -> Result<usize, Fail> {
        socket.set_nonblocking(true).map_err(fail)?;
        count(|| socket.recv(&mut [0; 16]).map(drop))
    };
    Ok((all, [accepted(&four)?, accepted(&six)?, received(&udp_four)?, received(&udp_six)?]))
}

/// How often `take` succeeds before there is nothing more to take.
fn count(mut take: impl FnMut() -> std::io::Result<()>) -> Result<usize, Fail> {
    let mut taken = 0;
    loop {
        match take() {
            Ok(()) => taken += 1,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(taken),
            Err(e) => return Err(broken(format!("listener: {e}"))),
        }
    }
}

const ABSTRACT: [(&str, &str); 2] = [("abstract-stream", "ECONNREFUSED"), ("abstract-datagram", "ECONNREFUSED")];

/// Two abstract sockets of the host, and what they heard.
fn sockets(bench: &Bench, arm: Option<Arm>) -> Result<(Answers, [usize; 2]), Fail> {
    let fail = |e: std::io::Error| broken(format!("abstract socket: {e}"));
    let name = format!("{}-abstract", bench.nonce());
    let address = SocketAddr::from_abstract_name(&name).map_err(fail)?;
    // One name serves both types: the kernel keeps them apart.
    let stream = UnixListener::bind_addr(&address).map_err(fail)?;
    let datagram = UnixDatagram::bind_addr(&address).map_err(fail)?;
    stream.set_nonblocking(true).map_err(fail)?;
    datagram.set_nonblocking(true).map_err(fail)?;
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let (answers, _) = watch(bench, arm, launch.probe("w_unix", &[&name]), |_| Ok(()))?;
    let heard = [count(|| stream.accept().map(drop))?, count(|| datagram.recv(&mut [0; 16]).map(drop))?];
    Ok((answers, heard))
}
