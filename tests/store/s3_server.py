# SPDX-License-Identifier: Apache-2.0
"""An S3 server for tests: moto, with the signature of every request verified.

Usage: s3_server.py PORT BUCKET ACCESS_KEY SECRET_KEY [OBJECTS]    OBJECTS: so many under many/
"""
import logging
import os
import sys

os.environ["S3_UPLOAD_PART_MIN_SIZE"] = "1024"
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "0"

from moto.core import DEFAULT_ACCOUNT_ID  # noqa: E402  settings are read on import
from moto.iam.models import iam_backends  # noqa: E402
from moto.s3.models import s3_backends  # noqa: E402
from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: E402
from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: E402

POLICY = """{"Version": "2012-10-17",
 "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}"""


class Handler(WSGIRequestHandler):
    """Keeps connections open, as S3 does."""
    protocol_version = "HTTP/1.1"


def main():
    port, bucket, access_key, secret_key = sys.argv[1:5]
    objects = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    iam = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    iam.create_user("us-east-1", "tester")
    key = iam.create_access_key("tester")
    key.access_key_id, key.secret_access_key = access_key, secret_key
    iam.put_user_policy("tester", "all", POLICY)
    s3 = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    s3.create_bucket(bucket, "us-east-1")
    for i in range(objects):
        s3.put_object(bucket, f"many/{i:04}", b"x")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = DomainDispatcherApplication(create_backend_app)
    make_server("127.0.0.1", int(port), app, threaded=True, request_handler=Handler).serve_forever()


if __name__ == "__main__":
    main()
