//! Socket options: those that programs use, and no other.
//!
//! An option is a door to code and to memory that no limit counts: 65,000 bytes of IPv6 packet options on each of 8,000
//! sockets were 520 MB of the host's memory, and the task was charged for 23. Error queues, sending times, copies not made,
//! packet filters, keys of signed connections, saved SYNs, flow labels, groups: the list of such options grows with the kernel, so
//! what is not here answers as on a kernel that does not have it.

use super::condition::{ALL, Clause, Condition, int};

/// Some options answer as if they were granted. Glibc's resolver gives a name up when it is not given an error queue; it needs
/// none, because its sockets are connected. The size of a receive buffer is a hint, which the connections that wait in a listener's queue inherit,
/// where they are charged to nobody. How often an idle connection is probed is CPU time of the kernel that is charged to nobody: a third of a
/// CPU for 200,000 connections once a second.
pub static SETSOCKOPT: Condition = Condition::new(TEXT_SET, LISTED).pretending(PRETENDED).or(libc::ENOPROTOOPT);

/// What may be set may be asked for.
pub static GETSOCKOPT: Condition = Condition::new("as setsockopt", LISTED).or(libc::ENOPROTOOPT);

const TEXT_SET: &str = "at level SOL_SOCKET SO_REUSEADDR, SO_TYPE, SO_ERROR, SO_DONTROUTE, SO_BROADCAST, SO_SNDBUF, SO_RCVBUF, \
    SO_KEEPALIVE, SO_OOBINLINE, SO_PRIORITY, SO_LINGER, SO_REUSEPORT, SO_PASSCRED, SO_PEERCRED, SO_SNDLOWAT, SO_RCVTIMEO, \
    SO_SNDTIMEO, SO_PEERNAME, SO_TIMESTAMP, SO_ACCEPTCONN, SO_TIMESTAMPNS, SO_PROTOCOL, SO_DOMAIN, SO_PEERGROUPS; \
    at level IPPROTO_TCP TCP_NODELAY, TCP_MAXSEG, TCP_CORK, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_SYNCNT, TCP_LINGER2, \
    TCP_DEFER_ACCEPT, TCP_INFO, TCP_QUICKACK, TCP_CONGESTION, TCP_USER_TIMEOUT, TCP_NOTSENT_LOWAT; \
    at level IPPROTO_IP IP_TOS, IP_TTL, IP_PKTINFO, IP_MTU_DISCOVER, IP_RECVERR, IP_RECVTTL, IP_RECVTOS, IP_MTU, IP_FREEBIND, \
    IP_BIND_ADDRESS_NO_PORT, IP_MULTICAST_IF, IP_MULTICAST_TTL, IP_MULTICAST_LOOP, IP_MULTICAST_ALL; \
    at level IPPROTO_IPV6 IPV6_UNICAST_HOPS, IPV6_MULTICAST_IF, IPV6_MULTICAST_HOPS, IPV6_MULTICAST_LOOP, IPV6_MTU_DISCOVER, \
    IPV6_MTU, IPV6_RECVERR, IPV6_V6ONLY, IPV6_MULTICAST_ALL, IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_HOPLIMIT, IPV6_DONTFRAG, \
    IPV6_RECVTCLASS, IPV6_TCLASS. IP_RECVERR, IPV6_RECVERR, SO_RCVBUF, TCP_KEEPIDLE and TCP_KEEPINTVL are not set: they return 0";

const SOL_SOCKET: u64 = libc::SOL_SOCKET as u64;
const TCP: u64 = libc::IPPROTO_TCP as u64;
const IP: u64 = libc::IPPROTO_IP as u64;
const IPV6: u64 = libc::IPPROTO_IPV6 as u64;

const PRETENDED: &[Clause] = &[
    &[int(1, ALL, &[SOL_SOCKET]), int(2, ALL, &[libc::SO_RCVBUF as u64])],
    &[int(1, ALL, &[TCP]), int(2, ALL, &[libc::TCP_KEEPIDLE as u64, libc::TCP_KEEPINTVL as u64])],
    &[int(1, ALL, &[IP]), int(2, ALL, &[libc::IP_RECVERR as u64])],
    &[int(1, ALL, &[IPV6]), int(2, ALL, &[libc::IPV6_RECVERR as u64])],
];

