"""`client.py SOCKET TOOL ARGUMENTS…`: a command that server.py runs."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    try:
        connection.connect(sys.argv[1])
    except OSError:
        sys.exit("the server of pullback_cli.preloaded has ended; lit shows its error")
    content = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
    sent = socket.send_fds(connection, [content], [0, 1, 2])
    connection.sendall(content[sent:])
    connection.shutdown(socket.SHUT_WR)
    status = connection.recv(1)
sys.exit(status[0] if status else f"{sys.argv[2]} crashed: it ended without an exit status")
