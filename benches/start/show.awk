# Turns the timer's lines (name, p50, p95, minimum, mean in ns, peak in KiB) into tables, or one JSON object.
#
# A verdict is printed, never returned: a ratio on a noisy machine must not turn a build red.

function ms(ns) { return sprintf("%.2f", ns / 1000000) }
function quoted(text) { gsub(/["\\]/, "\\\\&", text); return "\"" text "\"" }
function verdict(met) { return judged != "true" ? "not judged: a stand-in" : met ? "met" : "not met" }
function json_verdict(met) { return judged != "true" ? "null" : met ? "true" : "false" }

BEGIN {
    label["plain"] = "plain vfork+exec"
    label["taskman"] = judged != "true" ? "STAND-IN for taskman" : "taskman run"
    label["bubblewrap"] = "bubblewrap " bwrap_version
    label["crun"] = "crun " crun_version " with cgroup"
    wanted["bubblewrap"] = 0.6
    wanted["crun"] = 0.2
    wanted_peak_kib = 10 * 1024
}

{ order[NR] = $1; p50[$1] = $2; p95[$1] = $3; least[$1] = $4; mean[$1] = $5; peak[$1] = $6 }

END {
    for (name in wanted) {
        ratio[name] = p50["taskman"] / p50[name]
        met[name] = ratio[name] <= wanted[name]
    }
    small = peak["taskman"] < wanted_peak_kib
    if (json == "true") show_json(); else show_tables()
}

function show_tables(    i, name) {
    printf "start to exit of a static no-op, %d interleaved rounds, %d ms before each start; kernel %s, %d cpus, load %s\n\n", \
        rounds, pause, kernel, cpus, load
    printf "%-26s %9s %9s %9s %18s %12s\n", \
        "contestant", "p50 ms", "p95 ms", "to plain", "taskman's ratio to", "peak KiB"
    for (i = 1; i <= NR; i++) {
        name = order[i]
        printf "%-26s %9s %9s %9.1f %18.2f %12d\n", label[name], ms(p50[name]), ms(p95[name]), \
            p50[name] / p50["plain"], p50["taskman"] / p50[name], peak[name]
    }
    printf "\nwanted: at most 0.6 of bubblewrap, at most 0.2 of crun with cgroup\n"
    printf "  of bubblewrap        %5.2f  %s\n", ratio["bubblewrap"], verdict(met["bubblewrap"])
    printf "  of crun with cgroup  %5.2f  %s\n", ratio["crun"], verdict(met["crun"])
    printf "wanted: peak memory of the taskman process under 10 MiB\n"
    printf "  peak                 %5.1f MiB  %s\n", peak["taskman"] / 1024, verdict(small)
}

function show_json(    i, name) {
    printf "{\"rounds\":%d,\"pause_ms\":%d,\"kernel\":%s,\"cpus\":%d,\"load\":%s,\"taskman\":%s,\"stand_in\":%s,\"peer_filter_instructions\":%d,\"contestants\":[", \
        rounds, pause, quoted(kernel), cpus, load, quoted(program), (judged == "true" ? "false" : "true"), instructions
    for (i = 1; i <= NR; i++) {
        name = order[i]
        printf "%s{\"name\":%s,\"label\":%s,\"p50_ns\":%.0f,\"p95_ns\":%.0f,\"min_ns\":%.0f,\"mean_ns\":%.0f,", \
            (i > 1 ? "," : ""), quoted(name), quoted(label[name]), p50[name], p95[name], least[name], mean[name]
        printf "\"to_plain\":%.3f,\"taskman_to_this\":%.3f,\"peak_kib\":%d}", \
            p50[name] / p50["plain"], p50["taskman"] / p50[name], peak[name]
    }
    printf "],\"wanted\":["
    printf "{\"name\":\"ratio to bubblewrap\",\"at_most\":0.6,\"value\":%.3f,\"met\":%s},", \
        ratio["bubblewrap"], json_verdict(met["bubblewrap"])
    printf "{\"name\":\"ratio to crun with cgroup\",\"at_most\":0.2,\"value\":%.3f,\"met\":%s},", \
        ratio["crun"], json_verdict(met["crun"])
    printf "{\"name\":\"peak memory of taskman in KiB\",\"below\":%d,\"value\":%d,\"met\":%s}]}\n", \
        wanted_peak_kib, peak["taskman"], json_verdict(small)
}
