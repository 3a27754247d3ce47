"""The user data with which an instance boots. It fetches the agent, checks its hash and becomes it. Pure.

It is the same for every run. The run of an instance is in its tags. The CDK renders it at synth into the launch
template. A local host boots the same text as an instance on AWS.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from importlib import resources

MAX_BYTES = 16_384
"""The most bytes of user data, not encoded. Source: "Run commands when you launch an EC2 instance", EC2 user guide."""
AGENT_HOME = "/opt/spotkeep"

# -IS: as root, Python imports its standard library alone, and no package or setting that the image has for it.
_TEMPLATE = """\
#!/bin/sh
# Spotkeep: fetches the agent, checks that it is the one that was deployed, and starts it.
# When the agent has left, the instance goes: the fleet replaces it if the run goes on.
set -eu
root=${SPOTKEEP_LOCAL_INSTANCE_ROOT:-}
go() {
  code=$?
  echo "spotkeep-boot: this instance goes (exit code $code)"
  shutdown=$(command -v shutdown || :)
  # On a machine that others share, nothing but the instance's own may end it.
  case $shutdown in "${root%/root}"/*) "$shutdown" -h now ;; esac
  exit $code
}
# Whatever ends this script: an instance without an agent would only cost.
trap go EXIT
home=$root@home@
mkdir -p "$home"
cat > "$home/agent.env" <<'END_OF_ENVIRONMENT'
@environment@
END_OF_ENVIRONMENT
cat > "$home/boot.py" <<'END_OF_BOOT'
@boot@
END_OF_BOOT
refuse() { echo "spotkeep: this image has $1"; exit 3; }
python=$(command -v python3) || refuse "no python3"
"$python" -IS -c 'import sys; sys.exit(sys.version_info < (3, 9))' || refuse "$("$python" --version); 3.9 is needed"
if [ -z "$root" ] && [ "$(cat /proc/1/comm 2>/dev/null)" = systemd ]; then
  version=$(systemctl --version | { read -r _ number _; echo "$number"; })
  # Before 236 (Amazon Linux 2) there is no SuccessAction.
  [ "$version" -ge 236 ] || refuse "systemd $version; 236 is needed"
  cat > /etc/systemd/system/spotkeep-agent.service <<END_OF_UNIT
[Unit]
Description=Spotkeep agent
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=1d
StartLimitBurst=10
SuccessAction=poweroff
FailureAction=poweroff
[Service]
EnvironmentFile=$home/agent.env
ExecStart=$python -IS $home/boot.py @uri@ @sha256@ @region@ $home/@sha256@
Restart=on-failure
RestartPreventExitStatus=3
RestartSec=2
KillMode=mixed
TimeoutStopSec=130
OOMPolicy=continue
LimitNOFILE=1048576
LimitMEMLOCK=infinity
END_OF_UNIT
  systemctl daemon-reload
  systemctl start --no-block spotkeep-agent.service
  trap - EXIT
  exit 0
fi
set -a
. "$home/agent.env"
set +a
tries=0
while [ $tries -lt 10 ]; do
  code=0
  "$python" -IS "$home/boot.py" @uri@ @sha256@ @region@ "$home"/@sha256@ || code=$?
  # 0: it has left. 3: it has left, and something is wrong. Anything else is a crash of the agent itself.
  case $code in 0|3) break ;; esac
  tries=$((tries + 1))
  sleep 2
done
exit $code
"""


@dataclass(frozen=True)
class BootInputs:
    """The values in the text that differ between deployments.

    Attributes:
        bundle_uri: The `s3://` address of spotkeep.pyz. May hold tokens of the CDK.
        bundle_sha256: The SHA-256 of its bytes, hexadecimal.
        region: The region of the deployment. May be a token.
        run_table: The name of the run table. May be a token.
        deployment: The deployment's name.
        credentials_function: The name of the function that gives an instance the credentials of its run. May be a
            token.
    """

    bundle_uri: str
    bundle_sha256: str
    region: str
    run_table: str
    deployment: str
    credentials_function: str


def user_data(inputs: BootInputs) -> str:
    """Return the text. EC2 takes it in Base64."""
    environment = {
        "SPOTKEEP_DEPLOYMENT": inputs.deployment,
        "SPOTKEEP_RUN_TABLE": inputs.run_table,
        "SPOTKEEP_CREDENTIALS_FUNCTION": inputs.credentials_function,
        "AWS_REGION": inputs.region,
    }
    boot = resources.files(__package__).joinpath("signed_fetch.py").read_text(encoding="utf-8")
    replacements = {
        "@home@": AGENT_HOME,
        "@environment@": "\n".join(f"{name}={value}" for name, value in environment.items()),
        "@boot@": boot.rstrip("\n"),
        "@uri@": shlex.quote(inputs.bundle_uri),
        "@sha256@": shlex.quote(inputs.bundle_sha256),
        "@region@": shlex.quote(inputs.region),
    }
    text = _TEMPLATE
    for mark, value in replacements.items():
        text = text.replace(mark, value)
    return text
