//! What the configuration file promises to whoever writes one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    let overrides = Overrides { certs: Some("/c".into()), ..Overrides::default() };
    Config::parse(text, &overrides).map_err(|error| error.to_string())
}

fn refusal(text: &str) -> String {
    parse(text).expect_err(text)
}

#[test]
fn the_default_is_what_its_file_says() {
    let config = Config::default();
    assert_eq!(config.server_address, "localhost:50051");
    assert_eq!(config.metrics_address, None);
    assert_eq!(config.state_dir, Path::new("/var/lib/taskman"));
    assert_eq!(config.server_uid, 1_899_999_999);
    assert_eq!(config.uid_range, UidRange::default());
    assert!(config.strict);
    assert_eq!(config.admins, ["admin"]);
    assert_eq!(config.tls.handshake_timeout, Duration::from_secs(10));
    assert_eq!((config.connections.total, config.connections.per_address), (4096, 1024));
    assert_eq!((config.connections.message_bytes, config.connections.header_bytes), (4 << 20, 16 << 10));
    assert_eq!((config.quota.running, config.quota.stored_output_per_user), (1000, 8 << 30));
    assert_eq!((config.output.stored_per_task, config.output.reserve), (64 << 20, 256 << 20));
    assert_eq!((config.retain.age, config.retain.count), (Duration::from_secs(7 * 86400), 100_000));
    assert_eq!((config.stop.grace, config.stop.shutdown), (Duration::from_secs(10), Duration::from_secs(10)));
    assert_eq!(config.audit_log, AuditLog { rotate: 64 << 20, keep: 8, fsync: Fsync::Interval });
    assert_eq!(config.profiles.keys().collect::<Vec<_>>(), ["default", "judge"]);
    let (default, judge) = (&config.profiles["default"], &config.profiles["judge"]);
    assert_eq!((default.inside, default.users.as_slice()), (Inside::Default, ["*".to_owned()].as_slice()));
    assert_eq!(default.limits, Limits::default());
    assert_eq!((judge.inside, judge.users.len(), &judge.limits), (Inside::Judge, 0, &default.limits));
    assert_eq!(Config::print_default(), DEFAULT);
}

/// A run of keys without a gap shares the comment above it.
#[test]
fn every_key_of_the_default_is_commented() {
    let (mut commented, mut keys) = (false, 0);
    for line in DEFAULT.lines() {
        match line.chars().next() {
            Some('#') => commented = true,
            None | Some('[') => commented = false,
            Some(_) => {
                assert!(commented, "no comment above {line}");
                keys += 1;
            }
        }
    }
    assert!(keys > 40, "only {keys} keys were seen");
}

#[test]
fn a_file_changes_what_it_says_and_nothing_else() {
    let text =
        "admins = ['root@site', 'ops']\n[quota]\nrunning = 7\n[audit_log]\nfsync = 'always'\n[output]\nreserve = '0'";
    let config = parse(text).unwrap();
    assert_eq!(config.admins, ["root@site", "ops"]);
    assert_eq!((config.quota.running, config.quota.running_per_user), (7, 200));
    assert_eq!((config.audit_log.fsync, config.output.reserve), (Fsync::Always, 0));
    assert_eq!(parse(DEFAULT).unwrap(), parse("").unwrap(), "the printed default can be used as a file");
}

