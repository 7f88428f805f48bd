# SPDX-License-Identifier: MIT

"""A Flask program behind the gateway, on Werkzeug's server: flask_server.py PORT"""

import logging
import sys

from flask import Flask, Response, request
from werkzeug.serving import WSGIRequestHandler, run_simple

app = Flask(__name__)


def say(route):
    return lambda **_: Response(f"served: {route}\n", mimetype="text/plain")


for base in ("", "/base"):
    for route in ("/admin", "/admin/x", "/a/b/secret", "/api/<id>/secret"):
        app.add_url_rule(base + route, base + route, say(base + route.replace("<id>", "7")))
    app.add_url_rule(base + "/login", base + "/login", say(base + "/login"), methods=["POST"])
    app.add_url_rule(base + "/admin/<path:rest>", base + "/admin/", say(base + "/admin"))


@app.route("/<path:rest>")
def other(rest):
    return say("/base/" if request.path.startswith("/base/") else "/other")()


class MethodOverride:
    """The middleware of Flask's documentation."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        for field in ("HTTP_X_HTTP_METHOD_OVERRIDE", "HTTP_X_HTTP_METHOD", "HTTP_X_METHOD_OVERRIDE"):
            method = environ.get(field, "").upper()
            if method in ("GET", "POST", "PUT", "DELETE"):
                environ["REQUEST_METHOD"] = method
        return self.app(environ, start_response)


logging.getLogger("werkzeug").setLevel(logging.ERROR)
WSGIRequestHandler.protocol_version = "HTTP/1.1"
run_simple("127.0.0.1", int(sys.argv[1]), MethodOverride(app), threaded=True)
