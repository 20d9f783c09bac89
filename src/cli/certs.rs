//! `taskman certs`: an authority for a server and its users, without another tool.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

use super::{FAILURE, OutputFormat};
use crate::certs::{self, CertsError, Entry, KeyType, Kind, Listing, Which};
use crate::task::units;

// Makes, issues, revokes and lists the certificates of a server and its users.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  taskman certs init --certs ./certs --host build7.example.org\n  taskman certs issue ann --ttl 30d --certs ./certs"
)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a directory with an authority, a server certificate, and the users admin and client001
    #[command(after_help = "Example:\n  taskman certs init --certs ./certs --host build7.example.org")]
    Init {
        #[command(flatten)]
        place: Place,
        /// A further name or address under which clients reach the server; may be repeated
        #[arg(long = "host", value_name = "NAME")]
        hosts: Vec<String>,
    },
    /// Issue a certificate for a user
    #[command(after_help = "Example:\n  taskman certs issue ann --ttl 30d --certs ./certs")]
    Issue {
        /// The user: 1 to 64 of A-Z a-z 0-9 . _ @ -
        user_id: String,
        #[command(flatten)]
        place: Place,
        /// How long it is valid
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = units::duration, allow_hyphen_values = true)]
        ttl: Duration,
        /// Say how to make this user an administrator (the server's configuration names them, not the certificate)
        #[arg(long)]
        admin: bool,
        /// The kind of key
        #[arg(long, value_enum, default_value_t)]
        key_type: KeyType,
        /// Issue although the user has a valid certificate, which stays valid until it expires or is revoked
        #[arg(long)]
        replace: bool,
    },
    /// Revoke every valid certificate of a user, or one by its serial number
    #[command(after_help = "Example:\n  taskman certs revoke ann --certs ./certs")]
    Revoke {
        /// The user
        #[arg(required_unless_present = "serial", conflicts_with = "serial")]
        user_id: Option<String>,
        /// One certificate, as `taskman certs list` shows it
        #[arg(long, value_name = "HEX")]
        serial: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Sign the revocation list anew, and issue a new server certificate for the same names
    #[command(after_help = "Example:\n  taskman certs renew --certs ./certs")]
    Renew {
        #[command(flatten)]
        place: Place,
        /// A further name or address under which clients reach the server; may be repeated
        #[arg(long = "host", value_name = "NAME")]
        hosts: Vec<String>,
    },
    /// Show what was issued, until when it is valid, and what needs attention
    #[command(after_help = "Example:\n  taskman certs list --certs ./certs --output json")]
    List {
        #[command(flatten)]
        place: Place,
        /// How to print
        #[arg(long, value_enum, default_value_t)]
        output: OutputFormat,
    },
}

#[derive(Debug, clap::Args)]
struct Place {
    /// The directory of the certificates
    #[arg(long, value_name = "DIR", env = "TASKMAN_CERTS", default_value = "certs")]
    certs: PathBuf,
}

