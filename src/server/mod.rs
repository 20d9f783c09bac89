//! The service: `taskman-server` up to its split, and the network-facing process after it, which authenticates, authorizes,
//! records and streams, and holds no privilege.

pub mod accept;
mod args;
mod arriving;
pub mod audit_log;
mod audit_share;
mod auditor;
mod authorize;
mod body;
mod containment;
mod error;
mod events;
mod filter;
mod gate;
mod get_status;
mod health;
mod journal;
mod keep;
mod link;
mod list;
mod live;
mod logging;
mod metrics;
mod pace;
pub mod peer;
mod quota;
mod registry;
mod retention;
mod run;
mod serve;
mod service;
mod show;
mod signal;
mod slots;
pub mod split;
mod start;
mod state;
mod stop;
mod strangers;
mod stream;
#[cfg(test)]
mod test_client;
pub mod tls;
mod ungated;
mod wait;

pub use args::command;
pub use error::EXIT_CODE_KEY;
pub use run::main;
