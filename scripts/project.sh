# Sourced by every script of this folder: where the project is, and how the scripts speak.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=$(basename "$0")

say() { printf '%s: %s\n' "$program" "$*"; }
die() {
  printf '%s: %s\n' "$program" "$*" >&2
  exit 1
}
usage_error() {
  printf '%s: %s (%s --help)\n' "$program" "$*" "$program" >&2
  exit 2
}
# The comment block at the head of the calling script is its manual.
print_manual() { sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"; }

# Jobs for a build: one a core, but not more than the free memory carries (a unit that includes torch takes up to 1.5 GB).
build_jobs() {
  local cores memory_jobs
  cores=$(nproc)
  memory_jobs=$(awk '/^MemAvailable:/ { print int($2 / 1024 / 1536) }' /proc/meminfo)
  ((memory_jobs >= 1)) || memory_jobs=1
  echo $((cores < memory_jobs ? cores : memory_jobs))
}

trap 'printf "\n%s: interrupted\n" "$program" >&2; exit 130' INT
trap 'printf "\n%s: terminated\n" "$program" >&2; exit 143' TERM
