"""A stand-in for a collector of OpenTelemetry: it takes traces over HTTP, and remembers them."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Takes traces as a collector does: answers ``status`` while ``may_answer`` is set."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: list[str] = []
        self.requests: list[ExportTraceServiceRequest] = []
        self.came = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            """Takes what is posted."""

            def do_POST(self) -> None:
                """One trace."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers.append(self.headers.get("authorization", ""))
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
                collector.came.release()
                collector.may_answer.wait(30)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """It is gone."""
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()

    def traces(self) -> list[list[Span]]:
        """The spans of each request, the whole first."""
        found = []
        for request in list(self.requests):
            ((scope,),) = (resource.scope_spans for resource in request.resource_spans)
            found.append(sorted(scope.spans, key=lambda span: bool(span.parent_span_id)))
        return found