#[test]
fn a_profile_takes_limits_from_the_default_one_but_no_grant() {
    let text = "[profiles.default]\nmemory = '1G'\nbind_ro = ['/opt']\n[profiles.big]\ncpus = 4\nusers = ['ann']\n[profiles.bare]\n[profiles.judge]\npids = 9";
    let profiles = parse(text).unwrap().profiles;
    assert_eq!((profiles["big"].limits.memory_bytes, profiles["big"].limits.cpus), (1 << 30, 4.0));
    assert_eq!((profiles["big"].users.as_slice(), profiles["big"].bind_ro.len()), (["ann".to_owned()].as_slice(), 0));
    assert!(profiles["bare"].users.is_empty() && profiles["bare"].bind_ro.is_empty());
    assert_eq!((profiles["judge"].inside, profiles["judge"].limits.pids), (Inside::Judge, 9));
    assert_eq!(profiles["default"].bind_ro, [PathBuf::from("/opt")]);
    let profiles = parse("[profiles.large]\nmemory = '4G'\nio_write_bps = '2G'\n[profiles.small]\nmemory = '1G'")
        .unwrap()
        .profiles;
    assert_eq!((profiles["large"].limits.io_read_bps, profiles["large"].limits.io_write_bps), (1 << 30, 2 << 30));
    assert_eq!(profiles["small"].limits.io_read_bps, 256 << 20);
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_name() {
    for (text, key, nearest) in [
        ("server_adress = 'a:1'", "server_adress: ", "is server_address "),
        ("[conections]\ntotal = 1", "conections: ", "is connections "),
        ("[quota]\nruning = 3", "quota.runing: ", "is quota.running "),
        ("[profiles.big]\nmemroy = '1G'", "profiles.big.memroy: ", "is profiles.big.memory "),
        ("[tls]\nca = '/x'", "tls.ca: ", "is tls.c"),
    ] {
        let refusal = refusal(text);
        assert!(refusal.starts_with(key) && refusal.contains(nearest), "{refusal}");
        assert!(refusal.contains("not known") && refusal.contains("--print-config"), "{refusal}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_key_the_value_and_what_to_write() {
    for (text, parts) in [
        ("[connections]\ntotal = 'many'", ["connections.total = \"many\"", "whole number between 1"]),
        ("[connections]\ntotal = 0", ["connections.total = 0", "whole number between 1"]),
        ("[tls]\nhandshake_timeout = 'soon'", ["tls.handshake_timeout = \"soon\"", "90s"]),
        ("[profiles.x]\nmemory = '-1'", ["profiles.x.memory = \"-1\"", "512M"]),
        ("[profiles.x]\nmemory = '1M'", ["profiles.x.memory = \"1M\"", "at least 8M"]),
        (
            "[profiles.x]\nmemory = '4G'\nio_read_bps = '256M'",
            ["profiles.x.io_read_bps = \"256M\"", "at least 1G with a memory of 4G, or others could wait"],
        ),
        (
            "[profiles.default]\nio_write_bps = '1M'",
            ["profiles.default.io_write_bps = \"1M\"", "at least 128M with a memory of 512M, or others could wait"],
        ),
        ("[profiles.x]\ninside = 'wide'", ["profiles.x.inside = \"wide\"", "default, judge or filters"]),
        ("[profiles.x]\nusers = ['a b']", ["profiles.x.users = [\"a b\"]", "\"a b\""]),
        ("[profiles.x]\nbind_ro = ['opt']", ["profiles.x.bind_ro = [\"opt\"]", "from the root"]),
        ("[profiles.'a/b']\npids = 1", ["profiles.a/b", "1 to 64"]),
        ("admins = ['']", ["admins = [\"\"]", "empty"]),
        ("admins = 'admin'", ["admins = \"admin\"", "list of texts"]),
        ("strict = 'yes'", ["strict = \"yes\"", "true or false"]),
        ("server_address = 'localhost'", ["server_address = \"localhost\"", "HOST:PORT"]),
        ("state_dir = 'here'", ["state_dir = \"here\"", "path from the root"]),
        ("server_uid = 1000", ["server_uid = 1000", "accounts live below"]),
        ("server_uid = 1900000005", ["server_uid = 1900000005", "lies in uid_range (1900000000:65536)"]),
        ("uid_range = '5'", ["uid_range = \"5\"", "FIRST:COUNT"]),
        ("[audit_log]\nfsync = 'never'", ["audit_log.fsync = \"never\"", "\"always\" or \"interval\""]),
        ("[output]\nstored_per_task = '1K'", ["output.stored_per_task = \"1K\"", "between 256K"]),
        ("quota = 3", ["quota", "write [quota]"]),
        ("profiles = 3", ["profiles", "[profiles.NAME]"]),
        ("[stop]\ngrace = -1", ["stop.grace = -1", "10s"]),
        ("a = \n", ["line 1", "is not TOML"]),
    ] {
        let refusal = refusal(text);
        assert!(parts.iter().all(|part| refusal.contains(part)), "{text:?}: {refusal}");
        assert_eq!(refusal.lines().count(), 1, "{refusal}");
    }
}

#[test]
fn the_command_line_stands_above_the_file() {
    let file = "server_address = 'a:1'\nstate_dir = '/f'\n[tls]\nca_cert = '/f/ca'\nserver_cert = '/f/c'\nserver_key = '/f/k'\ncrl = '/f/l'";
    let from_file = Config::parse(file, &Overrides::default()).unwrap();
    assert_eq!(from_file.tls.crl.as_deref(), Some(Path::new("/f/l")));
    let overrides = Overrides {
        server_address: Some("b:2".into()),
        state_dir: Some("relative".into()),
        certs: Some("/no/such/dir".into()),
        retain: Some("age=1h, count=5".into()),
        ..Overrides::default()
    };
    let config = Config::parse(file, &overrides).unwrap();
    assert_eq!(config.server_address, "b:2");
    assert!(config.state_dir.is_absolute() && config.state_dir.ends_with("relative"));
    assert_eq!(config.tls.server_key, Path::new("/no/such/dir/server.key"));
    assert_eq!(config.tls.crl, None, "there is no crl.pem in that directory");
    assert_eq!((config.retain.age, config.retain.count, config.retain.bytes), (Duration::from_secs(3600), 5, 64 << 30));
    let wrong = Overrides { retain: Some("7d".into()), ..overrides };
    assert!(Config::parse(file, &wrong).unwrap_err().to_string().contains("age=7d"));
}

#[test]
fn a_directory_of_certificates_goes_with_no_single_file() {
    let error = |file: &str, overrides: Overrides| Config::parse(file, &overrides).unwrap_err().to_string();
    let mixed = "[tls]\ncerts = '/c'\ncrl = '/l'";
    assert!(error(mixed, Overrides::default()).contains("does not go with"));
    let both = Overrides { certs: Some("/c".into()), crl: Some("/l".into()), ..Overrides::default() };
    assert!(error("", both).contains("--crl: does not go with --certs"));
    let half = Overrides { ca_cert: Some("/ca".into()), ..Overrides::default() };
    assert!(error("[tls]\ncerts = '/c'", half).contains("server_cert"));
    assert!(error("", Overrides::default()).contains("taskman certs init"));
    let dev = Overrides { dev: true, state_dir: Some("/s".into()), ..Overrides::default() };
    let config = Config::parse("", &dev).unwrap();
    assert_eq!(config.tls.ca_cert, Path::new("/s/certs/ca.crt"));
    assert_eq!(config.tls.crl.as_deref(), Some(Path::new("/s/certs/crl.pem")));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Config::load(Some(Path::new("/no/such/file.toml")), &Overrides::default()).unwrap_err();
    assert!(error.to_string().starts_with("configuration /no/such/file.toml: cannot be read"), "{error}");
}

#[test]
fn metrics_are_read_on_this_host_unless_the_operator_says_otherwise() {
    let address = |text: &str| parse(&format!("metrics_address = \"{text}\"")).map(|config| config.metrics_address);
    assert_eq!(address(""), Ok(None));
    assert_eq!(address("9464"), Ok(Some("localhost:9464".to_owned())));
    for told in ["localhost:0", "0.0.0.0:9464", "[::1]:9464", "worker-7:9464"] {
        assert_eq!(address(told), Ok(Some(told.to_owned())));
    }
    for wrong in ["worker-7", ":9464", "localhost:", "70000", "localhost:70000"] {
        let why = address(wrong).unwrap_err();
        assert!(why.contains("metrics_address") && why.contains("9464"), "{why}");
    }
}
