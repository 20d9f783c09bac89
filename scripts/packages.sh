# Debian's packages, for the scripts beside this one that need some: sourced, not run.

apt() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@"; }

# Installs what is missing of `package:what it brings`, a program or a path.
bring() {
  local missing=() tool
  for tool in "$@"; do
    if [[ ${tool#*:} == /* ]]; then [[ -e ${tool#*:} ]]; else command -v "${tool#*:}" >/dev/null; fi || missing+=("${tool%%:*}")
  done
  ((${#missing[@]})) || return 0
  echo "installing ${missing[*]}"
  # Once more after a while: mirrors hiccup.
  apt update && apt install --no-install-recommends -y "${missing[@]}" ||
    { sleep 10 && apt update && apt install --no-install-recommends -y "${missing[@]}"; }
}

# Downloads the file of the package $2 into the directory $1.
download() {
  # apt downloads as a user of its own, where there is one.
  if id _apt >/dev/null 2>&1; then chown _apt "$1"; fi
  (cd "$1" && { apt download "$2" || { apt update && apt download "$2"; }; })
}

# What the tests use, on this host and on those that are made of its programs. They fail where a tool is missing, they do not skip.
tests_tools=(
  gcc:gcc g++:g++ python3:/usr/bin/python3 python3-pip:/usr/share/doc/python3-pip
  python3-venv:/usr/share/doc/python3-venv perl:perl git:git openssl:openssl nodejs:node default-jdk-headless:javac procps:ps
  iproute2:ip libcap2-bin:setcap util-linux:setpriv util-linux:prlimit util-linux:fallocate mount:mount findutils:find
  curl:curl musl-tools:musl-gcc bsdutils:script crun:crun runc:runc hostname:hostname man-db:man libc6-dev:/usr/include/stdio.h
  iputils-ping:ping strace:strace ca-certificates:/etc/ssl/certs/ca-certificates.crt
)
