"""A Jupyter server in a login shell with two kernels and a terminal. Needs
jupyter-server and ipykernel (PyPI) and sshd."""

import json
import shutil
import urllib.request
from pathlib import Path

from stage import GPU, WORKER, Login, Stage, called, crowd, eventually, needs, run

needs("jupyter-server", "sshd")
stage = Stage()
alice = Login()
# Every kernel uses the GPU from its beginning.
startup = Path("/home/alice/.ipython/profile_default/startup")
run("runuser", "-u", "alice", "--", "mkdir", "-p", str(startup))
(startup / "gpu.py").write_text(f"import os\nopen(f'{GPU}/{{os.getpid()}}', 'w').close()\n")
alice.says(f"{shutil.which('jupyter-server')} --no-browser --port 8888 --IdentityProvider.token=secret")


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
first = stage.workers(1)[0]
ask("kernels", name="python3")
second = next(pid for pid in stage.workers(2) if pid != first)
ask("terminals")
# What a person types there: the shell is the server's child, on a terminal.
(shell,) = eventually("a shell", lambda: {
    pid for pid, it in crowd().items() if it["uid"] == 4000 and it["name"] in ("bash", "sh") and it["parent"] in called(crowd(), "jupyter-server")
})  # fmt: skip
stage.kill("a kernel", first, [first])
# The server starts another one in its place.
again = next(pid for pid in stage.workers(2) if pid not in (first, second))
server = called(crowd(), "jupyter-server")
# The terminal's shell keeps people's work: the server ends it, or nobody.
stage.kill("the server, by its pid", *server, [*server, second, again], scope="tree")
