//! The other side of a strict filter: what people run must still run, and no runtime may be killed for asking.

use std::path::Path;

use crate::harness::answers::{Answers, EVERYWHERE, ended_well};
use crate::harness::{Arm, Bench, Case, Control, Fail, broken};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![Case {
        id: "K11",
        tier: 1,
        what: "runtimes run: libc threads, static programs, JVM, node, Python, perl, Go, and the calls they probe for",
        // There is no defence whose absence would break a runtime: the control arm is what this case is measured by.
        defence: &[],
        control: |bench| {
            for runtime in RUNTIMES {
                if !Path::new(runtime.needs).exists() {
                    bench.note(format_args!("SKIP {}: {} is not on this host", runtime.name, runtime.needs));
                    continue;
                }
                match bench.direct().sh(runtime.script).finish() {
                    Ok(done) if done.code() == 0 && done.out == "ok\n" => {}
                    Ok(done) => return Control::Broken(format!("{}: {} {}", runtime.name, done.out, done.err)),
                    Err(fail) => return Control::Broken(fail.to_string()),
                }
            }
            probes(bench, None).map_or_else(|fail| Control::Broken(fail.to_string()), |()| Control::Works)
        },
        attack: |bench, arm| {
            bench.canary()?;
            let mut ran = Vec::new();
            for runtime in RUNTIMES.iter().filter(|runtime| Path::new(runtime.needs).exists()) {
                let launch = bench.task(arm).opt("--memory", "1G").sh(runtime.script);
                let done = launch.finish()?;
                ensure!(done.out == "ok\n", "{}: {:?} {}", runtime.name, done.out, done.err);
                ended_well(&done)?;
                ran.push(format!("{} {} ms", runtime.name, done.took.as_millis()));
            }
            bench.note(format_args!("ran: {}", ran.join(", ")));
            require!(ran.len() >= 3, "only {ran:?} could be tried");
            probes(bench, Some(arm))
        },
    }]
}

struct Runtime {
    name: &'static str,
    needs: &'static str,
    /// Says `ok` and nothing else.
    script: &'static str,
}

const RUNTIMES: &[Runtime] = &[
    Runtime {
        name: "python threads and subprocess",
        needs: "/usr/bin/python3",
        script: "/usr/bin/python3 -c 'import threading, subprocess
t = [threading.Thread(target=lambda: None) for _ in range(8)]
[x.start() for x in t]
[x.join() for x in t]
print(subprocess.check_output([\"/bin/echo\", \"ok\"]).decode().strip())'",
    },
    Runtime {
        name: "node worker",
        needs: "/usr/bin/node",
        script: "/usr/bin/node -e \"const { Worker } = require('worker_threads'); \
                 new Worker('1', { eval: true }).on('exit', () => console.log('ok'))\"",
    },
    Runtime { name: "java", needs: "/usr/bin/java", script: "/usr/bin/java -Xmx128m -version 2>/dev/null && echo ok" },
    Runtime { name: "perl fork", needs: "/usr/bin/perl", script: "perl -e 'if (fork) { wait; print qq(ok\\n) }'" },
    Runtime {
        name: "gcc and a threaded program",
        needs: "/usr/bin/gcc",
        script: "d=$(mktemp -d) && cd $d && printf '#include <pthread.h>\\n#include <stdio.h>\\n\
                 void *f(void *x) { puts(\"ok\"); return x; }\\n\
                 int main(void) { pthread_t t; pthread_create(&t, 0, f, 0); return pthread_join(t, 0); }\\n' > t.c \
                 && gcc -pthread -o t t.c && ./t && gcc -static -pthread -o s t.c && ./s >/dev/null && rm -r $d",
    },
    Runtime { name: "a re-opened output", needs: "/bin/sh", script: "echo ok > /dev/stdout; echo > /dev/stderr" },
    Runtime { name: "git", needs: "/usr/bin/git", script: "git -C / -c a.b=ok config a.b" },
    Runtime { name: "go", needs: "/usr/bin/go", script: "go env GOOS >/dev/null && echo ok" },
];

/// Calls that work outside and inside alike, with the answer each must give: the kernel's own, never a filter's.
const PROBES: [(&str, &str); 21] = [
    ("statx", "ok"),
    ("faccessat2", "ok"),
    ("memfd", "ok"),
    ("ftruncate", "ok"),
    ("seal", "ok"),
    ("mmap", "ok"),
    ("mprotect-exec", "ok"),
    ("close_range", "ok"),
    ("getrandom", "ok"),
    ("epoll", "ok"),
    ("eventfd", "ok"),
    ("signalfd", "ok"),
    ("timerfd", "ok"),
    ("inotify", "ok"),
    ("pidfd", "ok"),
    ("membarrier", "ok"),
    ("socketpair", "ok"),
    ("rseq", "EINVAL"),
    ("sched_affinity", "ok"),
    ("futex_waitv", "EINVAL"),
    ("copy_file_range", "ok"),
];

fn probes(bench: &Bench, arm: Option<Arm>) -> Result<(), Fail> {
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let done = launch.probe("k_runtime", &[]).finish()?;
    require!(done.code() == 0, "the probe ended with {}", done.code());
    Answers::parse(&done.out).all(&EVERYWHERE, &PROBES).map_err(|fail| match arm {
        Some(_) => fail,
        None => broken(fail.to_string()),
    })
}
