#!/bin/sh
# The servers that the tests start privately, from Debian's packages, if they are missing and we may.
# If we may not, their tests are skipped; with FAIRTURN_REQUIRE_SERVERS that is a failure.
set -eu
missing=""
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="$missing postgresql"
command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || missing="$missing mariadb-server"
command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
command -v rabbitmq-server >/dev/null || [ -x /usr/sbin/rabbitmq-server ] || missing="$missing rabbitmq-server"
command -v patroni >/dev/null || missing="$missing patroni"
command -v etcd >/dev/null || missing="$missing etcd-server"
command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] || missing="$missing haproxy"
# For a Galera cluster.
[ -e /usr/lib/galera/libgalera_smm.so ] || missing="$missing galera-4"
command -v rsync >/dev/null || missing="$missing rsync"
[ -z "$missing" ] && exit 0

without() {
  echo "Not installed:$missing ($1). Tests that need them are skipped." >&2
  [ -z "${FAIRTURN_REQUIRE_SERVERS:-}" ]
  exit
}

command -v apt-get >/dev/null || without "there is no apt-get; use your package manager"
sudo=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null && sudo -n true 2>/dev/null || without "you are not root, and sudo would ask for a password"
  sudo="sudo"
fi
echo "installing$missing"
# policy-rc.d keeps the packages from starting system-wide servers.
policy=/usr/sbin/policy-rc.d
made=""
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
  $sudo chmod +x "$policy"
  made=yes
fi
said=$(mktemp)
trap '[ -z "$made" ] || $sudo rm -f "$policy"; rm -f "$said"' EXIT
# Silent unless it fails. (No server and no epmd is started: see above.)
# shellcheck disable=SC2086
if ! { $sudo apt-get update -qq &&
       $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
     } >"$said" 2>&1; then
  cat "$said" >&2
  without "apt-get failed"
fi