/// Options that only ever are asked for stand here too: set, they are the kernel's own ENOPROTOOPT. Left out with intent, beside
/// all that holds memory: SO_RCVLOWAT, which raises the receive buffer, and IP_OPTIONS, SO_BINDTODEVICE, SO_MARK, SO_PEERSEC,
/// TCP_FASTOPEN, TCP_WINDOW_CLAMP, UDP_ENCAP and all of UDP's, which no program has been seen to need here.
const LISTED: &[Clause] = &[
    &[int(1, ALL, &[SOL_SOCKET]), int(2, ALL, SOCKET_OPTIONS)],
    &[int(1, ALL, &[TCP]), int(2, ALL, TCP_OPTIONS)],
    &[int(1, ALL, &[IP]), int(2, ALL, IP_OPTIONS)],
    &[int(1, ALL, &[IPV6]), int(2, ALL, IPV6_OPTIONS)],
];

/// In rising order, so that neighbours are one comparison.
const SOCKET_OPTIONS: &[u64] = &[
    libc::SO_REUSEADDR as u64,
    libc::SO_TYPE as u64,
    libc::SO_ERROR as u64,
    libc::SO_DONTROUTE as u64,
    libc::SO_BROADCAST as u64,
    libc::SO_SNDBUF as u64,
    libc::SO_RCVBUF as u64,
    libc::SO_KEEPALIVE as u64,
    libc::SO_OOBINLINE as u64,
    libc::SO_PRIORITY as u64,
    libc::SO_LINGER as u64,
    libc::SO_REUSEPORT as u64,
    libc::SO_PASSCRED as u64,
    libc::SO_PEERCRED as u64,
    libc::SO_SNDLOWAT as u64,
    libc::SO_RCVTIMEO as u64,
    libc::SO_SNDTIMEO as u64,
    libc::SO_PEERNAME as u64,
    libc::SO_TIMESTAMP as u64,
    libc::SO_ACCEPTCONN as u64,
    libc::SO_TIMESTAMPNS as u64,
    libc::SO_PROTOCOL as u64,
    libc::SO_DOMAIN as u64,
    59, // SO_PEERGROUPS
    63, // SO_TIMESTAMP_NEW
    64, // SO_TIMESTAMPNS_NEW
    66, // SO_RCVTIMEO_NEW
    67, // SO_SNDTIMEO_NEW
];

const TCP_OPTIONS: &[u64] = &[
    libc::TCP_NODELAY as u64,
    libc::TCP_MAXSEG as u64,
    libc::TCP_CORK as u64,
    libc::TCP_KEEPIDLE as u64,
    libc::TCP_KEEPINTVL as u64,
    libc::TCP_KEEPCNT as u64,
    libc::TCP_SYNCNT as u64,
    libc::TCP_LINGER2 as u64,
    libc::TCP_DEFER_ACCEPT as u64,
    libc::TCP_INFO as u64,
    libc::TCP_QUICKACK as u64,
    libc::TCP_CONGESTION as u64,
    libc::TCP_USER_TIMEOUT as u64,
    25, // TCP_NOTSENT_LOWAT
];

const IP_OPTIONS: &[u64] = &[
    libc::IP_TOS as u64,
    libc::IP_TTL as u64,
    libc::IP_PKTINFO as u64,
    libc::IP_MTU_DISCOVER as u64,
    libc::IP_RECVERR as u64,
    libc::IP_RECVTTL as u64,
    libc::IP_RECVTOS as u64,
    libc::IP_MTU as u64,
    libc::IP_FREEBIND as u64,
    libc::IP_BIND_ADDRESS_NO_PORT as u64,
    libc::IP_MULTICAST_IF as u64,
    libc::IP_MULTICAST_TTL as u64,
    libc::IP_MULTICAST_LOOP as u64,
    49, // IP_MULTICAST_ALL
];

const IPV6_OPTIONS: &[u64] = &[
    libc::IPV6_UNICAST_HOPS as u64,
    libc::IPV6_MULTICAST_IF as u64,
    libc::IPV6_MULTICAST_HOPS as u64,
    libc::IPV6_MULTICAST_LOOP as u64,
    libc::IPV6_MTU_DISCOVER as u64,
    libc::IPV6_MTU as u64,
    libc::IPV6_RECVERR as u64,
    libc::IPV6_V6ONLY as u64,
    29, // IPV6_MULTICAST_ALL
    libc::IPV6_RECVPKTINFO as u64,
    libc::IPV6_RECVHOPLIMIT as u64,
    libc::IPV6_HOPLIMIT as u64,
    libc::IPV6_DONTFRAG as u64,
    libc::IPV6_RECVTCLASS as u64,
    libc::IPV6_TCLASS as u64,
];
