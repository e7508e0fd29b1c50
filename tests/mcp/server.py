"""A server of two tools: over standard streams, or with --http FILE over HTTP on a port that is written to the file."""

import socket
import sys

from mcp.server.mcpserver import MCPServer

port = 0
if "--http" in sys.argv:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("as a test")


if port:
    with open(sys.argv[sys.argv.index("--http") + 1], "w") as file:
        file.write(str(port))
    server.run(transport="streamable-http", port=port)
else:
    server.run()
