# Who takes part, how each is started, and what each leaves out. Read by scripts/bench.
#
# Sets names (in the order shown), label and lacks by name, and an array NAME_command for each; of some also NAME_probe, whose
# no-op has an argument. Needs $out, $scratch, $prefix and $TASKMAN. launch.h says what @, {n} and mountns= mean.

names=(plain bare taskman bubblewrap crun runc firejail)
declare -A label lacks

inside=/opt/noop                # where each sandbox finds the directory of the no-op
links=()                        # /bin, /lib… as the host has them: links into /usr on a merged system
for name in bin sbin lib lib32 lib64 libx32; do
    [[ -L /$name ]] && links+=("$name")
done
version() { "$@" --version 2>/dev/null | grep -o '[0-9][0-9.]*' | head -n 1 || true; }

label[plain]='plain vfork+exec'
lacks[plain]='everything: it is the floor'
plain_command=("$out/payload/noop")

# Its groups are made where taskman makes its own: in this process's group of each hierarchy.
group_of() { # CONTROLLER, or nothing for version 2
    local point path
    point=$(awk -v name="$1" 'name == "" ? $3 == "cgroup2" : $3 == "cgroup" && ("," $4 ",") ~ ("," name ",") { print $2 }' /proc/self/mounts | tail -n 1)
    path=$(awk -F: -v name="$1" 'name == "" ? $2 == "" : ("," $2 ",") ~ ("," name ",") { print $3 }' /proc/self/cgroup)
    [[ -z $point ]] || realpath -e "$point/$path"
}
label[bare]='bare C'
lacks[bare]='it is the kernel’s price and no sandbox: no init that reaps, no covers over `/proc`, no look at what was set, no lease on its uid, no pipes for output, no proof that nothing is left'
bare_command=("$out/bare" "$prefix{n}" "$out/filter.bpf" "$scratch/assembly" "$out/payload" "$inside" "v2=$(group_of '')")
for name in memory pids cpu blkio; do
    group=$(group_of "$name")
    [[ -z $group ]] || bare_command+=("$name=$group")
done
disk=$(stat -c %Hd:%Ld /usr)
[[ ! -e /sys/dev/block/$disk/partition ]] || disk=$(cat "$(realpath "/sys/dev/block/$disk")/../dev")
[[ ! -e /sys/dev/block/$disk ]] || bare_command+=("disk=$disk")
bare_command+=(-- "$inside/noop")
mkdir "$scratch/assembly"

label[taskman]='taskman run'
lacks[taskman]='nothing of what it does for any task; the proof that nothing is left is in its time'
taskman_command=("$TASKMAN" run --quiet --bind-ro "$out/payload:$inside" -- "$inside/noop")

label[bubblewrap]="bubblewrap $(version bwrap)"
lacks[bubblewrap]='no cgroup (no limit on memory, processes, cpu or io, and no group to kill), no uid of its own (the payload is the caller, mapped), no guarantee that everything is reaped, no outcome beyond an exit code, no look at what was set'
bubblewrap_command=("$(command -v bwrap || true)" --unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup-try
    --hostname bench --die-with-parent --cap-drop ALL --clearenv --setenv PATH /usr/bin:/bin --ro-bind /usr /usr)
for name in "${links[@]}"; do
    bubblewrap_command+=(--symlink "$(readlink "/$name")" "/$name")
done
bubblewrap_command+=(--ro-bind "$out/payload" "$inside" --proc /proc --dev /dev --size 268435456 --tmpfs /tmp
    --size 268435456 --tmpfs /task --remount-ro / --chdir /task --seccomp "@$out/filter.bpf" -- "$inside/noop")

