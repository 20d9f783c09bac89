//! Real compilers and runtimes work in the sandbox: little programs are compiled and run inside.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::host::{bind, host_text};
use crate::support::{HostDir, Run};

/// Compilers and virtual machines start slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs a shell script inside, with the given files shown in `/src`.
#[track_caller]
fn build_and_run(files: &[(&str, &str)], script: &str, options: &[&str]) -> String {
    let dir = HostDir::new();
    for (name, content) in files {
        dir.file(name, content, 0o644);
    }
    let ended = Run::sh(&format!("set -e; {script}"))
        .with(&["--bind-ro", &dir.bound_at("/src"), "--timeout", "250s"])
        .with(options)
        .guard(PATIENCE)
        .end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    ended.ok()
}

#[test]
fn gcc_compiles_and_its_program_runs() {
    let source = "#include <stdio.h>\n#include <math.h>\nint main(int c, char **v) { printf(\"%s %.3f\\n\", v[1], sqrt(c)); return 0; }\n";
    assert_eq!(build_and_run(&[("a.c", source)], "gcc -O2 -Wall -o a /src/a.c -lm; ./a hello", &[]), "hello 1.414\n");
}

#[test]
fn gxx_compiles_and_its_program_runs() {
    let source = "#include <iostream>\n#include <vector>\n#include <stdexcept>\nint main() { std::vector<int> v{1, 2, 3}; \
        try { v.at(7); } catch (const std::out_of_range &) { std::cout << v.size() << \" caught\" << std::endl; } }\n";
    assert_eq!(build_and_run(&[("a.cc", source)], "g++ -o a /src/a.cc; ./a", &[]), "3 caught\n");
}

/// The C library's resolver gives a name up when it is not given an error queue for its socket (`IP_RECVERR`).
#[test]
fn the_c_library_looks_names_up() {
    let source = r#"
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Answers the first question, whatever it is, with 192.0.2.7. */
static int answer(int fd)
{
    static const unsigned char record[] = { 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7 };
    unsigned char message[512];
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    ssize_t length = recvfrom(fd, message, sizeof message - sizeof record, 0, (void *)&from, &size);
    message[2] |= 0x80; /* an answer */
    message[7] = 1;     /* of one record */
    memcpy(message + length, record, sizeof record);
    return sendto(fd, message, length + sizeof record, 0, (void *)&from, size) < 0;
}

int main(void)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof here;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(fd, (void *)&here, size) || getsockname(fd, (void *)&here, &size))
        return 2;
    if (!fork())
        return answer(fd);
    struct __res_state resolver = { 0 };
    if (res_ninit(&resolver))
        return 3;
    resolver.nscount = 1;
    resolver.nsaddr_list[0] = here;
    resolver.retrans = resolver.retry = 1;
    unsigned char reply[512];
    int length = res_nquery(&resolver, "name.example", C_IN, T_A, reply, sizeof reply);
    if (length < 4)
        return 4;
    printf("%d.%d.%d.%d\n", reply[length - 4], reply[length - 3], reply[length - 2], reply[length - 1]);
    return 0;
}
"#;
    assert_eq!(build_and_run(&[("a.c", source)], "gcc -Wall -o a /src/a.c -lresolv; ./a", &[]), "192.0.2.7\n");
}

#[test]
fn a_statically_linked_program_runs() {
    let source =
        "#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf(\"%d\\n\", getpid() > 1); return 0; }\n";
    let text = build_and_run(
        &[("a.c", source)],
        "gcc -static -o a /src/a.c; file=$(ldd ./a 2>&1 || true); echo \"$file\" | grep -c 'not a dynamic'; ./a",
        &[],
    );
    assert_eq!(text, "1\n1\n");
}

