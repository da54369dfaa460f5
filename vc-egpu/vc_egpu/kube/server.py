"""The plain HTTP server behind the metrics ports of our processes."""

import socketserver
from http.server import ThreadingHTTPServer


class NumberedServer(ThreadingHTTPServer):
    """Knows itself by number only. A thread for each request, none of which keeps the process alive."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Without asking for this machine's name: where nobody answers, that alone takes 10 s at each start,
        and an agent that is not there yet lets nothing start on its node."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