# One bundle with and one without an argument for the no-op. The same limits as the defaults of taskman run. No cgroupsPath: a
# runtime then makes one named by the container's id.
bundle() { # DIRECTORY ARGUMENTS
    mkdir -p "$1"/rootfs/{usr,proc,dev,tmp,task,"${inside#/}"}
    local name
    for name in "${links[@]}"; do
        ln -s "$(readlink "/$name")" "$1/rootfs/$name"
    done
    cat >"$1/config.json" <<JSON
{ "ociVersion": "1.0.2",
  "annotations": { "run.oci.seccomp_bpf_data": "$(base64 -w0 "$out/filter.bpf")" },
  "process": { "terminal": false, "user": { "uid": 1899999999, "gid": 1899999999 }, "args": [$2],
    "env": ["PATH=/usr/bin:/bin"], "cwd": "/task", "noNewPrivileges": true,
    "capabilities": { "bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": [] },
    "rlimits": [ { "type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024 },
      { "type": "RLIMIT_FSIZE", "hard": 268435456, "soft": 268435456 },
      { "type": "RLIMIT_CORE", "hard": 0, "soft": 0 } ] },
  "root": { "path": "rootfs", "readonly": true },
  "hostname": "bench",
  "mounts": [
    { "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro", "nosuid", "nodev"] },
    { "destination": "$inside", "type": "bind", "source": "$out/payload", "options": ["rbind", "ro", "nosuid", "nodev"] },
    { "destination": "/proc", "type": "proc", "source": "proc" },
    { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"] },
    { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
      "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"] },
    { "destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "nodev", "size=256m"] },
    { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "size=256m"] },
    { "destination": "/task", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "size=256m"] } ],
  "linux": {
    "namespaces": [ { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" },
      { "type": "mount" }, { "type": "cgroup" } ],
    "resources": { "memory": { "limit": 536870912 }, "pids": { "limit": 128 },
      "cpu": { "quota": 100000, "period": 100000 } },
    "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
      "/proc/sched_debug", "/proc/scsi"],
    "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"] } }
JSON
}
bundle "$scratch/bundle" "\"$inside/noop\""
bundle "$scratch/probe" "\"$inside/noop\", \"probe\""

# crun refuses a hybrid host on which v2 has a controller, even one it would not use (say hugetlb). Taking controllers
# off the host's v2 would touch everybody, so crun alone gets a mount namespace in which that list reads empty. It ends
# with this script, because it reads from a pipe that this script holds.
crun_view=()
controllers=/sys/fs/cgroup/unified/cgroup.controllers
if [[ -n $(cat "$controllers" 2>/dev/null) ]]; then
    : >"$scratch/none"
    coproc view {
        exec unshare --mount --propagation private bash -c 'mount --bind "$1" "$2" && echo ready && read -r _' \
            bench "$scratch/none" "$controllers"
    }
    crun_view=("mountns=/proc/$view_PID/ns/mnt")
    read -r answer <&"${view[0]}" && [[ $answer == ready ]] || fail "could not hide $controllers from crun"
fi
label[crun]="crun $(version crun) with cgroup"
lacks[crun]='the payload is PID 1 of its namespace; no limit on output or wall time, nothing is proven about what is left, no look from inside at what was set. It does what an OCI runtime must and taskman need not: it reads a JSON bundle and keeps a state directory'
crun_start=("${crun_view[@]}" "$(command -v crun || true)" --root "$scratch/state" --cgroup-manager cgroupfs run --bundle)
crun_command=("${crun_start[@]}" "$scratch/bundle" "$prefix{n}")
crun_probe=("${crun_start[@]}" "$scratch/probe" "$prefix{n}")

label[runc]="runc $(version runc) with cgroup"
lacks[runc]='as crun; and no filter, because it takes none that is compiled beforehand'
runc_start=("$(command -v runc || true)" --root "$scratch/runc" run --bundle)
runc_command=("${runc_start[@]}" "$scratch/bundle" "${prefix}runc-{n}")
runc_probe=("${runc_start[@]}" "$scratch/probe" "${prefix}runc-{n}")

label[firejail]="firejail $(version firejail)"
lacks[firejail]='the host’s file system with parts hidden in place of a root of its own, no cgroup, no uid of its own, its own default filter, no look at what was set'
firejail_command=("$(command -v firejail || true)" --quiet --noprofile --net=none --ipc-namespace --hostname=bench --private-dev
    --caps.drop=all --nonewprivs --seccomp --rlimit-nofile=1024 --rlimit-fsize=268435456 -- "$out/payload/noop")

# Other sandboxes that one would look for here, and why they are not.
absent() { # NAME REASON
    printf '%s\t%s\n' "$1" "$2" >>"$run/absent.tsv"
    say "$1 does not take part: $2"
}
for name in nsjail minijail isolate systemd-nspawn; do
    if command -v "$name" >/dev/null || [[ -n $(apt-cache madison "$name" 2>/dev/null) ]]; then
        absent "$name" 'it can be had here, but nobody has written its line yet'
    elif [[ $name == systemd-nspawn ]]; then
        absent "$name" 'it is not installed, and its package would change the version of systemd, which a benchmark must not'
    else
        absent "$name" 'this release of the distribution has no package of it'
    fi
done