/// Does what the verb says; prints to standard output, and warnings and errors to standard error.
pub fn run(args: Args) -> ExitCode {
    match text(args.verb) {
        Ok((text, warnings)) => {
            // A reader that went away has seen what it wanted.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            for warning in warnings {
                eprintln!("taskman: warning: {warning}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("taskman: error: {error}");
            ExitCode::from(FAILURE)
        }
    }
}

fn text(verb: Verb) -> Result<(String, Vec<String>), CertsError> {
    Ok(match verb {
        Verb::Init { place, hosts } => {
            let created = certs::init(&place.certs, &hosts)?;
            let dir = created.directory.display();
            let text = format!(
                "{dir}: an authority, a server certificate for {}, and the users {}\n\
                 start a server:  taskman-server --certs {dir}\nrun a command:   taskman start --certs {dir} --user-id client001 -- echo hello\n\
                 Keep {dir}/ca.key where the server is not: who has it can be anybody.\n",
                created.hosts.join(", "),
                created.users.join(", "),
            );
            (text, Vec::new())
        }
        Verb::Issue { user_id, place, ttl, admin, key_type, replace } => {
            let issued = certs::issue(&place.certs, &user_id, ttl, key_type, replace)?;
            let mut text = format!(
                "{}\n{}\nserial {}, valid until {}\n",
                issued.certificate.display(),
                issued.key.display(),
                issued.entry.serial,
                moment(issued.entry.not_after)
            );
            if admin {
                text += &admin_advice(&user_id);
            }
            (text, Vec::new())
        }
        Verb::Revoke { user_id, serial, place } => {
            let which = serial.map(Which::Serial).or(user_id.map(Which::User)).expect("clap requires one of the two");
            let revoked = certs::revoke(&place.certs, &which)?;
            let lines = revoked.iter().map(|entry| format!("revoked {} of {}\n", entry.serial, entry.user));
            let crl = place.certs.join("crl.pem");
            let advice = format!("a server that reads {} cuts their connections at once\n", crl.display());
            (lines.collect::<String>() + &advice, Vec::new())
        }
        Verb::Renew { place, hosts } => {
            let entry = certs::renew(&place.certs, &hosts)?;
            (format!("the server's certificate is valid until {}\n", moment(entry.not_after)), Vec::new())
        }
        Verb::List { place, output } => {
            let listing = certs::list(&place.certs)?;
            let now = OffsetDateTime::now_utc().unix_timestamp();
            match output {
                OutputFormat::Table => (table(&listing, now), listing.warnings),
                OutputFormat::Json => (json(&listing), Vec::new()),
            }
        }
    })
}

/// A certificate says who somebody is, never what they may do: that is the server's to say, and can be changed there.
fn admin_advice(user: &str) -> String {
    match user {
        "admin" => "admin is an administrator unless the server's configuration says otherwise\n".to_owned(),
        _ => format!(
            "to make {user} an administrator, add the name to the server's configuration and restart it:\n  admins = [\"admin\", \"{user}\"]\n"
        ),
    }
}

fn table(listing: &Listing, now: i64) -> String {
    let name = |entry: &Entry| match entry.kind {
        Kind::User => entry.user.clone(),
        Kind::Server => "(server)".to_owned(),
    };
    let width = listing.entries.iter().map(|entry| name(entry).len()).max().unwrap_or(0).max("USER".len());
    let mut text = format!("{:width$}  {:32}  {:10}  {:10}  REVOKED\n", "USER", "SERIAL", "NOT BEFORE", "EXPIRES IN");
    for entry in &listing.entries {
        let revoked = entry.revoked_at.map_or("no".to_owned(), date);
        text += &format!(
            "{:width$}  {:32}  {:10}  {:10}  {revoked}\n",
            name(entry),
            entry.serial,
            date(entry.not_before),
            left(entry.not_after - now)
        );
    }
    text
}

fn left(seconds: i64) -> String {
    match seconds {
        ..=0 => "expired".to_owned(),
        1..=3_599 => format!("{}m", seconds / 60),
        3_600..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// The JSON form. Fields are only ever added; times are seconds since 1970.
#[derive(Serialize)]
struct Document<'a> {
    certificates: &'a [Entry],
    crl_next_update: i64,
    warnings: &'a [String],
}

fn json(listing: &Listing) -> String {
    let document = Document {
        certificates: &listing.entries,
        crl_next_update: listing.crl_next_update,
        warnings: &listing.warnings,
    };
    serde_json::to_string_pretty(&document).expect("strings and numbers are always JSON") + "\n"
}

/// A certificate of an hour ends in the middle of a day.
fn moment(at: i64) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    OffsetDateTime::from_unix_timestamp(at).ok().and_then(|at| at.format(format).ok()).unwrap_or_else(|| "?".to_owned())
}

fn date(at: i64) -> String {
    OffsetDateTime::from_unix_timestamp(at).map_or_else(|_| "?".to_owned(), |at| at.date().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_who_and_until_when() {
        let entry = |user: &str, kind, not_after, revoked_at| Entry {
            user: user.into(),
            kind,
            serial: "40".repeat(16),
            not_before: 0,
            not_after,
            revoked_at,
        };
        let entries = vec![
            entry("server", Kind::Server, 86400 * 12, None),
            entry("ann", Kind::User, 7200, Some(86400)),
            entry("a.longer.name", Kind::User, -1, None),
        ];
        let listing = Listing { entries, crl_next_update: 5, warnings: vec!["soon".into()] };
        let serial = "40".repeat(16);
        let expected = format!(
            "\
USER           SERIAL                            NOT BEFORE  EXPIRES IN  REVOKED
(server)       {serial}  1970-01-01  12d         no
ann            {serial}  1970-01-01  2h          1970-01-02
a.longer.name  {serial}  1970-01-01  expired     no
"
        );
        assert_eq!(table(&listing, 0), expected);
        let value: serde_json::Value = serde_json::from_str(&json(&listing)).unwrap();
        assert_eq!(value["certificates"][1]["revoked_at"], 86400);
        assert_eq!(value["warnings"][0], "soon");
    }

    #[test]
    fn an_administrator_is_named_by_the_configuration() {
        assert!(admin_advice("ann").contains("admins = [\"admin\", \"ann\"]"));
        assert!(!admin_advice("admin").contains("admins ="));
    }
}