#[test]
fn threads_run_up_to_the_process_limit() {
    let source = "#include <pthread.h>\n#include <stdio.h>\n#include <errno.h>\n#include <string.h>\n\
        static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static int sum;\n\
        static void *add(void *n) { pthread_mutex_lock(&m); sum += *(int *)n; pthread_mutex_unlock(&m); return 0; }\n\
        int main(void) { pthread_t t[20]; int n[20];\n\
        for (int i = 0; i < 20; i++) { n[i] = i; int e = pthread_create(&t[i], 0, add, &n[i]); if (e) { puts(strerror(e)); return 1; } }\n\
        for (int i = 0; i < 20; i++) pthread_join(t[i], 0); printf(\"%d\\n\", sum); return 0; }\n";
    assert_eq!(build_and_run(&[("a.c", source)], "gcc -pthread -o a /src/a.c; ./a", &[]), "190\n");
}

#[test]
fn python_runs_with_threads_subprocesses_and_sockets() {
    let source = "import hashlib, multiprocessing, sqlite3, ssl, subprocess, tempfile, threading\n\
        out = []\n\
        t = threading.Thread(target=lambda: out.append('thread')); t.start(); t.join()\n\
        out.append(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())\n\
        with tempfile.NamedTemporaryFile() as f: f.write(b'x'); out.append('file')\n\
        db = sqlite3.connect('/task/db'); out.append(str(db.execute('select 6*7').fetchone()[0]))\n\
        def square(n): return n * n\n\
        if __name__ == '__main__':\n\
        \x20   with multiprocessing.Pool(2) as pool: out.append(str(pool.map(square, [2, 3])))\n\
        \x20   print(' '.join(out))\n";
    assert_eq!(build_and_run(&[("a.py", source)], "/usr/bin/python3 /src/a.py", &[]), "thread child file 42 [4, 9]\n");
}

#[test]
fn node_runs_with_workers_and_children() {
    let source = "const { Worker, isMainThread, parentPort } = require('worker_threads');\n\
        const { execFileSync } = require('child_process'); const net = require('net');\n\
        if (!isMainThread) { parentPort.postMessage('worker'); } else {\n\
        new Worker(__filename).on('message', word => {\n\
        const server = net.createServer(s => s.end('socket')).listen(0, '127.0.0.1', () =>\n\
        net.connect(server.address().port, '127.0.0.1').on('data', data => {\n\
        console.log(word, execFileSync('echo', ['child']).toString().trim(), data.toString()); process.exit(0); })); }); }\n";
    assert_eq!(build_and_run(&[("a.js", source)], "node /src/a.js", &[]), "worker child socket\n");
}

#[test]
fn java_compiles_and_runs_threads_and_children() {
    let source = "import java.util.concurrent.*;\npublic class A { public static void main(String[] a) throws Exception {\n\
        ExecutorService pool = Executors.newFixedThreadPool(4);\n\
        Future<Integer> f = pool.submit(() -> 6 * 7); int answer = f.get(); pool.shutdown();\n\
        String child = new String(new ProcessBuilder(\"echo\", \"child\").start().getInputStream().readAllBytes()).trim();\n\
        System.out.println(answer + \" \" + child + \" \" + Runtime.getRuntime().availableProcessors()); } }\n";
    let text =
        build_and_run(&[("A.java", source)], "javac -d /task /src/A.java; java -cp /task A", &["--memory", "768M"]);
    assert_eq!(text, "42 child 1\n");
}

#[test]
fn perl_and_bash_run() {
    let text = build_and_run(&[], "perl -MPOSIX -e 'print join(q( ), map { $_ ** 2 } 1..3), qq(\n)'", &[]);
    assert_eq!(text, "1 4 9\n");
    let ended = Run::command(&["bash", "-c", "set -o pipefail; seq 5 | while read -r n; do echo $((n * n)); done | tail -1; diff <(echo a) <(echo a) && echo same"]).end();
    assert_eq!(ended.ok(), "25\nsame\n");
}

