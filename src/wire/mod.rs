//! What the unprivileged server and the privileged launcher say to each other, over one unix seqpacket pair.
//!
//! The launcher trusts nothing that comes from here: one day the server is compromised. So a message has a version, a
//! bounded size and one type, unknown fields are refused, and everything a request names is either checked again against
//! the launcher's own configuration or is the id of a task that the launcher started itself.

mod message;
mod packet;

pub use crate::sys::socket::Sender;
pub use message::{Ended, Event, Parked, Request, Shape, Started};
pub use packet::{MAX_FDS, MAX_MESSAGE, Packet, PacketError, VERSION, abandon, pair, receive, send};
