"""A Jupyter server in a login shell with two kernels and a terminal. Needs
jupyter-server and ipykernel (PyPI) and sshd."""

import json
import shutil
import urllib.request
from pathlib import Path

from test_box import GPU, WORKER, LoginShell, TestBox, eventually, find_pids, process_table, require_programs, run

require_programs("jupyter-server", "sshd")
test_box = TestBox()
alice = LoginShell()
# Every kernel uses the GPU from its start.
startup = Path("/home/alice/.ipython/profile_default/startup")
run("runuser", "-u", "alice", "--", "mkdir", "-p", str(startup))
(startup / "gpu.py").write_text(f"import os\nopen(f'{GPU}/{{os.getpid()}}', 'w').close()\n")
alice.type_line(f"{shutil.which('jupyter-server')} --no-browser --port 8888 --IdentityProvider.token=secret")


def ask(path, **body):
    data = json.dumps(body).encode()
    headers = {"Authorization": "token secret"}
    request = urllib.request.Request(f"http://127.0.0.1:8888/api/{path}", data, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except OSError:
        return None


eventually("a kernel", lambda: ask("kernels", name="python3"))
first = test_box.workers(1)[0]
ask("kernels", name="python3")
second = next(pid for pid in test_box.workers(2) if pid != first)
ask("terminals")
# The shell for typed commands is a child of the server, on a terminal.
(shell,) = eventually("a shell", lambda: {
    pid for pid, it in process_table().items() if it["uid"] == 4000 and it["name"] in ("bash", "sh") and it["parent"] in find_pids(process_table(), "jupyter-server")
})  # fmt: skip
test_box.kill("a kernel", first, [first])
# The server starts another kernel in its place.
again = next(pid for pid in test_box.workers(2) if pid not in (first, second))
server = find_pids(process_table(), "jupyter-server")
# The terminal's shell may hold work of its user: only the server ends it.
test_box.kill("the server, by its pid", *server, [*server, second, again], scope="tree")
