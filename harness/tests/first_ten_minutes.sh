#!/usr/bin/env bash
# The README's two commands as a newcomer gives them: a clone of HEAD, an empty home, no settings of
# pip, each command twice; at the end nothing that git knows has changed. `make newcomer`.
#
#   first_ten_minutes.sh          installs everything anew: half an hour and more
#   first_ten_minutes.sh --light  this checkout's environment, a small figure, the README's tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone --quiet . "$folder/clone"
mkdir "$folder/home"

# An authority that this machine trusts is no setting of a person's.
alone=(env -i HOME="$folder/home" PATH="$PATH" PIP_CONFIG_FILE=/dev/null)
[[ -z ${SSL_CERT_FILE-} ]] || alone+=(SSL_CERT_FILE="$SSL_CERT_FILE" PIP_CERT="$SSL_CERT_FILE")
make=(make --no-print-directory -C "$folder/clone")
commands=(reproduce-fig7 test)
if [[ ${1-} == --light ]]; then
    ln -s "$(realpath .venv)" "$folder/clone/.venv"
    commands=(reproduce-samullm-fig8 check)
    # Its stamps are older than the files of a new clone, and nothing is to be installed into it.
    make+=(-o .venv/base -o .venv/dev)
    alone+=(PYTEST_ADDOPTS='-k readme')
fi

for turn in first second; do
    for command in "${commands[@]}"; do
        echo "$turn time: make $command"
        "${alone[@]}" "${make[@]}" "$command" </dev/null
        if changed=$(git -C "$folder/clone" status --porcelain) && [[ -n $changed ]]; then
            printf 'make %s changed what git knows:\n%s\n' "$command" "$changed" >&2
            exit 1
        fi
    done
done
echo "make ${commands[*]}: twice, and nothing that git knows has changed"