#[test]
fn git_reads_a_bound_repository_of_another() {
    let dir = HostDir::new();
    let make = "git init -q -b main .; git -c user.email=a@b -c user.name=A commit -q --allow-empty -m first";
    host_text(&["sh", "-c", &format!("cd {} && {make}", dir.path("").display())]);
    // Where every distribution's git looks; one that was built by hand looks below its own prefix.
    let system = "GIT_CONFIG_SYSTEM=/etc/gitconfig";
    let ended = Run::command(&["git", "-C", "/repo", "log", "--format=%s"])
        .with(&["--bind-ro", &dir.bound_at("/repo"), "--env", system])
        .end();
    assert_eq!((ended.status.code(), ended.text().as_str()), (Some(0), "first\n"), "{ended:?}");
}

#[test]
fn git_makes_a_repository() {
    let script = "git init -q -b main r; cd r; git config user.email a@b; git config user.name A; echo x > f; git add f; \
        git commit -q -m first; git clone -q . ../c; git -C ../c log --format=%s; git -C ../c status --porcelain";
    assert_eq!(build_and_run(&[], script, &[]), "first\n");
}

#[test]
fn musl_programs_run_static_with_threads_and_children() {
    let source = "#include <pthread.h>\n#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
        static void *add(void *n) { ++*(int *)n; return 0; }\n\
        int main(void) { int n = 41, status; pthread_t t; pthread_create(&t, 0, add, &n); pthread_join(t, 0);\n\
        if (!fork()) _exit(n); wait(&status); printf(\"%d\\n\", WEXITSTATUS(status)); return 0; }\n";
    assert_eq!(build_and_run(&[("a.c", source)], "musl-gcc -static -o a /src/a.c; ./a", &[]), "42\n");
}

/// Prometheus' checker is written in Go, and scripts/test has brought it.
#[test]
fn go_programs_run() {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/promtool");
    let rules = "groups: [{name: g, rules: [{record: a, expr: up}]}]";
    let bound = ["--bind-ro", &bind(&tool, "/opt/promtool")];
    let text = build_and_run(&[("rules.yml", rules)], "/opt/promtool check rules /src/rules.yml", &bound);
    assert!(text.contains("SUCCESS: 1 rules found"), "{text}");
}

#[test]
fn openssl_serves_what_curl_fetches() {
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k -out c -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost 2>/dev/null; mkdir www; echo over tls > www/f; \
        (cd www; exec openssl s_server -accept 4433 -cert ../c -key ../k -WWW >/dev/null 2>&1) & \
        curl -sS --retry 50 --retry-delay 1 --retry-connrefused --cacert c https://localhost:4433/f; kill $!";
    assert_eq!(build_and_run(&[], script, &[]), "over tls\n");
}

#[test]
fn cargo_and_rustc_run_bound_in_from_where_the_host_has_them() {
    let sysroot = PathBuf::from(host_text(&["rustc", "--print", "sysroot"]).trim()).canonicalize().unwrap();
    // Next to the toolchain's rustc, or (a distribution's) on its own.
    let cargo = [sysroot.join("bin/cargo"), which("cargo")]
        .into_iter()
        .find(|path| path.exists())
        .unwrap()
        .canonicalize()
        .unwrap();
    let script = "cargo init -q --vcs none --name hello /task/hello; cd /task/hello; cargo run -q --offline; \
        printf 'fn main() { std::thread::spawn(|| println!(\"rustc\")).join().unwrap() }' > x.rs; rustc x.rs; ./x";
    let mut options = vec![
        "--env=PATH=/opt/cargo-bin:/opt/rust/bin:/usr/bin:/bin".to_owned(),
        "--env=CARGO_HOME=/task/.cargo".to_owned(),
        "--memory=2G".to_owned(),
        "--disk=1G".to_owned(),
    ];
    options.push(format!("--bind-ro={}", bind(&sysroot, "/opt/rust")));
    options.push(format!("--bind-ro={}", bind(&cargo, "/opt/cargo-bin/cargo")));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    assert_eq!(build_and_run(&[], script, &options), "Hello, world!\nrustc\n");
}

fn which(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.exists())
        .unwrap_or_else(|| Path::new("/").join(name))
}
